use core::fmt;

use crate::error::Error;

/// All problems of a config, with their places.
///
/// Places are JSON paths: `$.chain[1].adamw.mask`. Each problem is printed on a line of its own.
///
/// `{:?}` prints the same, so that a `main` that returns one prints it.
#[derive(Clone, PartialEq)]
pub struct ConfigError(Vec<Problem>);

impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The result of functions that read configs.
pub type Result<T, E = ConfigError> = core::result::Result<T, E>;

#[derive(Clone, PartialEq)]
enum Problem {
    /// The error contains its place.
    Unknown(Error),
    Wrong {
        place: String,
        expected: String,
        found: String,
    },
    Refused {
        place: String,
        error: Error,
    },
}

impl ConfigError {
    /// Returns an error for an unknown name; suggests the nearest known one.
    pub fn unknown(
        place: &str,
        what: &'static str,
        name: &str,
        known: impl IntoIterator<Item = impl Into<String>>,
    ) -> ConfigError {
        ConfigError(vec![Problem::Unknown(Error::unknown_name(place, what, name, known))])
    }

    /// Returns an error for a value of the wrong type or form.
    pub fn wrong(place: &str, expected: impl Into<String>, found: impl fmt::Display) -> ConfigError {
        ConfigError(vec![Problem::Wrong { place: place.into(), expected: expected.into(), found: found.to_string() }])
    }

    /// Returns an error for a refusal of the transformation itself.
    pub fn refused(place: &str, error: Error) -> ConfigError {
        ConfigError(error.each().into_iter().map(|error| Problem::Refused { place: place.into(), error }).collect())
    }

    pub(crate) fn all(problems: impl IntoIterator<Item = ConfigError>) -> Result<()> {
        let mut all = Vec::new();
        for error in problems {
            all.extend(error.0);
        }
        ConfigError::of(all)
    }

    fn of(problems: Vec<Problem>) -> Result<()> {
        if problems.is_empty() { Ok(()) } else { Err(ConfigError(problems)) }
    }

    /// Returns all values, or all problems.
    pub(crate) fn collect<T>(results: impl IntoIterator<Item = Result<T>>) -> Result<Vec<T>> {
        let (mut values, mut problems) = (Vec::new(), Vec::new());
        for result in results {
            match result {
                Ok(value) => values.push(value),
                Err(error) => problems.push(error),
            }
        }
        ConfigError::all(problems).map(|()| values)
    }

    /// Returns both values, or both's problems.
    #[doc(hidden)]
    pub fn both<A, B>(a: Result<A>, b: Result<B>) -> Result<(A, B)> {
        match (a, b) {
            (Ok(a), Ok(b)) => Ok((a, b)),
            (a, b) => Err(ConfigError::joined(a.err(), b.err())),
        }
    }

    fn joined(a: Option<ConfigError>, b: Option<ConfigError>) -> ConfigError {
        ConfigError([a, b].into_iter().flatten().flat_map(|error| error.0).collect())
    }

    /// Removes the consequences of a missing argument, which is reported itself.
    #[cfg(feature = "config")]
    #[doc(hidden)]
    pub fn of_given(mut self) -> Result<()> {
        self.0.retain(|problem| !matches!(problem, Problem::Refused { error, .. } if error.is_missing()));
        ConfigError::all([self])
    }

    /// Returns whether a name (of a transformation, a schedule, an argument) is not known.
    pub fn is_unknown_name(&self) -> bool {
        self.0.iter().any(|problem| matches!(problem, Problem::Unknown(_)))
    }

    /// Returns the error of the transformation, if an argument was out of its range.
    pub fn refusal(&self) -> Option<&Error> {
        self.0.iter().find_map(|problem| if let Problem::Refused { error, .. } = problem { Some(error) } else { None })
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            match problem {
                Problem::Unknown(error) => error.fmt(f)?,
                Problem::Wrong { place, expected, found } => write!(f, "{place}: expected {expected}, found {found}")?,
                Problem::Refused { place, error } => {
                    let (text, name) = (error.to_string(), place.rsplit('.').next().unwrap_or_default());
                    // The place already ends in the refusing transformation's name.
                    let own = text.strip_prefix(name).and_then(|text| text.strip_prefix(": "));
                    write!(f, "{place}: {}", own.unwrap_or(&text))?;
                }
            }
        }
        Ok(())
    }
}

impl core::error::Error for ConfigError {}
