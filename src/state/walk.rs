//! What a state shows its fields to.

use core::any::Any;
use core::fmt::{Display, Write};

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

/// A walk over the fields of a state, for reading.
pub struct StateWalk<'a, 'w> {
    path: String,
    /// Names that take the place of the next level's numbers.
    names: Vec<String>,
    /// The fields do not belong to the parameters' leaves, whatever their numbers.
    apart: bool,
    sink: ReadSink<'a, 'w>,
}

/// What a walk is for: every field, the parts of one type, or the evaluations.
enum ReadSink<'a, 'w> {
    Entries(&'w mut dyn FnMut(&str, Entry<'a>)),
    Fields(&'w mut dyn FnMut(&str, Entry<'a>, bool)),
    Parts(&'w mut dyn FnMut(&str, &'a dyn Any)),
    Evaluations(&'w mut dyn FnMut(&str, Evaluation<'a>, bool)),
}

impl<'a, 'w> StateWalk<'a, 'w> {
    /// A walk that shows each field, with its path, to a function.
    pub fn new(sink: &'w mut dyn FnMut(&str, Entry<'a>)) -> Self {
        StateWalk { path: String::new(), names: Vec::new(), apart: false, sink: ReadSink::Entries(sink) }
    }

    /// A walk that also says whether a field is [`apart`](Self::apart) from the parameters' leaves.
    pub(crate) fn of_fields(sink: &'w mut dyn FnMut(&str, Entry<'a>, bool)) -> Self {
        StateWalk { path: String::new(), names: Vec::new(), apart: false, sink: ReadSink::Fields(sink) }
    }

    /// Walks fields whose leaves are not the parameters'.
    pub(crate) fn apart(&mut self, inside: impl FnOnce(&mut Self)) {
        let outer = core::mem::replace(&mut self.apart, true);
        inside(self);
        self.apart = outer;
    }

    /// A walk that shows each [`part`](Self::part), with its path, instead of the fields.
    pub(crate) fn of_parts(sink: &'w mut dyn FnMut(&str, &'a dyn Any)) -> Self {
        StateWalk { path: String::new(), names: Vec::new(), apart: false, sink: ReadSink::Parts(sink) }
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
        StateWalk { path: String::new(), names: Vec::new(), apart: false, sink: ReadSink::Evaluations(sink) }
    }

    /// Says which parameters to evaluate with, if that is what the walk is for.
    pub fn evaluation(&mut self, evaluation: Evaluation<'a>) {
        if let ReadSink::Evaluations(sink) = &mut self.sink {
            sink(&self.path, evaluation, self.apart);
        }
    }

    /// Walks a field under its name.
    pub fn child<S: State>(&mut self, name: &str, state: &'a S) {
        self.within(name, |walk| state.walk(walk));
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
            ReadSink::Fields(sink) => sink(&self.path, entry, self.apart),
            ReadSink::Parts(_) | ReadSink::Evaluations(_) => {}
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
    apart: bool,
    sink: Sink<'a, 'w>,
}

/// What a walk is for: every field, or the parts of one type.
enum Sink<'a, 'w> {
    Entries(&'w mut dyn FnMut(&str, EntryMut<'a>)),
    Fields(&'w mut dyn FnMut(&str, EntryMut<'a>, bool)),
    Parts(&'w mut dyn FnMut(&str, &'a mut dyn Any)),
}

impl<'a, 'w> StateWalkMut<'a, 'w> {
    /// A walk that shows each field, with its path, to a function.
    pub fn new(sink: &'w mut dyn FnMut(&str, EntryMut<'a>)) -> Self {
        StateWalkMut { path: String::new(), names: Vec::new(), apart: false, sink: Sink::Entries(sink) }
    }

    /// A walk that also says whether a field is [`apart`](Self::apart) from the parameters' leaves.
    pub(crate) fn of_fields(sink: &'w mut dyn FnMut(&str, EntryMut<'a>, bool)) -> Self {
        StateWalkMut { path: String::new(), names: Vec::new(), apart: false, sink: Sink::Fields(sink) }
    }

    /// Walks fields whose leaves are not the parameters'.
    pub(crate) fn apart(&mut self, inside: impl FnOnce(&mut Self)) {
        let outer = core::mem::replace(&mut self.apart, true);
        inside(self);
        self.apart = outer;
    }

    /// A walk that shows each [`part`](Self::part), with its path, instead of the fields.
    pub(crate) fn of_parts(sink: &'w mut dyn FnMut(&str, &'a mut dyn Any)) -> Self {
        StateWalkMut { path: String::new(), names: Vec::new(), apart: false, sink: Sink::Parts(sink) }
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
            Sink::Fields(sink) => sink(&self.path, entry, self.apart),
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
