//! A type-erased transformation, compiled once for all laws.
//!
//! A [`Session`] steps the transformation itself, with its users' loops.

use gradchain::arguments::Arguments;
use gradchain::needs::{Includes, ValueAndGradFn};
use gradchain::prelude::{OptState, Outcome, Updates};
use gradchain::program::{Executor, Programs};
use gradchain::state::{Schema, State, StateWalk, StateWalkMut};
use gradchain::tree::DynTree;
use gradchain::watch::Readings;
use gradchain::{GradientTransformation, Result, Tree, wrapper};
use std::any::Any;
use std::fmt::Debug;

use super::StateAfter;
use super::extra_inputs::{Member, Registered};
use super::registry::Locality;

pub trait Subject: Sync {
    fn name(&self) -> &str;
    fn locality(&self) -> Locality;

    /// Returns the unboxed transformation's state.
    fn init(&self, params: &DynTree) -> Result<Box<dyn Session>>;

    fn programs(&self, params: &DynTree) -> Result<Programs>;

    /// Returns the transformation boxed by the crate.
    fn boxed(&self) -> Member;

    /// Returns it boxed with its named arguments, if any.
    fn named(&self) -> Option<wrapper::Named<ValueAndGradFn>> {
        None
    }
}

impl dyn Subject + '_ {
    pub fn run(&self, params: &DynTree, grads: &[DynTree]) -> StateAfter<AnyState> {
        let mut params = params.clone();
        let mut session = self.init(&params).expect("a registered transformation fits every tree");
        for grads in grads {
            session.step(&mut params, grads).expect("gradients of the parameters' structure");
        }
        StateAfter { params, state: session.state() }
    }
}

pub trait Session {
    fn step(&mut self, params: &mut DynTree, grads: &dyn Tree) -> Result<Outcome>;
    fn step_on(&mut self, executor: &mut dyn Executor) -> Result<Outcome>;
    fn update(&mut self, grads: &DynTree, params: &DynTree) -> Result<Updates>;
    fn update_into(&mut self, grads: &DynTree, params: &DynTree, updates: &mut Updates) -> Result<Outcome>;
    fn update_owned(&mut self, grads: DynTree, params: &DynTree) -> Result<(DynTree, Outcome)>;
    fn zero_updates(&self) -> Updates;
    fn schema(&self) -> Schema;
    fn readings(&self) -> Result<Readings>;
    fn state(&self) -> AnyState;
    /// Replaces the state by assignment, as safe user code can.
    fn put(&mut self, state: AnyState);
    /// Calls `OptState::replace`.
    fn replace(&mut self, state: AnyState) -> Result<()>;
    fn copy(&self) -> Box<dyn Session>;
}

#[derive(Clone)]
pub struct Entry<T> {
    pub name: String,
    pub locality: Locality,
    pub transformation: T,
}

/// Erases the type of an entry with named arguments.
///
/// `entry.subject()` prefers it over [`Anonymous`], which needs a reference.
pub trait Named {
    fn subject(self) -> Box<dyn Subject>;
}

impl<T: Registered + Arguments> Named for Entry<T>
where
    ValueAndGradFn: Includes<T::Needs>,
{
    fn subject(self) -> Box<dyn Subject> {
        Box::new(WithArguments(self))
    }
}

/// Erases the type of any entry.
pub trait Anonymous {
    fn subject(self) -> Box<dyn Subject>;
}

impl<T: Registered> Anonymous for &Entry<T> {
    fn subject(self) -> Box<dyn Subject> {
        Box::new(self.clone())
    }
}

impl<T: Registered> Subject for Entry<T> {
    fn name(&self) -> &str {
        &self.name
    }
    fn locality(&self) -> Locality {
        self.locality
    }
    fn init(&self, params: &DynTree) -> Result<Box<dyn Session>> {
        Ok(Box::new(Running { transformation: self.transformation.clone(), state: self.transformation.init(params)? }))
    }
    fn programs(&self, params: &DynTree) -> Result<Programs> {
        self.transformation.programs(params)
    }
    fn boxed(&self) -> Member {
        self.transformation.clone().member()
    }
}

struct WithArguments<T>(Entry<T>);

impl<T: Registered + Arguments> Subject for WithArguments<T>
where
    ValueAndGradFn: Includes<T::Needs>,
{
    fn name(&self) -> &str {
        self.0.name()
    }
    fn locality(&self) -> Locality {
        self.0.locality()
    }
    fn init(&self, params: &DynTree) -> Result<Box<dyn Session>> {
        self.0.init(params)
    }
    fn programs(&self, params: &DynTree) -> Result<Programs> {
        self.0.programs(params)
    }
    fn boxed(&self) -> Member {
        self.0.boxed()
    }
    fn named(&self) -> Option<wrapper::Named<ValueAndGradFn>> {
        Some(Box::new(self.0.transformation.clone()))
    }
}

struct Running<T: GradientTransformation> {
    transformation: T,
    state: OptState<T>,
}

impl<T: Registered> Session for Running<T> {
    fn step(&mut self, params: &mut DynTree, grads: &dyn Tree) -> Result<Outcome> {
        self.transformation.step_with_inputs(params, grads, &mut self.state)
    }
    fn step_on(&mut self, executor: &mut dyn Executor) -> Result<Outcome> {
        self.transformation.step_on_with_inputs(executor, &mut self.state)
    }
    fn update(&mut self, grads: &DynTree, params: &DynTree) -> Result<Updates> {
        self.transformation.update_with_inputs(grads, &mut self.state, params)
    }
    fn update_into(&mut self, grads: &DynTree, params: &DynTree, updates: &mut Updates) -> Result<Outcome> {
        self.transformation.update_into_with_inputs(grads, &mut self.state, params, updates)
    }
    fn update_owned(&mut self, grads: DynTree, params: &DynTree) -> Result<(DynTree, Outcome)> {
        self.transformation.update_owned_with_inputs(grads, &mut self.state, params)
    }
    fn zero_updates(&self) -> Updates {
        self.state.zero_updates()
    }
    fn schema(&self) -> Schema {
        self.state.schema()
    }
    fn readings(&self) -> Result<Readings> {
        self.transformation.readings(&self.state)
    }
    fn state(&self) -> AnyState {
        AnyState::of(&*self.state)
    }
    fn put(&mut self, state: AnyState) {
        *self.state = *state.0.into_any().downcast().expect("a state of this transformation");
    }
    fn replace(&mut self, state: AnyState) -> Result<()> {
        let state = state.0.into_any().downcast().expect("a state of this transformation");
        self.state.replace(*state)
    }
    fn copy(&self) -> Box<dyn Session> {
        Box::new(Running { transformation: self.transformation.clone(), state: self.state.clone() })
    }
}

#[derive(Debug)]
pub struct AnyState(Box<dyn ErasedState>);

impl AnyState {
    pub fn of<S: State>(state: &S) -> AnyState {
        AnyState(state.copy())
    }
}

impl Clone for AnyState {
    fn clone(&self) -> AnyState {
        AnyState(self.0.copy())
    }
}

impl State for AnyState {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        self.0.walk_erased(walk);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        self.0.walk_erased_mut(walk);
    }
}

trait ErasedState: Debug + Send + Sync {
    fn copy(&self) -> Box<dyn ErasedState>;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
    fn walk_erased<'a>(&'a self, walk: &mut StateWalk<'a, '_>);
    fn walk_erased_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>);
}

impl<S: State> ErasedState for S {
    fn copy(&self) -> Box<dyn ErasedState> {
        Box::new(self.clone())
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
    fn walk_erased<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        self.walk(walk);
    }
    fn walk_erased_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        self.walk_mut(walk);
    }
}
