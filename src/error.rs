//! The crate's one error type.

mod known;

use core::fmt;

use self::known::Known;
pub(crate) use self::known::is_meant;
use crate::layout::Difference;

/// What went wrong, where, what was expected and what was found.
///
/// Whatever returned it changed nothing: parameters, state and updates are as they were before the call. There is one
/// exception: after an error of a loss that was asked in the middle of a step the parameters are as they were, and the
/// state [cannot be used any more](Error::is_poisoned).
///
/// The kinds are private so that messages can improve; the `is_*` predicates tell them apart.
///
/// `{:?}` is the sentence too, so that a `main` that returns an error prints it. Of a long list of differences both
/// show the first 24; `{:#}` shows all.
#[derive(Clone, PartialEq)]
pub struct Error(Box<Kind>);

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = core::result::Result<T, E>;

#[derive(Clone, PartialEq)]
enum Kind {
    Structure {
        what: String,
        differences: Vec<Difference>,
    },
    Argument {
        function: String,
        argument: String,
        expected: String,
        found: String,
    },
    NoMatch {
        what: String,
        pattern: String,
        paths: Vec<String>,
        /// A pattern that would match some.
        meant: Option<String>,
    },
    UnknownName {
        place: String,
        what: &'static str,
        name: String,
        known: Vec<String>,
    },
    Mismatch {
        what: String,
        misfit: Misfit,
    },
    #[cfg(feature = "checkpoint")]
    File {
        file: String,
        problem: String,
        /// The system refused to read or write it; nothing is known of its contents.
        refused: bool,
    },
    State {
        place: String,
        problem: String,
    },
    Unrecordable {
        part: String,
        problem: &'static str,
    },
    Collective {
        rank: usize,
        problem: String,
    },
    Poisoned,
    /// At least two, each of another kind than this.
    Several(Vec<Error>),
}

/// What does not fit, and what would help: a line each.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Misfit {
    pub(crate) lines: Vec<String>,
    pub(crate) hints: Vec<String>,
    /// Lines with verbs of a migration, all of which together make it fit.
    pub(crate) proposed: Vec<String>,
}

impl From<Vec<String>> for Misfit {
    fn from(lines: Vec<String>) -> Misfit {
        Misfit { lines, ..Misfit::default() }
    }
}

impl Error {
    /// Two trees, or a tree and a state, that do not fit each other, with every difference.
    pub(crate) fn structure(what: impl Into<String>, differences: Vec<Difference>) -> Error {
        Error(Box::new(Kind::Structure { what: what.into(), differences }))
    }

    /// An argument out of its range, for use by transformations of your own.
    ///
    /// ```
    /// use gradchain::Error;
    /// let error = Error::argument("scale_by_mine", "decay", "in [0, 1)", 1.5);
    /// assert_eq!(error.to_string(), "scale_by_mine: argument `decay` must be in [0, 1), found 1.5");
    /// ```
    pub fn argument(function: &str, argument: &str, expected: &str, found: impl fmt::Display) -> Error {
        Error(Box::new(Kind::Argument {
            function: function.into(),
            argument: argument.into(),
            expected: expected.into(),
            found: found.to_string(),
        }))
    }

    /// Names the function or the leaf that the argument belongs to.
    pub(crate) fn of(mut self, place: String) -> Error {
        if let Kind::Argument { function, .. } = &mut *self.0 {
            *function = place;
        }
        self
    }

    pub(crate) fn no_match(
        what: impl Into<String>,
        pattern: impl Into<String>,
        paths: Vec<String>,
        meant: Option<String>,
    ) -> Error {
        Error(Box::new(Kind::NoMatch { what: what.into(), pattern: pattern.into(), paths, meant }))
    }

    pub(crate) fn unknown_name(
        place: impl Into<String>,
        what: &'static str,
        name: impl Into<String>,
        known: impl IntoIterator<Item = impl Into<String>>,
    ) -> Error {
        let known = known.into_iter().map(Into::into).collect();
        Error(Box::new(Kind::UnknownName { place: place.into(), what, name: name.into(), known }))
    }

    /// A state, or a value meant for one, that cannot be used; for use by transformations of your own.
    pub fn state(place: impl Into<String>, problem: impl Into<String>) -> Error {
        Error(Box::new(Kind::State { place: place.into(), problem: problem.into() }))
    }

    /// A state that is given to another transformation than the one that made it.
    pub(crate) fn other_transformation(place: String) -> Error {
        Error::state(place, "the state was made by another transformation; make one with `init`")
    }

    /// A state that does not fit where it is to go.
    pub(crate) fn mismatch(what: impl Into<String>, misfit: Misfit) -> Error {
        Error(Box::new(Kind::Mismatch { what: what.into(), misfit }))
    }

    /// What was saved, and what it does not fit into.
    #[cfg(feature = "serde")]
    pub(crate) fn misfit(called: &str, misfit: Misfit) -> Error {
        Error::mismatch(format!("{called} does not fit"), misfit)
    }

    /// A file that cannot be written, or read, or is not what it says.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn file(file: impl Into<String>, problem: impl Into<String>) -> Error {
        Error(Box::new(Kind::File { file: file.into(), problem: problem.into(), refused: false }))
    }

    /// An error of the system on a file. A file that is missing, too short or a folder is as good as damaged; any other
    /// error (too many open files, no permission, a failing disk) says nothing about the file.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn io(file: impl Into<String>, error: &std::io::Error) -> Error {
        use std::io::ErrorKind::{InvalidData, IsADirectory, NotFound, UnexpectedEof};
        let refused = !matches!(error.kind(), NotFound | UnexpectedEof | IsADirectory | InvalidData);
        Error(Box::new(Kind::File { file: file.into(), problem: error.to_string(), refused }))
    }

    /// Returns whether the system refused to read or write a file, so that nothing is known of its contents.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn is_refused(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::File { refused: true, .. }))
    }

    /// Element arithmetic that does something which cannot be written down.
    pub(crate) fn unrecordable(part: &str, problem: &'static str) -> Error {
        Error(Box::new(Kind::Unrecordable { part: part.into(), problem }))
    }

    /// Machines that do not come together: one is gone, late, or does something else. For use by a
    /// [`Collective`](crate::collective::Collective) of your own; `rank` is the machine that noticed.
    ///
    /// ```
    /// use gradchain::Error;
    /// let error = Error::collective(2, "rank 0 has not come within 30 s");
    /// assert!(error.is_collective());
    /// assert_eq!(error.to_string(), "rank 2: rank 0 has not come within 30 s");
    /// ```
    pub fn collective(rank: usize, problem: impl Into<String>) -> Error {
        Error(Box::new(Kind::Collective { rank, problem: problem.into() }))
    }

    pub(crate) fn poisoned() -> Error {
        Error(Box::new(Kind::Poisoned))
    }

    /// All that is wrong at once; for use by transformations of your own.
    ///
    /// ```
    /// use gradchain::Error;
    ///
    /// let wrong = |argument| Err(Error::argument("mine", argument, "in [0, 1)", 1.5));
    /// let error = Error::all([wrong("b1"), Ok(()), wrong("b2")]).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "mine: argument `b1` must be in [0, 1), found 1.5\nmine: argument `b2` must be in [0, 1), found 1.5"
    /// );
    /// assert!(Error::all([Ok(()), Ok(())]).is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// If any of the results is one: each is on a line of its own.
    pub fn all(results: impl IntoIterator<Item = Result<()>>) -> Result<()> {
        let mut all = Vec::new();
        for result in results {
            if let Err(error) = result {
                all.extend(error.each());
            }
        }
        Error::several(all)
    }

    fn several(mut all: Vec<Error>) -> Result<()> {
        match all.len() {
            0 => Ok(()),
            1 => Err(all.remove(0)),
            _ => Err(Error(Box::new(Kind::Several(all)))),
        }
    }

    /// The errors that it is made of.
    pub(crate) fn each(self) -> Vec<Error> {
        match *self.0 {
            Kind::Several(all) => all,
            kind => vec![Error(Box::new(kind))],
        }
    }

    /// An argument that must be given and was not.
    pub(crate) fn missing(function: &str, argument: &str) -> Error {
        Error::argument(function, argument, GIVEN, "nothing")
    }

    /// Whether it is [of that](Error::missing).
    #[cfg(feature = "config")]
    pub(crate) fn is_missing(&self) -> bool {
        matches!(&*self.0, Kind::Argument { expected, .. } if expected == GIVEN)
    }

    fn is(&self, test: fn(&Kind) -> bool) -> bool {
        match &*self.0 {
            Kind::Several(all) => all.iter().any(|error| error.is(test)),
            kind => test(kind),
        }
    }

    /// Whether two structures did not fit each other.
    pub fn is_structure(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::Structure { .. }))
    }

    /// Every leaf that differs, if two structures did not fit each other; else empty.
    pub fn differences(&self) -> &[Difference] {
        match &*self.0 {
            Kind::Structure { differences, .. } => differences,
            _ => &[],
        }
    }

    /// Whether a state, or what a file holds, did not fit where it was to go.
    pub fn is_mismatch(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::Mismatch { .. }))
    }

    /// Whether a file could not be written or read, or was damaged.
    #[cfg(feature = "checkpoint")]
    #[cfg_attr(docsrs, doc(cfg(feature = "checkpoint")))]
    pub fn is_file(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::File { .. }))
    }

    /// Whether an argument was out of its range.
    pub fn is_argument(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::Argument { .. }))
    }

    /// Whether a mask or label pattern matched no leaf.
    pub fn is_no_match(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::NoMatch { .. }))
    }

    /// Whether a name (of a hyperparameter, a label, a config key) is not known.
    pub fn is_unknown_name(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::UnknownName { .. }))
    }

    /// Whether a rule could not be recorded as a [`Program`](crate::program::Program).
    pub fn is_unrecordable(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::Unrecordable { .. }))
    }

    /// Whether [machines that work together](crate::collective) have lost each other, or disagree. After that they do
    /// not come together any more: the process should end, and go on from its last checkpoint.
    pub fn is_collective(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::Collective { .. }))
    }

    /// Whether the state was left half written by a panic in code that a step called (a rule, a schedule, a loss), or
    /// by an error of a loss or a machine. Go on from a copy or a checkpoint; see
    /// [`step`](crate::GradientTransformation::step) for what the parameters are then.
    pub fn is_poisoned(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::Poisoned))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Structure { what, differences } => {
                write!(f, "{what}: ")?;
                Lines(differences).fmt(f)
            }
            Kind::Argument { function, argument, expected, found } => {
                write!(f, "{function}: argument `{argument}` must be {expected}, found {found}")
            }
            Kind::NoMatch { what, pattern, paths, meant } => {
                write!(f, "{what} `{pattern}` matches none of the {} leaves{}", paths.len(), Listing(paths))?;
                meant.as_ref().map_or(Ok(()), |meant| write!(f, "; did you mean `{meant}`?"))
            }
            Kind::UnknownName { place, what, name, known } => {
                write!(f, "{place}: there is no {what} `{name}`{}", Known(name, known))
            }
            Kind::Mismatch { what, misfit: Misfit { lines, hints, proposed } } => {
                write!(f, "{what}: ")?;
                Lines(lines).fmt(f)?;
                hints.iter().chain(proposed).try_for_each(|hint| write!(f, "\n  {hint}"))
            }
            #[cfg(feature = "checkpoint")]
            Kind::File { file, problem, .. } => write!(f, "{file}: {problem}"),
            Kind::State { place, problem } => write!(f, "{place}: {problem}"),
            Kind::Unrecordable { part, problem } => write!(f, "{part} cannot be recorded as a program: {problem}"),
            Kind::Several(all) => {
                for (i, error) in all.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { "\n" })?;
                    fmt::Display::fmt(error, f)?;
                }
                Ok(())
            }
            Kind::Collective { rank, problem } => write!(f, "rank {rank}: {problem}"),
            Kind::Poisoned => f.write_str(
                "this state was left half written by a panic, or by an error of the loss, in an earlier step; restore \
                 it from a copy or call `init` again",
            ),
        }
    }
}

impl core::error::Error for Error {}

/// What an argument must be that has no default.
const GIVEN: &str = "given";

/// How many differences there are, and the first ones, each on a line of its own; with `{:#}` all.
struct Lines<'a, T>(&'a [T]);

impl<T> Lines<'_, T> {
    /// What follows, such as the verbs that would help, should not be pushed off the screen.
    const SHOWN: usize = 24;
}

impl<T: fmt::Display> fmt::Display for Lines<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} difference{}", self.0.len(), if self.0.len() == 1 { "" } else { "s" })?;
        let shown = if f.alternate() { self.0.len() } else { self.0.len().min(Self::SHOWN) };
        self.0[..shown].iter().try_for_each(|line| write!(f, "\n  {line}"))?;
        match self.0.len() - shown {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more (`{{:#}}` shows all)"),
        }
    }
}

struct Listing<'a>(&'a [String]);

impl fmt::Display for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        if self.0.is_empty() {
            return Ok(());
        }
        let shown: Vec<_> = self.0.iter().take(SHOWN).map(|p| format!("`{p}`")).collect();
        write!(f, ": {}{}", shown.join(", "), if self.0.len() > SHOWN { ", ..." } else { "" })
    }
}
