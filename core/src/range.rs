//! The ranges of arguments, by name: for checks, messages and links in the documentation.

/// A range of numbers: its text in messages, and a predicate.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Range {
    /// The text in messages: "in [0, 1)".
    pub text: &'static str,
    /// Returns true if a number is in it.
    pub contains: fn(f64) -> bool,
}

impl Range {
    /// Creates the range of the numbers that `contains` accepts; `text` follows "must be" in messages.
    pub const fn new(text: &'static str, contains: fn(f64) -> bool) -> Range {
        Range { text, contains }
    }
}

/// Any number but NaN and the infinities. Messages say "finite".
pub const FINITE: Range = Range::new("finite", f64::is_finite);

/// 0 or more, and finite. Messages say "finite and not negative".
pub const NOT_NEGATIVE: Range = Range::new("finite and not negative", |x| x >= 0.0 && x.is_finite());

/// 0 or more; infinity too, which usually means "no limit". Messages say "not negative".
pub const AT_LEAST_0: Range = Range::new("not negative", |x| x >= 0.0);

/// More than 0, and finite. Messages say "positive and finite".
pub const POSITIVE: Range = Range::new("positive and finite", |x| x > 0.0 && x.is_finite());

/// More than 0; infinity too. Messages say "positive".
pub const ABOVE_0: Range = Range::new("positive", |x| x > 0.0);

/// The decay of a running mean: from 0 on, less than 1. Messages say "in [0, 1)".
pub const DECAY: Range = Range::new("in [0, 1)", |x| (0.0..1.0).contains(&x));

/// A fraction: from 0 to 1. Messages say "in [0, 1]".
pub const UNIT_INTERVAL: Range = Range::new("in [0, 1]", |x| (0.0..=1.0).contains(&x));

/// A fraction that is not 0. Messages say "in (0, 1]".
pub const POSITIVE_FRACTION: Range = Range::new("in (0, 1]", |x| x > 0.0 && x <= 1.0);

/// More than 0 and less than 1. Messages say "in (0, 1)".
pub const OPEN_UNIT_INTERVAL: Range = Range::new("in (0, 1)", |x| x > 0.0 && x < 1.0);

/// More than 1, and finite. Messages say "finite and more than 1".
pub const ABOVE_1: Range = Range::new("finite and more than 1", |x| x > 1.0 && x.is_finite());

/// 1 or more. Messages say "at least 1".
pub const AT_LEAST_1: Range = Range::new("at least 1", |x| x >= 1.0);

/// 1000 or less. Messages say "at most 1000".
pub const AT_MOST_1000: Range = Range::new("at most 1000", |x| x <= 1000.0);

/// 4 or more. Messages say "at least 4".
pub const AT_LEAST_4: Range = Range::new("at least 4", |x| x >= 4.0);

/// Any number but NaN. Messages say "a number".
pub const NUMBER: Range = Range::new("a number", |x: f64| !x.is_nan());

/// Any number. Messages say "any number".
pub const ANY: Range = Range::new("any number", |_| true);
