use crate::part::prelude::*;
use crate::select::Mask;
use crate::state::{State, StateWalkMut, below};
use crate::transformation::OptState;
use crate::tree::Structure;

/// Freezes and thaws leaves during training; their state is kept.
///
/// A frozen leaf has a zero update, so that its parameter stays bitwise identical, and its inner state is neither read
/// nor written. Thawed, it continues with that state. Leaves that are never trained are better excluded with
/// [`masked(..).freeze_others()`], which saves their state.
///
/// Updates are counted for each leaf. Values that depend on the number of updates, such as Adam's bias correction, use
/// the leaf's count, so that a leaf frozen from the first step starts as if training began then. Schedules use the step
/// count, and so do values computed from all leaves together, such as the distance of [`prodigy`]. A
/// leaf without a gradient rests in the same way in [`skip_absent`].
///
/// It goes inside [`multi_steps`], not around: a leaf that was frozen for part of a window has no
/// mean over it.
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
/// A flag for each leaf, and a count per leaf for each inner part with state arrays. The scalars of a step are computed
/// once for leaves that were never frozen, and once for each other leaf. In a pass, a frozen leaf costs only the read
/// of its gradient.
///
/// # Errors
///
/// `init` fails if an inner part works on several leaves together in memory, as
/// [`scale_by_lbfgs`] does: the history of a vector is not that of a part of it. It
/// also fails with an inner [`multi_steps`].
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
/// Optax has [`freeze`](https://optax.readthedocs.io/en/latest/api/transformations.html), which is decided once.
/// PyTorch: `requires_grad`, which a running optimizer heeds only if the gradient is also `None`.
///
/// [`masked(..).freeze_others()`]: https://docs.rs/gradchain/latest/gradchain/wrapper/struct.Masked.html#method.freeze_others
/// [`prodigy`]: https://docs.rs/gradchain/latest/gradchain/optimizer/fn.prodigy.html
/// [`skip_absent`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.skip_absent.html
/// [`multi_steps`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.multi_steps.html
/// [`scale_by_lbfgs`]: https://docs.rs/gradchain/latest/gradchain/transform/fn.scale_by_lbfgs.html
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

/// Refuses inner transformations that do not work on each leaf alone, except for reductions.
///
/// Windows over steps are refused too: a leaf could rest in part of one.
pub(super) fn leaves_are_apart<P: Holds>(part: &P) -> Result<()> {
    let refuse = |expected: &str| Err(Error::argument(P::NAME, P::KEY, expected, part.inner().describe()));
    if part.inner().shape().joins {
        return refuse("without parts that join leaves in memory");
    }
    if part.inner().has_windows() {
        let expected =
            format!("without `multi_steps`: put it around `{}`, so that no leaf misses part of a window", P::NAME);
        return refuse(&expected);
    }
    Ok(())
}

/// The state of a [`freezable`]: the inner state and the frozen leaves.
pub type FreezableState<S> = WrapperState<FreezableMemory, S>;

memory! {
    /// The frozen leaves of a [`freezable`].
    pub FreezableMemory {}
    set {
        frozen: PerLeaf<Flag>,
    }
    beside {
        /// The structure against which masks are resolved.
        structure: Structure,
        /// The leaves that rest in this step, here or in an outer `freezable`.
        resting: Vec<bool>,
    }
    shown as part;
}

impl FreezableMemory {
    /// Freezes the selected leaves. Leaves that are frozen already stay frozen.
    ///
    /// # Errors
    ///
    /// If the mask does not match the parameters (a pattern that matches no leaf, for example), or selects a leaf that
    /// is not in this `freezable`.
    pub fn freeze(&mut self, leaves: impl Into<Mask>) -> Result<()> {
        set([self].into(), &leaves.into(), true, "freeze")
    }

    /// Thaws the selected leaves.
    ///
    /// # Errors
    ///
    /// As [`freeze`](FreezableMemory::freeze).
    pub fn thaw(&mut self, leaves: impl Into<Mask>) -> Result<()> {
        set([self].into(), &leaves.into(), false, "thaw")
    }

    /// Returns the frozen leaves.
    pub fn frozen(&self) -> &PerLeaf<Flag> {
        &self.frozen
    }
}

impl<T: Stage> OptState<T> {
    /// Freezes the selected leaves in every outermost [`freezable`] of the optimizer.
    ///
    /// It finds these at any depth: in chains, in boxes, in optimizers from configs. To freeze leaves in one of
    /// several, use its own state: `state.1.freeze("body/**")`.
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
    /// If the optimizer has no `freezable`; if the mask does not match the parameters, or selects a leaf that no
    /// `freezable` holds; if the state is poisoned. Nothing has been changed then.
    pub fn freeze(&mut self, leaves: impl Into<Mask>) -> Result<()> {
        self.usable()?;
        set(all_frozen(&mut **self), &leaves.into(), true, "freeze")
    }

    /// Thaws the selected leaves in the places where [`freeze`](OptState::freeze) freezes them.
    ///
    /// # Errors
    ///
    /// As [`freeze`](OptState::freeze).
    pub fn thaw(&mut self, leaves: impl Into<Mask>) -> Result<()> {
        self.usable()?;
        set(all_frozen(&mut **self), &leaves.into(), false, "thaw")
    }
}

/// Returns the outermost ones: a leaf that rests there also rests inside.
fn all_frozen<S: State>(state: &mut S) -> Vec<&mut FreezableMemory> {
    let mut all: Vec<(String, &mut FreezableMemory)> = Vec::new();
    state.walk_mut(&mut StateWalkMut::of_parts(&mut |path, part| {
        // The walk visits an outer one before the inner ones.
        if !all.iter().any(|(outer, _)| below(path, outer).is_some()) {
            all.extend(part.downcast_mut().map(|frozen| (path.to_owned(), frozen)));
        }
    }));
    all.into_iter().map(|(_, frozen)| frozen).collect()
}

fn set(mut all: Vec<&mut FreezableMemory>, mask: &Mask, frozen: bool, verb: &str) -> Result<()> {
    let Some(first) = all.first() else {
        let problem = "this optimizer has no `freezable`; wrap every part that makes the update in one";
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
