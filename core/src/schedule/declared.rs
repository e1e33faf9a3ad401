//! Declarations of schedule kinds: one macro for arguments, checks, printing and recipes.

use core::fmt;

use super::recipe::{boundaries, steps};
use super::several::list;
use super::{DecayShape, Schedule};
use crate::error::Result;
pub(super) use crate::recipe::Show;
use crate::recipe::{FromRecipe, Required, ToRecipe};

/// The generated part of a schedule, which prints as its constructor call.
pub(super) trait Declared: fmt::Display {
    fn name(&self) -> &'static str;
    /// Checks the ranges; `function` is the name in the message.
    fn check_ranges(&self, function: &str) -> Result<()>;
    fn arguments(&mut self, visit: &mut Show<'_>);
}

pub(super) trait Argument: fmt::Debug + ToRecipe + FromRecipe {
    /// Writes the argument as in the call.
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }

    /// Visits the argument; configs must give it if `is_required`.
    fn visit(&mut self, name: &'static str, is_required: bool, visit: &mut Show<'_>) {
        if is_required { visit(name, &mut Required(self)) } else { visit(name, self) }
    }
}

impl Argument for f64 {}
impl Argument for bool {}
impl Argument for Vec<f64> {}

/// A number of steps: configs may give a negative one, which counts as 0, as in Optax.
impl Argument for u64 {
    fn visit(&mut self, name: &'static str, is_required: bool, visit: &mut Show<'_>) {
        visit(name, &mut steps(self, is_required));
    }
}

/// Numbers of steps, always required.
impl Argument for Vec<u64> {
    fn visit(&mut self, name: &'static str, _: bool, visit: &mut Show<'_>) {
        visit(name, &mut boundaries(self));
    }
}

impl Argument for Option<f64> {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.map_or(Ok(()), |given| given.show(f))
    }
}

impl Argument for DecayShape {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DecayShape::{self:?}")
    }
}

impl Argument for Box<Schedule> {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Argument for Vec<Schedule> {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, self)
    }
}

/// Declares a schedule: struct, setters, range checks, printing, and [recipe](crate::recipe).
///
/// Parentheses contain the arguments of the call, braces those with a default. Optional ranges name those of
/// [`range`](crate::range). `Kind::check` holds further conditions.
macro_rules! schedule {
    (
        $(#[$meta:meta])*
        $T:ident as $name:literal (
            $($(#[$rdoc:meta])* $r:ident: $R:ident $(<$RG:ident>)? $(in $rrange:ident)?),+ $(,)?
        )
        $({ $($(#[$odoc:meta])* $o:ident: $O:ident $(<$G:ident>)? $(in $orange:ident)? = $default:expr;)+ })?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        #[must_use = "a schedule does nothing until it is evaluated"]
        #[non_exhaustive]
        pub struct $T {
            $(
                $(#[$rdoc])*
                $(#[doc = concat!("\n\nRange: [`", stringify!($rrange), "`](crate::range::", stringify!($rrange), ").")])?
                pub $r: $R $(<$RG>)?,
            )+
            $($(
                $(#[$odoc])*
                #[doc = concat!("\n\n", $("Range: [`", stringify!($orange), "`](crate::range::", stringify!($orange), "). ",)? "By default `", stringify!($default), "`.")]
                pub $o: $O $(<$G>)?,
            )+)?
        }

        impl $T {
            /// Returns the schedule with these arguments, and defaults for the others.
            pub(super) fn with($($r: $R $(<$RG>)?),+) -> $T {
                $T { $($r,)+ $($($o: $default,)+)? }
            }

            $($($crate::schedule::declared::schedule!(@setter $T $o ($O $(<$G>)?));)+)?
        }

        impl $crate::schedule::declared::Declared for $T {
            fn name(&self) -> &'static str {
                $name
            }

            fn check_ranges(&self, _function: &str) -> $crate::Result<()> {
                $($($crate::schedule::declared::schedule!(@within self _function $r $rrange);)?)+
                $($($($crate::schedule::declared::schedule!(@within self _function $o $orange);)?)+)?
                Ok(())
            }

            fn arguments(&mut self, visit: &mut $crate::schedule::declared::Show<'_>) {
                use $crate::schedule::declared::Argument as _;
                $(self.$r.visit(stringify!($r), true, visit);)+
                $($(self.$o.visit(stringify!($o), false, visit);)+)?
            }
        }

        impl core::fmt::Display for $T {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                use $crate::schedule::declared::Argument as _;
                f.write_str(concat!($name, "("))?;
                let mut between = "";
                $(
                    f.write_str(core::mem::replace(&mut between, ", "))?;
                    self.$r.show(f)?;
                )+
                let _ = between;
                f.write_str(")")?;
                $($(
                    if self.$o != $default {
                        f.write_str(concat!(".", stringify!($o), "("))?;
                        self.$o.show(f)?;
                        f.write_str(")")?;
                    }
                )+)?
                Ok(())
            }
        }
    };

    (@setter $T:ident $o:ident (Option<$G:ident>)) => {
        $crate::schedule::declared::schedule!(@setter $T $o, impl Into<Option<$G>>, $o.into());
    };
    (@setter $T:ident $o:ident ($O:ident)) => {
        $crate::schedule::declared::schedule!(@setter $T $o, $O, $o);
    };
    (@setter $T:ident $o:ident, $O:ty, $value:expr) => {
        #[doc = concat!("Sets [`", stringify!($o), "`](struct@", stringify!($T), ").")]
        pub fn $o(mut self, $o: $O) -> $T {
            self.$o = $value;
            self
        }
    };

    (@within $it:ident $function:ident $a:ident $range:ident) => {{
        let range = $crate::range::$range;
        $crate::schedule::require((range.contains)($it.$a as f64), $function, stringify!($a), range.text, $it.$a)?;
    }};
}
pub(super) use schedule;
