//! The declaration of named optimizers.

use crate::GradientTransformation;

/// Calls the method of a supertrait without a path.
pub(crate) fn describe<T: GradientTransformation>(transformation: &T) -> String {
    transformation.describe()
}

/// Declares a named optimizer.
///
/// It generates a struct around a chain called `chain`, the setters, the list of arguments, and the transformation.
///
/// ```text
/// optimizer! {
///     /// See [`adam`](adam()).
///     Adam as "adam" = (ScaleByAdam, ScaleByLearningRate) {
///         hyperparams:
///             learning_rate [1.learning_rate] "Sets the learning rate.";
///     }
/// }
/// ```
///
/// Brackets contain the place of an argument in the chain, or with a leading dot in the struct. The sections, all
/// optional, in this order:
///
/// | section | its arguments are |
/// |---|---|
/// | `hyperparams` | [`Hyperparam`](crate::schedule::Hyperparam)s |
/// | `options` | of any type: `mask: Mask [1.mask] "..."` |
/// | `integers` | numbers: `seed: u64 [0.seed] "..."` |
/// | `optional` | hyperparameters that may be absent, with methods written by hand: <code>name \|it\| Option<&mut Hyperparam></code> |
/// | `shown` | listed only: set by a method written by hand, or determined by the type: <code>name \|it\| value</code> |
///
/// `then name;` at the end names a method `fn(&mut self)` called after any argument has been set, for arguments with
/// several places. The type may have a parameter: `Lbfgs<L: Stage = ScaleByZoomLinesearch>`; and fields beside the
/// chain: `= Chain, beside { field: Type } {`. `for Type as` generates all but the struct.
macro_rules! optimizer {
    (
        $(#[$meta:meta])*
        $T:ident $(<$G:ident: $B:path $(= $D:ty)?>)? as $name:literal = $Chain:ty
            $(, beside { $($(#[$fdoc:meta])* $field:ident: $F:ty),+ })?
        { $($arguments:tt)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        #[must_use = "a transformation does nothing until it is given gradients"]
        pub struct $T $(<$G $(= $D)?>)? {
            pub(crate) chain: $Chain,
            $($($(#[$fdoc])* pub(crate) $field: $F,)+)?
        }

        optimizer!(@of ($T $(<$G>)?) ($(<$G: $B>)?) $name ($Chain) $($arguments)*);
    };

    (for $T:ty as $name:literal = $Chain:ty { $($arguments:tt)* }) => {
        optimizer!(@of ($T) () $name ($Chain) $($arguments)*);
    };

    (
        @of ($T:ty) ($($generics:tt)*) $name:literal ($Chain:ty)
        $(hyperparams: $($h:ident [$($hpath:tt)*] $hdoc:literal),+;)?
        $(options: $($o:ident: $O:ty [$($opath:tt)*] $odoc:literal),+;)?
        $(integers: $($n:ident: $N:ty [$($npath:tt)*] $ndoc:literal),+;)?
        $(optional: $($q:ident |$q_of:ident| $given:expr),+;)?
        $(shown: $($c:ident |$c_of:tt| $value:expr),+;)?
        $(then $then:ident;)?
    ) => {
        impl $($generics)* $T {
            $($(
                #[doc = $hdoc]
                pub fn $h(mut self, $h: impl $crate::schedule::IntoHyperparam) -> Self {
                    let place = &mut optimizer!(@place self $($hpath)*);
                    *place = $h.into();
                    self.settled()
                }
            )+)?
            $($(
                #[doc = $odoc]
                pub fn $o(mut self, $o: impl Into<$O>) -> Self {
                    let place = &mut optimizer!(@place self $($opath)*);
                    *place = $o.into();
                    self.settled()
                }
            )+)?
            $($(
                #[doc = $ndoc]
                pub fn $n(mut self, $n: $N) -> Self {
                    let place = &mut optimizer!(@place self $($npath)*);
                    *place = $n;
                    self.settled()
                }
            )+)?

            /// Applies the consequences of its arguments.
            #[allow(unused_mut, reason = "in most, nothing does")]
            fn settled(mut self) -> Self {
                $(self.$then();)?
                self
            }
        }

        impl $($generics)* $crate::arguments::Arguments for $T {
            const NAME: &'static str = $name;

            // As in `part!`.
            #[inline(never)]
            fn arguments(&mut self, visit: &mut $crate::arguments::Visit<'_>) {
                use $crate::arguments::Argument;
                $($(visit(stringify!($h), Argument::Hyperparam(&mut optimizer!(@place self $($hpath)*)));)+)?
                $($(visit(stringify!($o), Argument::Static(&mut optimizer!(@place self $($opath)*)));)+)?
                $($(visit(stringify!($n), Argument::Static(&mut optimizer!(@place self $($npath)*)));)+)?
                $($({
                    let $q_of = &mut *self;
                    match $given {
                        Some(given) => visit(stringify!($q), Argument::Hyperparam(given)),
                        // An absent argument has no place in the state and cannot be set later.
                        None => {
                            visit(
                                stringify!($q),
                                Argument::Static(&mut $crate::recipe::Fixed($crate::recipe::Recipe::Null)),
                            );
                        }
                    }
                })+)?
                $($({
                    let $c_of = &mut *self;
                    visit(stringify!($c), Argument::Static(&mut $crate::recipe::Fixed($value)));
                })+)?
                // The visit may have set arguments.
                $(self.$then();)?
            }
        }

        impl $($generics)* $crate::part::Part for $T {
            const NAME: &'static str = $name;
            type Form = $crate::part::Named;

            fn own_arguments(&mut self, visit: &mut $crate::arguments::Visit<'_>) {
                $crate::arguments::Arguments::arguments(self, visit);
            }

            fn recipe(&self) -> $crate::recipe::Recipe {
                $crate::part::own_recipe(self)
            }

            fn describe(&self) -> String {
                format!("{}[{}]", $name, $crate::macros::describe(&self.chain))
            }
        }

        impl $($generics)* $crate::part::Optimizer for $T {
            type Chain = $Chain;

            fn chain(&self) -> &$Chain {
                &self.chain
            }
        }
    };

    (@place $it:ident .$($path:tt)*) => { $it.$($path)* };
    (@place $it:ident $($path:tt)*) => { $it.chain.$($path)* };
}
