use super::multi_steps::Window;
use crate::part::prelude::*;
use crate::select::Mask;
use crate::state::StateWalk;
use crate::tree::Structure;

/// Lets leaves be frozen and thawed while training runs; their state waits.
///
/// A frozen leaf has an update of zero, so its parameter keeps its bits, and what the transformation inside remembers
/// for each of its elements is neither read nor written. Thawed, it goes on from there. What is never to be trained is
/// better left out for good, which saves its state: [`masked(..).freeze_others()`](crate::wrapper::Masked::freeze_others).
///
/// Updates are counted for each leaf: what depends on how many there were, as Adam's correction of bias does, goes by those of the
/// leaf, so that one that was frozen from the first step on begins as if training did. Schedules go by the steps of all. What is no
/// arithmetic on elements, such as [`adam_mini`](crate::adam_mini) or [`lamb`](crate::lamb)'s norms, and what keeps a count of its
/// own, counts steps of all leaves too.
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
/// A flag for each leaf, and a count for each part inside that has arrays. Scalars of a step are worked out once for leaves that were
/// never frozen, and for each that was. A frozen leaf costs nothing in the passes but for reading its gradient.
///
/// # Errors
///
/// `init` fails if a part inside works on whole leaves or on the whole tree in memory, as
/// [`scale_by_lbfgs`](crate::scale_by_lbfgs) does: the history of a vector is not that of a part of it; or if there is a
/// [`multi_steps`](crate::multi_steps) inside.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = freezable(sgd(0.5).momentum(0.5));
/// let mut params = (8.0_f64, 8.0_f64);
/// let mut state = optimizer.init(&params)?;
/// let gradient = (1.0_f64, 1.0_f64);
///
/// optimizer.step(&mut params, &gradient, &mut state)?; // the trace is 1
/// assert_eq!(params, (7.5, 7.5));
///
/// state.freeze(&Mask::path("0"))?;
/// optimizer.step(&mut params, &gradient, &mut state)?; // 1 + 0.5·1
/// assert_eq!(params, (7.5, 6.75));
///
/// // Its trace is still 1, and so becomes 1.5 now; the other's becomes 1 + 0.5·1.5.
/// state.thaw(&Mask::path("0"))?;
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
        if self.shape().materializes == 0 {
            return Ok(());
        }
        let found = self.inner.describe();
        Err(Error::argument("freezable", "inner", "without parts that work on whole leaves", found))
    }
}

/// The state of what is inside a [`freezable`], and which leaves are frozen.
pub type FreezableState<S> = WrapperState<Frozen, S>;

memory! {
    /// Which leaves of a [`freezable`] are frozen.
    pub Frozen {}
    set {
        frozen: PerLeaf<Flag>,
    }
    beside {
        /// What masks are resolved against.
        structure: Structure,
        /// Which leaves rest in this step, here or in another `freezable` around this one.
        resting: Vec<bool>,
    }
}

impl Frozen {
    /// Freezes the chosen leaves; those that are frozen already stay so.
    ///
    /// # Errors
    ///
    /// If the mask does not fit the parameters: a pattern that matches no leaf, for example.
    pub fn freeze(&mut self, mask: &Mask) -> Result<()> {
        self.set(mask, true, "freeze")
    }

    /// Thaws the chosen leaves.
    ///
    /// # Errors
    ///
    /// As [`freeze`](Frozen::freeze).
    pub fn thaw(&mut self, mask: &Mask) -> Result<()> {
        self.set(mask, false, "thaw")
    }

    fn set(&mut self, mask: &Mask, frozen: bool, what: &str) -> Result<()> {
        for (leaf, chosen) in mask.resolve(&self.structure, what)?.into_iter().enumerate() {
            if chosen {
                self.frozen.set(leaf, Flag::new(frozen));
            }
        }
        Ok(())
    }

    /// Which leaves are frozen.
    pub fn frozen(&self) -> &PerLeaf<Flag> {
        &self.frozen
    }
}

impl<T: Stage> Wrapper for Freezable<T> {
    type Memory = Frozen;
    const CHOOSES: bool = true;
    const RESTS: bool = true;

    fn start(&self, memory: &mut Frozen, at: &InitContext<'_>, inner: &T::State) -> Result<()> {
        let mut has_windows = false;
        inner.walk(&mut StateWalk::of_parts(&mut |_, part| has_windows |= part.is::<Window>()));
        if has_windows {
            let expected = "without `multi_steps`: that goes around `freezable`, so that no leaf sees half of a window";
            return Err(Error::argument("freezable", "inner", expected, self.inner.describe()));
        }
        let structure = at.structure().clone();
        let resting = vec![false; structure.len()];
        *memory = Frozen { frozen: PerLeaf::new(at.active(), Flag::default()), structure, resting };
        Ok(())
    }

    fn decide(&self, memory: &mut Frozen, at: &StepContext<'_>, _: f64) -> Decision {
        for (leaf, rests) in memory.resting.iter_mut().enumerate() {
            let rests_around = at.resting.get(leaf).is_some_and(|rests| *rests);
            *rests = rests_around || memory.frozen.get(leaf).is_some_and(Flag::get);
        }
        Decision::Run
    }

    fn tell<'a>(&self, memory: &'a Frozen, at: &StepContext<'a>) -> StepContext<'a> {
        StepContext { resting: &memory.resting, by_leaf: true, ..*at }
    }

    fn acts_on(&self, memory: &Frozen, leaf: usize) -> bool {
        !memory.frozen.get(leaf).is_some_and(Flag::get)
    }
}
