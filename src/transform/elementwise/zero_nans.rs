use crate::element::Real;
use crate::engine::{InitContext, Outcome, Place, Shape, Span, Stage, StepContext, Sums, Tile, fused_tile};
use crate::error::Result;
use crate::macros::builder;
use crate::state::{Count, Flag, PerLeaf};
use crate::wrapper::state_fields;

/// Replaces NaNs by zeros, and remembers in which leaves there were any.
///
/// # Arithmetic
///
/// ```text
/// u ← 0 if u is NaN, else u               infinities are left alone; −0 becomes 0
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
    ZeroNans
}

/// See [`zero_nans`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct ZeroNans;

builder! {
    ZeroNans as "zero_nans" {
        hyperparams: ;
        options: ;
    }
}

/// Where a [`zero_nans`] found NaNs.
#[derive(Clone, Debug)]
pub struct ZeroNansState {
    /// Whether each leaf had a NaN, the last time this ran.
    pub found_nan: PerLeaf<Flag>,
    /// How many elements of each leaf have been replaced, in all steps together.
    pub zeroed: PerLeaf<Count>,
}

state_fields!(ZeroNansState<> { found_nan, zeroed });

impl ZeroNansState {
    /// Whether any leaf had a NaN, the last time this ran.
    pub fn found_any(&self) -> bool {
        self.found_nan.iter().any(|(_, found)| found.get())
    }

    /// How many elements of all leaves have been replaced, in all steps together.
    pub fn total_zeroed(&self) -> u64 {
        self.zeroed.iter().fold(0, |sum, (_, n)| sum.saturating_add(n.get()))
    }
}

impl Stage for ZeroNans {
    type Needs = crate::needs::Nothing;
    type State = ZeroNansState;
    type Run = ();
    type Kernel<C: Real> = ();

    const SHAPE: Shape = Shape { sums: 1, ..Shape::elementwise(false, false) };
    const FUSES: bool = true;

    fn init_state(&self, at: &InitContext<'_>) -> Result<ZeroNansState> {
        Ok(ZeroNansState {
            found_nan: PerLeaf::new(at.active(), Flag::default()),
            zeroed: PerLeaf::new(at.active(), Count::default()),
        })
    }

    fn begin(&self, _: &mut ZeroNansState, _: &StepContext<'_>) {}

    fn finish(&self, state: &mut ZeroNansState, (): (), sums: Sums<'_>, _: &mut Outcome) {
        for ((leaf, found), (_, zeroed)) in state.found_nan.iter_mut().zip(state.zeroed.iter_mut()) {
            let n = sums.leaf(0, leaf) as u64;
            found.set(n > 0);
            zeroed.increment_by(n);
        }
    }

    fn tile<C: Real>(&self, state: &ZeroNansState, run: &(), place: Place, span: Span, tile: &mut Tile<'_, C>) {
        fused_tile(self, state, run, place, span, tile);
    }

    fn kernel<C: Real>(&self, _: &ZeroNansState, (): &(), _: usize) {}

    #[inline(always)]
    fn apply<C: Real>((): &(), at: usize, span: Span, _: &mut [C], u: C, _: C, tally: &mut [u32]) -> C {
        if !span.has(at) {
            return u;
        }
        let nan = u.is_nan();
        // A later pass that computes this again must not count again.
        if at == span.to {
            tally[0] += u32::from(nan);
        }
        // The sum of its positive and its negative part. With a choice between zero and `u`, the loop would become one of
        // stores that are only done for NaNs, and those are slow.
        let zero = C::zero();
        (if u > zero { u } else { zero }) + (if u < zero { u } else { zero })
    }

    fn state_bytes(&self, _: &ZeroNansState, _: usize, _: usize, _: Span) -> usize {
        0
    }

    fn recipe(&self) -> crate::recipe::Recipe {
        crate::recipe::of_arguments(self)
    }

    fn describe(&self) -> String {
        "zero_nans".into()
    }
}
