//! What a state shows its fields to.

use core::any::Any;
use core::fmt::{Display, Write};
use core::hash::Hash;
use std::hash::DefaultHasher;

use super::{Count, Flag, Moments, PerLeaf, RandomKey, Scalar, State};

/// One field of a state, to read.
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

/// One field of a state, to write.
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

/// Parameters to evaluate with, as a state describes them: for each leaf that has an array,
/// `of_params·p + of_moments·m` of the training parameter `p` and the array's element `m`.
///
/// A state that has such shows it in its walk; see
/// [`eval_params`](crate::OptState::eval_params).
#[derive(Clone, Copy, Debug)]
pub struct Evaluation<'a> {
    /// What is averaged, or kept beside the training parameters.
    pub moments: &'a Moments,
    /// How much of the training parameters there is in the result; where it is 0 they are not looked at.
    pub of_params: f64,
    /// How much of the arrays; where it is 0 they are not looked at.
    pub of_moments: f64,
}

/// How parameters to evaluate with are made: `of_params·p + of_array·a` of the training parameter `p` and the element `a` of the
/// state array of this number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvaluateAs {
    /// The number of the state array, in the order of the part's `SLOTS`.
    pub slot: usize,
    /// How much of the training parameter there is; where it is 0 it is not looked at.
    pub of_params: f64,
    /// How much of the array's element; where it is 0 it is not looked at.
    pub of_array: f64,
}

/// How a field stands in a state.
#[derive(Clone, Copy, Default)]
pub(crate) struct Standing {
    /// It does not belong to the parameters' leaves, whatever its numbers.
    pub(crate) apart: bool,
    /// It is as a user has set it, and nothing that was learned in training.
    pub(crate) set: bool,
}

/// A walk over the fields of a state, for reading.
pub struct StateWalk<'a, 'w> {
    path: String,
    /// Names that take the place of the next level's numbers.
    names: Vec<String>,
    standing: Standing,
    sink: ReadSink<'a, 'w>,
}

/// What is shown a fact: its path, and what puts it into a number.
pub(crate) type ShowFact<'a> = dyn FnMut(&str, &dyn Fn(&mut DefaultHasher)) + 'a;

/// What a walk is for: every field, the parts of one type, or the evaluations.
enum ReadSink<'a, 'w> {
    Entries(&'w mut dyn FnMut(&str, Entry<'a>)),
    Fields(&'w mut dyn FnMut(&str, Entry<'a>, Standing)),
    Parts(&'w mut dyn FnMut(&str, &'a dyn Any)),
    Evaluations(&'w mut dyn FnMut(&str, Evaluation<'a>, bool)),
    Facts(&'w mut ShowFact<'w>),
}

impl<'a, 'w> StateWalk<'a, 'w> {
    /// A walk that shows each field, with its path, to a function.
    pub fn new(sink: &'w mut dyn FnMut(&str, Entry<'a>)) -> Self {
        StateWalk {
            path: String::new(),
            names: Vec::new(),
            standing: Standing::default(),
            sink: ReadSink::Entries(sink),
        }
    }

    /// A walk that also says how a field stands.
    pub(crate) fn of_fields(sink: &'w mut dyn FnMut(&str, Entry<'a>, Standing)) -> Self {
        StateWalk {
            path: String::new(),
            names: Vec::new(),
            standing: Standing::default(),
            sink: ReadSink::Fields(sink),
        }
    }

    /// Walks fields whose leaves are not the parameters'.
    pub(crate) fn apart(&mut self, inside: impl FnOnce(&mut Self)) {
        let outer = core::mem::replace(&mut self.standing.apart, true);
        inside(self);
        self.standing.apart = outer;
    }

    /// A walk that shows each [`part`](Self::part), with its path, instead of the fields.
    pub(crate) fn of_parts(sink: &'w mut dyn FnMut(&str, &'a dyn Any)) -> Self {
        StateWalk { path: String::new(), names: Vec::new(), standing: Standing::default(), sink: ReadSink::Parts(sink) }
    }

    /// Shows a part of a state as a whole, if that is what the walk is for; else returns it, to be walked.
    pub(crate) fn part<S: Any>(&mut self, part: &'a S) -> Option<&'a S> {
        if let ReadSink::Parts(sink) = &mut self.sink {
            sink(&self.path, part);
            return None;
        }
        Some(part)
    }

    /// A walk that shows each [`evaluation`](Self::evaluation), with the path of the state it belongs to, instead of the
    /// fields; and whether it is [`apart`](Self::apart) from the parameters' leaves.
    pub(crate) fn of_evaluations(sink: &'w mut dyn FnMut(&str, Evaluation<'a>, bool)) -> Self {
        StateWalk {
            path: String::new(),
            names: Vec::new(),
            standing: Standing::default(),
            sink: ReadSink::Evaluations(sink),
        }
    }

    /// Says which parameters to evaluate with, if that is what the walk is for.
    pub fn evaluation(&mut self, evaluation: Evaluation<'a>) {
        if let ReadSink::Evaluations(sink) = &mut self.sink {
            sink(&self.path, evaluation, self.standing.apart);
        }
    }

    /// A walk that shows each [`fact`](Self::fact), with its path, instead of the fields.
    pub(crate) fn of_facts(sink: &'w mut ShowFact<'w>) -> Self {
        StateWalk { path: String::new(), names: Vec::new(), standing: Standing::default(), sink: ReadSink::Facts(sink) }
    }

    /// Says what `init` has decided that is no field, such as which leaves to act on, or how they lie in memory. A state in which
    /// it is something else is refused in the place of this one.
    pub fn fact<H: Hash>(&mut self, name: &str, fact: &H) {
        if let ReadSink::Facts(sink) = &mut self.sink {
            let parent = enter(&mut self.path, name);
            sink(&self.path, &|hasher| fact.hash(hasher));
            self.path.truncate(parent);
        }
    }

    /// Walks a field under its name.
    pub fn child<S: State>(&mut self, name: &str, state: &'a S) {
        self.within(name, |walk| state.walk(walk));
    }

    /// Walks a field that users set.
    pub(crate) fn setting<S: State>(&mut self, name: &str, state: &'a S) {
        let outer = core::mem::replace(&mut self.standing.set, true);
        self.child(name, state);
        self.standing.set = outer;
    }

    /// Walks a field under a number.
    pub fn index<S: State>(&mut self, index: usize, state: &'a S) {
        let names = core::mem::take(&mut self.names);
        match names.get(index) {
            Some(name) => self.within(name, |walk| state.walk(walk)),
            None => self.within(index, |walk| state.walk(walk)),
        }
        self.names = names;
    }

    /// Shows a field at the current path.
    pub fn entry(&mut self, entry: Entry<'a>) {
        match &mut self.sink {
            ReadSink::Entries(sink) => sink(&self.path, entry),
            ReadSink::Fields(sink) => sink(&self.path, entry, self.standing),
            ReadSink::Parts(_) | ReadSink::Evaluations(_) | ReadSink::Facts(_) => {}
        }
    }

    /// Walks members by number, under names instead.
    pub(crate) fn renamed(&mut self, names: &[String], inside: impl FnOnce(&mut Self)) {
        let outer = core::mem::replace(&mut self.names, names.to_vec());
        inside(self);
        self.names = outer;
    }

    pub(crate) fn within(&mut self, key: impl Display, inside: impl FnOnce(&mut Self)) {
        let parent = enter(&mut self.path, key);
        inside(self);
        self.path.truncate(parent);
    }
}

/// A walk over the fields of a state, for writing.
pub struct StateWalkMut<'a, 'w> {
    path: String,
    names: Vec<String>,
    standing: Standing,
    sink: Sink<'a, 'w>,
}

/// What a walk is for: every field, or the parts of one type.
enum Sink<'a, 'w> {
    Entries(&'w mut dyn FnMut(&str, EntryMut<'a>)),
    Fields(&'w mut dyn FnMut(&str, EntryMut<'a>, Standing)),
    Parts(&'w mut dyn FnMut(&str, &'a mut dyn Any)),
}

impl<'a, 'w> StateWalkMut<'a, 'w> {
    /// A walk that shows each field, with its path, to a function.
    pub fn new(sink: &'w mut dyn FnMut(&str, EntryMut<'a>)) -> Self {
        StateWalkMut {
            path: String::new(),
            names: Vec::new(),
            standing: Standing::default(),
            sink: Sink::Entries(sink),
        }
    }

    /// A walk that also says how a field stands.
    pub(crate) fn of_fields(sink: &'w mut dyn FnMut(&str, EntryMut<'a>, Standing)) -> Self {
        StateWalkMut { path: String::new(), names: Vec::new(), standing: Standing::default(), sink: Sink::Fields(sink) }
    }

    /// Walks fields whose leaves are not the parameters'.
    pub(crate) fn apart(&mut self, inside: impl FnOnce(&mut Self)) {
        let outer = core::mem::replace(&mut self.standing.apart, true);
        inside(self);
        self.standing.apart = outer;
    }

    /// A walk that shows each [`part`](Self::part), with its path, instead of the fields.
    pub(crate) fn of_parts(sink: &'w mut dyn FnMut(&str, &'a mut dyn Any)) -> Self {
        StateWalkMut { path: String::new(), names: Vec::new(), standing: Standing::default(), sink: Sink::Parts(sink) }
    }

    /// Shows a part of a state as a whole, if that is what the walk is for; else returns it, to be walked.
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

    /// Walks a field that users set.
    pub(crate) fn setting<S: State>(&mut self, name: &str, state: &'a mut S) {
        let outer = core::mem::replace(&mut self.standing.set, true);
        self.child(name, state);
        self.standing.set = outer;
    }

    /// Walks a field under a number.
    pub fn index<S: State>(&mut self, index: usize, state: &'a mut S) {
        let names = core::mem::take(&mut self.names);
        match names.get(index) {
            Some(name) => self.within(name, |walk| state.walk_mut(walk)),
            None => self.within(index, |walk| state.walk_mut(walk)),
        }
        self.names = names;
    }

    /// Shows a field at the current path.
    pub fn entry(&mut self, entry: EntryMut<'a>) {
        match &mut self.sink {
            Sink::Entries(sink) => sink(&self.path, entry),
            Sink::Fields(sink) => sink(&self.path, entry, self.standing),
            Sink::Parts(_) => {}
        }
    }

    /// Walks members by number, under names instead.
    pub(crate) fn renamed(&mut self, names: &[String], inside: impl FnOnce(&mut Self)) {
        let outer = core::mem::replace(&mut self.names, names.to_vec());
        inside(self);
        self.names = outer;
    }

    pub(crate) fn within(&mut self, key: impl Display, inside: impl FnOnce(&mut Self)) {
        let parent = enter(&mut self.path, key);
        inside(self);
        self.path.truncate(parent);
    }
}

fn enter(path: &mut String, key: impl Display) -> usize {
    let parent = path.len();
    if parent > 0 {
        path.push('.');
    }
    write!(path, "{key}").expect("writing to a String succeeds");
    parent
}
