//! What takes the gradients into its state and measures the whole tree in one pass, and makes the updates of both in the
//! next: two passes, between which nothing is stored.

use crate::element::Real;
use crate::engine::{InitContext, StepContext, Sums, Tile};
use crate::error::Result;
use crate::state::State;

/// What such an optimizer has to say; [`measured_stage`] makes it a stage.
pub(crate) trait Measured {
    /// The name, as in messages and configs.
    const NAME: &'static str;
    /// Sums over elements.
    const SUMS: usize;
    /// What is remembered between steps.
    type State: State;
    /// What is worked out for one step.
    type Run: Send + Sync;

    /// Checks the arguments.
    fn check_arguments(&self) -> Result<()>;

    /// The state before the first step.
    ///
    /// # Errors
    ///
    /// If there is not enough memory.
    fn first_state(&self, at: &InitContext<'_>) -> Result<Self::State>;

    /// Counts the step and works out the scalars.
    fn start(&self, state: &mut Self::State, at: &StepContext<'_>) -> Self::Run;

    /// Takes a tile into the state and the sums, which begin at `sums`.
    fn take_in<C: Real>(&self, state: &Self::State, run: &Self::Run, sums: usize, tile: &mut Tile<'_, C>);

    /// Decides what the sums mean.
    fn decide(&self, state: &mut Self::State, run: &mut Self::Run, sums: Sums<'_>);

    /// Makes the updates of a tile.
    fn give_out<C: Real>(&self, state: &Self::State, run: &Self::Run, tile: &mut Tile<'_, C>);

    /// The bytes of state that each pass reads and writes for one element of a leaf.
    fn bytes(state: &Self::State, leaf: usize) -> [usize; 2];
}

/// Implements `Stage` for a [`Measured`].
macro_rules! measured_stage {
    ($T:ty; state $S:ty; run $R:ty; needs $N:ty) => {
        impl $crate::engine::Stage for $T {
            type Needs = $N;
            type State = $S;
            type Run = $R;
            type Kernel<C: $crate::Real> = ();

            // Not stateful: the state is written in the one pass that ends at the barrier, whatever is run again later, so
            // that the engine need not store the updates for that.
            const SHAPE: $crate::engine::Shape = $crate::engine::Shape {
                barriers: 1,
                stateful: 0,
                reads_params: 0b11,
                materializes: 0,
                sums: <$T as $crate::optimizer::measured::Measured>::SUMS,
            };
            const FUSES: bool = false;

            fn validate(&self) -> $crate::Result<()> {
                self.check_arguments()
            }

            fn init_state(&self, at: &$crate::engine::InitContext<'_>) -> $crate::Result<Self::State> {
                self.first_state(at)
            }

            fn begin(&self, state: &mut Self::State, at: &$crate::engine::StepContext<'_>) -> Self::Run {
                self.start(state, at)
            }

            fn barrier(
                &self,
                state: &mut Self::State,
                run: &mut Self::Run,
                _: &$crate::engine::StepContext<'_>,
                _: usize,
                sums: $crate::engine::Sums<'_>,
                _: &mut $crate::engine::WholeTree<'_>,
            ) {
                self.decide(state, run, sums);
            }

            fn tile<C: $crate::Real>(
                &self,
                state: &Self::State,
                run: &Self::Run,
                place: $crate::engine::Place,
                span: $crate::engine::Span,
                tile: &mut $crate::engine::Tile<'_, C>,
            ) {
                if span.to == place.at {
                    self.take_in(state, run, place.sum, tile);
                } else if span.has(place.at + 1) {
                    self.give_out(state, run, tile);
                }
            }

            fn kernel<C: $crate::Real>(&self, _: &Self::State, _: &Self::Run, _: usize) {}

            fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: $crate::engine::Span) -> usize {
                let [first, second] = <$T as $crate::optimizer::measured::Measured>::bytes(state, leaf);
                if span.to == at {
                    first
                } else if span.has(at + 1) {
                    second
                } else {
                    0
                }
            }

            fn recipe(&self) -> $crate::recipe::Recipe {
                $crate::arguments::recipe_of(self)
            }

            fn describe(&self) -> String {
                <$T as $crate::optimizer::measured::Measured>::NAME.into()
            }
        }
    };
}
pub(super) use measured_stage;

/// The larger of two numbers; NaN if one is NaN, unlike [`f64::max`].
pub(crate) fn larger(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() { a } else { b }
}

/// The smaller of two numbers; NaN if one is NaN.
pub(crate) fn smaller(a: f64, b: f64) -> f64 {
    if a < b || a.is_nan() { a } else { b }
}
