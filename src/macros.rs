//! Builder methods and named arguments, said once for each transformation.

/// For a struct with public fields: a method that sets each, and the list of named arguments. `optional` are hyperparameters
/// that there may be none of.
macro_rules! builder {
    ($T:ident as $name:literal {
        hyperparams: $($h:ident),*;
        options: $($o:ident: $O:ty),*;
        $(integers: $($n:ident: $N:ty),*;)?
        $(optional: $($q:ident),*;)?
    }) => {
        #[allow(dead_code, reason = "a transformation may have no optional argument")]
        impl $T {
            $(
                #[doc = concat!("Sets [`", stringify!($h), "`](struct@", stringify!($T), ").")]
                pub fn $h(mut self, $h: impl Into<$crate::schedule::Hyperparam>) -> Self {
                    self.$h = $h.into();
                    self
                }
            )*
            $(
                #[doc = concat!("Sets [`", stringify!($o), "`](struct@", stringify!($T), ").")]
                pub fn $o(mut self, $o: impl Into<$O>) -> Self {
                    self.$o = $o.into();
                    self
                }
            )*
            // Not `impl Into<usize>`, which a plain `5` is not.
            $($(
                #[doc = concat!("Sets [`", stringify!($n), "`](struct@", stringify!($T), ").")]
                pub fn $n(mut self, $n: $N) -> Self {
                    self.$n = $n;
                    self
                }
            )*)?
            $($(
                #[doc = concat!("Sets [`", stringify!($q), "`](struct@", stringify!($T), ").")]
                pub fn $q(mut self, $q: impl Into<$crate::schedule::Hyperparam>) -> Self {
                    self.$q = Some($q.into());
                    self
                }
            )*)?
        }

        impl $crate::arguments::Arguments for $T {
            const NAME: &'static str = $name;

            fn arguments(&mut self, _visit: &mut dyn FnMut(&'static str, $crate::arguments::Argument<'_>)) {
                $(_visit(stringify!($h), $crate::arguments::Argument::Hyperparam(&mut self.$h));)*
                $(_visit(stringify!($o), $crate::arguments::Argument::Static(&self.$o));)*
                $($(_visit(stringify!($n), $crate::arguments::Argument::Static(&self.$n));)*)?
                $($(match &mut self.$q {
                    Some(given) => _visit(stringify!($q), $crate::arguments::Argument::Hyperparam(given)),
                    None => _visit(stringify!($q), $crate::arguments::Argument::Static(&$crate::recipe::Recipe::Null)),
                })*)?
            }
        }
    };
}

/// For a named optimizer, a struct around a chain called `chain`: where in the chain each argument goes. Makes the methods
/// that set them, the list of named arguments, and the optimizer itself a transformation. `constants` are arguments that the
/// type has decided.
macro_rules! optimizer {
    ($T:ident as $name:literal = $Chain:ty {
        hyperparams: $($h:ident [$($hpath:tt)*] $hdoc:literal),*;
        options: $($o:ident: $O:ty [$($opath:tt)*] $odoc:literal),*;
        $(integers: $($n:ident: $N:ty [$($npath:tt)*] $ndoc:literal),*;)?
        $(constants: $($c:ident = $value:literal),*;)?
    }) => {
        impl $T {
            $(
                #[doc = $hdoc]
                pub fn $h(mut self, $h: impl Into<$crate::schedule::Hyperparam>) -> Self {
                    self.chain.$($hpath)* = $h.into();
                    self
                }
            )*
            $(
                #[doc = $odoc]
                pub fn $o(mut self, $o: impl Into<$O>) -> Self {
                    self.chain.$($opath)* = $o.into();
                    self
                }
            )*
            $($(
                #[doc = $ndoc]
                pub fn $n(mut self, $n: $N) -> Self {
                    self.chain.$($npath)* = $n;
                    self
                }
            )*)?
        }

        impl $crate::arguments::Arguments for $T {
            const NAME: &'static str = $name;

            fn arguments(&mut self, visit: &mut dyn FnMut(&'static str, $crate::arguments::Argument<'_>)) {
                $(visit(stringify!($h), $crate::arguments::Argument::Hyperparam(&mut self.chain.$($hpath)*));)*
                $(visit(stringify!($o), $crate::arguments::Argument::Static(&self.chain.$($opath)*));)*
                $($(visit(stringify!($n), $crate::arguments::Argument::Static(&self.chain.$($npath)*));)*)?
                $($(visit(stringify!($c), $crate::arguments::Argument::Static(&$value));)*)?
            }
        }

        $crate::engine::delegate_stage!($T => chain: $Chain);
    };
}
pub(crate) use {builder, optimizer};
