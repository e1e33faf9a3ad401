mod group;

use crate::engine::{Absent, Emission, HoldsBack, Outline, PieceAt, Shape, Skips, Span, Then, goes_around};
use crate::part::prelude::*;
use crate::recipe::{Recipe, ToRecipe};
use crate::select::Labels;
use crate::state::{StateWalk, StateWalkMut};

use group::Group;
pub use group::IntoGroup;

/// Gives each leaf to one of several transformations, by its label.
///
/// `transforms` is a tuple of `(label, transformation)` pairs, or a `Vec` of them with
/// [`Boxed`](crate::wrapper::Boxed) transformations. Labels are resolved once, in `init`; state is made for a
/// transformation's own leaves only.
///
/// In a step in which one group emits nothing, its leaves rest in the members that come after the partition in a chain,
/// unless one of these works on several leaves together.
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
    /// The leaves of members that emit nothing in this step, if others have updates; else empty. No part of the state.
    resting: Vec<bool>,
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

/// What two members emit together.
fn beside(a: Emission, b: Emission) -> Emission {
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

impl<G: Group> Partition<G> {
    /// Writes down which leaves rest after this step's members, as far as that is decided.
    fn settle(&self, state: &mut PartitionState<G::State>, run: &G::Run, at: &StepContext<'_>) {
        let mut resting = core::mem::take(&mut state.resting);
        resting.clear();
        if self.emission(state, run) == Emission::Partly {
            let rests = |(leaf, member): (usize, &usize)| {
                let emission = self.members.emission(*member, &state.members, run);
                let is_resting = self.members.resting(*member, &state.members).get(leaf) == Some(&true);
                at.rests(leaf) || emission.is_nothing() || is_resting
            };
            resting.extend(state.which.iter().enumerate().map(rests));
        }
        state.resting = resting;
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

    fn changed(&self, made: &Self) -> Option<&'static str> {
        let labels = (&self.names, &self.labels) != (&made.names, &made.labels);
        labels.then_some("labels").or_else(|| self.members.changed(&made.members))
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        let known: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let which = self.labels.resolve(at.structure(), &known, "partition")?;
        let of = |member: usize| at.restricted(&which.iter().map(|w| *w == member).collect::<Vec<_>>());
        let active: Vec<Vec<bool>> = (0..known.len()).map(of).collect();
        let members = self.members.init(at, &active)?;
        let outcomes = Vec::with_capacity(known.len());
        let rests = if self.members.holds_back() > HoldsBack::Never { which.len() } else { 0 };
        let resting = Vec::with_capacity(rests);
        Ok(PartitionState { names: self.names.clone(), members, which, active, outcomes, resting })
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        self.members.check(&state.members, at, &state.active)
    }

    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> G::Run {
        let run = self.members.begin(&mut state.members, at);
        self.settle(state, &run, at);
        run
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
        self.settle(state, run, at);
    }

    fn finish(&self, state: &mut Self::State, run: G::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        let PartitionState { members, active, outcomes, .. } = state;
        outcomes.clear();
        outcomes.extend(active.iter().map(|_| *outcome));
        self.members.finish(members, run, sums, outcomes);
        outcome.emitted = outcomes.iter().zip(active).any(|(did, active)| did.emitted && active.contains(&true));
        outcome.skipped = outcomes.iter().any(|did| did.skipped);
    }

    fn emission(&self, state: &Self::State, run: &G::Run) -> Emission {
        let has_leaves = |member: &usize| state.active[*member].contains(&true);
        let members = (0..state.active.len()).filter(has_leaves);
        let emission = |member: usize| self.members.emission(member, &state.members, run);
        members.map(emission).reduce(beside).unwrap_or(Emission::Updates)
    }

    fn resting<'a>(&self, state: &'a Self::State) -> &'a [bool] {
        &state.resting
    }

    fn holds_back(&self) -> HoldsBack {
        if self.members.holds_back() > HoldsBack::Never { HoldsBack::Some } else { HoldsBack::Never }
    }

    fn in_piece<C: Real>(&self, state: &Self::State, run: &G::Run, at: PieceAt, then: &mut Then<'_, C>) {
        self.members.in_piece(state.which[at.leaf], &state.members, run, at, then);
    }

    fn kernel<C: Real>(&self, _: &Self::State, _: &G::Run, _: usize) {}

    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        self.members.state_bytes(state.which[leaf], &state.members, leaf, at, span)
    }

    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str, bool)) {
        for (name, active) in self.names.iter().zip(&state.active) {
            if !active.contains(&true) {
                report(&format!("the group `{name}` of a partition"), self.labels.must_match(name));
            }
        }
        self.members.unused(&state.members, &state.active, report);
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
