use crate::arguments::{Argument, Arguments};
use crate::element::Real;
use crate::engine::{InitContext, Outcome, Place, Shape, SlotList, Span, Stage, StepContext, Sums, Tile, WholeTree};
use crate::error::{Error, Result};
use crate::recipe::Recipe;
use crate::select::Mask;
use crate::state::state_fields;
use crate::state::{Flag, PerLeaf, State};
use crate::tree::Structure;

/// Lets leaves be frozen and thawed while training runs; their state waits.
///
/// A frozen leaf has an update of zero, so its parameter keeps its bits, and what the transformation inside remembers
/// for each of its elements is neither read nor written. Thawed, it goes on from there. What is never to be trained is
/// better left out for good, which saves its state: [`masked(..).freeze_others()`](crate::Masked::freeze_others).
///
/// Counts of steps are for all leaves together and go on. So a leaf that is frozen from the first step on should not be
/// thawed into Adam: its moments would be zero, and their bias no longer corrected for. Put it inside
/// [`multi_steps`](crate::multi_steps), not around: a window that a leaf saw half of has no mean for it.
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
/// A flag for each leaf. A frozen leaf costs nothing in the passes but for reading its gradient.
///
/// # Errors
///
/// `init` fails if a part inside works on whole leaves or on the whole tree in memory, as
/// [`scale_by_lbfgs`](crate::scale_by_lbfgs) does: the history of a vector is not that of a part of it.
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
    Freezable { inner }
}

/// See [`freezable`].
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Freezable<T> {
    inner: T,
}

/// The state of what is inside a [`freezable`], and which leaves are frozen.
#[derive(Clone, Debug)]
pub struct FreezableState<S> {
    frozen: PerLeaf<Flag>,
    inner: S,
    /// What masks are resolved against.
    structure: Structure,
}

state_fields!(FreezableState<S: State> { frozen, inner });

impl<S> FreezableState<S> {
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
    /// As [`freeze`](FreezableState::freeze).
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

    /// The state of the transformation inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The state of the transformation inside, to write.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    fn is_frozen(&self, leaf: usize) -> bool {
        self.frozen.get(leaf).is_some_and(Flag::get)
    }
}

impl<T: Arguments> Arguments for Freezable<T> {
    const NAME: &'static str = T::NAME;

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn arguments(&mut self, visit: &mut dyn FnMut(&'static str, Argument<'_>)) {
        self.inner.arguments(visit);
    }
}

/// What the element loop needs: the decision is the same for a whole leaf.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct FreezableKernel<K> {
    inner: K,
    frozen: bool,
}

impl<T: Stage> Stage for Freezable<T> {
    type Needs = T::Needs;
    type State = FreezableState<T::State>;
    type Run = T::Run;
    type Kernel<C: Real> = FreezableKernel<T::Kernel<C>>;

    const SHAPE: Shape = T::SHAPE;
    const FUSES: bool = T::FUSES;
    const SLOTS: usize = T::SLOTS;

    fn shape(&self) -> Shape {
        self.inner.shape()
    }

    fn needs(&self) -> crate::needs::Level {
        self.inner.needs()
    }

    fn validate(&self) -> Result<()> {
        if self.shape().materializes != 0 {
            let found = self.inner.describe();
            return Err(Error::argument("freezable", "inner", "without parts that work on whole leaves", found));
        }
        self.inner.validate()
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        let frozen = PerLeaf::new(at.active(), Flag::default());
        Ok(FreezableState { frozen, inner: self.inner.init_state(at)?, structure: at.structure().clone() })
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        self.inner.check(&state.inner, at)
    }

    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> T::Run {
        self.inner.begin(&mut state.inner, at)
    }

    fn barrier(
        &self,
        state: &mut Self::State,
        run: &mut T::Run,
        at: &StepContext<'_>,
        index: usize,
        sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        self.inner.barrier(&mut state.inner, run, at, index, sums, tree);
    }

    fn finish(&self, state: &mut Self::State, run: T::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        self.inner.finish(&mut state.inner, run, sums, outcome);
    }

    fn ends_at(&self, state: &Self::State, run: &T::Run) -> Option<usize> {
        self.inner.ends_at(&state.inner, run)
    }

    fn tile<C: Real>(&self, state: &Self::State, run: &T::Run, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        if !state.is_frozen(tile.leaf) {
            self.inner.tile(&state.inner, run, place, span, tile);
        } else if span.has(place.at) {
            tile.set_zero();
        }
    }

    fn fuses_now(&self, state: &Self::State, run: &T::Run, leaf: usize) -> bool {
        // A frozen leaf's state arrays are not even read on the way by tiles.
        !state.is_frozen(leaf) && self.inner.fuses_now(&state.inner, run, leaf)
    }

    #[inline]
    fn kernel<C: Real>(&self, state: &Self::State, run: &T::Run, leaf: usize) -> Self::Kernel<C> {
        let inner = self.inner.kernel(&state.inner, run, leaf);
        FreezableKernel { inner, frozen: state.is_frozen(leaf) }
    }

    fn slots(&self, state: &Self::State, leaf: usize, list: &mut SlotList) {
        self.inner.slots(&state.inner, leaf, list);
    }

    #[inline(always)]
    fn apply<C: Real>(k: &Self::Kernel<C>, at: usize, span: Span, slots: &mut [C], u: C, p: C, tally: &mut [u32]) -> C {
        if !k.frozen {
            T::apply::<C>(&k.inner, at, span, slots, u, p, tally)
        } else if span.has(at) {
            C::zero()
        } else {
            u
        }
    }

    #[inline(always)]
    fn reduce<C: Real>(k: &Self::Kernel<C>, place: Place, span: Span, u: &[C], p: &[C], sums: &mut [f64]) {
        if !k.frozen {
            T::reduce::<C>(&k.inner, place, span, u, p, sums);
        }
    }

    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        if state.is_frozen(leaf) { 0 } else { self.inner.state_bytes(&state.inner, leaf, at, span) }
    }

    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str)) {
        self.inner.unused(&state.inner, report);
    }

    fn recipe(&self) -> Recipe {
        Recipe::call("freezable", [("inner", self.inner.recipe())])
    }

    fn describe(&self) -> String {
        format!("freezable({})", self.inner.describe())
    }
}
