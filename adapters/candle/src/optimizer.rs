//! An optimizer of gradchain as candle's optimizer trait.

use candle_core::Var;
use candle_core::backprop::GradStore;
use gradchain::needs::Nothing;
use gradchain::wrapper::injected_hyperparams;
use gradchain::{Error, GradientTransformation, OptState, Result};

use crate::{Vars, init, step};

/// A transformation, its state and its variables, as [`candle_nn::Optimizer`], for loops written for that trait.
///
/// Its `Config` is the transformation. [`of`](Self::of) takes variables with their paths. The trait's `new` gets no
/// paths and numbers the variables instead: masks by path then match nothing. Since
/// [`VarMap::all_vars`](candle_nn::VarMap::all_vars) has another order in each process, such a state must not be saved
/// in a checkpoint.
///
/// The learning rate of the trait is the argument `learning_rate` of the transformation, anywhere in a chain. It can be
/// read from every optimizer that has one. It can be set if it is a number and
/// [injected](gradchain::inject_hyperparams). The trait's setter returns no error, so every `step` after a failed one
/// returns it, until a rate has been set.
///
/// ```
/// use candle_core::{Device, Var};
/// use candle_nn::Optimizer;
/// use gradchain::prelude::*;
/// use gradchain_candle::VarOptimizer;
///
/// let w = Var::new(&[3.0_f64, -1.0], &Device::Cpu)?;
/// let mut optimizer = VarOptimizer::new(vec![w.clone()], chain((clip(1.0), inject_hyperparams(sgd(0.5)))))?;
/// optimizer.backward_step(&w.sqr()?.sum_all()?)?;
/// assert_eq!(w.to_vec1::<f64>()?, [2.5, -0.5]);
///
/// optimizer.set_learning_rate(0.25);
/// optimizer.backward_step(&w.sqr()?.sum_all()?)?;
/// assert_eq!((w.to_vec1::<f64>()?, optimizer.learning_rate()), (vec![2.25, -0.25], 0.25));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct VarOptimizer<T: GradientTransformation> {
    transformation: T,
    vars: Vars,
    state: OptState<T>,
    /// The error of the last attempt to set the rate.
    unset: Option<Error>,
}

impl<T: GradientTransformation> VarOptimizer<T> {
    /// Returns an optimizer with the state before the first step.
    ///
    /// # Errors
    ///
    /// As [`init`].
    pub fn of(vars: Vars, transformation: T) -> Result<VarOptimizer<T>> {
        let state = init(&transformation, &vars)?;
        Ok(VarOptimizer { transformation, vars, state, unset: None })
    }

    /// Returns the transformation.
    pub fn transformation(&self) -> &T {
        &self.transformation
    }

    /// Returns the variables.
    pub fn vars(&self) -> &Vars {
        &self.vars
    }

    /// Returns the state, to inspect or save it.
    pub fn state(&self) -> &OptState<T> {
        &self.state
    }

    /// Returns the state, to change it or to replace it by one from a checkpoint.
    pub fn state_mut(&mut self) -> &mut OptState<T> {
        &mut self.state
    }
}

impl<T: GradientTransformation<Needs = Nothing>> candle_nn::Optimizer for VarOptimizer<T> {
    type Config = T;

    fn new(vars: Vec<Var>, transformation: T) -> candle_core::Result<Self> {
        let numbered = vars.into_iter().enumerate().map(|(i, var)| (i.to_string(), var));
        Vars::named(numbered).and_then(|vars| Self::of(vars, transformation)).map_err(candle_core::Error::wrap)
    }

    fn step(&mut self, grads: &GradStore) -> candle_core::Result<()> {
        let unset = self.unset.clone().map_or(Ok(()), Err);
        let stepped = unset.and_then(|()| step(&self.transformation, &self.vars, grads, &mut self.state));
        stepped.map(drop).map_err(candle_core::Error::wrap)
    }

    /// Returns the learning rate, or NaN unless one argument has this name.
    fn learning_rate(&self) -> f64 {
        let readings = self.transformation.readings(&self.state);
        readings.and_then(|readings| readings.get("learning_rate")).unwrap_or(f64::NAN)
    }

    fn set_learning_rate(&mut self, learning_rate: f64) {
        let injected = injected_hyperparams(&mut *self.state).into_iter();
        let mut rates: Vec<_> = injected.filter(|(_, all)| all.get("learning_rate").is_some()).collect();
        self.unset = match rates.as_mut_slice() {
            _ if !learning_rate.is_finite() => {
                Some(Error::argument("set_learning_rate", "learning_rate", "a finite number", learning_rate))
            }
            [(_, hyperparams)] => hyperparams.set("learning_rate", learning_rate).err(),
            rates => {
                let found = format!("{} of them", rates.len());
                let expected = "of one `inject_hyperparams`, so that it can be set";
                Some(Error::argument("set_learning_rate", "learning_rate", expected, found))
            }
        };
    }
}
