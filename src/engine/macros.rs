//! For types that are another stage under a name of their own.

/// Implements `Stage` for a struct by a stage in one of its fields.
macro_rules! delegate_stage {
    ($T:ty => $field:ident: $Inner:ty) => {
        $crate::engine::delegate_stage! {
            $T => $field: $Inner;
            needs <$Inner as $crate::engine::Stage>::Needs;
            recipe $crate::arguments::recipe_of;
            describe |this: &$T| format!("{}[{}]", $crate::arguments::Arguments::name(this), this.$field.describe())
        }
    };
    ($T:ty $(where $($G:ident: $B:path),+)? => $field:ident: $Inner:ty; needs $N:ty; recipe $recipe:expr; describe $describe:expr) => {
        impl$(<$($G: $B),+>)? $crate::engine::Stage for $T {
            type Needs = $N;
            type State = <$Inner as $crate::engine::Stage>::State;
            type Run = <$Inner as $crate::engine::Stage>::Run;
            type Kernel<C: $crate::Real> = <$Inner as $crate::engine::Stage>::Kernel<C>;

            const SHAPE: $crate::engine::Shape = <$Inner as $crate::engine::Stage>::SHAPE;
            const FUSES: bool = <$Inner as $crate::engine::Stage>::FUSES;
            const SLOTS: usize = <$Inner as $crate::engine::Stage>::SLOTS;

            fn shape(&self) -> $crate::engine::Shape {
                self.$field.shape()
            }
            fn needs(&self) -> $crate::needs::Level {
                self.$field.needs()
            }
            fn validate(&self) -> $crate::Result<()> {
                self.$field.validate()
            }
            fn init_state(&self, at: &$crate::engine::InitContext<'_>) -> $crate::Result<Self::State> {
                self.$field.init_state(at)
            }
            fn check(&self, state: &Self::State, at: &$crate::engine::StepContext<'_>) -> $crate::Result<()> {
                self.$field.check(state, at)
            }
            fn begin(&self, state: &mut Self::State, at: &$crate::engine::StepContext<'_>) -> Self::Run {
                self.$field.begin(state, at)
            }
            fn barrier(
                &self,
                state: &mut Self::State,
                run: &mut Self::Run,
                at: &$crate::engine::StepContext<'_>,
                index: usize,
                sums: $crate::engine::Sums<'_>,
                tree: &mut $crate::engine::WholeTree<'_>,
            ) {
                self.$field.barrier(state, run, at, index, sums, tree);
            }
            fn finish(
                &self,
                state: &mut Self::State,
                run: Self::Run,
                sums: $crate::engine::Sums<'_>,
                outcome: &mut $crate::Outcome,
            ) {
                self.$field.finish(state, run, sums, outcome);
            }
            fn ends_at(&self, state: &Self::State, run: &Self::Run) -> Option<usize> {
                self.$field.ends_at(state, run)
            }
            fn tile<C: $crate::Real>(
                &self,
                state: &Self::State,
                run: &Self::Run,
                place: $crate::engine::Place,
                span: $crate::engine::Span,
                tile: &mut $crate::engine::Tile<'_, C>,
            ) {
                self.$field.tile(state, run, place, span, tile);
            }
            fn fuses_now(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> bool {
                self.$field.fuses_now(state, run, leaf)
            }
            #[inline]
            fn kernel<C: $crate::Real>(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> Self::Kernel<C> {
                self.$field.kernel::<C>(state, run, leaf)
            }
            fn slots(&self, state: &Self::State, leaf: usize, list: &mut $crate::engine::SlotList) {
                self.$field.slots(state, leaf, list);
            }
            #[inline(always)]
            fn apply<C: $crate::Real>(
                k: &Self::Kernel<C>,
                at: usize,
                span: $crate::engine::Span,
                slots: &mut [C],
                u: C,
                p: C,
                terms: &mut [$crate::engine::Term],
            ) -> C {
                <$Inner as $crate::engine::Stage>::apply::<C>(k, at, span, slots, u, p, terms)
            }
            fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: $crate::engine::Span) -> usize {
                self.$field.state_bytes(state, leaf, at, span)
            }
            fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str)) {
                self.$field.unused(state, report);
            }
            fn recipe(&self) -> $crate::recipe::Recipe {
                ($recipe)(self)
            }
            fn describe(&self) -> String {
                ($describe)(self)
            }
        }
    };
}
pub(crate) use delegate_stage;
