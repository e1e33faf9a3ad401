//! Declarations of parts and optimizers by macros.

#[macro_use]
mod wrapper;

/// Declares the arguments of a part.
///
/// It generates the struct, the setters, range checks, and the list of arguments for configs, messages and
/// [`inject_hyperparams`].
///
/// | section | its arguments are | in the constructor |
/// |---|---|---|
/// | `required` | [`Hyperparam`](crate::schedule::Hyperparam)s without a default | yes |
/// | `given` | of any type, without a default: `name: u64, RANGE;`, the range is optional | yes |
/// | `hyperparams` | [`Hyperparam`](crate::schedule::Hyperparam)s: `name: RANGE = default;` | no |
/// | `options` | of any type: `name: Type = default, RANGE;`, the range is optional | no |
/// | `integers` | numbers of any type: `name: u64 = 1, RANGE;`, the range is optional | no |
/// | `optional` | hyperparameters that may be absent | no |
///
/// All sections are optional, in this order. Ranges are those of [`range`](crate::range) by name. `check path;` at the
/// end names a function `fn(&Self) -> Result<()>` for further conditions. The part's effect on the direction and the
/// size of updates follows its form, by the name of an [`Effect`](crate::part::Effect): `: OneElement,
/// SCALE_INVARIANT;`. If it depends on arguments, `effect path;` at the end names a function `fn(&Self) -> Effect`. The
/// associated function `with(..)` takes the required and given arguments. The struct is `Clone`, `Debug` and
/// `PartialEq`, and so must arguments be.
///
/// # Example
///
/// ```
/// use gradchain::arguments::required;
/// use gradchain::part::{Clock, OneElement, Rule};
/// use gradchain::prelude::*;
/// use gradchain::Real;
///
/// gradchain::part! {
///     /// Multiplies by a number.
///     pub Stretch as "stretch": OneElement;
///     required {
///         /// By how much.
///         by: POSITIVE;
///     }
/// }
///
/// impl Rule for Stretch {
///     type Slots<C: Real> = [C; 0];
///     type Scalars<C: Real> = C;
///
///     fn scalars<C: Real>(&self, clock: Clock) -> C {
///         C::of(self.by.at(clock.count))
///     }
///     fn apply<C: Real>(by: C, _: &mut [C; 0], u: C, _: C) -> C {
///         by * u
///     }
/// }
///
/// let error = Stretch::with(-1.0).init(&0.0_f32).unwrap_err();
/// assert_eq!(error.to_string(), "stretch: argument `by` must be positive and finite, found -1");
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// [`inject_hyperparams`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.inject_hyperparams.html
#[macro_export]
macro_rules! part {
    // The compiler shows the line at which a call differs, with the comment.
    (
        $(#[$meta:meta])*
        $vis:vis $T:ident as $name:literal: $Form:ident $(<$Needs:ty>)? $(, $effect:ident)?; // Name as "name": OneElement;
        $(required { $($(#[$rdoc:meta])* $r:ident: $rrange:ident;)* })? // a range of `gradchain::range`: POSITIVE
        $(given { $($(#[$gdoc:meta])* $g:ident: $G:ty $(, $grange:ident)?;)* })?
        $(hyperparams { $($(#[$hdoc:meta])* $h:ident: $hrange:ident = $hdefault:expr;)* })? // POSITIVE = 1.0
        $(options { $($(#[$odoc:meta])* $o:ident: $O:ty = $odefault:expr $(, $orange:ident)?;)* })?
        $(integers { $($(#[$ndoc:meta])* $n:ident: $N:ty = $ndefault:expr $(, $nrange:ident)?;)* })?
        $(optional { $($(#[$qdoc:meta])* $q:ident: $qrange:ident;)* })?
        $(check $check:path;)?
        $(effect $effect_of:path;)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        #[must_use = "a transformation does nothing until it is given gradients"]
        $vis struct $T {
            $($(
                $(#[$rdoc])*
                #[doc = concat!("\n\nRange: [`", stringify!($rrange), "`](crate::range::", stringify!($rrange), ").")]
                pub $r: $crate::schedule::Hyperparam,
            )*)?
            $($(
                $(#[$gdoc])*
                $(#[doc = concat!("\n\nRange: [`", stringify!($grange), "`](crate::range::", stringify!($grange), ").")])?
                pub $g: $G,
            )*)?
            $($(
                $(#[$hdoc])*
                #[doc = concat!(
                    "\n\nRange: [`", stringify!($hrange), "`](crate::range::", stringify!($hrange), "); by default ",
                    stringify!($hdefault), "."
                )]
                pub $h: $crate::schedule::Hyperparam,
            )*)?
            $($(
                $(#[$odoc])*
                #[doc = concat!("\n\n", $("Range: [`", stringify!($orange), "`](crate::range::", stringify!($orange), "). ",)? "By default `", stringify!($odefault), "`.")]
                pub $o: $O,
            )*)?
            $($(
                $(#[$ndoc])*
                #[doc = concat!("\n\n", $("Range: [`", stringify!($nrange), "`](crate::range::", stringify!($nrange), "); ",)? "by default ", stringify!($ndefault), ".")]
                pub $n: $N,
            )*)?
            $($(
                $(#[$qdoc])*
                #[doc = concat!(
                    "\n\nRange: [`", stringify!($qrange), "`](crate::range::", stringify!($qrange), "); by default none."
                )]
                pub $q: Option<$crate::schedule::Hyperparam>,
            )*)?
        }

        #[allow(dead_code, reason = "a transformation may have no optional argument")]
        impl $T {
            /// Returns the part with these arguments, and defaults for the others.
            pub(crate) fn with(
                $($($r: impl $crate::schedule::IntoHyperparam,)*)?
                $($($g: impl Into<$G>,)*)?
            ) -> Self {
                $T {
                    $($($r: $r.into(),)*)?
                    $($($g: $g.into(),)*)?
                    $($($h: $crate::schedule::Hyperparam::from($hdefault),)*)?
                    $($($o: $odefault,)*)?
                    $($($n: $ndefault,)*)?
                    $($($q: None,)*)?
                }
            }

            $($(
                #[doc = concat!("Sets [`", stringify!($r), "`](struct@", stringify!($T), ").")]
                pub fn $r(mut self, $r: impl $crate::schedule::IntoHyperparam) -> Self {
                    self.$r = $r.into();
                    self
                }
            )*)?
            $($(
                #[doc = concat!("Sets [`", stringify!($g), "`](struct@", stringify!($T), ").")]
                pub fn $g(mut self, $g: $G) -> Self {
                    self.$g = $g;
                    self
                }
            )*)?
            $($(
                #[doc = concat!("Sets [`", stringify!($h), "`](struct@", stringify!($T), ").")]
                pub fn $h(mut self, $h: impl $crate::schedule::IntoHyperparam) -> Self {
                    self.$h = $h.into();
                    self
                }
            )*)?
            $($(
                #[doc = concat!("Sets [`", stringify!($o), "`](struct@", stringify!($T), ").")]
                pub fn $o(mut self, $o: impl Into<$O>) -> Self {
                    self.$o = $o.into();
                    self
                }
            )*)?
            // A plain `5` does not implement `Into<usize>`.
            $($(
                #[doc = concat!("Sets [`", stringify!($n), "`](struct@", stringify!($T), ").")]
                pub fn $n(mut self, $n: $N) -> Self {
                    self.$n = $n;
                    self
                }
            )*)?
            $($(
                #[doc = concat!("Sets [`", stringify!($q), "`](struct@", stringify!($T), ").")]
                pub fn $q(mut self, $q: impl $crate::schedule::IntoHyperparam) -> Self {
                    self.$q = Some($q.into());
                    self
                }
            )*)?
        }

        impl $crate::part::Part for $T {
            const NAME: &'static str = $name;
            type Form = $Form $(<$Needs>)?;

            fn validate(&self) -> $crate::Result<()> {
                #[allow(unused_imports, reason = "a transformation may have no argument with a range")]
                use $crate::arguments::CheckRange as _;
                $crate::Error::all([
                    $($(self.$r.check_range($name, stringify!($r), $crate::range::$rrange),)*)?
                    $($($(self.$g.check_range($name, stringify!($g), $crate::range::$grange),)?)*)?
                    $($(self.$h.check_range($name, stringify!($h), $crate::range::$hrange),)*)?
                    $($($(self.$o.check_range($name, stringify!($o), $crate::range::$orange),)?)*)?
                    $($($(self.$n.check_range($name, stringify!($n), $crate::range::$nrange),)?)*)?
                    $($(self.$q.check_range($name, stringify!($q), $crate::range::$qrange),)*)?
                ])?;
                $($check(self)?;)?
                Ok(())
            }

            fn own_arguments(&mut self, visit: &mut $crate::arguments::Visit<'_>) {
                $crate::arguments::Arguments::arguments(self, visit);
            }

            fn changed_argument(&self, _made: &Self) -> Option<&'static str> {
                $($(if $crate::part::differs(&self.$g, &_made.$g) { return Some(stringify!($g)); })*)?
                $($(if $crate::part::differs(&self.$o, &_made.$o) { return Some(stringify!($o)); })*)?
                $($(if $crate::part::differs(&self.$n, &_made.$n) { return Some(stringify!($n)); })*)?
                $($(if $crate::part::differs(&self.$q, &_made.$q) { return Some(stringify!($q)); })*)?
                None
            }

            fn recipe(&self) -> $crate::recipe::Recipe {
                $crate::part::own_recipe(self)
            }

            $(fn effect(&self) -> $crate::part::Effect {
                $crate::part::Effect::$effect
            })?
            $(fn effect(&self) -> $crate::part::Effect {
                $effect_of(self)
            })?
        }

        impl $crate::arguments::Arguments for $T {
            const NAME: &'static str = $name;

            // Not inlined into each caller.
            #[inline(never)]
            fn arguments(&mut self, _visit: &mut $crate::arguments::Visit<'_>) {
                $($(_visit(stringify!($r), $crate::arguments::Argument::Hyperparam(&mut self.$r));)*)?
                $($(_visit(stringify!($h), $crate::arguments::Argument::Hyperparam(&mut self.$h));)*)?
                $($(_visit(stringify!($g), $crate::arguments::Argument::Static(&mut $crate::recipe::Required(&mut self.$g)));)*)?
                $($(_visit(stringify!($o), $crate::arguments::Argument::Static(&mut self.$o));)*)?
                $($(_visit(stringify!($n), $crate::arguments::Argument::Static(&mut self.$n));)*)?
                $($(_visit(stringify!($q), $crate::arguments::optional(&mut self.$q));)*)?
            }
        }
    };
}
