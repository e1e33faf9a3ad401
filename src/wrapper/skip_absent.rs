use super::freezable::leaves_are_apart;
use crate::part::prelude::*;

/// Skips the leaves that have no gradient in a step.
///
/// A leaf has none where the tree of gradients does not show it: an `Option` is `None`, a map has no such entry.
/// Without this it is an error, since a forgotten gradient looks the same. With it the leaf rests for that step, as if
/// it were [frozen](crate::wrapper::freezable): its parameter keeps its bits, without decay, and what is remembered of
/// it is neither read nor written. Corrections of bias go by how many updates the leaf has had. Schedules go by the
/// steps of all. A gradient of zero is not absent: it decays moments and weights.
///
/// A leaf that is there and does not belong, or has another shape or type, is an error as before; so is a path that is
/// misspelt.
///
/// Inside [`multi_steps`](crate::multi_steps), a gradient that is missing in some mini-steps of a window counts as
/// zeros there, and a leaf that had none in the whole window rests when it is emitted.
///
/// It is a part of the optimizer rather than of a step, since what is inside keeps other counts. So it is written down
/// in configs and checkpoints, and a run that is resumed goes on in the same way. It goes around everything that is
/// done with gradients; around it may be what does nothing to them but look: boxes,
/// [`inject_hyperparams`](crate::inject_hyperparams()), [`masked`](crate::masked),
/// [`apply_if_finite`](crate::apply_if_finite), and chains and partitions all of whose members skip. An error about a
/// missing gradient says where it goes.
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
/// That of [`freezable`](crate::wrapper::freezable): a count for each leaf in each part inside that has arrays. A leaf
/// that rests costs nothing.
///
/// # Errors
///
/// `init` fails if a part inside works on several leaves together in memory, as
/// [`scale_by_lbfgs`](crate::transform::scale_by_lbfgs) does: the history of a vector is not that of a part of it; or
/// if there is a [`multi_steps`](crate::multi_steps) inside, which goes around this.
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
/// // The first begins as training does, the second goes on with its momentum: 3 − (1 + 0.5·3 + 0.5·5).
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
/// each has a `step` of its own. Differs: it must be asked for, and sums over the tree follow it. Optax has no such
/// policy: a `None` in the gradients is another structure, an error.
pub fn skip_absent<T: Stage>(inner: T) -> SkipAbsent<T> {
    SkipAbsent::with(inner)
}

wrapper! {
    /// See [`skip_absent`].
    pub SkipAbsent<T> as "skip_absent" around inner: Around {}
    check leaves_are_apart;
    arguments inside;
}

/// The state of what is inside a [`skip_absent`].
pub type SkipAbsentState<S> = WrapperState<SkipAbsentMemory, S>;

memory! {
    /// Which leaves of a [`skip_absent`] were skipped.
    pub SkipAbsentMemory {}
    beside {
        /// Which leaves rest in this step, here or in another wrapper around this one.
        resting: Vec<bool>,
    }
}

impl SkipAbsentMemory {
    /// Whether each leaf was skipped in the last step that this state saw.
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
