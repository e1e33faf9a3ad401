//! Members side by side: a tuple, or a `Vec` of boxes.

use crate::engine::{Absent, Emission, HoldsBack, Outline, PieceAt, Shape, Skips, Span, Then};
use crate::needs::{Level, Needs};
use crate::part::prelude::*;
use crate::recipe::Recipe;
use crate::state::StateWalk;
use crate::wrapper::{Boxed, BoxedState};

/// What [`partition`](super::partition()) takes: pairs of labels and transformations.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a group of labelled transformations",
    label = "not a group of labelled transformations",
    note = "a group is a tuple of pairs, `((\"a\", adam(0.1)), (\"b\", sgd(0.1)))`, or a `Vec` of pairs of a label and a \
            box: `vec![(String::from(\"a\"), boxed(adam(0.1)))]`"
)]
pub trait IntoGroup {
    /// The transformations without their labels.
    type Group: Group;
    /// The labels, and the transformations.
    fn into_group(self) -> (Vec<String>, Self::Group);
}

/// Transformations side by side, each with leaves of its own.
#[allow(missing_docs, reason = "each method is the method of `Stage` of the same name, for all members")]
pub trait Group: Clone + core::fmt::Debug + Send + Sync + 'static {
    type Needs: crate::needs::Needs;
    type State: State;
    type Run: Send + Sync;
    fn shape(&self) -> Shape;
    fn needs(&self) -> Level;
    fn absent(&self) -> Absent;
    fn has_windows(&self) -> bool;
    fn skips(&self, skips: &mut Skips, place: &dyn Fn(usize) -> String) -> bool;
    fn validate(&self) -> Result<()>;
    fn changed(&self, made: &Self) -> Option<&'static str>;
    fn init(&self, at: &InitContext<'_>, active: &[Vec<bool>]) -> Result<Self::State>;
    fn check(&self, state: &Self::State, at: &StepContext<'_>, active: &[Vec<bool>]) -> Result<()>;
    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> Self::Run;
    #[allow(clippy::too_many_arguments, reason = "those of `Stage::barrier`, and the leaves")]
    fn barrier(
        &self,
        state: &mut Self::State,
        run: &mut Self::Run,
        at: &StepContext<'_>,
        index: usize,
        sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
        active: &[Vec<bool>],
    );
    fn finish(&self, state: &mut Self::State, run: Self::Run, sums: Sums<'_>, outcomes: &mut [Outcome]);
    fn emission(&self, member: usize, state: &Self::State, run: &Self::Run) -> Emission;
    fn resting<'a>(&self, member: usize, state: &'a Self::State) -> &'a [bool];
    fn holds_back(&self) -> HoldsBack;
    fn in_piece<C: Real>(
        &self,
        member: usize,
        state: &Self::State,
        run: &Self::Run,
        at: PieceAt,
        then: &mut Then<'_, C>,
    );
    fn state_bytes(&self, member: usize, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize;
    fn unused(&self, state: &Self::State, active: &[Vec<bool>], report: &mut dyn FnMut(&str, bool));
    fn read<'a>(&self, state: &'a Self::State, walk: &mut StateWalk<'a, '_>) -> Result<()>;
    fn outlines(&self) -> Vec<Outline>;
    fn recipes(&self) -> Vec<Recipe>;
    fn describe(&self) -> Vec<String>;
}

macro_rules! groups {
    () => {};
    ($($T:ident $i:tt),+) => {
        impl<$($T: Stage),+> IntoGroup for ($((&str, $T),)+) {
            type Group = ($($T,)+);
            /// The labels, and the transformations.
    fn into_group(self) -> (Vec<String>, Self::Group) {
                (vec![$(self.$i.0.into()),+], ($(self.$i.1,)+))
            }
        }

        impl<$($T: Stage),+> Group for ($($T,)+) {
            type Needs = crate::engine::needs_of!($($T)*);
            type State = ($($T::State,)+);
            type Run = ($($T::Run,)+);

            fn shape(&self) -> Shape {
                let shape = Shape::EMPTY;
                $(let shape = shape.beside(self.$i.shape());)+
                shape
            }
            fn needs(&self) -> Level {
                Level::Nothing$(.max(self.$i.needs()))+
            }
            fn absent(&self) -> Absent {
                Absent::Rests$(.max(self.$i.absent()))+
            }
            fn has_windows(&self) -> bool {
                false $(|| self.$i.has_windows())+
            }
            fn skips(&self, skips: &mut Skips, place: &dyn Fn(usize) -> String) -> bool {
                let mut all = true;
                $(all &= self.$i.skips(skips, &place($i));)+
                all
            }
            fn validate(&self) -> Result<()> {
                Error::all([$(self.$i.validate()),+])
            }
            fn changed(&self, made: &Self) -> Option<&'static str> {
                Stage::changed(self, made)
            }
            fn init(&self, at: &InitContext<'_>, active: &[Vec<bool>]) -> Result<Self::State> {
                Ok(($(self.$i.init_state(&at.with_active(&active[$i]))?,)+))
            }
            fn check(&self, state: &Self::State, at: &StepContext<'_>, active: &[Vec<bool>]) -> Result<()> {
                $(self.$i.check(&state.$i, &at.on(&active[$i]))?;)+
                Ok(())
            }
            fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> Self::Run {
                ($(self.$i.begin(&mut state.$i, at),)+)
            }
            fn barrier(&self, state: &mut Self::State, run: &mut Self::Run, at: &StepContext<'_>, index: usize, sums: Sums<'_>, tree: &mut WholeTree<'_>, active: &[Vec<bool>]) {
                let mut _sums = sums;
                $(
                    let shape = self.$i.shape();
                    if index < shape.barriers {
                        let mut own = tree.with_active(&active[$i]);
                        self.$i.barrier(&mut state.$i, &mut run.$i, at, index, _sums, &mut own);
                    }
                    _sums = _sums.skip(shape.sums);
                )+
            }
            fn finish(&self, state: &mut Self::State, run: Self::Run, sums: Sums<'_>, outcomes: &mut [Outcome]) {
                let mut _sums = sums;
                $(
                    self.$i.finish(&mut state.$i, run.$i, _sums, &mut outcomes[$i]);
                    _sums = _sums.skip(self.$i.shape().sums);
                )+
            }
            fn emission(&self, member: usize, state: &Self::State, run: &Self::Run) -> Emission {
                match member {
                    $($i => self.$i.emission(&state.$i, &run.$i),)+
                    _ => Emission::Updates,
                }
            }
            fn resting<'a>(&self, member: usize, state: &'a Self::State) -> &'a [bool] {
                match member {
                    $($i => self.$i.resting(&state.$i),)+
                    _ => &[],
                }
            }
            fn holds_back(&self) -> HoldsBack {
                HoldsBack::Never $(.max(self.$i.holds_back()))+
            }
            fn in_piece<Cx: Real>(&self, member: usize, state: &Self::State, run: &Self::Run, at: PieceAt, then: &mut Then<'_, Cx>) {
                let mut _at = at;
                $(
                    if member == $i {
                        return self.$i.in_piece(&state.$i, &run.$i, _at, then);
                    }
                    _at.place.sum += self.$i.shape().sums;
                )+
            }
            fn state_bytes(&self, member: usize, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
                match member {
                    $($i => self.$i.state_bytes(&state.$i, leaf, at, span),)+
                    _ => 0,
                }
            }
            fn unused(&self, state: &Self::State, active: &[Vec<bool>], report: &mut dyn FnMut(&str, bool)) {
                $(if active[$i].contains(&true) {
                    self.$i.unused(&state.$i, report);
                })+
            }
            fn read<'a>(&self, state: &'a Self::State, walk: &mut StateWalk<'a, '_>) -> Result<()> {
                Stage::read(self, state, walk)
            }
            fn outlines(&self) -> Vec<Outline> {
                vec![$(self.$i.outline()),+]
            }
            fn recipes(&self) -> Vec<Recipe> {
                vec![$(self.$i.recipe()),+]
            }
            fn describe(&self) -> Vec<String> {
                vec![$(self.$i.describe()),+]
            }
        }
    };
}
crate::tuples::up_to_twelve!(groups);

impl<L: Into<String>, N: Needs> IntoGroup for Vec<(L, Boxed<N>)> {
    type Group = Vec<Boxed<N>>;
    /// The labels, and the transformations.
    fn into_group(self) -> (Vec<String>, Vec<Boxed<N>>) {
        self.into_iter().map(|(label, member)| (label.into(), member)).unzip()
    }
}

impl<N: Needs> Group for Vec<Boxed<N>> {
    type Needs = N;
    type State = Vec<BoxedState>;
    type Run = ();

    fn shape(&self) -> Shape {
        self.iter().fold(Shape::EMPTY, |shape, member| shape.beside(member.shape()))
    }
    fn needs(&self) -> Level {
        self.iter().map(Stage::needs).max().unwrap_or(Level::Nothing)
    }
    fn absent(&self) -> Absent {
        self.iter().map(Stage::absent).max().unwrap_or(Absent::Rests)
    }
    fn has_windows(&self) -> bool {
        self.iter().any(Stage::has_windows)
    }
    fn skips(&self, skips: &mut Skips, place: &dyn Fn(usize) -> String) -> bool {
        self.iter().enumerate().fold(true, |all, (i, member)| member.skips(skips, &place(i)) && all)
    }
    fn validate(&self) -> Result<()> {
        Error::all(self.iter().map(Stage::validate))
    }
    fn changed(&self, made: &Self) -> Option<&'static str> {
        Stage::changed(self, made)
    }
    fn init(&self, at: &InitContext<'_>, active: &[Vec<bool>]) -> Result<Self::State> {
        self.iter().zip(active).map(|(member, active)| member.init_state(&at.with_active(active))).collect()
    }
    fn check(&self, state: &Self::State, at: &StepContext<'_>, active: &[Vec<bool>]) -> Result<()> {
        let mut members = self.iter().zip(state).zip(active);
        members.try_for_each(|((member, state), active)| member.check(state, &at.on(active)))
    }
    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) {
        self.iter().zip(state).for_each(|(member, state)| member.begin(state, at));
    }
    fn barrier(
        &self,
        state: &mut Self::State,
        (): &mut (),
        at: &StepContext<'_>,
        index: usize,
        mut sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
        active: &[Vec<bool>],
    ) {
        for ((member, state), active) in self.iter().zip(state).zip(active) {
            let shape = member.shape();
            if index < shape.barriers {
                member.barrier(state, &mut (), at, index, sums, &mut tree.with_active(active));
            }
            sums = sums.skip(shape.sums);
        }
    }
    fn finish(&self, state: &mut Self::State, (): (), mut sums: Sums<'_>, outcomes: &mut [Outcome]) {
        for ((member, state), outcome) in self.iter().zip(state).zip(outcomes) {
            member.finish(state, (), sums, outcome);
            sums = sums.skip(member.shape().sums);
        }
    }
    fn emission(&self, which: usize, state: &Self::State, (): &()) -> Emission {
        self[which].emission(&state[which], &())
    }
    fn resting<'a>(&self, which: usize, state: &'a Self::State) -> &'a [bool] {
        self[which].resting(&state[which])
    }
    fn holds_back(&self) -> HoldsBack {
        self.iter().map(Stage::holds_back).max().unwrap_or(HoldsBack::Never)
    }
    fn in_piece<C: Real>(&self, which: usize, state: &Self::State, (): &(), mut at: PieceAt, then: &mut Then<'_, C>) {
        at.place.sum += self[..which].iter().map(|member| member.shape().sums).sum::<usize>();
        self[which].in_piece(&state[which], &(), at, then);
    }
    fn state_bytes(&self, which: usize, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        self[which].state_bytes(&state[which], leaf, at, span)
    }
    fn unused(&self, state: &Self::State, active: &[Vec<bool>], report: &mut dyn FnMut(&str, bool)) {
        let members = self.iter().zip(state).zip(active).filter(|(_, active)| active.contains(&true));
        members.for_each(|((member, state), _)| member.unused(state, report));
    }
    fn read<'a>(&self, state: &'a Self::State, walk: &mut StateWalk<'a, '_>) -> Result<()> {
        Stage::read(self, state, walk)
    }
    fn outlines(&self) -> Vec<Outline> {
        self.iter().map(Stage::outline).collect()
    }
    fn recipes(&self) -> Vec<Recipe> {
        self.iter().map(Stage::recipe).collect()
    }
    fn describe(&self) -> Vec<String> {
        self.iter().map(Stage::describe).collect()
    }
}
