//! The mean of replicas' states.

#[cfg(feature = "collective")]
mod ranks;

use crate::engine::Stage;
use crate::error::{Error, Result};
use crate::state::{AverageOptions, average};
use crate::transformation::OptState;

impl<T: Stage> OptState<T> {
    /// Returns the weighted mean of replicas' states, by kind.
    ///
    /// It is the state for the mean of their [parameters](crate::tree::average_params).
    ///
    /// Moments and scalars are averaged as by [`average`]; counts, flags and keys follow their policy and never change
    /// their kind. Anything outside of the [`schema`](OptState::schema), such as masks, is the first state's.
    ///
    /// # Errors
    ///
    /// Fails without states, if a weight is negative or not finite, all weights are zero, a policy refuses, or the
    /// states do not fit each other: they were made for parameters of other structures, or by transformations with
    /// other fields. Fails if a panic left one half written. The states are not changed.
    ///
    /// # Example
    ///
    /// ```
    /// use gradchain::prelude::*;
    /// use gradchain::transform::trace;
    /// use gradchain::state::AverageOptions;
    ///
    /// let optimizer = chain((zero_nans(), trace(0.5)));
    /// let (mut a, mut b) = (optimizer.init(&0.0_f64)?, optimizer.init(&0.0_f64)?);
    /// optimizer.update(&f64::NAN, &mut a, &0.0_f64)?;
    /// optimizer.update(&3.0, &mut b, &0.0_f64)?;
    /// optimizer.update(&3.0, &mut b, &0.0_f64)?;
    ///
    /// let mean = OptState::average(&[(&a, 2.0), (&b, 1.0)], AverageOptions::default())?;
    /// assert_eq!(mean.1.moment("trace").and_then(|m| m.get(0)), Some(&[1.5][..])); // a third of 4.5
    /// assert_eq!(mean.1.count.get(), 2); // the most
    /// assert!(mean.0.found_nan.get(0).unwrap().get()); // one has seen it
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// # References
    ///
    /// Yu, Jin and Yang, [On the linear speedup analysis of communication efficient momentum
    /// SGD](https://arxiv.org/abs/1905.03817), 2019, algorithm 1, average momentum as well as parameters. Optax and
    /// PyTorch have none: a mean over a tree of arrays makes fractions of counts and numbers of flags.
    pub fn average(states: &[(&OptState<T>, f64)], options: AverageOptions) -> Result<OptState<T>> {
        states.iter().try_for_each(|(state, _)| state.usable())?;
        let Some(((first, _), others)) = states.split_first() else {
            return Err(Error::argument("OptState::average", "states", "at least one state", 0));
        };
        let schema = first.schema();
        for (i, (other, _)) in others.iter().enumerate() {
            let differences = first.structure().compare(other.structure(), |ours, theirs| ours == theirs);
            if !differences.is_empty() {
                let what = format!("state {} was made for other parameters than state 0", i + 1);
                return Err(Error::structure(what, differences));
            }
            if let Some(problem) = schema.difference(&other.schema()) {
                let problem = format!("its optimizer or arguments differ from those of state 0: {problem}");
                return Err(Error::state(format!("OptState::average: state {}", i + 1), problem));
            }
        }
        let inner: Vec<(&T::State, f64)> = states.iter().map(|(state, weight)| (&***state, *weight)).collect();
        Ok(first.holding(average(&inner, options)?))
    }
}
