//! Conversion from unlimited needs to those of a type.

use core::fmt;
use core::marker::PhantomData;

use super::Boxed;
use crate::engine::{self, Exactly, Optimizer, Part, Transform};
use crate::error::{Error, Result};
use crate::needs::{Needs, ValueAndGradFn};
use crate::recipe::Recipe;

/// Checks that a transformation with unlimited needs requires at most `N`, and makes `N` part of its type.
///
/// # Errors
///
/// If it needs more.
///
/// ```
/// use gradchain::needs::{Nothing, ValueAndGradFn};
/// use gradchain::prelude::*;
/// use gradchain::wrapper::narrow;
///
/// let members: Vec<Boxed<ValueAndGradFn>> = vec![Box::new(clip(1.0)), Box::new(adam(0.1))];
/// let optimizer: Boxed = narrow::<Nothing>(Box::new(chain(members)))?;
///
/// let searching: Boxed<ValueAndGradFn> = Box::new(lbfgs());
/// let error = narrow::<Nothing>(searching).unwrap_err();
/// assert!(error.to_string().contains("needs the loss and its gradient as a function"));
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn narrow<N: Needs>(transformation: Boxed<ValueAndGradFn>) -> Result<Boxed<N>> {
    let (most, found) = (N::LEVEL, transformation.needs());
    if found > most {
        let advice = format!("build it with `build_with::<needs::{found:?}>()` or `narrow::<needs::{found:?}>(..)`");
        let problem = format!("it needs {found}, but a step passes {most}; {advice}");
        return Err(Error::state(transformation.describe(), problem));
    }
    Ok(Box::new(Narrow { inner: transformation, needs: PhantomData::<fn() -> N> }))
}

struct Narrow<N> {
    inner: Boxed<ValueAndGradFn>,
    needs: PhantomData<fn() -> N>,
}

impl<N> Clone for Narrow<N> {
    fn clone(&self) -> Self {
        Narrow { inner: self.inner.clone(), needs: PhantomData }
    }
}

impl<N> fmt::Debug for Narrow<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<N: Needs> Part for Narrow<N> {
    const NAME: &'static str = "narrow";
    type Form = engine::Named<Exactly<N>>;

    fn recipe(&self) -> Recipe {
        self.inner.recipe()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

impl<N: Needs> Optimizer for Narrow<N> {
    const HIDDEN: bool = true;
    type Chain = Boxed<ValueAndGradFn>;
    fn chain(&self) -> &Boxed<ValueAndGradFn> {
        &self.inner
    }
}
