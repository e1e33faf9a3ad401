//! Multiplying each leaf by a number that follows from sums over elements: one barrier, nothing stored.

use crate::element::Real;
use crate::engine::Sums;
use crate::error::Result;
use crate::state::Count;
use crate::state::state_fields;
use crate::tree::Structure;

/// What a transformation that rescales leaves has to say; [`rescale_stage`] makes it a stage.
pub(crate) trait Rescale {
    /// The name, as in messages and configs.
    const NAME: &'static str;
    /// Sums over elements.
    const SUMS: usize;
    /// Whether the sums are over parameters too.
    const READS_PARAMS: bool;
    /// The hyperparameters at one step.
    type Scalars: Copy;

    /// Checks the hyperparameters.
    fn check_arguments(&self) -> Result<()>;

    /// The hyperparameters at a step count.
    fn scalars(&self, count: u64) -> Self::Scalars;

    /// The hyperparameters, with the value of the loss; for what needs it.
    fn scalars_with(&self, count: u64, _value: f64) -> Self::Scalars {
        self.scalars(count)
    }

    /// Adds a stretch of updates, and the parameters it belongs to, to the sums. Write `#[inline(always)]` on it.
    fn add_up<C: Real>(u: &[C], p: &[C], sums: &mut [f64]);

    /// Works out each leaf's factor.
    fn factors(k: Self::Scalars, sums: Sums<'_>, structure: &Structure, factors: &mut [f64]);
}

/// The state of what multiplies each leaf by a number: [`clip_by_global_norm`](crate::clip_by_global_norm),
/// [`clip_by_block_rms`](crate::clip_by_block_rms), [`scale_by_trust_ratio`](crate::scale_by_trust_ratio),
/// [`scale_by_polyak`](crate::scale_by_polyak).
#[derive(Clone, Debug)]
pub struct RescaleState {
    /// Steps done.
    pub count: Count,
    /// Worked out anew in each step, so no part of what is saved; kept so that a step need not allocate.
    pub(super) factors: Vec<f64>,
}

state_fields!(RescaleState<> { count });

impl RescaleState {
    pub(super) fn new(leaves: usize) -> RescaleState {
        RescaleState { count: Count::default(), factors: vec![1.0; leaves] }
    }

    /// What a leaf's updates were multiplied by in the last step that this state saw; 1 before the first.
    ///
    /// ```
    /// use gradchain::prelude::*;
    ///
    /// let optimizer = clip_by_global_norm(1.0);
    /// let mut params = vec![0.0_f32, 0.0];
    /// let mut state = optimizer.init(&params)?;
    /// optimizer.step(&mut params, &vec![0.0_f32, 4.0], &mut state)?;
    /// assert_eq!(state.factor(0), Some(0.25));
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn factor(&self, leaf: usize) -> Option<f64> {
        self.factors.get(leaf).copied()
    }
}

/// What brings `norm` down to `most`: 1 where it is not larger, 0 where it is infinite, NaN where it is NaN.
pub(super) fn shrink(norm: f64, most: f64) -> f64 {
    if norm <= most { 1.0 } else { most / norm }
}

/// The factor in the compute type. One too large for it is its largest number: infinity would make NaN of zeros.
pub(super) fn factor_in<C: Real>(factor: f64) -> C {
    let largest = C::max_value();
    if factor.is_finite() && factor > largest.as_f64() { largest } else { C::of(factor) }
}

/// Implements [`Stage`](crate::Stage) for a [`Rescale`]. A macro, since the blanket implementation is for rules.
macro_rules! rescale_stage {
    ($T:ty, $Scalars:ty) => {
        $crate::transform::rescale::rescale_stage!($T, $Scalars; needs $crate::needs::Nothing);
    };
    ($T:ty, $Scalars:ty; needs $N:ty) => {
        impl $crate::Stage for $T {
            type Needs = $N;
            type State = $crate::transform::rescale::RescaleState;
            type Run = $Scalars;
            type Kernel<C: $crate::Real> = C;

            const SHAPE: $crate::Shape = $crate::Shape {
                barriers: 1,
                stateful: 0,
                reads_params: <$T>::READS_PARAMS as u32,
                materializes: 0,
                sums: <$T>::SUMS,
            };
            const FUSES: bool = true;

            fn validate(&self) -> $crate::Result<()> {
                self.check_arguments()
            }

            fn init_state(&self, at: &$crate::InitContext<'_>) -> $crate::Result<Self::State> {
                Ok($crate::transform::rescale::RescaleState::new(at.structure().len()))
            }

            fn begin(&self, state: &mut Self::State, at: &$crate::StepContext<'_>) -> $Scalars {
                let scalars = self.scalars_with(state.count.get(), at.value().unwrap_or(f64::NAN));
                state.count.increment();
                scalars
            }

            fn barrier(
                &self,
                state: &mut Self::State,
                run: &mut $Scalars,
                at: &$crate::StepContext<'_>,
                _: usize,
                sums: $crate::Sums<'_>,
                _: &mut $crate::WholeTree<'_>,
            ) {
                <$T>::factors(*run, sums, at.structure(), &mut state.factors);
            }

            fn tile<C: $crate::Real>(
                &self,
                state: &Self::State,
                run: &$Scalars,
                place: $crate::Place,
                span: $crate::Span,
                tile: &mut $crate::Tile<'_, C>,
            ) {
                $crate::engine::fused_tile(self, state, run, place, span, tile);
            }

            #[inline]
            fn kernel<C: $crate::Real>(&self, state: &Self::State, _: &$Scalars, leaf: usize) -> C {
                $crate::transform::rescale::factor_in(state.factors[leaf])
            }

            #[inline(always)]
            fn apply<C: $crate::Real>(
                factor: &C,
                at: usize,
                span: $crate::Span,
                _: &mut [C],
                u: C,
                _: C,
                _: &mut [u32],
            ) -> C {
                if span.has(at + 1) { u * *factor } else { u }
            }

            #[inline(always)]
            fn reduce<C: $crate::Real>(
                _: &C,
                place: $crate::Place,
                span: $crate::Span,
                u: &[C],
                p: &[C],
                sums: &mut [f64],
            ) {
                // Only the pass that ends at this barrier counts; later ones repeat what it did.
                if place.at == span.to {
                    <$T>::add_up(u, p, &mut sums[place.sum..place.sum + <$T>::SUMS]);
                }
            }

            fn state_bytes(&self, _: &Self::State, _: usize, _: usize, _: $crate::Span) -> usize {
                0
            }

            fn recipe(&self) -> $crate::recipe::Recipe {
                $crate::arguments::recipe_of(self)
            }

            fn describe(&self) -> String {
                <$T as $crate::transform::rescale::Rescale>::NAME.into()
            }
        }
    };
}
pub(super) use rescale_stage;
