use crate::internal::engine::{OneElementWithMemory, RuleWithMemory};
use crate::internal::state::state_fields;
use crate::part::prelude::*;

/// Replaces NaNs by zeros, and records the leaves that had any.
///
/// # Arithmetic
///
/// ```text
/// u ← 0 if u is NaN, else u               infinities and −0 are left alone
/// ```
///
/// # Cost
///
/// A flag and a count for each leaf. Fuses: NaNs are counted in the loop that updates the parameters. Reads no
/// parameters.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale;
///
/// let optimizer = chain((zero_nans(), scale(-1.0)));
/// let mut params = (vec![1.0_f32, 1.0], 1.0_f32);
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &(vec![f32::NAN, 0.5], 0.25_f32), &mut state)?;
/// assert_eq!(params, (vec![1.0, 0.5], 0.75));
/// assert!(state.0.found_nan.get(0).unwrap().get());
/// assert!(!state.0.found_nan.get(1).unwrap().get());
/// assert_eq!(state.0.total_zeroed(), 1);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`zero_nans`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: it also counts.
pub fn zero_nans() -> ZeroNans {
    ZeroNans::with()
}

part! {
    /// See [`zero_nans`].
    #[derive(Copy, Default, Eq)]
    pub ZeroNans as "zero_nans": OneElementWithMemory, SAME_DIRECTION;
}

/// The state of [`zero_nans`]: the leaves with NaNs, and counts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ZeroNansState {
    /// True for each leaf that had a NaN in its last step.
    pub found_nan: PerLeaf<Flag>,
    /// Number of elements replaced in each leaf, over all steps.
    pub zeroed: PerLeaf<Count>,
}

state_fields!(ZeroNansState { found_nan, zeroed });

impl ZeroNansState {
    /// Returns whether any leaf had a NaN in its last step.
    pub fn found_any(&self) -> bool {
        self.found_nan.iter().any(|(_, found)| found.get())
    }

    /// Returns the number of elements replaced in all leaves, over all steps.
    pub fn total_zeroed(&self) -> u64 {
        self.zeroed.iter().fold(0, |sum, (_, n)| sum.saturating_add(n.get()))
    }
}

impl RuleWithMemory for ZeroNans {
    const COUNTS: usize = 1;
    type Memory = ZeroNansState;
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = ();

    fn start(&self, at: &InitContext<'_>) -> Result<ZeroNansState> {
        Ok(ZeroNansState {
            found_nan: PerLeaf::new(at.active(), Flag::default()),
            zeroed: PerLeaf::new(at.active(), Count::default()),
        })
    }

    fn scalars<C: Real>(&self, _: &ZeroNansState, _: usize) {}

    #[inline(always)]
    fn apply<C: Real>((): (), _: &mut [C; 0], u: C, _: C, nans: &mut [u32]) -> C {
        nans[0] += u.count_nan();
        u.nan_to_zero()
    }

    fn finish(&self, memory: &mut ZeroNansState, nans: Sums<'_>) {
        let leaves = memory.found_nan.iter_mut().zip(memory.zeroed.iter_mut());
        for ((leaf, found), (_, zeroed)) in leaves.filter(|((leaf, _), _)| !nans.rests(*leaf)) {
            let n = nans.leaf(0, leaf) as u64;
            found.set(n > 0);
            zeroed.increment_by(n);
        }
    }
}
