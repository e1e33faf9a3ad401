//! Evaluation with averaged parameters, in the model's own variables.

use candle_core::{Device, Tensor, Var};
use gradchain::{GradientTransformation, OptState, Result};

use crate::{Vars, from_candle};

impl Vars {
    /// Copies the evaluation parameters into new variables on the CPU.
    ///
    /// Wrappers such as [`params_ema`](gradchain::params_ema()) and
    /// [`schedule_free`](gradchain::wrapper::schedule_free()) train other parameters than they evaluate. Save the
    /// copies, or use them in a second model: see [`OptState::eval_params`]. [`evaluating`](Self::evaluating) puts them
    /// into the model that is trained.
    ///
    /// ```
    /// use candle_core::{Device, Var};
    /// use gradchain::prelude::*;
    /// use gradchain::wrapper::schedule_free;
    /// use gradchain_candle::{Vars, init, step};
    ///
    /// let w = Var::new(0.0_f64, &Device::Cpu)?;
    /// let vars = Vars::named([("w", w.clone())])?;
    /// let optimizer = schedule_free(sgd(1.0), 1.0).b1(0.5);
    /// let mut state = init(&optimizer, &vars)?;
    /// for _ in 0..2 {
    ///     step(&optimizer, &vars, &w.as_tensor().backward()?, &mut state)?;
    /// }
    /// assert_eq!(w.to_scalar::<f64>()?, -1.75);
    /// for (path, averaged) in vars.eval_params(&state)?.iter() {
    ///     assert_eq!((path, averaged.to_scalar::<f64>()?), ("w", -1.5));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`OptState::eval_params`]; and if candle cannot copy a variable.
    pub fn eval_params<T: GradientTransformation>(&self, state: &OptState<T>) -> Result<Vars> {
        let copy = |(path, var): (&str, &Var)| {
            let copy = var.to_device(&Device::Cpu).and_then(|x| x.copy()).and_then(|x| Var::from_tensor(&x.detach()));
            copy.map(|copy| (path.to_owned(), copy)).map_err(from_candle)
        };
        let copies = Vars::named(self.iter().map(copy).collect::<Result<Vec<_>>>()?)?;
        copies.write(|params| state.eval_params_into(params))??;
        Ok(copies)
    }

    /// Calls `f` while the variables hold the evaluation parameters, then restores the trained values.
    ///
    /// It restores them also after an error or a panic. The model is evaluated as it is, on any device. It combines
    /// PyTorch's `optimizer.eval()` and `optimizer.train()` of schedule-free optimizers, or EMA's `apply_shadow` and
    /// `restore`, in one call, so that neither can be forgotten. No lock is held during `f`. Buffers, such as running
    /// statistics, are neither averaged nor restored.
    ///
    /// Values that `f` writes to trained variables are lost. With a [`DeviceState`](crate::DeviceState) pass
    /// `&state.to_state()?`.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor};
    /// use candle_nn::{Module, VarBuilder, VarMap};
    /// use gradchain::prelude::*;
    /// use gradchain_candle::{Vars, init, step};
    ///
    /// let map = VarMap::new();
    /// let model = candle_nn::linear(2, 1, VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu))?;
    /// let vars = Vars::of(&map)?;
    /// let optimizer = params_ema(adamw(0.1), 0.9);
    /// let mut state = init(&optimizer, &vars)?;
    /// let x = Tensor::ones((4, 2), DType::F32, &Device::Cpu)?;
    /// let loss = || (model.forward(&x)? - 1.0)?.sqr()?.mean_all();
    /// for _ in 0..10 {
    ///     step(&optimizer, &vars, &loss()?.backward()?, &mut state)?;
    /// }
    /// let trained = loss()?.to_scalar::<f32>()?;
    /// let averaged = vars.evaluating(&state, || loss()?.to_scalar::<f32>())??;
    /// assert_ne!(averaged, trained);
    /// assert_eq!(loss()?.to_scalar::<f32>()?, trained, "training goes on from here");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`eval_params`](Self::eval_params), without a call of `f`; if candle cannot write a variable. The return
    /// value of `f` is passed on unread.
    ///
    /// # Cost
    ///
    /// Two copies of the parameters beside the model while `f` runs.
    pub fn evaluating<T: GradientTransformation, R>(&self, state: &OptState<T>, f: impl FnOnce() -> R) -> Result<R> {
        let copies = self.eval_params(state)?;
        let trained =
            self.iter().map(|(_, var)| var.copy()).collect::<candle_core::Result<_>>().map_err(from_candle)?;
        let mut restored = Restore { vars: self, trained };
        for ((_, var), (_, copy)) in self.iter().zip(copies.iter()) {
            copy.to_device(var.device()).and_then(|copy| var.set(&copy)).map_err(from_candle)?;
        }
        drop(copies);
        let made = f();
        restored.restore().map_err(from_candle)?;
        Ok(made)
    }
}

/// Restores the trained values when dropped.
struct Restore<'v> {
    vars: &'v Vars,
    trained: Vec<Tensor>,
}

impl Restore<'_> {
    fn restore(&mut self) -> candle_core::Result<()> {
        let trained = std::mem::take(&mut self.trained);
        self.vars.iter().zip(trained).try_for_each(|((_, var), trained)| var.set(&trained))
    }
}

impl Drop for Restore<'_> {
    /// Ignores candle's error, which a drop cannot report.
    fn drop(&mut self) {
        _ = self.restore();
    }
}
