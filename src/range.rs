//! The ranges of arguments, by name: what is checked, what messages say, and what the documentation links to.

/// A set of numbers, in words and as a test.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Range {
    /// What messages say of it: "in [0, 1)".
    pub text: &'static str,
    /// Whether a number is in it.
    pub holds: fn(f64) -> bool,
}

impl Range {
    /// The numbers that `holds` accepts; `text` goes on from "must be" in messages.
    pub const fn new(text: &'static str, holds: fn(f64) -> bool) -> Range {
        Range { text, holds }
    }
}

macro_rules! ranges {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $holds:expr;)*) => {$(
        $(#[$doc])*
        #[doc = ""]
        #[doc = concat!("Messages say \"", $text, "\".")]
        pub const $name: Range = Range { text: $text, holds: $holds };
    )*};
}

ranges! {
    /// Any number but NaN and the infinities.
    FINITE = "finite", f64::is_finite;
    /// 0 or more, and finite.
    NOT_NEGATIVE = "finite and not negative", |x| x >= 0.0 && x.is_finite();
    /// 0 or more; infinity too, which usually means "no limit".
    AT_LEAST_0 = "not negative", |x| x >= 0.0;
    /// More than 0, and finite.
    POSITIVE = "positive and finite", |x| x > 0.0 && x.is_finite();
    /// More than 0; infinity too.
    ABOVE_0 = "positive", |x| x > 0.0;
    /// The decay of a running mean: from 0 on, less than 1.
    DECAY = "in [0, 1)", |x| (0.0..1.0).contains(&x);
    /// A share: from 0 to 1.
    SHARE = "in [0, 1]", |x| (0.0..=1.0).contains(&x);
    /// A share that is not 0.
    PART = "in (0, 1]", |x| x > 0.0 && x <= 1.0;
    /// Between 0 and 1, without the two.
    INSIDE = "between 0 and 1", |x| x > 0.0 && x < 1.0;
    /// More than 1, and finite.
    ABOVE_1 = "finite and more than 1", |x| x > 1.0 && x.is_finite();
    /// 1 or more.
    AT_LEAST_1 = "at least 1", |x| x >= 1.0;
    /// 1000 or less.
    AT_MOST_1000 = "at most 1000", |x| x <= 1000.0;
    /// 4 or more.
    AT_LEAST_4 = "at least 4", |x| x >= 4.0;
    /// Any number but NaN.
    NUMBER = "a number", |x: f64| !x.is_nan();
    /// Whatever is given.
    ANY = "any number", |_| true;
}
