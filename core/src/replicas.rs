//! The mean of replicas' states.

use crate::collective::{Collective, agree, gather, leaf_mean};
use crate::engine::Stage;
use crate::error::{Error, Result};
use crate::state::{AverageOptions, Item, ItemMut, ItemName, Single, average, items, items_mut, mean_of_singles};
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

    /// Replaces the state by the mean of those of all ranks, by kind, for ranks that train alone for a while.
    ///
    /// It is the [`average`](OptState::average) of all with equal weights, as
    /// [`collective::average`](crate::collective::average) is for parameters. The result is bitwise identical on all
    /// ranks; keys, if not refused, are those of rank 0.
    ///
    /// # Errors
    ///
    /// If the ranks' states differ in a leaf or a field, or a policy refuses, all ranks return an error that names it,
    /// and nothing has been changed. If a rank is lost, the state is poisoned. Fails if a panic left this state half
    /// written.
    ///
    /// # Cost
    ///
    /// As [`collective::average`](crate::collective::average) for the arrays, and one message for the rest.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use gradchain::collective::{Collective, average, threads};
    /// use gradchain::prelude::*;
    /// use gradchain::transform::trace;
    /// use gradchain::state::AverageOptions;
    ///
    /// std::thread::scope(|scope| {
    ///     for ranks in threads(2, Duration::from_secs(10)) {
    ///         scope.spawn(move || {
    ///             let optimizer = chain((zero_nans(), trace(0.5), sgd(1.0)));
    ///             let mut params = vec![0.0_f32; 2];
    ///             let mut state = optimizer.init(&params)?;
    ///             let gradient = vec![ranks.rank() as f32, if ranks.rank() == 0 { f32::NAN } else { 4.0 }];
    ///             optimizer.step(&mut params, &gradient, &mut state)?;
    ///             average(&ranks, &mut params)?;
    ///             state.average_over(&ranks, AverageOptions::default())?;
    ///             assert_eq!(params, [-0.5, -2.0]);
    ///             assert_eq!(state.1.moment("trace").and_then(|m| m.get(0)), Some(&[0.5_f32, 2.0][..]));
    ///             assert!(state.0.found_nan.get(0).unwrap().get()); // one has seen it
    ///             Ok::<(), gradchain::Error>(())
    ///         });
    ///     }
    /// });
    /// ```
    ///
    /// # References
    ///
    /// As [`average`](OptState::average).
    pub fn average_over(&mut self, collective: &dyn Collective, options: AverageOptions) -> Result<()> {
        self.usable()?;
        let structure = self.shared_structure();
        let singles = |state: &T::State| -> Vec<(String, Single)> {
            let single = |(name, item): (ItemName, Item<'_>)| match item {
                Item::Single(value) => Some((name.to_string(), value)),
                Item::Array(_) => None,
            };
            items(state, &structure).into_iter().filter_map(single).collect()
        };
        let own = singles(self);
        let fields = self.schema().entries.iter().map(ToString::to_string).collect::<Vec<_>>();
        let leaves = structure.leaves().iter().map(ToString::to_string);
        agree(collective, "the averaged states", &leaves.chain(fields).collect::<Vec<_>>())?;
        let bits: Vec<u8> = own.iter().flat_map(|(_, value)| value.bits().to_le_bytes()).collect();
        let all = gather(collective, &bits)?;
        let means = own.iter().enumerate().map(|(i, (name, value))| {
            let of_rank =
                |bits: &Vec<u8>| bits.as_chunks::<8>().0.get(i).map(|bits| value.of_bits(u64::from_le_bytes(*bits)));
            mean_of_singles(name, &all.iter().filter_map(of_rank).collect::<Vec<_>>(), options)
        });
        let mut means = means.collect::<Result<Vec<_>>>()?.into_iter();
        let mut put = |item| match item {
            ItemMut::Array(mut leaf) => leaf_mean(collective, &mut leaf),
            single => {
                means.next().map(|mean| single.set(mean));
                Ok(())
            }
        };
        let done = items_mut(&mut **self, &structure).into_iter().try_for_each(|(_, item)| put(item));
        done.inspect_err(|_| self.poison())
    }
}
