//! The mean of the states of all ranks.

use crate::collective::{Collective, agree, gather, leaf_mean};
use crate::engine::Stage;
use crate::error::Result;
use crate::state::{AverageOptions, Item, ItemMut, ItemName, Single, items, items_mut, mean_of_singles};
use crate::transformation::OptState;

impl<T: Stage> OptState<T> {
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
    #[cfg_attr(docsrs, doc(cfg(feature = "collective")))]
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
