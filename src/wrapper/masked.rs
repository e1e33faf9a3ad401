use crate::arguments::{Argument, Arguments};
use crate::element::Real;
use crate::engine::{InitContext, Outcome, Place, Shape, SlotList, Span, Stage, StepContext, Sums, Tile, WholeTree};
use crate::error::Result;
use crate::recipe::{Recipe, ToRecipe};
use crate::select::Mask;
use crate::state::State;
use crate::state::state_fields;

/// Applies a transformation to some leaves only; the updates of the others pass through unchanged.
///
/// "Pass through" means what it says: after `masked(sgd(0.1), mask)` the other leaves still have their raw gradients,
/// which a `step` *adds*. That is right inside a chain, where something else follows. To leave the other parameters
/// alone, say so: [`masked(..).freeze_others()`](Masked::freeze_others).
///
/// State is made for the chosen leaves only; the mask is resolved once, in `init`.
///
/// # Cost
///
/// None: no state of its own, and a leaf's choice is made outside its element loop.
///
/// # Errors
///
/// `init` fails if a pattern of the mask matches no leaf.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::tree::DynTree;
/// use ndarray::array;
///
/// let mut params = DynTree::new();
/// params.insert("w", array![1.0_f32]);
/// params.insert("b", array![1.0_f32]);
/// let grads = params.clone();
///
/// let decay = masked(add_decayed_weights(0.5), Mask::path("w"));
/// let optimizer = chain((decay, scale(-0.1)));
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &grads, &mut state)?;
/// assert_eq!(params.get::<f32>("w").unwrap()[0], 0.85);
/// assert_eq!(params.get::<f32>("b").unwrap()[0], 0.9);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`masked`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: a mask is a [`Mask`],
/// never a function that is told from a tree of parameters by whether it can be called; freezing is a verb of its own.
pub fn masked<T>(inner: T, mask: impl Into<Mask>) -> Masked<T> {
    Masked { inner, mask: mask.into(), freeze_others: false }
}

/// See [`masked`].
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Masked<T> {
    pub(crate) inner: T,
    pub(crate) mask: Mask,
    pub(crate) freeze_others: bool,
}

impl<T> Masked<T> {
    /// Gives the other leaves an update of zero, so that their parameters keep their bits.
    ///
    /// ```
    /// use gradchain::prelude::*;
    ///
    /// let optimizer = masked(sgd(0.5), Mask::path("1")).freeze_others();
    /// let mut params = (1.0_f32, 1.0_f32);
    /// let mut state = optimizer.init(&params)?;
    /// optimizer.step(&mut params, &(1.0_f32, 1.0_f32), &mut state)?;
    /// assert_eq!(params, (1.0, 0.5));
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn freeze_others(mut self) -> Self {
        self.freeze_others = true;
        self
    }
}

/// Those of what is inside, and the mask.
impl<T: Arguments> Arguments for Masked<T> {
    const NAME: &'static str = T::NAME;

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn arguments(&mut self, visit: &mut dyn FnMut(&'static str, Argument<'_>)) {
        self.inner.arguments(visit);
        visit("mask", Argument::Static(&self.mask));
    }
}

/// The state of what is inside a [`masked`], and which leaves that is.
#[derive(Clone, Debug)]
pub struct MaskedState<S> {
    inner: S,
    /// The leaves acted on; resolved from the mask in `init`.
    active: Vec<bool>,
}

state_fields!(MaskedState<S: State> { inner });

impl<S> MaskedState<S> {
    /// The state of the transformation inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The state of the transformation inside, to write.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Whether each leaf is acted on.
    pub fn active(&self) -> &[bool] {
        &self.active
    }
}

/// What the element loop needs: the decision is the same for a whole leaf, so it is hoisted out of the loop or becomes
/// one select.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct MaskedKernel<K> {
    inner: K,
    on: bool,
    freeze: bool,
}

impl<T: Stage> Stage for Masked<T> {
    type Needs = T::Needs;
    type State = MaskedState<T::State>;
    type Run = T::Run;
    type Kernel<C: Real> = MaskedKernel<T::Kernel<C>>;

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
        self.inner.validate()
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        let what = format!("mask of {}", self.inner.describe());
        let active = at.restricted(&self.mask.resolve(at.structure, &what)?);
        Ok(MaskedState { inner: self.inner.init_state(&at.with_active(&active))?, active })
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
        let mut tree = tree.with_active(&state.active);
        self.inner.barrier(&mut state.inner, run, at, index, sums, &mut tree);
    }

    fn finish(&self, state: &mut Self::State, run: T::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        self.inner.finish(&mut state.inner, run, sums, outcome);
    }

    fn ends_at(&self, state: &Self::State, run: &T::Run) -> Option<usize> {
        let everywhere = self.freeze_others || state.active.iter().all(|on| *on);
        if everywhere { self.inner.ends_at(&state.inner, run) } else { None }
    }

    fn tile<C: Real>(&self, state: &Self::State, run: &T::Run, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        if state.active[tile.leaf] {
            self.inner.tile(&state.inner, run, place, span, tile);
        } else if self.freeze_others && span.has(place.at) {
            tile.set_zero();
        }
    }

    fn fuses_now(&self, state: &Self::State, run: &T::Run, leaf: usize) -> bool {
        // Where the leaf has no state arrays because it is not acted on, the loop that reads them is not the one to run.
        (state.active[leaf] || T::SLOTS == 0) && self.inner.fuses_now(&state.inner, run, leaf)
    }

    #[inline]
    fn kernel<C: Real>(&self, state: &Self::State, run: &T::Run, leaf: usize) -> Self::Kernel<C> {
        let inner = self.inner.kernel(&state.inner, run, leaf);
        MaskedKernel { inner, on: state.active[leaf], freeze: self.freeze_others }
    }

    fn slots(&self, state: &Self::State, leaf: usize, list: &mut SlotList) {
        self.inner.slots(&state.inner, leaf, list);
    }

    #[inline(always)]
    fn apply<C: Real>(k: &Self::Kernel<C>, at: usize, span: Span, slots: &mut [C], u: C, p: C, tally: &mut [u32]) -> C {
        if k.on {
            T::apply::<C>(&k.inner, at, span, slots, u, p, tally)
        } else if k.freeze && span.has(at) {
            C::zero()
        } else {
            u
        }
    }

    #[inline(always)]
    fn reduce<C: Real>(k: &Self::Kernel<C>, place: Place, span: Span, u: &[C], p: &[C], sums: &mut [f64]) {
        if k.on {
            T::reduce::<C>(&k.inner, place, span, u, p, sums);
        }
    }

    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        if state.active[leaf] { self.inner.state_bytes(&state.inner, leaf, at, span) } else { 0 }
    }

    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str)) {
        if !state.active.contains(&true) {
            report(&format!("the mask of {}", self.inner.describe()));
        }
        self.inner.unused(&state.inner, report);
    }

    fn recipe(&self) -> Recipe {
        let inner = ("inner", self.inner.recipe());
        let mask = ("mask", self.mask.to_recipe());
        // A mask that takes every leaf is no mask.
        if mask.1 == Recipe::Bool(true) {
            return inner.1;
        }
        match self.freeze_others {
            false => Recipe::call("masked", [inner, mask]),
            true => Recipe::call("masked", [inner, mask, ("freeze_others", Recipe::Bool(true))]),
        }
    }

    fn describe(&self) -> String {
        format!("masked({})", self.inner.describe())
    }
}
