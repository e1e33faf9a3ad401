use core::any::Any;
use core::fmt;
use core::marker::PhantomData;

use super::{Argument, Arguments};
use crate::element::Real;
use crate::engine::{InitContext, Outcome, Place, Shape, Span, Stage, StepContext, Sums, Tile, WholeTree};
use crate::error::{Error, Result};
use crate::needs::{Includes, Level, Needs, Nothing, ValueAndGradFn};
use crate::recipe::Recipe;
use crate::state::{State, StateWalk, StateWalkMut};

/// A transformation whose type is forgotten: for chains that are put together at run time.
///
/// It is itself a transformation. It does not fuse with its neighbours: each boxed member is run on tiles that stay in
/// the first-level cache. What is inside one box does fuse.
///
/// `N` is what a step must be given besides gradients: a `Boxed<needs::Value>` can hold whatever needs the loss, or
/// nothing. `let member: Boxed<needs::Value> = Box::new(adam(0.1))` makes one.
pub type Boxed<N = Nothing> = Box<dyn DynTransformation<N>>;

/// Forgets a transformation's type.
///
/// # Cost
///
/// One indirect call for each tile of 512 elements; updates between members go through the first-level cache instead of
/// registers.
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

/// What a [`Boxed`] transformation can do; implemented for every [`Stage`] that can be cloned.
#[allow(missing_docs, reason = "each method is the method of `Stage` of the same name")]
pub trait DynTransformation<N = Nothing>: fmt::Debug + Send + Sync {
    #[doc(hidden)]
    fn dyn_clone(&self) -> Boxed<N>;
    #[doc(hidden)]
    fn dyn_needs(&self) -> Level;
    #[doc(hidden)]
    fn dyn_shape(&self) -> Shape;
    #[doc(hidden)]
    fn dyn_validate(&self) -> Result<()>;
    #[doc(hidden)]
    fn dyn_init(&self, at: &InitContext<'_>) -> Result<Box<dyn ErasedState>>;
    #[doc(hidden)]
    fn dyn_check(&self, state: &dyn ErasedState, at: &StepContext<'_>) -> Result<()>;
    #[doc(hidden)]
    fn dyn_begin(&self, state: &mut dyn ErasedState, at: &StepContext<'_>);
    #[doc(hidden)]
    fn dyn_barrier(
        &self,
        state: &mut dyn ErasedState,
        at: &StepContext<'_>,
        index: usize,
        sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
    );
    #[doc(hidden)]
    fn dyn_finish(&self, state: &mut dyn ErasedState, sums: Sums<'_>, outcome: &mut Outcome);
    #[doc(hidden)]
    fn dyn_ends_at(&self, state: &dyn ErasedState) -> Option<usize>;
    #[doc(hidden)]
    fn dyn_tile_f32(&self, state: &dyn ErasedState, place: Place, span: Span, tile: &mut Tile<'_, f32>);
    #[doc(hidden)]
    fn dyn_tile_f64(&self, state: &dyn ErasedState, place: Place, span: Span, tile: &mut Tile<'_, f64>);
    #[doc(hidden)]
    fn dyn_state_bytes(&self, state: &dyn ErasedState, leaf: usize, at: usize, span: Span) -> usize;
    #[doc(hidden)]
    fn dyn_unused(&self, state: &dyn ErasedState, report: &mut dyn FnMut(&str));
    #[doc(hidden)]
    fn dyn_recipe(&self) -> Recipe;
    #[doc(hidden)]
    fn dyn_describe(&self) -> String;
}

/// The state of a boxed transformation, and while a step runs what was worked out for it.
#[doc(hidden)]
pub trait ErasedState: fmt::Debug + Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
    fn state_any(&self) -> &dyn Any;
    fn state_any_mut(&mut self) -> &mut dyn Any;
    fn clone_box(&self) -> Box<dyn ErasedState>;
    fn walk_erased<'a>(&'a self, walk: &mut StateWalk<'a, '_>);
    fn walk_erased_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>);
}

struct Held<T: Stage> {
    state: T::State,
    run: Option<T::Run>,
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
    fn run(&self) -> &T::Run {
        self.run.as_ref().expect("a step has begun")
    }
}

/// A boxed transformation is given the state that it made: [`BoxedState`] can be exchanged for another of the same
/// schema only through `OptState::replace`, and two transformations of the same schema have states of the same type.
fn held<T: Stage + 'static>(state: &dyn ErasedState) -> &Held<T> {
    state.as_any().downcast_ref().expect("the state was made by this transformation")
}

fn held_mut<T: Stage + 'static>(state: &mut dyn ErasedState) -> &mut Held<T> {
    state.as_any_mut().downcast_mut().expect("the state was made by this transformation")
}

impl<N: Needs> Clone for Boxed<N> {
    fn clone(&self) -> Boxed<N> {
        (**self).dyn_clone()
    }
}

impl<N: Needs + Includes<T::Needs>, T: Stage + Clone + 'static> DynTransformation<N> for T {
    fn dyn_clone(&self) -> Boxed<N> {
        Box::new(self.clone())
    }
    fn dyn_needs(&self) -> Level {
        self.needs()
    }
    fn dyn_shape(&self) -> Shape {
        self.shape()
    }
    fn dyn_validate(&self) -> Result<()> {
        self.validate()
    }
    fn dyn_init(&self, at: &InitContext<'_>) -> Result<Box<dyn ErasedState>> {
        Ok(Box::new(Held::<T> { state: self.init_state(at)?, run: None }))
    }
    fn dyn_check(&self, state: &dyn ErasedState, at: &StepContext<'_>) -> Result<()> {
        let Some(held) = state.as_any().downcast_ref::<Held<T>>() else {
            return Err(Error::state(
                self.describe(),
                "the state was made by another transformation; make one with `init`",
            ));
        };
        self.check(&held.state, at)
    }
    fn dyn_begin(&self, state: &mut dyn ErasedState, at: &StepContext<'_>) {
        let held = held_mut::<T>(state);
        held.run = Some(self.begin(&mut held.state, at));
    }
    fn dyn_barrier(
        &self,
        state: &mut dyn ErasedState,
        at: &StepContext<'_>,
        index: usize,
        sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        let Held { state, run } = held_mut::<T>(state);
        if let Some(run) = run {
            self.barrier(state, run, at, index, sums, tree);
        }
    }
    fn dyn_finish(&self, state: &mut dyn ErasedState, sums: Sums<'_>, outcome: &mut Outcome) {
        let Held { state, run } = held_mut::<T>(state);
        if let Some(run) = run.take() {
            self.finish(state, run, sums, outcome);
        }
    }
    fn dyn_ends_at(&self, state: &dyn ErasedState) -> Option<usize> {
        let held = held::<T>(state);
        self.ends_at(&held.state, held.run())
    }
    fn dyn_tile_f32(&self, state: &dyn ErasedState, place: Place, span: Span, tile: &mut Tile<'_, f32>) {
        let held = held::<T>(state);
        self.tile(&held.state, held.run(), place, span, tile);
    }
    fn dyn_tile_f64(&self, state: &dyn ErasedState, place: Place, span: Span, tile: &mut Tile<'_, f64>) {
        let held = held::<T>(state);
        self.tile(&held.state, held.run(), place, span, tile);
    }
    fn dyn_state_bytes(&self, state: &dyn ErasedState, leaf: usize, at: usize, span: Span) -> usize {
        self.state_bytes(&held::<T>(state).state, leaf, at, span)
    }
    fn dyn_unused(&self, state: &dyn ErasedState, report: &mut dyn FnMut(&str)) {
        self.unused(&held::<T>(state).state, report);
    }
    fn dyn_recipe(&self) -> Recipe {
        self.recipe()
    }
    fn dyn_describe(&self) -> String {
        self.describe()
    }
}

/// A transformation with named arguments whose type is forgotten: for
/// [`inject_hyperparams`](crate::inject_hyperparams) of what is chosen at run time. It is a [`Boxed`] too: a `Named<N>`
/// can be given where a `Boxed<N>` is expected.
///
/// ```
/// use gradchain::prelude::*;
///
/// let nesterov = true;
/// let chosen: Named = if nesterov { Box::new(adam(0.1).nesterov(true)) } else { Box::new(sgd(0.1)) };
/// let optimizer = inject_hyperparams(chosen);
/// let mut state = optimizer.init(&0.0_f32)?;
/// state.hyperparams_mut().set("learning_rate", 0.2)?;
/// # Ok::<(), gradchain::Error>(())
/// ```
pub type Named<N = Nothing> = Box<dyn DynNamed<N>>;

/// What a [`Named`] transformation can do; implemented for all [`Arguments`] that can be cloned.
#[allow(missing_docs, reason = "each method is the method of `Arguments` of the same name")]
pub trait DynNamed<N = Nothing>: DynTransformation<N> {
    #[doc(hidden)]
    fn dyn_clone_named(&self) -> Named<N>;
    #[doc(hidden)]
    fn dyn_name(&self) -> &'static str;
    #[doc(hidden)]
    fn dyn_arguments(&mut self, visit: &mut dyn FnMut(&'static str, Argument<'_>));
}

impl<N: Needs + Includes<T::Needs>, T: Arguments + Clone + 'static> DynNamed<N> for T {
    fn dyn_clone_named(&self) -> Named<N> {
        Box::new(self.clone())
    }
    fn dyn_name(&self) -> &'static str {
        self.name()
    }
    fn dyn_arguments(&mut self, visit: &mut dyn FnMut(&'static str, Argument<'_>)) {
        self.arguments(visit);
    }
}

impl<N: Needs> Clone for Named<N> {
    fn clone(&self) -> Named<N> {
        (**self).dyn_clone_named()
    }
}

impl<N: Needs> Arguments for Named<N> {
    /// Known at run time only: see [`name`](Arguments::name).
    const NAME: &'static str = "named";

    fn name(&self) -> &'static str {
        (**self).dyn_name()
    }

    fn arguments(&mut self, visit: &mut dyn FnMut(&'static str, Argument<'_>)) {
        (**self).dyn_arguments(visit);
    }
}

/// Makes sure that a transformation that may need anything needs no more than `N`, which is then part of its type.
///
/// # Errors
///
/// If it needs more.
///
/// ```
/// use gradchain::needs::{Nothing, ValueAndGradFn};
/// use gradchain::prelude::*;
///
/// let members: Vec<Boxed<ValueAndGradFn>> = vec![Box::new(clip(1.0)), Box::new(adam(0.1))];
/// let optimizer: Boxed = narrow::<Nothing>(Box::new(chain(members)))?;
///
/// let searching: Boxed<ValueAndGradFn> = Box::new(lbfgs());
/// let error = narrow::<Nothing>(searching).unwrap_err();
/// assert!(error.to_string().contains("needs the loss and its gradient as a function"));
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn narrow<N: Needs>(transformation: Boxed<ValueAndGradFn>) -> Result<Boxed<N>> {
    let (most, found) = (N::LEVEL, transformation.needs());
    if found > most {
        let problem = format!("it needs {found}, and is to be given {most}");
        return Err(Error::state(transformation.describe(), problem));
    }
    Ok(Box::new(Narrow { inner: transformation, needs: PhantomData::<fn() -> N> }))
}

/// See [`narrow`].
struct Narrow<N> {
    inner: Boxed<ValueAndGradFn>,
    needs: PhantomData<fn() -> N>,
}

impl<N> Clone for Narrow<N> {
    fn clone(&self) -> Self {
        Narrow { inner: self.inner.clone(), needs: PhantomData }
    }
}

impl<N> fmt::Debug for Narrow<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

crate::engine::delegate_stage! {
    Narrow<N> where N: Needs => inner: Boxed<ValueAndGradFn>;
    needs N;
    recipe |this: &Narrow<N>| this.inner.recipe();
    describe |this: &Narrow<N>| this.inner.describe()
}

/// The state of a [`Boxed`] transformation.
#[derive(Debug)]
pub struct BoxedState(Box<dyn ErasedState>);

impl BoxedState {
    /// The state, if it is of type `S`, such as `OptState<T>`'s target for the `T` that was boxed.
    pub fn downcast_ref<S: State>(&self) -> Option<&S> {
        self.0.state_any().downcast_ref()
    }

    /// The state, if it is of type `S`, to write.
    pub fn downcast_mut<S: State>(&mut self) -> Option<&mut S> {
        self.0.state_any_mut().downcast_mut()
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

            fn validate(&self) -> Result<()> {
                (**self).dyn_validate()
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

            fn ends_at(&self, state: &BoxedState, (): &()) -> Option<usize> {
                (**self).dyn_ends_at(&*state.0)
            }

            fn tile<C: Real>(&self, state: &BoxedState, (): &(), place: Place, span: Span, tile: &mut Tile<'_, C>) {
                let inside: &dyn DynTransformation<N> = &**self;
                C::dyn_tile(inside, &*state.0, place, span, tile);
            }

            fn kernel<C: Real>(&self, _: &BoxedState, (): &(), _: usize) {}

            fn state_bytes(&self, state: &BoxedState, leaf: usize, at: usize, span: Span) -> usize {
                (**self).dyn_state_bytes(&*state.0, leaf, at, span)
            }

            fn unused(&self, state: &BoxedState, report: &mut dyn FnMut(&str)) {
                (**self).dyn_unused(&*state.0, report);
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

/// A chain whose length is known at run time.
impl<N: Needs> Stage for Vec<Boxed<N>> {
    type Needs = N;
    type State = Vec<BoxedState>;
    type Run = ();
    type Kernel<C: Real> = ();

    const SHAPE: Shape = Shape::elementwise(false, false);
    const FUSES: bool = false;

    fn shape(&self) -> Shape {
        self.iter().fold(Self::SHAPE, |shape, member| shape.then(member.shape()))
    }

    fn needs(&self) -> Level {
        self.iter().map(Stage::needs).max().unwrap_or(Level::Nothing)
    }

    fn validate(&self) -> Result<()> {
        self.iter().try_for_each(Stage::validate)
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        self.iter().map(|member| member.init_state(at)).collect()
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        if self.len() != state.len() {
            let problem = format!("the state is of {} members; make one with `init`", state.len());
            return Err(Error::state(self.describe(), problem));
        }
        self.iter().zip(state).try_for_each(|(member, state)| member.check(state, at))
    }

    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) {
        self.iter().zip(state).for_each(|(member, state)| member.begin(state, at));
    }

    fn barrier(
        &self,
        state: &mut Self::State,
        (): &mut (),
        at: &StepContext<'_>,
        mut index: usize,
        mut sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        for (member, state) in self.iter().zip(state) {
            let shape = member.shape();
            if index < shape.barriers {
                return member.barrier(state, &mut (), at, index, sums, tree);
            }
            index -= shape.barriers;
            sums = sums.skip(shape.sums);
        }
    }

    fn finish(&self, state: &mut Self::State, (): (), mut sums: Sums<'_>, outcome: &mut Outcome) {
        for (member, state) in self.iter().zip(state) {
            member.finish(state, (), sums, outcome);
            sums = sums.skip(member.shape().sums);
        }
    }

    fn ends_at(&self, state: &Self::State, (): &()) -> Option<usize> {
        let (last, before) = self.split_last()?;
        let before: usize = before.iter().map(|member| member.shape().barriers).sum();
        last.ends_at(state.last()?, &()).map(|end| before + end)
    }

    fn tile<C: Real>(&self, state: &Self::State, (): &(), mut place: Place, span: Span, tile: &mut Tile<'_, C>) {
        for (member, state) in self.iter().zip(state) {
            member.tile(state, &(), place, span, tile);
            place = place.after(member.shape());
        }
    }

    fn kernel<C: Real>(&self, _: &Self::State, (): &(), _: usize) {}

    fn state_bytes(&self, state: &Self::State, leaf: usize, mut at: usize, span: Span) -> usize {
        let mut bytes = 0;
        for (member, state) in self.iter().zip(state) {
            bytes += member.state_bytes(state, leaf, at, span);
            at += member.shape().barriers;
        }
        bytes
    }

    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str)) {
        self.iter().zip(state).for_each(|(member, state)| member.unused(state, report));
    }

    fn recipe(&self) -> Recipe {
        Recipe::Map(vec![("chain".into(), Recipe::List(self.iter().map(Stage::recipe).collect()))])
    }

    fn describe(&self) -> String {
        format!("chain({})", self.iter().map(Stage::describe).collect::<Vec<_>>().join(", "))
    }
}
