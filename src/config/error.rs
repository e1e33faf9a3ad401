use core::fmt;

use crate::error::Error;

/// What is wrong with a config, and where in it.
///
/// The place is a JSON path: `$.chain[1].adamw.mask`.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigError(Box<Kind>);

/// The result of everything that reads configs.
pub type Result<T, E = ConfigError> = core::result::Result<T, E>;

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    /// The error says where.
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
    /// A name that is nothing anywhere; the nearest known one is suggested.
    pub(super) fn unknown(
        place: &str,
        what: &'static str,
        name: &str,
        known: impl IntoIterator<Item = impl Into<String>>,
    ) -> ConfigError {
        ConfigError(Box::new(Kind::Unknown(Error::unknown_name(place, what, name, known))))
    }

    /// A value of another type or form than there must be.
    pub(super) fn wrong(place: &str, expected: impl Into<String>, found: impl fmt::Display) -> ConfigError {
        ConfigError(Box::new(Kind::Wrong { place: place.into(), expected: expected.into(), found: found.to_string() }))
    }

    /// What the transformation itself refuses.
    pub(super) fn refused(place: &str, error: Error) -> ConfigError {
        ConfigError(Box::new(Kind::Refused { place: place.into(), error }))
    }

    /// Whether a name (of a transformation, a schedule, an argument) is not known.
    pub fn is_unknown_name(&self) -> bool {
        matches!(*self.0, Kind::Unknown(_))
    }

    /// What the transformation said, if an argument was out of its range.
    pub fn refusal(&self) -> Option<&Error> {
        if let Kind::Refused { error, .. } = &*self.0 { Some(error) } else { None }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Unknown(error) => error.fmt(f),
            Kind::Wrong { place, expected, found } => write!(f, "{place}: expected {expected}, found {found}"),
            Kind::Refused { place, error } => write!(f, "{place}: {error}"),
        }
    }
}

impl core::error::Error for ConfigError {}
