//! Labelled transformations.

use crate::engine::Stages;
use crate::needs::Needs;
use crate::part::prelude::*;
use crate::wrappers::Boxed;

/// The argument of [`partition`](super::partition()): pairs of labels and transformations.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a group of labelled transformations",
    label = "not a group of labelled transformations",
    note = "a group is a tuple of pairs, `((\"a\", adam(0.1)), (\"b\", sgd(0.1)))`, or a `Vec` of pairs of a label and a \
            box: `vec![(String::from(\"a\"), boxed(adam(0.1)))]`"
)]
pub trait IntoGroup {
    /// The transformations without their labels.
    type Group: Stages;
    /// Returns the labels and the transformations.
    fn into_group(self) -> (Vec<String>, Self::Group);
}

macro_rules! groups {
    () => {};
    ($($T:ident $i:tt),+) => {
        impl<$($T: Stage),+> IntoGroup for ($((&str, $T),)+) {
            type Group = ($($T,)+);
            /// Returns the labels and the transformations.
            fn into_group(self) -> (Vec<String>, Self::Group) {
                (vec![$(self.$i.0.into()),+], ($(self.$i.1,)+))
            }
        }
    };
}
crate::tuples::up_to_twelve!(groups);

impl<L: Into<String>, N: Needs> IntoGroup for Vec<(L, Boxed<N>)> {
    type Group = Vec<Boxed<N>>;
    /// Returns the labels and the transformations.
    fn into_group(self) -> (Vec<String>, Vec<Boxed<N>>) {
        self.into_iter().map(|(label, member)| (label.into(), member)).unzip()
    }
}
