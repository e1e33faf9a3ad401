//! Boxes with named arguments.

use super::{DynTransformation, copied};
use crate::arguments::{Arguments, Visit};
use crate::engine::Stage;
use crate::needs::{Includes, Needs, Nothing};

/// A type-erased transformation with named arguments.
///
/// [`inject_hyperparams`] takes it for transformations selected at run time. It is a
/// [`Boxed`] too: a `Named<N>` converts to a `Boxed<N>`.
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::wrapper::Named;
///
/// let nesterov = true;
/// let chosen: Named = if nesterov { Box::new(adam(0.1).nesterov(true)) } else { Box::new(sgd(0.1)) };
/// let optimizer = inject_hyperparams(chosen);
/// let mut state = optimizer.init(&0.0_f32)?;
/// state.hyperparams_mut().set("learning_rate", 0.2)?;
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// [`inject_hyperparams`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.inject_hyperparams.html
/// [`Boxed`]: https://docs.rs/gradchain/latest/gradchain/wrapper/type.Boxed.html
pub type Named<N = Nothing> = Box<dyn DynNamed<N>>;

/// The trait of [`Named`] transformations, implemented for all [`Arguments`] that can be cloned.
pub trait DynNamed<N = Nothing>: DynTransformation<N> + ErasedNamed<N> {}

impl<N: Needs + Includes<T::Needs>, T: Arguments + Stage + Clone + 'static> DynNamed<N> for T {}

/// The methods of a named box. Users cannot name this trait.
#[allow(missing_docs, reason = "each method is the method of `Arguments` of the same name")]
pub trait ErasedNamed<N> {
    fn dyn_clone_named(&self) -> Named<N>;
    fn dyn_name(&self) -> &'static str;
    fn dyn_arguments(&mut self, visit: &mut Visit<'_>);
}

impl<N: Needs + Includes<T::Needs>, T: Arguments + Stage + Clone + 'static> ErasedNamed<N> for T {
    fn dyn_clone_named(&self) -> Named<N> {
        copied::<T>(self)
    }
    fn dyn_name(&self) -> &'static str {
        self.name()
    }
    fn dyn_arguments(&mut self, visit: &mut Visit<'_>) {
        self.arguments(visit);
    }
}

impl<N: Needs> Clone for Named<N> {
    fn clone(&self) -> Named<N> {
        (**self).dyn_clone_named()
    }
}

impl<N: Needs> Arguments for Named<N> {
    /// A placeholder: [`name`](Arguments::name) is known at run time only.
    const NAME: &'static str = "named";

    fn name(&self) -> &'static str {
        (**self).dyn_name()
    }

    fn arguments(&mut self, visit: &mut Visit<'_>) {
        (**self).dyn_arguments(visit);
    }
}
