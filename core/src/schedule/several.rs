//! Lists of schedules of different types.

use core::fmt;

use super::Schedule;

/// Several schedules: a tuple of schedules and numbers, or a list.
///
/// ```
/// use gradchain::schedule::{cosine_decay, linear, product, sum};
///
/// sum((linear(0.0, 1.0, 10), cosine_decay(1.0, 10), 0.5));
/// product(vec![linear(0.0, 1.0, 10).into(), linear(1.0, 0.0, 10).into()]);
/// ```
pub trait Several {
    /// Converts to a list.
    fn into_schedules(self) -> Vec<Schedule>;
}

impl Several for Vec<Schedule> {
    fn into_schedules(self) -> Vec<Schedule> {
        self
    }
}

impl<const N: usize> Several for [Schedule; N] {
    fn into_schedules(self) -> Vec<Schedule> {
        self.into()
    }
}

macro_rules! tuples {
    ($($T:ident $i:tt),*) => {
        impl<$($T: Into<Schedule>),*> Several for ($($T,)*) {
            fn into_schedules(self) -> Vec<Schedule> {
                vec![$(self.$i.into()),*]
            }
        }
    };
}
crate::tuples::up_to_twelve!(tuples);

/// Writes `[a.into(), b.into()]`.
pub(super) fn list(f: &mut fmt::Formatter<'_>, schedules: &[Schedule]) -> fmt::Result {
    f.write_str("[")?;
    for (i, schedule) in schedules.iter().enumerate() {
        write!(f, "{}{schedule}.into()", if i == 0 { "" } else { ", " })?;
    }
    f.write_str("]")
}
