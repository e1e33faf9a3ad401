mod group;

use core::ops::ControlFlow::{Break, Continue};

use crate::engine::{
    Emission, HoldsBack, OnView, PassRange, PassStructure, Skips, StageChunk, Stages, Summary, Then, TileScratch, Walk,
    allows_absent, members_skip, run_own_loops,
};
use crate::part::prelude::*;
use crate::recipe::{Recipe, ToRecipe};
use crate::select::Labels;
use crate::state::{StateWalk, StateWalkMut};

pub use group::IntoGroup;

/// Applies one of several transformations to each leaf, by its label.
///
/// `transforms` is a tuple of `(label, transformation)` pairs, or a `Vec` of them with [`Boxed`]
/// transformations. Labels are resolved once, in `init`; a transformation has state for its own leaves only.
///
/// If a group emits nothing in a step, its leaves rest in later members of a chain, unless one of these works on
/// several leaves together.
///
/// # Cost
///
/// None of its own. It takes as many passes as the member that needs the most.
///
/// # Errors
///
/// `init` fails if two transformations have the same label, or if a leaf has no label or one that no transformation
/// has.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::set_to_zero;
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
/// Differs: labels are [`Labels`], not distinguished by callability. PyTorch: parameter groups.
///
/// [`Boxed`]: https://docs.rs/gradchain/latest/gradchain/wrapper/type.Boxed.html
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
    #[doc(hidden)]
    pub fn members_mut(&mut self) -> &mut G {
        &mut self.members
    }
}

/// The states of a [`partition`]'s members. It dereferences to their tuple or `Vec`.
#[derive(Clone, Debug)]
pub struct PartitionState<S> {
    names: Vec<String>,
    members: S,
    which: Vec<usize>,
    active: Vec<Vec<bool>>,
    /// Of the last step, by member.
    outcomes: Vec<Outcome>,
    /// Leaves of members without updates in this step, if others have some; not saved.
    resting: Vec<bool>,
}

impl<S> PartitionState<S> {
    /// Returns the index of a leaf's member.
    pub fn member_of(&self, leaf: usize) -> Option<usize> {
        self.which.get(leaf).copied()
    }

    /// Returns the outcome of the last step for a label; `None` before the first step and for an unknown label.
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

fn combine_emissions(a: Emission, b: Emission) -> Emission {
    match (a, b) {
        (Emission::Undecided, _) | (_, Emission::Undecided) => Emission::Undecided,
        (Emission::Nothing(a), Emission::Nothing(b)) => Emission::Nothing(a.max(b)),
        (Emission::Zeros(a), Emission::Zeros(b)) => Emission::Zeros(a.max(b)),
        (Emission::Updates, Emission::Updates | Emission::Zeros(_)) | (Emission::Zeros(_), Emission::Updates) => {
            Emission::Updates
        }
        _ => Emission::Partly,
    }
}

impl<G: Stages> Partition<G> {
    /// Stores this step's resting leaves, if decided.
    fn materialize(&self, state: &mut PartitionState<G::States>, run: &G::Runs, at: &StepContext<'_>) {
        let mut resting = core::mem::take(&mut state.resting);
        resting.clear();
        if self.emission(state, run) == Emission::Partly {
            resting.extend((0..state.which.len()).map(|leaf| at.rests(leaf)));
            self.members.views(&state.members, Some(run), &mut |member, view| {
                let is_nothing = view.emission().is_some_and(Emission::is_nothing);
                let own = resting.iter_mut().enumerate().filter(|(leaf, _)| state.which[*leaf] == member);
                own.for_each(|(leaf, rests)| *rests |= is_nothing || view.resting().get(leaf) == Some(&true));
                Continue(())
            });
        }
        state.resting = resting;
    }

    fn of_members<R>(&self, of: impl Fn(&dyn Transform) -> R) -> Vec<R> {
        let mut all = Vec::with_capacity(self.names.len());
        self.members(&mut |member| all.push(of(member)));
        all
    }
}

impl<G: Stages> Transform for Partition<G> {
    fn as_dyn(&self) -> &dyn Transform {
        self
    }

    fn members(&self, visit: &mut dyn FnMut(&dyn Transform)) {
        self.members.members(visit);
    }

    fn shape(&self) -> PassStructure {
        let mut shape = PassStructure::EMPTY;
        self.members(&mut |member| shape = shape.union(member.shape()));
        shape
    }

    fn holds_back(&self) -> HoldsBack {
        if self.members.holds_back() > HoldsBack::Never { HoldsBack::Some } else { HoldsBack::Never }
    }

    fn skips(&self, skips: &mut Skips, place: &str) -> bool {
        let of_group = |i: usize| format!("{place}.partition.transforms.{}", self.names[i]);
        allows_absent(self, skips, place) || members_skip(self, skips, &of_group)
    }

    fn validate(&self) -> Result<()> {
        if let Some((i, name)) = self.names.iter().enumerate().find(|(i, name)| self.names[..*i].contains(name)) {
            return Err(Error::argument("partition", "labels", "all different", format!("`{name}` again at {i}")));
        }
        self.members.validate()
    }

    fn summary(&self) -> Summary {
        let groups = self.of_members(|member| member.summary());
        Summary::Partition { groups, labels: self.labels.clone(), names: self.names.clone() }
    }

    fn recipe(&self) -> Recipe {
        let transforms = self.names.iter().map(|name| &**name).zip(self.of_members(|member| member.recipe()));
        Recipe::call("partition", [("transforms", Recipe::map(transforms)), ("labels", self.labels.to_recipe())])
    }

    fn describe(&self) -> String {
        let members = self.names.iter().zip(self.of_members(|member| member.describe()));
        let parts: Vec<String> = members.map(|(name, member)| format!("{name}: {member}")).collect();
        format!("partition({})", parts.join(", "))
    }
}

impl<G: Stages> Stage for Partition<G> {
    type Needs = G::Needs;
    type State = PartitionState<G::States>;
    type Run = G::Runs;
    type Kernel<C: Real> = ();

    const SHAPE: PassStructure = PassStructure::elementwise(false, false);
    /// Members are selected outside the element loop.
    const FUSES: bool = false;

    fn changed(&self, original: &Self) -> Option<&'static str> {
        let labels = (&self.names, &self.labels) != (&original.names, &original.labels);
        labels.then_some("labels").or_else(|| self.members.changed(&original.members))
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        let known: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let which = self.labels.resolve(at.structure(), &known, "partition")?;
        let of = |member: usize| at.restricted(&which.iter().map(|w| *w == member).collect::<Vec<_>>());
        let active: Vec<Vec<bool>> = (0..known.len()).map(of).collect();
        let members = self.members.init(&mut |member, _| at.with_active(&active[member]))?;
        let outcomes = Vec::with_capacity(known.len());
        let rests = if self.members.holds_back() > HoldsBack::Never { which.len() } else { 0 };
        let resting = Vec::with_capacity(rests);
        Ok(PartitionState { names: self.names.clone(), members, which, active, outcomes, resting })
    }

    fn views<'a>(&self, state: &'a Self::State, run: Option<&G::Runs>, visit: &mut OnView<'_, 'a>) {
        self.members.views(&state.members, run, visit);
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        let mut checked = Ok(());
        self.members.views(&state.members, None, &mut |member, view| {
            checked = view.check(&at.on(&state.active[member]));
            if checked.is_ok() { Continue(()) } else { Break(()) }
        });
        checked
    }

    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> G::Runs {
        let mut run = self.members.new_runs(&mut state.members);
        self.members.in_step(&mut state.members, &mut run, &mut |_, member| {
            member.begin(at);
            Continue(())
        });
        self.materialize(state, &run, at);
        run
    }

    fn barrier(
        &self,
        state: &mut Self::State,
        run: &mut G::Runs,
        at: &StepContext<'_>,
        index: usize,
        mut sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        self.members.in_step(&mut state.members, run, &mut |i, member| {
            let shape = self.members.shape_of(i);
            if index < shape.barriers {
                member.barrier(at, index, sums, &mut tree.with_active(&state.active[i]));
            }
            sums = sums.skip(shape.sums);
            Continue(())
        });
        self.materialize(state, run, at);
    }

    fn finish(&self, state: &mut Self::State, mut run: G::Runs, mut sums: Sums<'_>, outcome: &mut Outcome) {
        let PartitionState { members, active, outcomes, .. } = state;
        outcomes.clear();
        outcomes.extend(active.iter().map(|_| *outcome));
        self.members.in_step(members, &mut run, &mut |i, member| {
            member.finish(sums, &mut outcomes[i]);
            sums = sums.skip(self.members.shape_of(i).sums);
            Continue(())
        });
        outcome.emitted = outcomes.iter().zip(active).any(|(did, active)| did.emitted && active.contains(&true));
        outcome.skipped = outcomes.iter().any(|did| did.skipped);
    }

    fn emission(&self, state: &Self::State, run: &G::Runs) -> Emission {
        let mut all: Option<Emission> = None;
        self.members.views(&state.members, Some(run), &mut |member, view| {
            if state.active[member].contains(&true) {
                let emission = view.emission().unwrap_or(Emission::Undecided);
                all = Some(all.map_or(emission, |all| combine_emissions(all, emission)));
            }
            Continue(())
        });
        all.unwrap_or(Emission::Updates)
    }

    fn resting<'a>(&self, state: &'a Self::State) -> &'a [bool] {
        &state.resting
    }

    fn pass(&self, state: &Self::State, run: &Self::Run, walk: &Walk<'_>, spare: &mut TileScratch) {
        run_own_loops(self, (state, run), walk, spare);
    }

    fn prepare_chunk<C: Real>(&self, state: &Self::State, run: &G::Runs, mut at: StageChunk, then: &mut Then<'_, C>) {
        let own = state.which[at.leaf];
        at.place.sum += (0..own).map(|member| self.members.shape_of(member).sums).sum::<usize>();
        self.members.prepare_chunk(own, &state.members, run, at, then);
    }

    fn kernel<C: Real>(&self, _: &Self::State, _: &G::Runs, _: usize) {}

    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, range: PassRange) -> usize {
        let mut bytes = 0;
        self.members.views(&state.members, None, &mut |member, view| match member == state.which[leaf] {
            true => {
                bytes = view.state_bytes(leaf, at, range);
                Break(())
            }
            false => Continue(()),
        });
        bytes
    }

    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str, bool)) {
        for (name, active) in self.names.iter().zip(&state.active) {
            if !active.contains(&true) {
                report(&format!("the group `{name}` of a partition"), self.labels.must_match(name));
            }
        }
        self.members.views(&state.members, None, &mut |member, view| {
            if state.active[member].contains(&true) {
                view.unused(report);
            }
            Continue(())
        });
    }

    fn read<'a>(&self, state: &'a Self::State, walk: &mut StateWalk<'a, '_>) -> Result<()> {
        walk.renamed(&state.names, &mut |walk| crate::engine::chain::read(&self.members, &state.members, walk))
    }
}
