//! Type-erased transformations.

mod chain;
mod named;
mod narrow;
#[cfg(feature = "program")]
mod recorded;
mod stage;
mod state;

use core::any::Any;
use core::fmt::Debug;
use core::ops::ControlFlow;

pub use named::{DynNamed, Named};
pub use narrow::narrow;
pub use state::BoxedState;
use state::{ErasedState, Held, held, held_mut};

use crate::engine::{Foreign, InitContext, OnMember, OnView, Stage, StageChunk, Then, TileScratch, Transform, Walk};
use crate::error::Result;
use crate::needs::{Includes, Needs, Nothing, ValueAndGradFn};
use crate::recipe::{self, FromRecipe, Node};

/// A type-erased transformation, for chains composed at run time.
///
/// It is itself a transformation. A box that stands alone, such as an optimizer in a struct's field, runs its inner
/// transformation as if its type were known. As a member of a chain it does not fuse with its neighbours: each boxed
/// member runs on tiles that stay in L1. Members inside one box do fuse.
///
/// `N` are the inputs of a step besides gradients: a `Boxed<needs::Value>` holds transformations that need the loss, or
/// nothing. `let member: Boxed<needs::Value> = Box::new(adam(0.1))` makes one.
pub type Boxed<N = Nothing> = Box<dyn DynTransformation<N>>;

/// Erases a transformation's type.
///
/// # Cost
///
/// A box that is a whole chain: one indirect call for each pass. A member of a chain: one for each tile of 1024
/// elements, and updates between members go through L1 instead of registers. A box whose type allows more than its
/// content needs, as `Box::new(adam(0.1))` in a `Boxed<needs::Value>`, counts as a member: it runs by tiles even alone,
/// unless it holds a tuple. `docs/performance.md` has figures.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let mut members: Vec<Boxed> = vec![boxed(clip(1.0))];
/// if true {
///     members.push(boxed(adam(0.1)));
/// }
/// let optimizer = chain(members);
/// let mut params = vec![1.0_f32, 2.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![1.0_f32, -1.0], &mut state)?;
/// assert!((params[0] - 0.9).abs() < 1e-6);
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn boxed<T: Stage + Clone + 'static>(transformation: T) -> Boxed<T::Needs> {
    Box::new(transformation)
}

/// Not inlined: two methods copy each transformation.
#[inline(never)]
fn copied<T: Clone>(transformation: &T) -> Box<T> {
    Box::new(transformation.clone())
}

type PassFn<T> = fn(&T, &<T as Stage>::State, &<T as Stage>::Run, &Walk<'_>, &mut TileScratch);

/// The trait of [`Boxed`] transformations, implemented for every transformation.
pub trait DynTransformation<N = Nothing>: Erased<N> {}

impl<N: Needs + Includes<T::Needs>, T: Stage + Clone + 'static> DynTransformation<N> for T {}

/// The methods of a box that the engine calls, besides [`Transform`]. Users cannot name this trait.
#[allow(missing_docs, reason = "each method is the method of `Stage` of the same name")]
pub trait Erased<N>: Any + Debug + Transform {
    fn dyn_clone(&self) -> Boxed<N>;
    fn dyn_changed(&self, original: &dyn Any) -> Option<&'static str>;
    fn dyn_init(&self, at: &InitContext<'_>) -> Result<Box<dyn ErasedState>>;
    /// Calls `visit` with the box's index, the inner transformation and its state.
    fn dyn_view<'a>(&self, number: usize, state: &'a dyn ErasedState, visit: &mut OnView<'_, 'a>) -> ControlFlow<()>;
    /// Calls `visit` with the box's index and the inner transformation in a step.
    fn dyn_in_step<'a>(
        &self,
        number: usize,
        state: &'a mut dyn ErasedState,
        visit: &mut OnMember<'_, 'a>,
    ) -> ControlFlow<()>;
    fn dyn_pass(&self, state: &dyn ErasedState, walk: &Walk<'_>, scratch: &mut TileScratch) -> bool;
    fn dyn_prepare_chunk_f32(&self, state: &dyn ErasedState, at: StageChunk, then: &mut Then<'_, f32>);
    fn dyn_prepare_chunk_f64(&self, state: &dyn ErasedState, at: StageChunk, then: &mut Then<'_, f64>);
    #[cfg(feature = "program")]
    fn dyn_recorded_tile(&self, state: &dyn ErasedState, at: StageChunk, tile: &mut crate::program::ErasedTile);
}

impl<N: Needs> Clone for Boxed<N> {
    fn clone(&self) -> Boxed<N> {
        (**self).dyn_clone()
    }
}

impl<N: Needs + Includes<T::Needs>, T: Stage + Clone + 'static> Erased<N> for T {
    fn dyn_clone(&self) -> Boxed<N> {
        copied::<T>(self)
    }
    fn dyn_changed(&self, original: &dyn Any) -> Option<&'static str> {
        original.downcast_ref::<T>().map_or(Some("boxed transformation"), |original| self.changed(original))
    }
    fn dyn_init(&self, at: &InitContext<'_>) -> Result<Box<dyn ErasedState>> {
        Ok(Box::new(Held::<T> { state: self.init_state(at)?, run: None }))
    }
    fn dyn_view<'a>(&self, number: usize, state: &'a dyn ErasedState, visit: &mut OnView<'_, 'a>) -> ControlFlow<()> {
        match state.as_any().downcast_ref::<Held<T>>() {
            Some(Held { state, run }) => self.visit_view(number, state, run.as_ref(), visit),
            None => visit(number, &Foreign(self)),
        }
    }
    fn dyn_in_step<'a>(
        &self,
        number: usize,
        state: &'a mut dyn ErasedState,
        visit: &mut OnMember<'_, 'a>,
    ) -> ControlFlow<()> {
        let Held { state, run } = held_mut::<T>(state);
        self.visit_in_step(number, state, run, visit)
    }
    fn dyn_pass(&self, state: &dyn ErasedState, walk: &Walk<'_>, scratch: &mut TileScratch) -> bool {
        let held = held::<T>(state);
        // Whole-chain loops for every member of a config would lengthen compilation by half.
        let pass: Option<PassFn<T>> =
            const { if T::WHOLE || N::LEVEL as u8 == T::Needs::LEVEL as u8 { Some(T::pass) } else { None } };
        if let Some(pass) = pass {
            pass(self, &held.state, held.run(), walk, scratch);
        }
        pass.is_some()
    }
    fn dyn_prepare_chunk_f32(&self, state: &dyn ErasedState, at: StageChunk, then: &mut Then<'_, f32>) {
        let held = held::<T>(state);
        self.prepare_chunk(&held.state, held.run(), at, then);
    }
    fn dyn_prepare_chunk_f64(&self, state: &dyn ErasedState, at: StageChunk, then: &mut Then<'_, f64>) {
        let held = held::<T>(state);
        self.prepare_chunk(&held.state, held.run(), at, then);
    }
    #[cfg(feature = "program")]
    fn dyn_recorded_tile(&self, state: &dyn ErasedState, at: StageChunk, tile: &mut crate::program::ErasedTile) {
        recorded::run(self, held::<T>(state), at, tile);
    }
}

/// Read by the [`Builder`](recipe::Builder) of the config.
impl FromRecipe for Boxed<ValueAndGradFn> {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<Self> {
        let mut member: Self = Box::new(());
        node.build_into(&mut member)?;
        Ok(member)
    }

    fn schema() -> String {
        r##"{"$ref": "#/$defs/transformation"}"##.into()
    }
}
