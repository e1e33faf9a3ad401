//! Walks over the fields of a state.

use core::any::Any;
use core::fmt::Display;
use core::hash::Hash;
use std::hash::DefaultHasher;

use super::evaluate::Evaluation;
use super::levels::{Levels, enter, enter_member, leave_member};
use super::readings::{ArgumentValues, Owner, Reader};
use super::{Count, Flag, Moments, PerLeaf, RandomKey, Scalar, State};
use crate::error::Result;

/// One field of a state, for reading.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each variant is named after the kind it holds")]
pub enum Entry<'a> {
    Moments(&'a Moments),
    Count(&'a Count),
    Flag(&'a Flag),
    Scalar(&'a Scalar),
    Key(&'a RandomKey),
    Counts(&'a PerLeaf<Count>),
    Flags(&'a PerLeaf<Flag>),
    Scalars(&'a PerLeaf<Scalar>),
}

/// One field of a state, for writing.
#[derive(Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each variant is named after the kind it holds")]
pub enum EntryMut<'a> {
    Moments(&'a mut Moments),
    Count(&'a mut Count),
    Flag(&'a mut Flag),
    Scalar(&'a mut Scalar),
    Key(&'a mut RandomKey),
    Counts(&'a mut PerLeaf<Count>),
    Flags(&'a mut PerLeaf<Flag>),
    Scalars(&'a mut PerLeaf<Scalar>),
}

#[derive(Clone, Copy, Default)]
pub(crate) struct FieldRole {
    /// True if its leaves are not the parameters'.
    pub(crate) other_tree: bool,
    /// True if set by a user.
    pub(crate) set: bool,
}

/// A walk over the fields of a state, for reading.
pub struct StateWalk<'a, 'w> {
    path: String,
    /// Names in place of the next level's numbers.
    names: Vec<String>,
    role: FieldRole,
    sink: ReadSink<'a, 'w>,
}

/// Receives a fact: path, hash function, category.
pub(crate) type ShowFact<'a> = dyn FnMut(&str, &dyn Fn(&mut DefaultHasher), FactKind) + 'a;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum FactKind {
    /// The leaves and their memory order.
    Placement,
    /// The interpretation of values.
    Meaning,
}

/// The purpose of a walk: fields, parts of one type, evaluations, facts of `init`, or readings.
enum ReadSink<'a, 'w> {
    Entries(&'w mut dyn FnMut(&str, Entry<'a>)),
    Fields(&'w mut dyn FnMut(&str, Entry<'a>, FieldRole)),
    Parts(&'w mut dyn FnMut(&str, &'a dyn Any)),
    Evaluations(&'w mut dyn FnMut(&str, Evaluation<'a>, bool)),
    Facts(&'w mut ShowFact<'w>),
    Readings(&'w mut Reader),
}

/// The fact that a state holds one process's shard.
pub(crate) const SHARES: &str = "shares";

impl<'a, 'w> StateWalk<'a, 'w> {
    /// Returns a walk that shows each field, with its path, to a function.
    pub fn new(sink: &'w mut dyn FnMut(&str, Entry<'a>)) -> Self {
        StateWalk::to(ReadSink::Entries(sink))
    }

    fn to(sink: ReadSink<'a, 'w>) -> Self {
        StateWalk { path: String::new(), names: Vec::new(), role: FieldRole::default(), sink }
    }

    /// Returns a walk that also shows roles.
    pub(crate) fn of_fields(sink: &'w mut dyn FnMut(&str, Entry<'a>, FieldRole)) -> Self {
        StateWalk::to(ReadSink::Fields(sink))
    }

    /// Walks fields whose leaves are not the parameters'.
    pub(crate) fn other_tree<T>(&mut self, nested: impl FnOnce(&mut Self) -> T) -> T {
        let outer = core::mem::replace(&mut self.role.other_tree, true);
        let done = nested(self);
        self.role.other_tree = outer;
        done
    }

    /// Returns a walk that shows each [`part`](Self::part) instead of fields.
    #[doc(hidden)]
    pub fn of_parts(sink: &'w mut dyn FnMut(&str, &'a dyn Any)) -> Self {
        StateWalk::to(ReadSink::Parts(sink))
    }

    /// Shows a part as a whole if the walk is for parts, else returns it to be walked.
    #[doc(hidden)]
    pub fn part<S: Any>(&mut self, part: &'a S) -> Option<&'a S> {
        if let ReadSink::Parts(sink) = &mut self.sink {
            sink(&self.path, part);
            return None;
        }
        Some(part)
    }

    /// Returns a walk that shows each [`evaluation`](Self::evaluation) instead of fields.
    ///
    /// The function also receives the path of the state, and true if the state is [`other_tree`](Self::other_tree).
    pub(crate) fn of_evaluations(sink: &'w mut dyn FnMut(&str, Evaluation<'a>, bool)) -> Self {
        StateWalk::to(ReadSink::Evaluations(sink))
    }

    /// Shows the parameters to evaluate with, if the walk is for them. A second call at the same path replaces the
    /// first for the leaves of its moments.
    pub fn evaluation(&mut self, evaluation: Evaluation<'a>) {
        if let ReadSink::Evaluations(sink) = &mut self.sink {
            sink(&self.path, evaluation, self.role.other_tree);
        }
    }

    /// Returns a walk that shows each [`fact`](Self::fact) instead of fields.
    pub(crate) fn of_facts(sink: &'w mut ShowFact<'w>) -> Self {
        StateWalk::to(ReadSink::Facts(sink))
    }

    /// Shows a decision of `init` that is no field, such as the active leaves or their memory order.
    ///
    /// A state with another fact is refused as a replacement of this one.
    pub fn fact<H: Hash>(&mut self, name: &str, fact: &H) {
        self.show_fact(name, fact, FactKind::Placement);
    }

    /// Shows an argument on which the meaning of the state's values depends beyond their shapes and types.
    ///
    /// A state made with another value is refused as a replacement of this one, also by
    /// [`replace`](crate::OptState::replace).
    pub fn meaning<H: Hash>(&mut self, name: &str, argument: &H) {
        self.show_fact(name, argument, FactKind::Meaning);
    }

    fn show_fact<H: Hash>(&mut self, name: &str, fact: &H, kind: FactKind) {
        if let ReadSink::Facts(sink) = &mut self.sink {
            let parent = enter(&mut self.path, &name);
            sink(&self.path, &|hasher| fact.hash(hasher), kind);
            self.path.truncate(parent);
        }
    }

    /// Returns a walk that shows [readings](Self::reading) instead of fields: single values, and those of the
    /// transformation.
    pub(crate) fn of_readings(reader: &'w mut Reader) -> Self {
        StateWalk::to(ReadSink::Readings(reader))
    }

    /// Shows a number of the last step that is no field. Fields that are single values are readings already.
    ///
    /// See [`readings`](crate::GradientTransformation::readings).
    ///
    /// ```
    /// use gradchain::Real;
    /// use gradchain::part::{InitContext, Part, Passes, StepContext, Sums, TwoPass, TwoPasses};
    /// use gradchain::prelude::*;
    /// use gradchain::state::{State, StateWalk, StateWalkMut};
    ///
    /// /// Counts the gradients that are zero.
    /// #[derive(Clone, Debug)]
    /// struct CountZeros;
    ///
    /// /// Of the last step alone, so that it need not be saved.
    /// #[derive(Clone, Debug)]
    /// struct Zeros { found: f64 }
    ///
    /// impl State for Zeros {
    ///     fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
    ///         walk.reading("zeros", self.found);
    ///     }
    ///     fn walk_mut<'a>(&'a mut self, _: &mut StateWalkMut<'a, '_>) {}
    /// }
    ///
    /// impl Part for CountZeros {
    ///     const NAME: &'static str = "count_zeros";
    ///     type Form = TwoPass;
    /// }
    ///
    /// impl TwoPasses for CountZeros {
    ///     const PASSES: Passes = Passes::ONE;
    ///     type Memory = Zeros;
    ///     type Run = ();
    ///     type Slots<C: Real> = [C; 0];
    ///     type Sums<W: Real> = [W; 1];
    ///     type Scalars<C: Real> = ();
    ///
    ///     fn start(&self, _: &InitContext<'_>) -> gradchain::Result<Zeros> {
    ///         Ok(Zeros { found: f64::NAN })
    ///     }
    ///     fn begin(&self, _: &mut Zeros, _: &StepContext<'_>) {}
    ///     fn scalars<C: Real>(&self, _: &Zeros, (): &(), _: usize) {}
    ///     #[inline(always)]
    ///     fn accumulate<C: Real>((): (), _: &mut [C; 0], u: C, _: C) -> (C, [C::Wide; 1]) {
    ///         let is_zero = if u == C::zero() { C::one() } else { C::zero() };
    ///         (u, [is_zero.wide()])
    ///     }
    ///     fn decide(&self, memory: &mut Zeros, (): &mut (), sums: Sums<'_>) {
    ///         memory.found = sums.total(0);
    ///     }
    ///     fn emit<C: Real>((): (), _: &mut [C; 0], u: C, _: C) -> C {
    ///         u
    ///     }
    /// }
    ///
    /// let optimizer = chain((CountZeros, sgd(1.0)));
    /// let mut params = vec![0.0_f32; 3];
    /// let mut state = optimizer.init(&params)?;
    /// optimizer.step(&mut params, &vec![0.0_f32, 5.0, 0.0], &mut state)?;
    /// assert_eq!(optimizer.readings(&state)?.get("count_zeros.zeros")?, 2.0);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn reading(&mut self, name: &str, value: f64) {
        if let ReadSink::Readings(reader) = &mut self.sink {
            let parent = enter(&mut self.path, &name);
            reader.add(&self.path, None, value);
            self.path.truncate(parent);
        }
    }

    /// As [`reading`](Self::reading), for a number per leaf.
    pub fn readings_by_leaf(&mut self, name: &str, values: impl IntoIterator<Item = (usize, f64)>) {
        if let ReadSink::Readings(reader) = &mut self.sink {
            let parent = enter(&mut self.path, &name);
            reader.leaves(&self.path, self.role.other_tree, values.into_iter());
            self.path.truncate(parent);
        }
    }

    /// Sets the next count of the part's schedules, if not its field `count`.
    #[doc(hidden)]
    pub fn clock(&mut self, count: Count) {
        if let ReadSink::Readings(reader) = &mut self.sink {
            reader.clock(count.get());
        }
    }

    /// Walks a part's state, with its arguments as readings.
    pub(crate) fn of_part(
        &mut self,
        name: &'static str,
        arguments: ArgumentValues,
        nested: &mut dyn FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let outer = self.enter_part(name);
        let done = nested(self);
        self.leave_part(arguments, outer);
        done
    }

    fn enter_part(&mut self, name: &'static str) -> Option<Owner> {
        let ReadSink::Readings(reader) = &mut self.sink else { return None };
        Some(reader.enter(name, self.path.len()))
    }

    fn leave_part(&mut self, arguments: ArgumentValues, outer: Option<Owner>) {
        if let (ReadSink::Readings(reader), Some(outer)) = (&mut self.sink, outer) {
            reader.leave(&self.path, &arguments, outer);
        }
    }

    /// Walks an optimizer's chain: its arguments among those of the parts are read as its own.
    pub(crate) fn of_optimizer(
        &mut self,
        name: &'static str,
        arguments: ArgumentValues,
        nested: &mut dyn FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        self.enter_optimizer(name, arguments);
        let done = nested(self);
        if let ReadSink::Readings(reader) = &mut self.sink {
            reader.leave_optimizer();
        }
        done
    }

    fn enter_optimizer(&mut self, name: &'static str, arguments: ArgumentValues) {
        if let ReadSink::Readings(reader) = &mut self.sink {
            reader.enter_optimizer(name, &self.path, arguments);
        }
    }

    /// Walks a field under its name.
    pub fn child<S: State>(&mut self, name: &str, state: &'a S) {
        let parent = self.enter(name);
        state.walk(self);
        self.leave(parent);
    }

    fn enter(&mut self, name: &str) -> usize {
        enter(&mut self.path, &name)
    }

    fn leave(&mut self, parent: usize) {
        self.path.truncate(parent);
    }

    pub(crate) fn setting<S: State>(&mut self, name: &str, state: &'a S) {
        let outer = core::mem::replace(&mut self.role.set, true);
        self.child(name, state);
        self.role.set = outer;
    }

    /// Walks a field under a number.
    pub fn index<S: State>(&mut self, index: usize, state: &'a S) {
        let outer = self.enter_member(index);
        state.walk(self);
        self.leave_member(outer);
    }

    /// Walks a member under its number, or under a name in place of it.
    #[inline(never)]
    pub(crate) fn member<T>(&mut self, index: usize, nested: &mut dyn FnMut(&mut Self) -> T) -> T {
        let outer = self.enter_member(index);
        let done = nested(self);
        self.leave_member(outer);
        done
    }

    fn enter_member(&mut self, index: usize) -> (usize, Vec<String>) {
        enter_member(&mut self.path, &mut self.names, index)
    }

    fn leave_member(&mut self, outer: (usize, Vec<String>)) {
        leave_member(&mut self.path, &mut self.names, outer);
    }

    /// Shows a field at the current path.
    pub fn entry(&mut self, entry: Entry<'a>) {
        match &mut self.sink {
            ReadSink::Entries(sink) => sink(&self.path, entry),
            ReadSink::Fields(sink) => sink(&self.path, entry, self.role),
            // User settings are no readings; the part shows their value in a step.
            ReadSink::Readings(reader) if !self.role.set => reader.entry(&self.path, entry, self.role.other_tree),
            ReadSink::Parts(_) | ReadSink::Evaluations(_) | ReadSink::Facts(_) | ReadSink::Readings(_) => {}
        }
    }

    /// Walks numbered members under names.
    #[inline(never)]
    pub(crate) fn renamed<T>(&mut self, names: &[String], nested: &mut dyn FnMut(&mut Self) -> T) -> T {
        let outer = core::mem::replace(&mut self.names, names.to_vec());
        let done = nested(self);
        self.names = outer;
        done
    }

    #[doc(hidden)]
    #[inline(never)]
    pub fn within<T>(&mut self, key: &str, nested: &mut dyn FnMut(&mut Self) -> T) -> T {
        let parent = enter(&mut self.path, &key);
        let done = nested(self);
        self.path.truncate(parent);
        done
    }

    /// Walks an inner state, at a level that [`shown`](Levels::shown) paths omit.
    #[inline(never)]
    pub(crate) fn nested<T>(&mut self, key: &str, nested: &mut dyn FnMut(&mut Self) -> T) -> T {
        self.within(key, &mut |walk| {
            if let ReadSink::Readings(reader) = &mut walk.sink {
                reader.levels.add(&walk.path, key);
            }
            nested(walk)
        })
    }
}

/// A walk over the fields of a state, for writing.
pub struct StateWalkMut<'a, 'w> {
    path: String,
    names: Vec<String>,
    role: FieldRole,
    sink: Sink<'a, 'w>,
    /// The levels of wrappers, if parts are requested.
    pub(crate) levels: Levels,
}

/// The purpose of a walk: fields, or parts of one type.
enum Sink<'a, 'w> {
    Entries(&'w mut dyn FnMut(&str, EntryMut<'a>)),
    Fields(&'w mut dyn FnMut(&str, EntryMut<'a>, FieldRole)),
    Parts(&'w mut dyn FnMut(&str, &'a mut dyn Any)),
}

impl<'a, 'w> StateWalkMut<'a, 'w> {
    /// Returns a walk that shows each field, with its path, to a function.
    pub fn new(sink: &'w mut dyn FnMut(&str, EntryMut<'a>)) -> Self {
        StateWalkMut::to(Sink::Entries(sink))
    }

    fn to(sink: Sink<'a, 'w>) -> Self {
        let (role, levels) = (FieldRole::default(), Levels::default());
        StateWalkMut { path: String::new(), names: Vec::new(), role, sink, levels }
    }

    /// Returns a walk that also shows roles.
    pub(crate) fn of_fields(sink: &'w mut dyn FnMut(&str, EntryMut<'a>, FieldRole)) -> Self {
        StateWalkMut::to(Sink::Fields(sink))
    }

    /// As [`StateWalk::other_tree`].
    pub(crate) fn other_tree(&mut self, nested: impl FnOnce(&mut Self)) {
        let outer = core::mem::replace(&mut self.role.other_tree, true);
        nested(self);
        self.role.other_tree = outer;
    }

    /// As [`StateWalk::of_parts`].
    pub(crate) fn of_parts(sink: &'w mut dyn FnMut(&str, &'a mut dyn Any)) -> Self {
        StateWalkMut::to(Sink::Parts(sink))
    }

    /// As [`StateWalk::part`].
    pub(crate) fn part<S: Any>(&mut self, part: &'a mut S) -> Option<&'a mut S> {
        match &mut self.sink {
            Sink::Entries(_) | Sink::Fields(_) => Some(part),
            Sink::Parts(sink) => {
                sink(&self.path, part);
                None
            }
        }
    }

    /// Walks a field under its name.
    pub fn child<S: State>(&mut self, name: &str, state: &'a mut S) {
        self.within(name, |walk| state.walk_mut(walk));
    }

    pub(crate) fn setting<S: State>(&mut self, name: &str, state: &'a mut S) {
        let outer = core::mem::replace(&mut self.role.set, true);
        self.child(name, state);
        self.role.set = outer;
    }

    /// Walks a field under a number.
    pub fn index<S: State>(&mut self, index: usize, state: &'a mut S) {
        let outer = enter_member(&mut self.path, &mut self.names, index);
        state.walk_mut(self);
        leave_member(&mut self.path, &mut self.names, outer);
    }

    /// Shows a field at the current path.
    pub fn entry(&mut self, entry: EntryMut<'a>) {
        match &mut self.sink {
            Sink::Entries(sink) => sink(&self.path, entry),
            Sink::Fields(sink) => sink(&self.path, entry, self.role),
            Sink::Parts(_) => {}
        }
    }

    /// As [`StateWalk::renamed`].
    pub(crate) fn renamed(&mut self, names: &[String], nested: impl FnOnce(&mut Self)) {
        let outer = core::mem::replace(&mut self.names, names.to_vec());
        nested(self);
        self.names = outer;
    }

    pub(crate) fn within(&mut self, key: impl Display, nested: impl FnOnce(&mut Self)) {
        let parent = enter(&mut self.path, &key);
        nested(self);
        self.path.truncate(parent);
    }

    /// As [`StateWalk::nested`].
    pub(crate) fn nested(&mut self, key: &str, nested: impl FnOnce(&mut Self)) {
        self.within(key, |walk| {
            if let Sink::Parts(_) = &walk.sink {
                walk.levels.add(&walk.path, key);
            }
            nested(walk);
        });
    }
}
