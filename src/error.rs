//! The crate's one error type.

use core::fmt;

use crate::layout::Difference;

/// What went wrong, where, what was expected and what was found.
///
/// Whatever returned it changed nothing: parameters, state and updates are as they were before the call. There is one
/// exception: after an error of a loss that was asked in the middle of a step the parameters are as they were, and the
/// state [cannot be used any more](Error::is_poisoned).
///
/// The kinds are private so that messages can improve; the `is_*` predicates tell them apart.
///
/// `{:?}` is the sentence too, so that a `main` that returns an error prints it.
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
    },
    UnknownName {
        place: String,
        what: &'static str,
        name: String,
        known: Vec<String>,
    },
    Mismatch {
        what: String,
        lines: Vec<String>,
    },
    #[cfg(feature = "checkpoint")]
    File {
        file: String,
        problem: String,
    },
    State {
        place: String,
        problem: String,
    },
    Unrecordable {
        part: String,
        problem: &'static str,
    },
    Poisoned,
}

impl Error {
    /// Two trees, or a tree and a state, that do not fit each other; every difference is listed.
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

    pub(crate) fn no_match(what: impl Into<String>, pattern: impl Into<String>, paths: Vec<String>) -> Error {
        Error(Box::new(Kind::NoMatch { what: what.into(), pattern: pattern.into(), paths }))
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

    /// A state that does not fit where it is to go; every difference is a line.
    pub(crate) fn mismatch(what: impl Into<String>, lines: Vec<String>) -> Error {
        Error(Box::new(Kind::Mismatch { what: what.into(), lines }))
    }

    /// What was saved, and what it does not fit into.
    #[cfg(feature = "serde")]
    pub(crate) fn misfit(called: &str, lines: Vec<String>) -> Error {
        Error::mismatch(format!("{called} does not fit"), lines)
    }

    /// A file that cannot be written, or read, or is not what it says.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn file(file: impl Into<String>, problem: impl Into<String>) -> Error {
        Error(Box::new(Kind::File { file: file.into(), problem: problem.into() }))
    }

    /// Element arithmetic that does something which cannot be written down.
    pub(crate) fn unrecordable(part: &str, problem: &'static str) -> Error {
        Error(Box::new(Kind::Unrecordable { part: part.into(), problem }))
    }

    pub(crate) fn poisoned() -> Error {
        Error(Box::new(Kind::Poisoned))
    }

    /// Whether two structures did not fit each other.
    pub fn is_structure(&self) -> bool {
        matches!(*self.0, Kind::Structure { .. })
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
        matches!(*self.0, Kind::Mismatch { .. })
    }

    /// Whether a file could not be written or read, or was damaged.
    #[cfg(feature = "checkpoint")]
    #[cfg_attr(docsrs, doc(cfg(feature = "checkpoint")))]
    pub fn is_file(&self) -> bool {
        matches!(*self.0, Kind::File { .. })
    }

    /// Whether an argument was out of its range.
    pub fn is_argument(&self) -> bool {
        matches!(*self.0, Kind::Argument { .. })
    }

    /// Whether a mask or label pattern matched no leaf.
    pub fn is_no_match(&self) -> bool {
        matches!(*self.0, Kind::NoMatch { .. })
    }

    /// Whether a name (of a hyperparameter, a label, a config key) is not known.
    pub fn is_unknown_name(&self) -> bool {
        matches!(*self.0, Kind::UnknownName { .. })
    }

    /// Whether a rule could not be recorded as a [`Program`](crate::program::Program).
    pub fn is_unrecordable(&self) -> bool {
        matches!(*self.0, Kind::Unrecordable { .. })
    }

    /// Whether the state was left half written by a panic in code that a step called (a rule, a schedule, a loss), or
    /// by an error of a loss or a machine. Go on from a copy or a checkpoint; see [`step`](crate::GradientTransformation::step)
    /// for what the parameters are then.
    pub fn is_poisoned(&self) -> bool {
        matches!(*self.0, Kind::Poisoned)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Structure { what, differences } => write!(f, "{what}: {}", Lines(differences)),
            Kind::Argument { function, argument, expected, found } => {
                write!(f, "{function}: argument `{argument}` must be {expected}, found {found}")
            }
            Kind::NoMatch { what, pattern, paths } => {
                write!(f, "{what} `{pattern}` matches none of the {} leaves{}", paths.len(), Listing(paths))
            }
            Kind::UnknownName { place, what, name, known } => {
                write!(f, "{place}: there is no {what} `{name}`{}", Known(name, known))
            }
            Kind::Mismatch { what, lines } => write!(f, "{what}: {}", Lines(lines)),
            #[cfg(feature = "checkpoint")]
            Kind::File { file, problem } => write!(f, "{file}: {problem}"),
            Kind::State { place, problem } => write!(f, "{place}: {problem}"),
            Kind::Unrecordable { part, problem } => write!(f, "{part} cannot be recorded as a program: {problem}"),
            Kind::Poisoned => f.write_str(
                "this state was left half written by a panic, or by an error of the loss, in an earlier step; restore \
                 it from a copy or call `init` again",
            ),
        }
    }
}

impl core::error::Error for Error {}

/// How many differences there are, and each on a line of its own.
struct Lines<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for Lines<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} difference{}", self.0.len(), if self.0.len() == 1 { "" } else { "s" })?;
        self.0.iter().try_for_each(|line| write!(f, "\n  {line}"))
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

/// What to suggest for a misspelt name: the nearest known one first.
struct Known<'a>(&'a str, &'a [String]);

impl fmt::Display for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        let Known(name, known) = self;
        let mut nearest: Vec<&str> = known.iter().map(|k| &**k).collect();
        nearest.sort_by_key(|k| (!k.starts_with(name), distance(name, k)));
        if let Some(first) = nearest.first()
            && (first.starts_with(name) || distance(name, first) <= 1 + name.len() / 3)
        {
            write!(f, "; did you mean `{first}`?")?;
        }
        match known.len() {
            0 => Ok(()),
            n if n <= SHOWN => write!(f, " (known: {})", known.join(", ")),
            n => write!(f, " (the nearest of {n}: {})", nearest[..SHOWN].join(", ")),
        }
    }
}

/// How far a name is from a known one, or from the last levels of it if it is a path with dots.
fn distance(name: &str, known: &str) -> usize {
    let tails = known.match_indices('.').map(|(dot, _)| &known[dot + 1..]);
    tails.fold(edit_distance(name, known), |least, tail| least.min(edit_distance(name, tail)))
}

/// Levenshtein distance in characters.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_gets_the_nearest_one() {
        let error = Error::unknown_name("inject_hyperparams", "hyperparameter", "weigth_decay", ["b1", "weight_decay"]);
        assert_eq!(
            error.to_string(),
            "inject_hyperparams: there is no hyperparameter `weigth_decay`; did you mean `weight_decay`? \
             (known: b1, weight_decay)"
        );
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(distance("lerning_rate", "descend.learning_rate"), 1);
    }
}
