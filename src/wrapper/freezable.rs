use crate::part::prelude::*;
use crate::select::Mask;
use crate::state::{State, StateWalkMut, below};
use crate::transformation::OptState;
use crate::tree::Structure;

/// Lets leaves be frozen and thawed while training runs; their state waits.
///
/// A frozen leaf has an update of zero, so its parameter keeps its bits, and what the transformation inside remembers
/// for each of its elements is neither read nor written. Thawed, it goes on from there. What is never to be trained is
/// better left out for good, which saves its state:
/// [`masked(..).freeze_others()`](crate::wrapper::Masked::freeze_others).
///
/// Updates are counted for each leaf: what depends on how many there were, as Adam's correction of bias does, goes by
/// those of the leaf, so that one that was frozen from the first step on begins as if training did. Schedules go by the
/// steps of all, and so does what is worked out from all leaves together, such as the distance of
/// [`prodigy`](crate::prodigy). A leaf that lacks a gradient rests in the same way in
/// [`skip_absent`](crate::wrapper::skip_absent).
///
/// It goes inside [`multi_steps`](crate::multi_steps), not around: a window that a leaf saw half of has no mean for it.
///
/// # Arithmetic
///
/// ```text
/// frozen leaves:   u ← 0
/// the others:      u ← inner(u)         sums over the tree, such as norms, are over these only
/// ```
///
/// # Cost
///
/// A flag for each leaf, and a count for each part inside that has arrays. Scalars of a step are worked out once for
/// leaves that were never frozen, and for each that was. A frozen leaf costs nothing in the passes but for reading its
/// gradient.
///
/// # Errors
///
/// `init` fails if a part inside works on several leaves together in memory, as
/// [`scale_by_lbfgs`](crate::transform::scale_by_lbfgs) does: the history of a vector is not that of a part of it; or
/// if there is a [`multi_steps`](crate::multi_steps) inside.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::wrapper::freezable;
///
/// let optimizer = freezable(sgd(0.5).momentum(0.5));
/// let mut params = (8.0_f64, 8.0_f64);
/// let mut state = optimizer.init(&params)?;
/// let gradient = (1.0_f64, 1.0_f64);
///
/// optimizer.step(&mut params, &gradient, &mut state)?; // the trace is 1
/// assert_eq!(params, (7.5, 7.5));
///
/// state.freeze("0")?;
/// optimizer.step(&mut params, &gradient, &mut state)?; // 1 + 0.5·1
/// assert_eq!(params, (7.5, 6.75));
///
/// // Its trace is still 1, and so becomes 1.5 now; the other's becomes 1 + 0.5·1.5.
/// state.thaw("0")?;
/// optimizer.step(&mut params, &gradient, &mut state)?;
/// assert_eq!(params, (6.75, 5.875));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax has [`freeze`](https://optax.readthedocs.io/en/latest/api/transformations.html), which is decided once and for
/// all. PyTorch: `requires_grad`, which a running optimizer heeds only if the gradient is also `None`.
pub fn freezable<T: Stage>(inner: T) -> Freezable<T> {
    Freezable::with(inner)
}

wrapper! {
    /// See [`freezable`].
    pub Freezable<T> as "freezable" around inner: Around {}
    check Self::check_inner;
    arguments inside;
}

impl<T: Stage> Freezable<T> {
    fn check_inner(&self) -> Result<()> {
        leaves_are_apart(self)
    }
}

/// Whether what is inside works on each leaf by itself, but for sums over elements, and holds no windows over steps, of
/// which a leaf that rests would see a part.
pub(super) fn leaves_are_apart<P: Holds>(part: &P) -> Result<()> {
    let refuse = |expected: &str| Err(Error::argument(P::NAME, P::KEY, expected, part.inner().describe()));
    if part.inner().shape().joins {
        return refuse("without parts that work on several leaves together in memory");
    }
    if part.inner().has_windows() {
        let expected =
            format!("without `multi_steps`, which goes around `{}`, so that no leaf sees half of a window", P::NAME);
        return refuse(&expected);
    }
    Ok(())
}

/// The state of what is inside a [`freezable`], and which leaves are frozen.
pub type FreezableState<S> = WrapperState<FreezableMemory, S>;

memory! {
    /// Which leaves of a [`freezable`] are frozen.
    pub FreezableMemory {}
    set {
        frozen: PerLeaf<Flag>,
    }
    beside {
        /// What masks are resolved against.
        structure: Structure,
        /// Which leaves rest in this step, here or in another `freezable` around this one.
        resting: Vec<bool>,
    }
    shown as part;
}

impl FreezableMemory {
    /// Freezes the chosen leaves; those that are frozen already stay so.
    ///
    /// # Errors
    ///
    /// If the mask does not fit the parameters: a pattern that matches no leaf, for example; or if it takes a leaf that
    /// is not in this `freezable`.
    pub fn freeze(&mut self, leaves: impl Into<Mask>) -> Result<()> {
        set([self].into(), &leaves.into(), true, "freeze")
    }

    /// Thaws the chosen leaves.
    ///
    /// # Errors
    ///
    /// As [`freeze`](FreezableMemory::freeze).
    pub fn thaw(&mut self, leaves: impl Into<Mask>) -> Result<()> {
        set([self].into(), &leaves.into(), false, "thaw")
    }

    /// Which leaves are frozen.
    pub fn frozen(&self) -> &PerLeaf<Flag> {
        &self.frozen
    }
}

impl<T: Stage> OptState<T> {
    /// Freezes the chosen leaves in every [`freezable`] of the optimizer that is in no other, however deep: in chains,
    /// in boxes, in what a config says. To freeze them in one of several, go to its own state:
    /// `state.1.freeze("body/**")`.
    ///
    /// ```
    /// use gradchain::prelude::*;
    /// use gradchain::wrapper::freezable;
    ///
    /// let optimizer: Boxed = boxed(chain((clip(1.0), freezable(sgd(0.5)))));
    /// let mut params = (1.0_f64, 1.0_f64);
    /// let mut state = optimizer.init(&params)?;
    /// state.freeze("1")?;
    /// optimizer.step(&mut params, &(1.0, 1.0), &mut state)?;
    /// assert_eq!(params, (0.5, 1.0));
    /// state.thaw("1")?;
    /// optimizer.step(&mut params, &(1.0, 1.0), &mut state)?;
    /// assert_eq!(params, (0.0, 0.5));
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no `freezable`; if the mask does not fit the parameters, or takes a leaf that none of them holds; if
    /// the state cannot be used. Nothing has been changed then.
    pub fn freeze(&mut self, leaves: impl Into<Mask>) -> Result<()> {
        self.usable()?;
        set(all_frozen(&mut **self), &leaves.into(), true, "freeze")
    }

    /// Thaws the chosen leaves, where [`freeze`](OptState::freeze) freezes them.
    ///
    /// # Errors
    ///
    /// As [`freeze`](OptState::freeze).
    pub fn thaw(&mut self, leaves: impl Into<Mask>) -> Result<()> {
        self.usable()?;
        set(all_frozen(&mut **self), &leaves.into(), false, "thaw")
    }
}

/// Those that are in no other: in a leaf that rests there, all that is inside rests.
fn all_frozen<S: State>(state: &mut S) -> Vec<&mut FreezableMemory> {
    let mut all: Vec<(String, &mut FreezableMemory)> = Vec::new();
    state.walk_mut(&mut StateWalkMut::of_parts(&mut |path, part| {
        // An outer one is shown before what is inside.
        if !all.iter().any(|(outer, _)| below(path, outer).is_some()) {
            all.extend(part.downcast_mut().map(|frozen| (path.to_owned(), frozen)));
        }
    }));
    all.into_iter().map(|(_, frozen)| frozen).collect()
}

fn set(mut all: Vec<&mut FreezableMemory>, mask: &Mask, frozen: bool, verb: &str) -> Result<()> {
    let Some(first) = all.first() else {
        let problem = "there is no `freezable` in this optimizer; wrap all that makes the update in one";
        return Err(Error::state(verb, problem));
    };
    let (structure, chosen) = (&first.structure, mask.resolve(&first.structure, verb)?);
    let is_held = |leaf: usize| all.iter().any(|part| part.structure == *structure && part.frozen.get(leaf).is_some());
    let outside = structure.paths().enumerate().filter(|(leaf, _)| chosen[*leaf] && !is_held(*leaf));
    let outside: Vec<String> = outside.map(|(_, path)| format!("`{path}`")).collect();
    if !outside.is_empty() {
        return Err(Error::state(verb, format!("no `freezable` holds {}", outside.join(", "))));
    }
    for part in &mut all {
        let chosen = chosen.iter().enumerate().filter(|(_, chosen)| **chosen);
        chosen.for_each(|(leaf, _)| part.frozen.set(leaf, Flag::new(frozen)));
    }
    Ok(())
}

impl<T: Stage> Wrapper for Freezable<T> {
    type Memory = FreezableMemory;
    const RUNS: Runs = Runs::DECIDED.rests();

    fn start(&self, memory: &mut FreezableMemory, at: &InitContext<'_>) -> Result<()> {
        let structure = at.structure().clone();
        let resting = vec![false; structure.len()];
        *memory = FreezableMemory { frozen: PerLeaf::new(at.active(), Flag::default()), structure, resting };
        Ok(())
    }

    fn decide(&self, memory: &mut FreezableMemory, at: &StepContext<'_>, _: f64) -> Decision {
        for (leaf, rests) in memory.resting.iter_mut().enumerate() {
            *rests = at.rests(leaf) || memory.frozen.get(leaf).is_some_and(Flag::get);
        }
        Decision::Run
    }

    fn resting<'a>(&self, memory: &'a FreezableMemory) -> &'a [bool] {
        &memory.resting
    }
}
