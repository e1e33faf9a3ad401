//! A box as a stage.

use core::marker::PhantomData;
use core::ops::ControlFlow::Break;

use super::{Boxed, BoxedState, DynTransformation, ErasedState, Named};
use crate::arguments::Visit;
use crate::element::{Real, TypedJob};
use crate::engine::{
    Absent, Emission, InStep, InitContext, OnView, Outcome, PassStructure, Skips, Stage, StageChunk, StepContext,
    Summary, Sums, Then, TileScratch, Transform, View, Walk, WholeTree, run_own_loops,
};
use crate::error::Result;
use crate::needs::Needs;
use crate::recipe::Recipe;
use crate::state::StateWalk;

pub(super) struct BoxedStage<'a, N> {
    pub(super) inside: &'a dyn DynTransformation<N>,
    pub(super) state: &'a dyn ErasedState,
    pub(super) at: StageChunk,
}

struct DispatchChunk<'a, 't, N>(BoxedStage<'a, N>, PhantomData<&'a mut &'t ()>);

impl<'a, 't, N: Needs> TypedJob for DispatchChunk<'a, 't, N> {
    type Argument<C: Real> = &'a mut Then<'t, C>;

    fn single(self, then: &mut Then<'_, f32>) {
        self.0.inside.dyn_prepare_chunk_f32(self.0.state, self.0.at, then);
    }

    fn double(self, then: &mut Then<'_, f64>) {
        self.0.inside.dyn_prepare_chunk_f64(self.0.state, self.0.at, then);
    }

    #[cfg(feature = "program")]
    fn recorded<C: Real>(self, then: &mut Then<'_, C>, number: fn(C) -> u32, line: fn(u32) -> C) {
        super::recorded::prepare_chunk(&self.0, then, number, line);
    }
}

fn viewed<'a, N: Needs, R>(
    inside: &dyn DynTransformation<N>,
    state: &'a BoxedState,
    of: impl FnOnce(&dyn View<'a>) -> R,
) -> R {
    let (mut of, mut found) = (Some(of), None);
    let _ = inside.dyn_view(0, &*state.0, &mut |_, view| {
        found = of.take().map(|of| of(view));
        Break(())
    });
    found.expect("a box exposes its transformation")
}

fn in_step<'a, N: Needs>(
    inside: &dyn DynTransformation<N>,
    state: &'a mut BoxedState,
    mut does: impl FnMut(&mut dyn InStep<'a>),
) {
    let _ = inside.dyn_in_step(0, &mut *state.0, &mut |_, inside| {
        does(inside);
        Break(())
    });
}

/// Implements a box as the stage that it contains.
macro_rules! boxed_stage {
    ($Box:ty) => {
        impl<N: Needs> Transform for $Box {
            fn as_dyn(&self) -> &dyn Transform {
                self
            }

            fn members(&self, visit: &mut dyn FnMut(&dyn Transform)) {
                visit(&**self);
            }

            fn shape(&self) -> PassStructure {
                (**self).shape()
            }

            // Called every step, so without a visitor.
            fn absent(&self) -> Absent {
                (**self).absent()
            }

            fn skips(&self, skips: &mut Skips, place: &str) -> bool {
                (**self).skips(skips, place)
            }

            fn own_arguments(&mut self, visit: &mut Visit<'_>) {
                (**self).own_arguments(visit);
            }

            fn summary(&self) -> Summary {
                (**self).summary()
            }

            fn recipe(&self) -> Recipe {
                (**self).recipe()
            }

            fn describe(&self) -> String {
                (**self).describe()
            }
        }

        impl<N: Needs> Stage for $Box {
            type Needs = N;
            type State = BoxedState;
            /// In the state's box, so that a step allocates nothing.
            type Run = ();
            type Kernel<C: Real> = ();

            const SHAPE: PassStructure = PassStructure::elementwise(false, false);
            const FUSES: bool = false;

            fn changed(&self, original: &Self) -> Option<&'static str> {
                (**self).dyn_changed(&**original)
            }

            fn init_state(&self, at: &InitContext<'_>) -> Result<BoxedState> {
                (**self).dyn_init(at).map(BoxedState)
            }

            fn views<'a>(&self, state: &'a BoxedState, _: Option<&()>, visit: &mut OnView<'_, 'a>) {
                let _ = (**self).dyn_view(0, &*state.0, visit);
            }

            fn begin(&self, state: &mut BoxedState, at: &StepContext<'_>) {
                state.0.reset();
                in_step(&**self, state, |inside| inside.begin(at));
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
                in_step(&**self, state, |inside| inside.barrier(at, index, sums, tree));
            }

            fn finish(&self, state: &mut BoxedState, (): (), sums: Sums<'_>, outcome: &mut Outcome) {
                in_step(&**self, state, |inside| {
                    inside.finish(sums, outcome);
                });
            }

            fn emission(&self, state: &BoxedState, (): &()) -> Emission {
                viewed(&**self, state, |inside| inside.emission()).unwrap_or(Emission::Undecided)
            }

            fn resting<'a>(&self, state: &'a BoxedState) -> &'a [bool] {
                viewed(&**self, state, |inside| inside.resting())
            }

            fn pass(&self, state: &BoxedState, (): &(), walk: &Walk<'_>, scratch: &mut TileScratch) {
                if !(**self).dyn_pass(&*state.0, walk, scratch) {
                    run_own_loops(self, (state, &()), walk, scratch);
                }
            }

            fn prepare_chunk<C: Real>(&self, state: &BoxedState, (): &(), at: StageChunk, then: &mut Then<'_, C>) {
                let inside = BoxedStage { inside: &**self, state: &*state.0, at };
                C::dispatch_type(DispatchChunk(inside, PhantomData), then);
            }

            fn kernel<C: Real>(&self, _: &BoxedState, (): &(), _: usize) {}

            fn read<'a>(&self, state: &'a BoxedState, walk: &mut StateWalk<'a, '_>) -> Result<()> {
                viewed(&**self, state, |inside| inside.read(walk))
            }
        }
    };
}
boxed_stage!(Boxed<N>);
boxed_stage!(Named<N>);
