//! The state of a boxed transformation.

use core::any::Any;
use core::fmt;

use crate::engine::{PartState, Stage};
use crate::state::{State, StateWalk, StateWalkMut};

/// A type-erased state, with the values of the current step.
pub trait ErasedState: fmt::Debug + Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
    fn state_any(&self) -> &dyn Any;
    fn state_any_mut(&mut self) -> &mut dyn Any;
    /// Drops the values of an earlier step.
    fn reset(&mut self);
    fn clone_box(&self) -> Box<dyn ErasedState>;
    fn walk_erased<'a>(&'a self, walk: &mut StateWalk<'a, '_>);
    fn walk_erased_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>);
}

pub(super) struct Held<T: Stage> {
    pub(super) state: T::State,
    pub(super) run: Option<T::Run>,
}

impl<T: Stage> fmt::Debug for Held<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}

impl<T: Stage + 'static> ErasedState for Held<T> {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
    fn state_any(&self) -> &dyn Any {
        &self.state
    }
    fn state_any_mut(&mut self) -> &mut dyn Any {
        &mut self.state
    }
    fn reset(&mut self) {
        self.run = None;
    }
    fn clone_box(&self) -> Box<dyn ErasedState> {
        Box::new(Held::<T> { state: self.state.clone(), run: None })
    }
    fn walk_erased<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        self.state.walk(walk);
    }
    fn walk_erased_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        self.state.walk_mut(walk);
    }
}

impl<T: Stage> Held<T> {
    pub(super) fn run(&self) -> &T::Run {
        self.run.as_ref().expect("a step has begun")
    }
}

/// Returns the state that a boxed transformation made.
///
/// `OptState::replace` copies values into it, and `check` refuses others before other methods run. Not inlined: a dozen
/// methods of each transformation call it.
#[inline(never)]
pub(super) fn held<T: Stage + 'static>(state: &dyn ErasedState) -> &Held<T> {
    state.as_any().downcast_ref().expect("the state was made by this transformation")
}

#[inline(never)]
pub(super) fn held_mut<T: Stage + 'static>(state: &mut dyn ErasedState) -> &mut Held<T> {
    state.as_any_mut().downcast_mut().expect("the state was made by this transformation")
}

/// The state of a [`Boxed`] transformation.
///
/// [`Boxed`]: https://docs.rs/gradchain/latest/gradchain/wrapper/type.Boxed.html
#[derive(Debug)]
pub struct BoxedState(pub(super) Box<dyn ErasedState>);

impl BoxedState {
    /// Returns the state if its type is `S`, such as that of `OptState<T>`'s target for the boxed `T`.
    pub fn downcast_ref<S: State>(&self) -> Option<&S> {
        let state = self.0.state_any();
        state.downcast_ref().or_else(|| state.downcast_ref::<PartState<S>>().map(|part| &**part))
    }

    /// Returns the state if its type is `S`, to write.
    pub fn downcast_mut<S: State>(&mut self) -> Option<&mut S> {
        let state = self.0.state_any_mut();
        if state.is::<S>() {
            return state.downcast_mut();
        }
        state.downcast_mut::<PartState<S>>().map(|part| &mut **part)
    }
}

impl Clone for BoxedState {
    fn clone(&self) -> Self {
        BoxedState(self.0.clone_box())
    }
}

impl State for BoxedState {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        self.0.walk_erased(walk);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        self.0.walk_erased_mut(walk);
    }
}
