use super::freezable::leaves_are_apart;
use crate::part::prelude::*;

/// Skips the leaves that have no gradient in a step.
///
/// A leaf has none if the tree of gradients lacks it: an `Option` is `None`, a map has no such entry. Without
/// `skip_absent` that is an error, because a forgotten gradient looks the same. With it the leaf rests in that step, as
/// if it were [frozen]: its parameter stays bitwise identical, without decay, and its state
/// is neither read nor written. Bias corrections use the number of updates of the leaf. Schedules use the step count. A
/// zero gradient is not absent: it decays moments and weights.
///
/// An unknown leaf, or a leaf of another shape or dtype, is still an error; so is a misspelt path.
///
/// Inside [`multi_steps`], a gradient that is missing in some mini-steps of a window counts as zero
/// there, and a leaf without a gradient in the whole window rests when the window is emitted.
///
/// It is a property of the optimizer rather than of a step, because inner parts keep other counts. So it is part of
/// configs and checkpoints, and a resumed run behaves in the same way. It goes around everything that changes
/// gradients. Around it may be wrappers that only read them: boxes,
/// [`inject_hyperparams`], [`masked`],
/// [`apply_if_finite`], and chains and partitions whose members all skip. An error about a
/// missing gradient names its place.
///
/// # Arithmetic
///
/// ```text
/// leaves without a gradient:   u ← 0
/// the others:                  u ← inner(u)         sums over the tree, such as norms, are over these only
/// ```
///
/// # Cost
///
/// That of [`freezable`]: a count for each leaf in each inner part with state arrays. A leaf
/// that rests costs nothing.
///
/// # Errors
///
/// `init` fails if an inner part works on several leaves together in memory, as
/// [`scale_by_lbfgs`] does: the history of a vector is not that of a part of it. It
/// also fails with an inner [`multi_steps`], which goes around it.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::wrapper::skip_absent;
///
/// let optimizer = skip_absent(chain((add_decayed_weights(0.5), sgd(1.0).momentum(0.5))));
/// let mut params = (8.0_f64, 8.0_f64);
/// let mut state = optimizer.init(&params)?;
///
/// // Only the second has a gradient: 8 − (1 + 0.5·8).
/// optimizer.step(&mut params, &(None::<f64>, Some(1.0_f64)), &mut state)?;
/// assert_eq!(params, (8.0, 3.0));
///
/// // The first starts afresh, the second continues with its momentum: 3 − (1 + 0.5·3 + 0.5·5).
/// optimizer.step(&mut params, &(Some(1.0_f64), Some(1.0_f64)), &mut state)?;
/// assert_eq!(params, (3.0, -2.0));
///
/// // Without it an absent gradient is an error.
/// let strict = sgd(1.0);
/// let mut state = strict.init(&params)?;
/// assert!(strict.step(&mut params, &(None::<f64>, Some(1.0_f64)), &mut state).is_err());
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// PyTorch: [optimizers](https://docs.pytorch.org/docs/stable/optim.html) skip a parameter whose `grad` is `None`, and
/// each has a `step` of its own. Differs: it is explicit, and reductions over the tree omit the leaf. Optax has no such
/// policy: a `None` in the gradients is another structure, an error.
///
/// [frozen]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.freezable.html
/// [`multi_steps`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.multi_steps.html
/// [`inject_hyperparams`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.inject_hyperparams.html
/// [`masked`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.masked.html
/// [`apply_if_finite`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.apply_if_finite.html
/// [`freezable`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.freezable.html
/// [`scale_by_lbfgs`]: https://docs.rs/gradchain/latest/gradchain/transform/fn.scale_by_lbfgs.html
pub fn skip_absent<T: Stage>(inner: T) -> SkipAbsent<T> {
    SkipAbsent::with(inner)
}

wrapper! {
    /// See [`skip_absent`].
    pub SkipAbsent<T> as "skip_absent" around inner: Around {}
    check leaves_are_apart;
    arguments inside;
}

/// The state of a [`skip_absent`], with the inner state.
pub type SkipAbsentState<S> = WrapperState<SkipAbsentMemory, S>;

memory! {
    /// The leaves that a [`skip_absent`] skipped.
    pub SkipAbsentMemory {}
    beside {
        /// The leaves that rest in this step, here or in an outer wrapper.
        resting: Vec<bool>,
    }
}

impl SkipAbsentMemory {
    /// Returns a flag for each leaf: true if the last step of this state skipped it.
    pub fn skipped(&self) -> &[bool] {
        &self.resting
    }
}

impl<T: Stage> Wrapper for SkipAbsent<T> {
    type Memory = SkipAbsentMemory;
    const RUNS: Runs = Runs::DECIDED.skips_absent();

    fn start(&self, memory: &mut SkipAbsentMemory, at: &InitContext<'_>) -> Result<()> {
        memory.resting = vec![false; at.structure().len()];
        Ok(())
    }

    fn decide(&self, memory: &mut SkipAbsentMemory, at: &StepContext<'_>, _: f64) -> Decision {
        for (leaf, rests) in memory.resting.iter_mut().enumerate() {
            *rests = at.rests(leaf) || at.is_absent(leaf);
        }
        Decision::Run
    }

    fn resting<'a>(&self, memory: &'a SkipAbsentMemory) -> &'a [bool] {
        &memory.resting
    }
}
