//! Multiplying updates by how far the parameters are from where they began, in some proportion to the gradients so far: one
//! barrier, sums over elements, and a copy of the first parameters that is only read.

use crate::element::Real;
use crate::engine::{InitContext, Job, Place, SlotJob, Span, Sums, Tile, dispatch, slot_tile, sum_pairs, sum_tile};
use crate::error::Result;
use crate::state::{Moments, State};

use crate::transform::rescale::factor_in;

/// What such a transformation has to say; [`anchored_stage`] makes it a stage.
pub(crate) trait Anchored {
    /// The name, as in messages and configs.
    const NAME: &'static str;
    /// What is remembered.
    type State: State;
    /// The hyperparameters at one step.
    type Scalars: Copy + Send + Sync;

    /// Checks the hyperparameters.
    fn check_arguments(&self) -> Result<()>;

    /// The state before the first step.
    ///
    /// # Errors
    ///
    /// If there is not enough memory.
    fn start(&self, at: &InitContext<'_>) -> Result<Self::State>;

    /// The parameters that the state was made for.
    fn first_params(state: &Self::State) -> &Moments;

    /// Counts a step, and gives its hyperparameters.
    fn scalars(&self, state: &mut Self::State) -> Self::Scalars;

    /// Moves the state on.
    fn take(k: Self::Scalars, state: &mut Self::State, sums: Squares<'_>);

    /// What a leaf's updates are multiplied by.
    fn factor(k: Self::Scalars, state: &Self::State, leaf: usize) -> f64;
}

/// Sums of squares: of the updates, and of the distances from the first parameters.
#[derive(Clone, Copy)]
pub(crate) struct Squares<'a>(pub(crate) Sums<'a>);

impl Squares<'_> {
    /// Those of all leaves.
    pub(crate) fn total(&self) -> [f64; 2] {
        [0, 1].map(|i| self.0.total(i))
    }

    /// Those of one leaf.
    pub(crate) fn leaf(&self, leaf: usize) -> [f64; 2] {
        [0, 1].map(|i| self.0.leaf(i, leaf))
    }
}

/// Adds up both sums of a tile.
struct AddUp<'a>(&'a mut [f64; 2]);

impl<C: Real> SlotJob<C> for AddUp<'_> {
    #[inline(always)]
    fn run(self, u: &mut [C], p: &[C], first: &mut [C]) {
        let square = |x: f64| x * x;
        *self.0 =
            [sum_tile(u, |u| square(u.as_f64())), sum_pairs(p, first, |p, first| square(p.as_f64() - first.as_f64()))];
    }
}

struct Multiply<'a, C> {
    u: &'a mut [C],
    factor: C,
}

impl<C: Real> Job for Multiply<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.u.iter_mut().for_each(|u| *u *= self.factor);
    }
}

/// A tile of such a transformation.
pub(crate) fn tile<T: Anchored, C: Real>(
    k: T::Scalars,
    state: &T::State,
    place: Place,
    span: Span,
    tile: &mut Tile<'_, C>,
) {
    // Only the pass that ends at this barrier counts; later ones repeat what it did.
    if place.at == span.to {
        let mut squares = [0.0; 2];
        slot_tile(T::first_params(state), tile, AddUp(&mut squares));
        tile.sums()[place.sum..][..2].iter_mut().zip(squares).for_each(|(sum, x)| *sum += x);
    }
    if span.has(place.at + 1) {
        let (isa, factor) = (tile.isa(), factor_in(T::factor(k, state, tile.leaf())));
        dispatch(isa, Multiply { u: tile.u(), factor });
    }
}

/// The larger, or NaN.
pub(crate) fn larger(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() { b } else { a }
}

/// The norm of a leaf of first parameters, squared.
pub(crate) fn squared(params: &Moments, leaf: usize) -> f64 {
    fn of<C: Real>(x: Option<&[C]>) -> f64 {
        let stretches = x.unwrap_or_default().chunks(512);
        stretches.map(|x| sum_tile(x, |x| x.as_f64() * x.as_f64())).sum()
    }
    of(params.get::<f32>(leaf)) + of(params.get::<f64>(leaf))
}

/// Implements `Stage` for an [`Anchored`]. A macro, since the blanket implementation is for rules.
macro_rules! anchored_stage {
    ($T:ty; state $S:ty; scalars $K:ty) => {
        impl $crate::engine::Stage for $T {
            type Needs = $crate::needs::Nothing;
            type State = $S;
            type Run = $K;
            type Kernel<C: $crate::Real> = ();

            const SHAPE: $crate::engine::Shape =
                $crate::engine::Shape { barriers: 1, stateful: 0, reads_params: 1, materializes: 0, sums: 2 };
            const FUSES: bool = false;

            fn validate(&self) -> $crate::Result<()> {
                self.check_arguments()
            }

            fn init_state(&self, at: &$crate::engine::InitContext<'_>) -> $crate::Result<Self::State> {
                self.start(at)
            }

            fn begin(&self, state: &mut Self::State, _: &$crate::engine::StepContext<'_>) -> Self::Run {
                self.scalars(state)
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
                <$T>::take(*run, state, $crate::transform::parameter_free::anchored::Squares(sums));
            }

            fn tile<C: $crate::Real>(
                &self,
                state: &Self::State,
                run: &Self::Run,
                place: $crate::engine::Place,
                span: $crate::engine::Span,
                tile: &mut $crate::engine::Tile<'_, C>,
            ) {
                $crate::transform::parameter_free::anchored::tile::<$T, C>(*run, state, place, span, tile);
            }

            fn kernel<C: $crate::Real>(&self, _: &Self::State, _: &Self::Run, _: usize) {}

            fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: $crate::engine::Span) -> usize {
                let dtype = <$T>::first_params(state).dtype(leaf);
                if span.to == at { dtype.map_or(0, |dtype| dtype.size()) } else { 0 }
            }

            fn recipe(&self) -> $crate::recipe::Recipe {
                $crate::arguments::recipe_of(self)
            }

            fn describe(&self) -> String {
                <$T as $crate::transform::parameter_free::anchored::Anchored>::NAME.into()
            }
        }
    };
}
pub(super) use anchored_stage;
