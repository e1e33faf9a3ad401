//! The crate's one error type.

mod suggestions;

use core::fmt;
use core::panic::{RefUnwindSafe, UnwindSafe};

use self::suggestions::Suggestions;
pub(crate) use self::suggestions::is_suggestion;
use crate::layout::Difference;

/// An error: its place, the expected and the found value.
///
/// A call that returns it has changed nothing: parameters, state and updates are as before. The exception is an error
/// of a loss called during a step: the parameters are unchanged, and the state [is poisoned](Error::is_poisoned).
///
/// The kinds are private so that messages can improve; the `is_*` predicates distinguish them.
///
/// `{:?}` prints the message too, so that a `main` that returns an error prints it. Of a long list of differences both
/// print the first 24; `{:#}` prints all.
pub struct Error(Box<dyn Detail>);

/// A [`Kind`] behind a vtable: crates that use errors do not compile its drop.
trait Detail: Send + Sync + UnwindSafe + RefUnwindSafe {
    fn kind(&self) -> &Kind;
    fn kind_mut(&mut self) -> &mut Kind;
    fn into_kind(self: Box<Self>) -> Kind;
}

impl Detail for Kind {
    fn kind(&self) -> &Kind {
        self
    }
    fn kind_mut(&mut self) -> &mut Kind {
        self
    }
    fn into_kind(self: Box<Self>) -> Kind {
        *self
    }
}

impl Clone for Error {
    fn clone(&self) -> Error {
        Error::of_kind(self.0.kind().clone())
    }
}

impl PartialEq for Error {
    fn eq(&self, other: &Error) -> bool {
        self.0.kind() == other.0.kind()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The result of all fallible functions of this crate.
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
        /// A similar pattern that matches leaves.
        suggestion: Option<String>,
    },
    UnknownName {
        place: String,
        what: &'static str,
        name: String,
        known: Vec<String>,
    },
    Mismatch {
        what: String,
        mismatch_report: MismatchReport,
    },
    #[cfg(feature = "checkpoint")]
    File {
        file: String,
        problem: String,
        /// True if the system refused access; the contents are then unknown.
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
    /// At least two errors, each of another kind.
    Several(Vec<Error>),
}

/// The misfits and hints, one per line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MismatchReport {
    #[doc(hidden)]
    pub lines: Vec<String>,
    #[doc(hidden)]
    pub hints: Vec<String>,
    /// Verbs of a migration that together make it fit, one per line.
    #[doc(hidden)]
    pub proposed: Vec<String>,
}

impl From<Vec<String>> for MismatchReport {
    fn from(lines: Vec<String>) -> MismatchReport {
        MismatchReport { lines, ..MismatchReport::default() }
    }
}

impl Error {
    fn of_kind(kind: Kind) -> Error {
        Error(Box::new(kind))
    }

    /// Returns an error with every difference between two trees, or a tree and a state.
    #[doc(hidden)]
    pub fn structure(what: impl Into<String>, differences: Vec<Difference>) -> Error {
        Error::of_structure(what.into(), differences)
    }

    fn of_structure(what: String, differences: Vec<Difference>) -> Error {
        Error::of_kind(Kind::Structure { what, differences })
    }

    /// Returns an error for an argument out of its range, also for custom transformations.
    ///
    /// ```
    /// use gradchain::Error;
    /// let error = Error::argument("scale_by_mine", "decay", "in [0, 1)", 1.5);
    /// assert_eq!(error.to_string(), "scale_by_mine: argument `decay` must be in [0, 1), found 1.5");
    /// ```
    pub fn argument(function: &str, argument: &str, expected: &str, found: impl fmt::Display) -> Error {
        Error::of_argument(function, argument, expected, &found)
    }

    /// As [`argument`](Error::argument), compiled once.
    fn of_argument(function: &str, argument: &str, expected: &str, found: &dyn fmt::Display) -> Error {
        Error::of_kind(Kind::Argument {
            function: function.into(),
            argument: argument.into(),
            expected: expected.into(),
            found: found.to_string(),
        })
    }

    /// Names the argument's function or leaf.
    pub(crate) fn of(mut self, place: String) -> Error {
        if let Kind::Argument { function, .. } = self.0.kind_mut() {
            *function = place;
        }
        self
    }

    pub(crate) fn no_match(
        what: impl Into<String>,
        pattern: impl Into<String>,
        paths: Vec<String>,
        suggestion: Option<String>,
    ) -> Error {
        Error::of_kind(Kind::NoMatch { what: what.into(), pattern: pattern.into(), paths, suggestion })
    }

    #[doc(hidden)]
    pub fn unknown_name(
        place: impl Into<String>,
        what: &'static str,
        name: impl Into<String>,
        known: impl IntoIterator<Item = impl Into<String>>,
    ) -> Error {
        let known = known.into_iter().map(Into::into).collect();
        Error::of_kind(Kind::UnknownName { place: place.into(), what, name: name.into(), known })
    }

    /// Returns an error for an unusable state, or a value meant for one, also for custom transformations.
    pub fn state(place: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::of_state(place.into(), problem.into())
    }

    fn of_state(place: String, problem: String) -> Error {
        Error::of_kind(Kind::State { place, problem })
    }

    pub(crate) fn other_transformation(place: String) -> Error {
        Error::state(place, "the state was made by another transformation; make one with `init`")
    }

    pub(crate) fn mismatch(what: impl Into<String>, mismatch_report: MismatchReport) -> Error {
        Error::of_kind(Kind::Mismatch { what: what.into(), mismatch_report })
    }

    #[cfg(feature = "serde")]
    #[doc(hidden)]
    pub fn mismatch_report(called: &str, mismatch_report: MismatchReport) -> Error {
        Error::mismatch(format!("{called} does not fit"), mismatch_report)
    }

    /// Returns an error for an invalid or inaccessible file.
    #[cfg(feature = "checkpoint")]
    #[doc(hidden)]
    pub fn file(file: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::of_kind(Kind::File { file: file.into(), problem: problem.into(), refused: false })
    }

    /// Returns a system error on a file.
    ///
    /// Only a missing or truncated file, or a folder, counts as damaged: other errors (too many open files, no
    /// permission, a failing disk) say nothing about the file.
    #[cfg(feature = "checkpoint")]
    #[doc(hidden)]
    pub fn io(file: impl Into<String>, error: &std::io::Error) -> Error {
        use std::io::ErrorKind::{InvalidData, IsADirectory, NotFound, UnexpectedEof};
        let refused = !matches!(error.kind(), NotFound | UnexpectedEof | IsADirectory | InvalidData);
        Error::of_kind(Kind::File { file: file.into(), problem: error.to_string(), refused })
    }

    #[cfg(feature = "checkpoint")]
    #[doc(hidden)]
    pub fn is_refused(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::File { refused: true, .. }))
    }

    pub(crate) fn unrecordable(part: &str, problem: &'static str) -> Error {
        Error::of_kind(Kind::Unrecordable { part: part.into(), problem })
    }

    /// Returns an error for a failed collective operation: a rank is gone, late, or calls another operation.
    ///
    /// It is for custom [`Collective`]s; `rank` is the rank that noticed.
    ///
    /// ```
    /// use gradchain::Error;
    /// let error = Error::collective(2, "rank 0 did not arrive within 30 s");
    /// assert!(error.is_collective());
    /// assert_eq!(error.to_string(), "rank 2: rank 0 did not arrive within 30 s");
    /// ```
    ///
    /// [`Collective`]: https://docs.rs/gradchain/latest/gradchain/collective/trait.Collective.html
    pub fn collective(rank: usize, problem: impl Into<String>) -> Error {
        Error::of_kind(Kind::Collective { rank, problem: problem.into() })
    }

    pub(crate) fn poisoned() -> Error {
        Error::of_kind(Kind::Poisoned)
    }

    /// Combines all errors into one; also for custom transformations.
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
    /// Fails if any of the results is an error: each is on a line of its own.
    pub fn all(results: impl IntoIterator<Item = Result<()>>) -> Result<()> {
        let mut all = Vec::new();
        results.into_iter().for_each(|result| Error::collect(result, &mut all));
        Error::several(all)
    }

    fn collect(result: Result<()>, all: &mut Vec<Error>) {
        if let Err(error) = result {
            all.extend(error.each());
        }
    }

    fn several(mut all: Vec<Error>) -> Result<()> {
        match all.len() {
            0 => Ok(()),
            1 => Err(all.remove(0)),
            _ => Err(Error::of_kind(Kind::Several(all))),
        }
    }

    pub(crate) fn each(self) -> Vec<Error> {
        match self.0.into_kind() {
            Kind::Several(all) => all,
            kind => vec![Error::of_kind(kind)],
        }
    }

    pub(crate) fn missing(function: &str, argument: &str) -> Error {
        Error::argument(function, argument, GIVEN, "nothing")
    }

    #[cfg(feature = "config")]
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self.0.kind(), Kind::Argument { expected, .. } if expected == GIVEN)
    }

    fn is(&self, test: fn(&Kind) -> bool) -> bool {
        match self.0.kind() {
            Kind::Several(all) => all.iter().any(|error| error.is(test)),
            kind => test(kind),
        }
    }

    /// Returns whether two structures did not fit each other.
    pub fn is_structure(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::Structure { .. }))
    }

    /// Returns every leaf that differs, if two structures did not fit each other; else empty.
    pub fn differences(&self) -> &[Difference] {
        match self.0.kind() {
            Kind::Structure { differences, .. } => differences,
            _ => &[],
        }
    }

    /// Returns whether a state, or the contents of a file, did not fit its target.
    pub fn is_mismatch(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::Mismatch { .. }))
    }

    /// Returns whether a file could not be written or read, or was damaged.
    #[cfg(feature = "checkpoint")]
    #[cfg_attr(docsrs, doc(cfg(feature = "checkpoint")))]
    pub fn is_file(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::File { .. }))
    }

    /// Returns whether an argument was out of its range.
    pub fn is_argument(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::Argument { .. }))
    }

    /// Returns whether a mask or label pattern matched no leaf.
    pub fn is_no_match(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::NoMatch { .. }))
    }

    /// Returns whether a name (of a hyperparameter, a label, a config key) is not known.
    pub fn is_unknown_name(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::UnknownName { .. }))
    }

    /// Returns whether a rule could not be recorded as a [`Program`].
    ///
    /// [`Program`]: https://docs.rs/gradchain/latest/gradchain/program/struct.Program.html
    pub fn is_unrecordable(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::Unrecordable { .. }))
    }

    /// Returns whether a [process group](https://docs.rs/gradchain/latest/gradchain/collective/index.html) has lost a rank, or its ranks disagree.
    ///
    /// The group cannot recover: the process should exit, and resume from its last checkpoint.
    pub fn is_collective(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::Collective { .. }))
    }

    /// Returns whether the state is half written.
    ///
    /// The cause is a panic in code called by a step (a rule, a schedule, a loss), or an error of a loss or a device.
    /// Resume from a copy or a checkpoint; [`step`](crate::GradientTransformation::step) describes the parameters then.
    pub fn is_poisoned(&self) -> bool {
        self.is(|kind| matches!(kind, Kind::Poisoned))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.kind() {
            Kind::Structure { what, differences } => {
                write!(f, "{what}: ")?;
                Lines(differences).fmt(f)
            }
            Kind::Argument { function, argument, expected, found } => {
                write!(f, "{function}: argument `{argument}` must be {expected}, found {found}")
            }
            Kind::NoMatch { what, pattern, paths, suggestion } => {
                write!(f, "{what} `{pattern}` matches none of the {} leaves{}", paths.len(), Listing(paths))?;
                suggestion.as_ref().map_or(Ok(()), |suggestion| write!(f, "; did you mean `{suggestion}`?"))
            }
            Kind::UnknownName { place, what, name, known } => {
                write!(f, "{place}: unknown {what} `{name}`{}", Suggestions(name, known))
            }
            Kind::Mismatch { what, mismatch_report: MismatchReport { lines, hints, proposed } } => {
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

const GIVEN: &str = "given";

/// The number of differences and the first ones, or all with `{:#}`.
struct Lines<'a, T>(&'a [T]);

impl<T> Lines<'_, T> {
    /// Keeps hints such as proposed verbs on the screen.
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
