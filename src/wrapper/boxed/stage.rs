//! A box as a stage.

use core::marker::PhantomData;

use super::{Boxed, BoxedState, DynTransformation, ErasedState, Named};
use crate::arguments::Visit;
use crate::element::{ByReal, Real};
use crate::engine::{
    Absent, Emission, HoldsBack, InitContext, Outcome, Outline, PieceAt, Shape, Skips, Span, Spare, Stage, StepContext,
    Sums, Then, Walk, WholeTree, by_own_loops,
};
use crate::error::Result;
use crate::needs::{Level, Needs};
use crate::program::ErasedTile;
use crate::recipe::Recipe;
use crate::state::StateWalk;

/// What is behind a box, and which piece it is given.
struct Inside<'a, N> {
    inside: &'a dyn DynTransformation<N>,
    state: &'a dyn ErasedState,
    at: PieceAt,
}

/// A box's part of a pass over a piece, on its way to who asked.
struct DynInPiece<'a, 't, N>(Inside<'a, N>, PhantomData<&'a mut &'t ()>);

impl<'a, 't, N: Needs> ByReal for DynInPiece<'a, 't, N> {
    type Argument<C: Real> = &'a mut Then<'t, C>;
    type Output = ();

    fn single(self, then: &mut Then<'_, f32>) {
        self.0.inside.dyn_in_piece_f32(self.0.state, self.0.at, then);
    }

    fn double(self, then: &mut Then<'_, f64>) {
        self.0.inside.dyn_in_piece_f64(self.0.state, self.0.at, then);
    }

    fn recorded<C: Real>(self, then: &mut Then<'_, C>, number: fn(C) -> u32, line: fn(u32) -> C) {
        let Inside { inside, state, at } = self.0;
        then(&mut |tile| {
            ErasedTile::of(tile, number, line, |tile| inside.dyn_tile_in_record(state, at.place, at.span, tile));
        });
    }
}

/// What is behind a box is a stage by what is inside.
macro_rules! boxed_stage {
    ($Box:ty) => {
        impl<N: Needs> Stage for $Box {
            type Needs = N;
            type State = BoxedState;
            /// What was worked out for the step is kept in the state's box, so that a step allocates nothing.
            type Run = ();
            type Kernel<C: Real> = ();

            const SHAPE: Shape = Shape::elementwise(false, false);
            const FUSES: bool = false;

            fn shape(&self) -> Shape {
                (**self).dyn_shape()
            }

            fn needs(&self) -> Level {
                (**self).dyn_needs()
            }

            fn absent(&self) -> Absent {
                (**self).dyn_absent()
            }

            fn has_windows(&self) -> bool {
                (**self).dyn_has_windows()
            }

            fn skips(&self, skips: &mut Skips, place: &str) -> bool {
                (**self).dyn_skips(skips, place)
            }

            fn validate(&self) -> Result<()> {
                (**self).dyn_validate()
            }

            fn changed(&self, made: &Self) -> Option<&'static str> {
                (**self).dyn_changed(&**made)
            }

            fn init_state(&self, at: &InitContext<'_>) -> Result<BoxedState> {
                (**self).dyn_init(at).map(BoxedState)
            }

            fn check(&self, state: &BoxedState, at: &StepContext<'_>) -> Result<()> {
                (**self).dyn_check(&*state.0, at)
            }

            fn begin(&self, state: &mut BoxedState, at: &StepContext<'_>) {
                (**self).dyn_begin(&mut *state.0, at);
            }

            fn barrier(
                &self,
                state: &mut BoxedState,
                (): &mut (),
                at: &StepContext<'_>,
                index: usize,
                sums: Sums<'_>,
                tree: &mut WholeTree<'_>,
            ) {
                (**self).dyn_barrier(&mut *state.0, at, index, sums, tree);
            }

            fn finish(&self, state: &mut BoxedState, (): (), sums: Sums<'_>, outcome: &mut Outcome) {
                (**self).dyn_finish(&mut *state.0, sums, outcome);
            }

            fn emission(&self, state: &BoxedState, (): &()) -> Emission {
                (**self).dyn_emission(&*state.0)
            }

            fn resting<'a>(&self, state: &'a BoxedState) -> &'a [bool] {
                (**self).dyn_resting(&*state.0)
            }

            fn holds_back(&self) -> HoldsBack {
                (**self).dyn_holds_back()
            }

            fn pass(&self, state: &BoxedState, (): &(), walk: &Walk<'_>, spare: &mut Spare) {
                if !(**self).dyn_pass(&*state.0, walk, spare) {
                    by_own_loops(self, (state, &()), walk, spare);
                }
            }

            fn in_piece<C: Real>(&self, state: &BoxedState, (): &(), at: PieceAt, then: &mut Then<'_, C>) {
                let inside = Inside { inside: &**self, state: &*state.0, at };
                C::split(DynInPiece(inside, PhantomData), then);
            }

            fn kernel<C: Real>(&self, _: &BoxedState, (): &(), _: usize) {}

            fn state_bytes(&self, state: &BoxedState, leaf: usize, at: usize, span: Span) -> usize {
                (**self).dyn_state_bytes(&*state.0, leaf, at, span)
            }

            fn unused(&self, state: &BoxedState, report: &mut dyn FnMut(&str, bool)) {
                (**self).dyn_unused(&*state.0, report);
            }

            fn read<'a>(&self, state: &'a BoxedState, walk: &mut StateWalk<'a, '_>) -> Result<()> {
                (**self).dyn_read(&*state.0, walk)
            }

            fn own_arguments(&mut self, visit: &mut Visit<'_>) {
                (**self).dyn_own_arguments(visit);
            }

            fn outline(&self) -> Outline {
                (**self).dyn_outline()
            }

            fn recipe(&self) -> Recipe {
                (**self).dyn_recipe()
            }

            fn describe(&self) -> String {
                (**self).dyn_describe()
            }
        }
    };
}
boxed_stage!(Boxed<N>);
boxed_stage!(Named<N>);
