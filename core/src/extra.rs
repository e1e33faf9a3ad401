//! Inputs of a step besides gradients: [`value`], [`value_fn`], [`value_and_grad_fn`], or `()` for none.
//!
//! Guide: [Extra arguments](https://docs.rs/gradchain/latest/gradchain/_guide/extra/index.html).
//!
//! The compiler checks that they suffice; see [`needs`]. More than needed is allowed.

use core::fmt;
use core::marker::PhantomData;

use inputs::Inputs;

use crate::engine::{Evaluate, GradientSink, Trial, deliver};
use crate::needs::{self, Provides};
use crate::tree::{Tree, TreeMut};

/// Inputs of [`step_with`](crate::GradientTransformation::step_with), for parameters of type `P`.
pub trait Extra<P: ?Sized>: Inputs<P> {}

impl<P: ?Sized, E: Inputs<P>> Extra<P> for E {}

/// Sealed: no path outside of this crate.
mod inputs {
    use crate::engine::Evaluate;

    /// The inputs as the engine uses them.
    pub trait Inputs<P: ?Sized> {
        fn loss(&self) -> Option<f64>;

        #[allow(private_interfaces, reason = "called by the engine only")]
        fn objective<'a>(&'a mut self, params: &P) -> Option<Box<dyn Evaluate + 'a>>;
    }
}

/// No inputs besides gradients.
impl<P: ?Sized> Inputs<P> for () {
    fn loss(&self) -> Option<f64> {
        None
    }

    #[allow(private_interfaces, reason = "called by the engine only")]
    fn objective<'a>(&'a mut self, _: &P) -> Option<Box<dyn Evaluate + 'a>> {
        None
    }
}

impl Provides<needs::Nothing> for () {}

/// Passes the value of the loss to a step, at the parameters at which the gradients were computed.
///
/// ```
/// use gradchain::extra;
/// use gradchain::prelude::*;
/// use gradchain::optimizer::polyak_sgd;
///
/// let optimizer = polyak_sgd();
/// let mut params = 2.0_f64;
/// let mut state = optimizer.init(&params)?;
/// // For p²/2 the value is 2 and the gradient 2: the step is 2 / 2² times the gradient.
/// optimizer.step_with(&mut params, &2.0, extra::value(2.0), &mut state)?;
/// assert_eq!(params, 1.0);
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn value(loss: impl Into<f64>) -> Value {
    Value { loss: loss.into() }
}

/// See [`value`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    loss: f64,
}

impl<P: ?Sized> Inputs<P> for Value {
    fn loss(&self) -> Option<f64> {
        Some(self.loss)
    }

    #[allow(private_interfaces, reason = "called by the engine only")]
    fn objective<'a>(&'a mut self, _: &P) -> Option<Box<dyn Evaluate + 'a>> {
        None
    }
}

impl Provides<needs::Nothing> for Value {}
impl Provides<needs::Value> for Value {}

/// Passes the value of the loss at the parameters to a step, and a function for its value at other points.
///
/// The function is called with a copy of the parameters, made once a step, with other values.
///
/// ```
/// use gradchain::extra;
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_backtracking_linesearch;
///
/// let loss = |p: &f64| p * p / 2.0;
/// let optimizer = chain((sgd(1.0), scale_by_backtracking_linesearch(20)));
/// let mut params = 2.0_f64;
/// let mut state = optimizer.init(&params)?;
/// let (value, gradient) = (loss(&params), params);
/// optimizer.step_with(&mut params, &gradient, extra::value_fn(value, loss), &mut state)?;
/// assert!(loss(&params) < loss(&2.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn value_fn<P: ?Sized, F: FnMut(&P) -> V, V: Into<f64>>(loss: impl Into<f64>, f: F) -> ValueFn<P, F> {
    ValueFn { loss: loss.into(), f, params: PhantomData }
}

/// See [`value_fn`].
pub struct ValueFn<P: ?Sized, F> {
    loss: f64,
    f: F,
    params: PhantomData<fn(&P)>,
}

impl<P: ?Sized, F> fmt::Debug for ValueFn<P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueFn").field("loss", &self.loss).finish_non_exhaustive()
    }
}

impl<P: TreeMut + Clone, F: FnMut(&P) -> V, V: Into<f64>> Inputs<P> for ValueFn<P, F> {
    fn loss(&self) -> Option<f64> {
        Some(self.loss)
    }

    #[allow(private_interfaces, reason = "called by the engine only")]
    fn objective<'a>(&'a mut self, params: &P) -> Option<Box<dyn Evaluate + 'a>> {
        let f = &mut self.f;
        Some(Box::new(Trial::new(Some(params.clone()), move |p: &P, _| Ok(f(p).into()))))
    }
}

impl<P: ?Sized, F> Provides<needs::Nothing> for ValueFn<P, F> {}
impl<P: ?Sized, F> Provides<needs::Value> for ValueFn<P, F> {}
impl<P: ?Sized, F> Provides<needs::ValueFn> for ValueFn<P, F> {}

/// Passes the value of the loss at the parameters to a step, and a function for value and gradient at other points.
///
/// ```
/// use gradchain::extra;
/// use gradchain::prelude::*;
///
/// let loss = |p: &f64| (p * p / 2.0, *p);
/// let optimizer = lbfgs();
/// let mut params = 2.0_f64;
/// let mut state = optimizer.init(&params)?;
/// let (value, gradient) = loss(&params);
/// optimizer.step_with(&mut params, &gradient, extra::value_and_grad_fn(value, loss), &mut state)?;
/// assert_eq!(params, 1.0); // the first step has norm 1 and satisfies the Wolfe conditions
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn value_and_grad_fn<P: ?Sized, F, V, G>(loss: impl Into<f64>, f: F) -> ValueAndGradFn<P, F>
where
    F: FnMut(&P) -> (V, G),
    V: Into<f64>,
    G: Tree,
{
    ValueAndGradFn { loss: loss.into(), f, params: PhantomData }
}

/// See [`value_and_grad_fn`].
pub struct ValueAndGradFn<P: ?Sized, F> {
    loss: f64,
    f: F,
    params: PhantomData<fn(&P)>,
}

impl<P: ?Sized, F> fmt::Debug for ValueAndGradFn<P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueAndGradFn").field("loss", &self.loss).finish_non_exhaustive()
    }
}

impl<P, F, V, G> Inputs<P> for ValueAndGradFn<P, F>
where
    P: TreeMut + Clone,
    F: FnMut(&P) -> (V, G),
    V: Into<f64>,
    G: Tree,
{
    fn loss(&self) -> Option<f64> {
        Some(self.loss)
    }

    #[allow(private_interfaces, reason = "called by the engine only")]
    fn objective<'a>(&'a mut self, params: &P) -> Option<Box<dyn Evaluate + 'a>> {
        let f = &mut self.f;
        Some(Box::new(Trial::new(Some(params.clone()), move |p: &P, to: Option<GradientSink<'_>>| deliver(f(p), to))))
    }
}

impl<P: ?Sized, F> Provides<needs::Nothing> for ValueAndGradFn<P, F> {}
impl<P: ?Sized, F> Provides<needs::Value> for ValueAndGradFn<P, F> {}
impl<P: ?Sized, F> Provides<needs::ValueFn> for ValueAndGradFn<P, F> {}
impl<P: ?Sized, F> Provides<needs::ValueAndGradFn> for ValueAndGradFn<P, F> {}
