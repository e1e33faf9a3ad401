//! Declarations of wrappers by macros.

/// Declares a wrapper's name and arguments.
///
/// It generates the struct, the setters, range checks, the [recipe](crate::recipe) and the list of named arguments for
/// configs and [`inject_hyperparams`].
///
/// ```text
/// wrapper! {
///     /// Its documentation.
///     pub Lookahead<T> as "lookahead" around fast_optimizer: AroundWithArithmetic {
///         /// After how many steps parameters come together.
///         sync_period: u64 in AT_LEAST_1;
///         /// How far.
///         slow_step_size: Hyperparam in FINITE;
///         /// Sets whether the optimizer forgets its state then.
///         reset_state: bool = false;
///     }
///     shows "{}, {}": sync_period, slow_step_size;
/// }
/// ```
///
/// `T` is the inner transformation; `fast_optimizer` is its name in configs, while the field is always called `inner`.
/// An argument with a default has a setter; those without one are the parameters, after the inner transformation, of
/// the associated function `with`. Types are written in full, and may have one parameter: `Option<DType>`. Ranges are
/// those of [`range`](crate::range) by name.
///
/// The arguments may be followed by, in this order:
///
/// | | |
/// |---|---|
/// | `shows "{}": field;` | the text of [`describe`](crate::part::Part::describe) after the inner transformation |
/// | `check path;` | a function `fn(&Self) -> Result<()>` for conditions beyond ranges |
/// | `recipe path;` | a function `fn(&Self) -> Recipe` in place of name and arguments |
/// | `arguments inside;` | the named arguments are those of the inner transformation, if any, and its own |
/// | `effect SCALE_INVARIANT;` | its effect on updates, if not that of the inner transformation: an [`Effect`](crate::part::Effect) |
///
/// `T` may be followed by another parameter of the type, with its bound: `<T, S: SkipUpdate = NoSkip>`; and by a
/// constant: `<T; const ZERO: bool>`.
///
/// [`inject_hyperparams`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.inject_hyperparams.html
#[macro_export]
macro_rules! wrapper {
    (
        $(#[$meta:meta])*
        $vis:vis $W:ident<$T:ident $(: $TB:path)? $(, $X:ident: $XB:path $(= $XD:ty)?)? $(; const $Z:ident: $ZT:ty)?>
            as $name:tt around $key:ident $(, with state $state:ident)?: $Form:ty {
            $(
                $(#[$doc:meta])*
                $a:ident: $(@$how:ident)? $A:ident $(<$G:ident>)? $(in $range:ident)? $(= $default:expr)?;
            )*
        }
        $(shows $shows:literal: $($shown:ident),+;)?
        $(check $check:path;)?
        $(recipe $recipe:path;)?
        $(arguments $arguments:ident;)?
        $(effect $effect:ident;)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        #[must_use = "a transformation does nothing until it is given gradients"]
        $vis struct $W<$T $(, $X $(= $XD)?)? $(, const $Z: $ZT)?> {
            #[doc(hidden)]
            pub inner: $T,
            $(
                #[doc(hidden)]
                pub $a: $A $(<$G>)?,
            )*
        }

        #[allow(dead_code, reason = "a transformation may have no optional argument")]
        impl<$T $(, $X)? $(, const $Z: $ZT)?> $W<$T $(, $X)? $(, $Z)?> {
            $crate::wrapper!(@with $W $T () () $([$a ($A $(<$G>)?) ($($default)?)])*);
            $($crate::wrapper!(@setter { $(#[$doc])* } $a ($A $(<$G>)?) ($($default)?));)*
        }

        impl<$T: $crate::GradientTransformation $(+ $TB)? $(, $X: $XB)? $(, const $Z: $ZT)?> $crate::part::Part
            for $W<$T $(, $X)? $(, $Z)?>
        {
            const NAME: &'static str = $name;
            type Form = $Form;

            fn validate(&self) -> $crate::Result<()> {
                #[allow(unused_imports, reason = "a wrapper may have no argument with a range")]
                use $crate::arguments::CheckRange as _;
                $crate::Error::all([
                    $($(self.$a.check_range(
                        <Self as $crate::part::Part>::NAME,
                        stringify!($a),
                        $crate::range::$range,
                    ),)?)*
                ])?;
                $($check(self)?;)?
                Ok(())
            }

            fn recipe(&self) -> $crate::recipe::Recipe {
                $crate::wrapper!(@or [$($recipe(self))?] [$crate::part::own_recipe(self)])
            }

            fn own_arguments(&mut self, visit: &mut $crate::arguments::Visit<'_>) {
                visit(stringify!($key), $crate::arguments::Argument::Static(&mut $crate::part::Inner(&mut self.inner)));
                $(visit(stringify!($a), $crate::wrapper!(@argument self $a ($(@$how)? $A) ($($default)?)));)*
            }

            fn changed_argument(&self, original: &Self) -> Option<&'static str> {
                $($crate::wrapper!(@changed self original $a $(@$how)?);)*
                self.inner.changed(&original.inner)
            }

            $(fn effect(&self) -> $crate::part::Effect {
                $crate::part::Effect::$effect
            })?

            fn describe(&self) -> String {
                let (name, inner) = (<Self as $crate::part::Part>::NAME, self.inner.describe());
                $crate::wrapper!(@or
                    [$(format!(concat!("{}({}, ", $shows, ")"), name, inner, $(self.$shown),+))?]
                    [format!("{name}({inner})")]
                )
            }
        }

        impl<$T: $crate::GradientTransformation $(+ $TB)? $(, $X: $XB)? $(, const $Z: $ZT)?> $crate::part::Holds
            for $W<$T $(, $X)? $(, $Z)?>
        {
            type Inner = $T;
            const KEY: &'static str = stringify!($key);
            $(const STATE: &'static str = stringify!($state);)?

            fn inner(&self) -> &$T {
                &self.inner
            }
        }

        $crate::wrapper! {
            @arguments ($($arguments)?) ($W<$T $(, $X)? $(, $Z)?>) $T ($crate::GradientTransformation $(+ $TB)?)
            ($(, $X: $XB)? $(, const $Z: $ZT)?) $name $key $([$a ($A $(<$G>)?)])*
        }
    };

    // The given tokens, or else the others.
    (@or [] [$($otherwise:tt)*]) => { $($otherwise)* };
    (@or [$($given:tt)+] $otherwise:tt) => { $($given)+ };

    // An argument without a default is a parameter of `with`.
    (@with $W:ident $T:ident ($($parameter:tt)*) ($($value:tt)*)) => {
        /// Returns the wrapper with these arguments, and defaults for the others.
        pub(crate) fn with(inner: $T, $($parameter)*) -> Self {
            $W { inner, $($value)* }
        }
    };
    (@with $W:ident $T:ident ($($parameter:tt)*) ($($value:tt)*) [$a:ident ($($A:tt)*) ()] $($rest:tt)*) => {
        $crate::wrapper!(@with $W $T ($($parameter)* $a: $($A)*,) ($($value)* $a,) $($rest)*);
    };
    (@with $W:ident $T:ident $parameters:tt ($($value:tt)*) [$a:ident (Hyperparam) ($default:expr)] $($rest:tt)*) => {
        $crate::wrapper!(@with $W $T $parameters ($($value)* $a: Hyperparam::from($default),) $($rest)*);
    };
    (@with $W:ident $T:ident $parameters:tt ($($value:tt)*) [$a:ident $A:tt ($default:expr)] $($rest:tt)*) => {
        $crate::wrapper!(@with $W $T $parameters ($($value)* $a: $default,) $($rest)*);
    };

    // The others have a setter each. A plain `5` does not implement `Into<u64>`.
    (@setter $docs:tt $a:ident $A:tt ()) => {};
    (@setter $docs:tt $a:ident (Hyperparam) $default:tt) => {
        $crate::wrapper!(@setter $docs $a (impl $crate::schedule::IntoHyperparam), $a.into());
    };
    (@setter $docs:tt $a:ident (Option<Hyperparam>) $default:tt) => {
        $crate::wrapper!(@setter $docs $a (impl $crate::schedule::IntoHyperparam), Some($a.into()));
    };
    (@setter $docs:tt $a:ident (Option<$G:ident>) $default:tt) => {
        $crate::wrapper!(@setter $docs $a (impl Into<Option<$G>>), $a.into());
    };
    (@setter $docs:tt $a:ident $A:tt $default:tt) => {
        $crate::wrapper!(@setter $docs $a $A, $a);
    };
    (@setter { $($doc:tt)* } $a:ident ($($A:tt)*), $value:expr) => {
        $($doc)*
        pub fn $a(mut self, $a: $($A)*) -> Self {
            self.$a = $value;
            self
        }
    };

    // An argument that determines the type cannot be set.
    (@argument $self:ident $a:ident (@decides $A:ident) $default:tt) => {
        $crate::arguments::Argument::Static(&mut $crate::recipe::Fixed($self.$a.to_recipe()))
    };
    (@changed $self:ident $original:ident $a:ident @decides) => {};
    (@changed $self:ident $original:ident $a:ident $(@$how:ident)?) => {
        if $crate::part::differs(&$self.$a, &$original.$a) {
            return Some(stringify!($a));
        }
    };

    // All but constructor parameters are optional.
    (@argument $self:ident $a:ident (@may $A:ident) $default:tt) => {
        $crate::arguments::Argument::Static(&mut $self.$a)
    };
    (@argument $self:ident $a:ident (Hyperparam) $default:tt) => {
        $crate::arguments::Argument::Hyperparam(&mut $self.$a)
    };
    (@argument $self:ident $a:ident (Option<Hyperparam>) $default:tt) => {
        $crate::arguments::optional(&mut $self.$a)
    };
    (@argument $self:ident $a:ident $A:tt ()) => {
        $crate::arguments::Argument::Static(&mut $crate::recipe::Required(&mut $self.$a))
    };
    (@argument $self:ident $a:ident $A:tt $default:tt) => {
        $crate::arguments::Argument::Static(&mut $self.$a)
    };

    (@arguments () ($W:ty) $T:ident ($($bound:tt)*) ($($more:tt)*) $name:tt $key:ident $($argument:tt)*) => {
        impl<$T: $($bound)* $($more)*> $crate::arguments::Arguments for $W {
            const NAME: &'static str = $name;

            fn arguments(&mut self, visit: &mut $crate::arguments::Visit<'_>) {
                $crate::part::Part::own_arguments(self, visit);
            }
        }
    };
    (@arguments (inside) ($W:ty) $T:ident $bound:tt ($($more:tt)*) $name:tt $key:ident $($argument:tt)*) => {
        /// The arguments of the inner transformation, and its own.
        impl<$T: $crate::arguments::Arguments + $crate::GradientTransformation $($more)*> $crate::arguments::Arguments
            for $W
        {
            const NAME: &'static str = <$T as $crate::arguments::Arguments>::NAME;

            fn name(&self) -> &'static str {
                self.inner.name()
            }

            fn arguments(&mut self, visit: &mut $crate::arguments::Visit<'_>) {
                self.inner.arguments(visit);
                $crate::part::Part::own_arguments(self, &mut |name, argument| {
                    if name != stringify!($key) {
                        visit(name, argument);
                    }
                });
            }
        }
    };
}

/// Declares a part's memory: struct, default, and [`State`](crate::state::State).
///
/// A field starts at the value after its type, or else at its default. Fields in `set` are set by users, and stay when
/// the state starts anew ([`StepContext::anew`](crate::part::StepContext)). Those in `means` determine its
/// [meaning](crate::state::StateWalk::meaning). Those in `beside` are not part of the state. `evaluate |memory| expr`
/// returns an [`EvaluateAs`](crate::state::EvaluateAs). `shown as part;` makes it visible to walks over
/// [parts](crate::state::StateWalk). `clock field;` is the count of schedules, if that is not `count`; `reads name;`
/// names the method with further [readings](crate::state::StateWalk::reading).
#[doc(hidden)]
#[macro_export]
macro_rules! memory {
    (
        $(#[$meta:meta])*
        $vis:vis $M:ident $(<$G:ident: $GB:path>)? {
            $($(#[$doc:meta])* $field:ident: $F:ty $(= $start:expr)?,)*
        }
        $(set { $($(#[$sdoc:meta])* $set:ident: $St:ty,)* })?
        $(means { $($(#[$mdoc:meta])* $means:ident: $Me:ty,)* })?
        $(beside { $($(#[$bdoc:meta])* $beside:ident: $B:ty $(= $bstart:expr)?,)* })?
        $(evaluate |$memory:ident| $as:expr;)?
        $(shown as $part:ident;)?
        $(clock $clock:ident;)?
        $(reads $reads:ident;)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        $vis struct $M $(<$G: $GB>)? {
            $($(#[$doc])* $field: $F,)*
            $($($(#[$sdoc])* $set: $St,)*)?
            $($($(#[$mdoc])* $means: $Me,)*)?
            $($($(#[$bdoc])* $beside: $B,)*)?
        }

        impl $(<$G: $GB>)? Default for $M $(<$G>)? {
            fn default() -> Self {
                $M {
                    $($field: $crate::wrapper!(@or [$($start)?] [<$F>::default()]),)*
                    $($($set: <$St>::default(),)*)?
                    $($($means: <$Me>::default(),)*)?
                    $($($beside: $crate::wrapper!(@or [$($bstart)?] [<$B>::default()]),)*)?
                }
            }
        }

        #[allow(unused_variables, reason = "all fields may be scratch")]
        impl $(<$G: $GB>)? $crate::state::State for $M $(<$G>)? {
            fn walk<'a>(&'a self, walk: &mut $crate::state::StateWalk<'a, '_>) {
                let this = $crate::wrapper!(@or [$(match walk.$part(self) { Some(this) => this, None => return })?] [self]);
                $(walk.clock(this.$clock);)?
                $(this.$reads(walk);)?
                $($(walk.meaning(stringify!($means), &this.$means);)*)?
                $(walk.child(stringify!($field), &this.$field);)*
                $($(walk.setting(stringify!($set), &this.$set);)*)?
            }
            fn walk_mut<'a>(&'a mut self, walk: &mut $crate::state::StateWalkMut<'a, '_>) {
                let this = $crate::wrapper!(@or [$(match walk.$part(self) { Some(this) => this, None => return })?] [self]);
                $(walk.child(stringify!($field), &mut this.$field);)*
                $($(walk.setting(stringify!($set), &mut this.$set);)*)?
            }
            $(fn evaluate_as(&self) -> Option<$crate::state::EvaluateAs> {
                let $memory = self;
                Some($as)
            })?
        }
    };
}
