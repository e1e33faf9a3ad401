use crate::engine::{Absent, Outline, Place, Shape, Skips, Span, Tile, goes_around};
use crate::needs::{Level, Needs};
use crate::part::prelude::*;
use crate::recipe::{Recipe, ToRecipe};
use crate::select::Labels;
use crate::state::{StateWalk, StateWalkMut};

use super::{Boxed, BoxedState};

/// Gives each leaf to one of several transformations, by its label.
///
/// `transforms` is a tuple of `(label, transformation)` pairs, or a `Vec` of them with [`Boxed`] transformations.
/// Labels are resolved once, in `init`; state is made for a transformation's own leaves only.
///
/// # Cost
///
/// None of its own. It takes as many passes as the member that needs most.
///
/// # Errors
///
/// `init` fails if two transformations have the same label, a leaf has a label that no transformation has, or none.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = partition(
///     (("fast", sgd(1.0)), ("slow", sgd(0.1)), ("frozen", set_to_zero())),
///     Labels::tree([("0", "fast"), ("1", "slow"), ("2", "frozen")]),
/// );
/// let mut params = (1.0_f64, 1.0_f64, 1.0_f64);
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &(1.0, 1.0, 1.0), &mut state)?;
/// assert_eq!(params, (0.0, 0.9, 1.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`partition`](https://optax.readthedocs.io/en/latest/api/combining_optimizers.html) (`multi_transform`).
/// Differs: labels are [`Labels`], never a function that is told from a tree by whether it can be called.
pub fn partition<G: IntoGroup>(transforms: G, labels: impl Into<Labels>) -> Partition<G::Group> {
    let (names, members) = transforms.into_group();
    Partition { names, members, labels: labels.into() }
}

/// See [`partition`].
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Partition<G> {
    names: Vec<String>,
    members: G,
    labels: Labels,
}

impl<G> Partition<G> {
    pub(crate) fn members_mut(&mut self) -> &mut G {
        &mut self.members
    }
}

/// The states of a [`partition`]'s members: a tuple or a `Vec`, which it dereferences to.
#[derive(Clone, Debug)]
pub struct PartitionState<S> {
    names: Vec<String>,
    members: S,
    /// The member of each leaf.
    which: Vec<usize>,
    /// The leaves of each member.
    active: Vec<Vec<bool>>,
    /// What the last step did to each.
    outcomes: Vec<Outcome>,
}

impl<S> PartitionState<S> {
    /// The number of the member that a leaf belongs to.
    pub fn member_of(&self, leaf: usize) -> Option<usize> {
        self.which.get(leaf).copied()
    }

    /// What the last step did to the leaves of this label; `None` before the first step, and if there is no such label.
    ///
    /// ```
    /// use gradchain::prelude::*;
    ///
    /// let labels = Labels::tree([("0", "each"), ("1", "every second")]);
    /// let optimizer = partition((("each", sgd(1.0)), ("every second", multi_steps(sgd(1.0), 2))), labels);
    /// let mut params = (1.0_f64, 1.0_f64);
    /// let mut state = optimizer.init(&params)?;
    /// let outcome = optimizer.step(&mut params, &(1.0, 1.0), &mut state)?;
    /// assert!(outcome.emitted() && params == (0.0, 1.0));
    /// assert!(!state.outcome("every second").unwrap().emitted());
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn outcome(&self, label: &str) -> Option<Outcome> {
        let member = self.names.iter().position(|name| name == label)?;
        self.outcomes.get(member).copied()
    }
}

impl<S> core::ops::Deref for PartitionState<S> {
    type Target = S;
    fn deref(&self) -> &S {
        &self.members
    }
}

impl<S> core::ops::DerefMut for PartitionState<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.members
    }
}

impl<S: State> State for PartitionState<S> {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.fact("groups", &(&self.names, &self.which));
        walk.renamed(&self.names, &mut |walk| self.members.walk(walk));
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        let PartitionState { names, members, .. } = self;
        walk.renamed(names, |walk| members.walk_mut(walk));
    }
}

/// What [`partition`] takes: pairs of labels and transformations.
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
    #[allow(clippy::too_many_arguments, reason = "those of `Stage::tile`, and the member")]
    fn tile<C: Real>(
        &self,
        member: usize,
        state: &Self::State,
        run: &Self::Run,
        place: Place,
        span: Span,
        tile: &mut Tile<'_, C>,
    );
    fn state_bytes(&self, member: usize, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize;
    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str));
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
            fn tile<Cx: Real>(&self, member: usize, state: &Self::State, run: &Self::Run, place: Place, span: Span, tile: &mut Tile<'_, Cx>) {
                let mut _place = place;
                $(
                    if member == $i {
                        return self.$i.tile(&state.$i, &run.$i, _place, span, tile);
                    }
                    _place.sum += self.$i.shape().sums;
                )+
            }
            fn state_bytes(&self, member: usize, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
                match member {
                    $($i => self.$i.state_bytes(&state.$i, leaf, at, span),)+
                    _ => 0,
                }
            }
            fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str)) {
                $(self.$i.unused(&state.$i, report);)+
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
    fn tile<C: Real>(
        &self,
        which: usize,
        state: &Self::State,
        (): &(),
        mut place: Place,
        span: Span,
        tile: &mut Tile<'_, C>,
    ) {
        place.sum += self[..which].iter().map(|member| member.shape().sums).sum::<usize>();
        self[which].tile(&state[which], &(), place, span, tile);
    }
    fn state_bytes(&self, which: usize, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        self[which].state_bytes(&state[which], leaf, at, span)
    }
    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str)) {
        self.iter().zip(state).for_each(|(member, state)| member.unused(state, report));
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

impl<G: Group> Stage for Partition<G> {
    type Needs = G::Needs;
    type State = PartitionState<G::State>;
    type Run = G::Run;
    type Kernel<C: Real> = ();

    const SHAPE: Shape = Shape::elementwise(false, false);
    /// Which member a leaf has is decided outside the element loop: each member is a loop of its own.
    const FUSES: bool = false;

    fn shape(&self) -> Shape {
        self.members.shape()
    }

    fn needs(&self) -> crate::needs::Level {
        self.members.needs()
    }

    fn absent(&self) -> Absent {
        self.members.absent()
    }

    fn has_windows(&self) -> bool {
        self.members.has_windows()
    }

    fn skips(&self, skips: &mut Skips, place: &str) -> bool {
        let of_group = |i: usize| format!("{place}.partition.transforms.{}", self.names[i]);
        goes_around(self, skips, place) || self.members.skips(skips, &of_group)
    }

    fn validate(&self) -> Result<()> {
        if let Some((i, name)) = self.names.iter().enumerate().find(|(i, name)| self.names[..*i].contains(name)) {
            return Err(Error::argument("partition", "labels", "all different", format!("`{name}` again at {i}")));
        }
        self.members.validate()
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        let known: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let which = self.labels.resolve(at.structure(), &known, "partition")?;
        let of = |member: usize| at.restricted(&which.iter().map(|w| *w == member).collect::<Vec<_>>());
        let active: Vec<Vec<bool>> = (0..known.len()).map(of).collect();
        let members = self.members.init(at, &active)?;
        let outcomes = Vec::with_capacity(known.len());
        Ok(PartitionState { names: self.names.clone(), members, which, active, outcomes })
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        self.members.check(&state.members, at, &state.active)
    }

    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> G::Run {
        self.members.begin(&mut state.members, at)
    }

    fn barrier(
        &self,
        state: &mut Self::State,
        run: &mut G::Run,
        at: &StepContext<'_>,
        index: usize,
        sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        self.members.barrier(&mut state.members, run, at, index, sums, tree, &state.active);
    }

    fn finish(&self, state: &mut Self::State, run: G::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        let PartitionState { members, active, outcomes, .. } = state;
        outcomes.clear();
        outcomes.extend(active.iter().map(|_| *outcome));
        self.members.finish(members, run, sums, outcomes);
        outcome.emitted = outcomes.iter().zip(active).any(|(did, active)| did.emitted && active.contains(&true));
        outcome.skipped = outcomes.iter().any(|did| did.skipped);
    }

    fn tile<C: Real>(&self, state: &Self::State, run: &G::Run, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        self.members.tile(state.which[tile.leaf()], &state.members, run, place, span, tile);
    }

    fn kernel<C: Real>(&self, _: &Self::State, _: &G::Run, _: usize) {}

    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        self.members.state_bytes(state.which[leaf], &state.members, leaf, at, span)
    }

    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str)) {
        for (name, active) in self.names.iter().zip(&state.active) {
            if !active.contains(&true) {
                report(&format!("the group `{name}` of a partition"));
            }
        }
        self.members.unused(&state.members, report);
    }

    fn read<'a>(&self, state: &'a Self::State, walk: &mut StateWalk<'a, '_>) -> Result<()> {
        walk.renamed(&state.names, &mut |walk| self.members.read(&state.members, walk))
    }

    fn outline(&self) -> Outline {
        Outline::Partition { groups: self.members.outlines(), labels: self.labels.clone(), names: self.names.clone() }
    }

    fn recipe(&self) -> Recipe {
        let transforms = self.names.iter().map(|name| &**name).zip(self.members.recipes());
        Recipe::call("partition", [("transforms", Recipe::map(transforms)), ("labels", self.labels.to_recipe())])
    }

    fn describe(&self) -> String {
        let parts: Vec<String> =
            self.names.iter().zip(self.members.describe()).map(|(name, member)| format!("{name}: {member}")).collect();
        format!("partition({})", parts.join(", "))
    }
}
