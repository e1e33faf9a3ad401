use crate::arguments::{Argument, Arguments};
use crate::element::Real;
use crate::engine::{
    InitContext, Job, Outcome, Place, Shape, SlotList, SlotsJob, SlotsWriter, Span, Stage, StepContext, Sums, TILE,
    Term, Tile, WholeTree, direction, dispatch, fused_tile, slots_read, slots_write, sum_tile,
};
use crate::error::{Error, Result};
use crate::recipe::{Recipe, ToRecipe};
use crate::schedule::Hyperparam;
use crate::state::state_fields;
use crate::state::{Count, Moments, State};

/// Leaves out those elements of an optimizer's updates that the gradient does not agree with, and makes the others larger
/// instead.
///
/// Momentum can point against the gradient of the moment. An element of the update that does is set to zero; the sum of the
/// leaf's updates is kept about as large as it was. What the inner transformation remembers does not change.
///
/// # Arithmetic
///
/// With `g` the gradient that comes in, `d` what the inner transformation makes of it, for each leaf of `n` elements:
///
/// ```text
/// d ← 0                                   where d does not go against g: where −d·g ≤ 0
/// k = how many elements of d are left
/// u ← n / (k + xi)·d
/// ```
///
/// An optimizer's updates are added to the parameters, so they should go against the gradient. Those of a part, such as
/// [`scale_by_adam`](crate::scale_by_adam), are still to be turned round: for a part say
/// [`against_gradient(false)`](Cautious::against_gradient). Weight decay inside is masked like the rest; in
/// [`cautious_adamw`](crate::cautious_adamw()) it is outside, as in the paper.
///
/// # Cost
///
/// No state. One more pass, before which the updates are stored if what is inside has state. Fuses with what is inside, unless
/// that has passes of its own: then a copy of the gradients is kept, which is no part of the state.
///
/// # Errors
///
/// `init` fails if `xi` is not positive and finite, or if what is inside is known to go along the gradient while it is said to
/// go against it, or the other way round: all the right elements would be left out.
///
/// # Example
///
/// In the second step the momentum of the first element, 1, still points against its gradient, −0.5:
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = cautious(sgd(0.5).momentum(1.0)).xi(1.0);
/// let params = vec![0.0_f64; 3];
/// let mut state = optimizer.init(&params)?;
/// let updates = optimizer.update(&vec![1.5_f64, 1.0, -1.0], &mut state, &params)?;
/// assert_eq!(updates.to_vec::<f64>("").unwrap(), [-0.5625, -0.375, 0.375]); // 3 / (3 + 1) of them
/// let updates = optimizer.update(&vec![-0.5_f64, 1.0, -1.0], &mut state, &params)?;
/// assert_eq!(updates.to_vec::<f64>("").unwrap(), [0.0, -1.0, 1.0]); // 3 / (2 + 1) of them
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Liang, Chen, Liu and Liu, [Cautious optimizers: improving training with one line of
/// code](https://arxiv.org/abs/2411.16085), 2024, equation 5 and algorithm 2. Optax has none. Differs: an element without a
/// gradient is left out, as in the authors' code, whatever rounding makes of the product. That code divides by the share of
/// elements that are left, or 0.001 if it is less, instead of by `(k + xi) / n`.
pub fn cautious<T: Stage>(inner: T) -> Cautious<T> {
    Cautious { inner, xi: 1.0.into(), against_gradient: true }
}

/// See [`cautious`].
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Cautious<T> {
    pub(crate) inner: T,
    pub(crate) xi: Hyperparam,
    pub(crate) against_gradient: bool,
}

impl<T> Cautious<T> {
    /// Sets what is added to the number of elements that are left; positive.
    pub fn xi(mut self, xi: impl Into<Hyperparam>) -> Self {
        self.xi = xi.into();
        self
    }

    /// Sets whether what is inside goes against the gradient, as an optimizer does, or along it, as a part does.
    pub fn against_gradient(mut self, against_gradient: bool) -> Self {
        self.against_gradient = against_gradient;
        self
    }
}

impl<T: Stage> Arguments for Cautious<T> {
    const NAME: &'static str = "cautious";

    fn arguments(&mut self, visit: &mut dyn FnMut(&'static str, Argument<'_>)) {
        visit("inner", Argument::Static(&self.inner.recipe()));
        visit("xi", Argument::Hyperparam(&mut self.xi));
        visit("against_gradient", Argument::Static(&self.against_gradient));
    }
}

/// The state of a [`cautious`].
#[derive(Clone, Debug)]
pub struct CautiousState<S> {
    count: Count,
    inner: S,
    /// Worked out anew in each step, as are the next; kept so that a step need not allocate.
    factors: Vec<f64>,
    /// The gradients of this step; for what has passes of its own only.
    gradients: Moments,
}

state_fields!(CautiousState<S: State> { count, inner });

impl<S> CautiousState<S> {
    /// The state of the transformation inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The state of the transformation inside, to write.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

#[doc(hidden)]
#[derive(Debug)]
pub struct CautiousRun<R> {
    xi: f64,
    inner: R,
}

#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct CautiousKernel<K, C> {
    inner: K,
    /// What turns the inner transformation's updates in the direction of the gradient: 1 or −1.
    turn: C,
    factor: C,
}

/// What comes after the inner transformation: counting, then multiplying.
const COUNT: Shape = Shape { barriers: 1, stateful: 0, reads_params: 0, materializes: 0, sums: 1 };

/// An update, if it and the gradient agree; what is not a number stays.
#[inline(always)]
fn agreeing<C: Real>(turn: C, gradient: C, update: C) -> C {
    let along = turn * update;
    let zero = C::zero();
    // A product of the two could vanish.
    let against = ((gradient >= zero) & (along <= zero)) | ((gradient <= zero) & (along >= zero));
    if against { zero } else { update }
}

/// How many elements are left.
#[inline(always)]
fn left<C: Real>(u: &[C]) -> f64 {
    sum_tile(u, |u| if u == C::zero() { 0.0 } else { 1.0 })
}

impl<T: Stage> Cautious<T> {
    fn turn<C: Real>(&self) -> C {
        if self.against_gradient { -C::one() } else { C::one() }
    }
}

impl<T: Stage> Stage for Cautious<T> {
    type Needs = T::Needs;
    type State = CautiousState<T::State>;
    type Run = CautiousRun<T::Run>;
    type Kernel<C: Real> = CautiousKernel<T::Kernel<C>, C>;

    const SHAPE: Shape = T::SHAPE.then(COUNT);
    const FUSES: bool = T::FUSES && T::SHAPE.barriers == 0;
    const SLOTS: usize = T::SLOTS;

    fn shape(&self) -> Shape {
        self.inner.shape().then(COUNT)
    }

    fn needs(&self) -> crate::needs::Level {
        self.inner.needs()
    }

    fn validate(&self) -> Result<()> {
        const NAME: &str = "cautious";
        self.xi.validate(NAME, "xi", "positive and finite", |x| x > 0.0 && x.is_finite())?;
        match (self.against_gradient, direction(&self.inner.recipe())) {
            (true, Some(1)) => {
                let found = "one that goes along the gradient; for a part say `against_gradient(false)`";
                Err(Error::argument(NAME, "inner", "an optimizer, which goes against the gradient", found))
            }
            (false, Some(-1)) => {
                let found = "one that goes against the gradient; for an optimizer say `against_gradient(true)`";
                Err(Error::argument(NAME, "inner", "a part, which goes along the gradient", found))
            }
            _ => self.inner.validate(),
        }
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        let has_passes = self.inner.shape().barriers > 0;
        Ok(CautiousState {
            count: Count::default(),
            inner: self.inner.init_state(at)?,
            factors: vec![1.0; at.structure().len()],
            gradients: if has_passes { at.moments()? } else { Moments::default() },
        })
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        self.inner.check(&state.inner, at)
    }

    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> Self::Run {
        let xi = self.xi.at(state.count.get());
        state.count.increment();
        CautiousRun { xi, inner: self.inner.begin(&mut state.inner, at) }
    }

    fn barrier(
        &self,
        state: &mut Self::State,
        run: &mut Self::Run,
        at: &StepContext<'_>,
        index: usize,
        sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        let inner = self.inner.shape();
        if index < inner.barriers {
            return self.inner.barrier(&mut state.inner, &mut run.inner, at, index, sums, tree);
        }
        let own = sums.skip(inner.sums);
        for (i, (factor, leaf)) in state.factors.iter_mut().zip(at.structure().leaves()).enumerate() {
            *factor = leaf.len() as f64 / (own.leaf(0, i) + run.xi);
        }
    }

    fn finish(&self, state: &mut Self::State, run: Self::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        self.inner.finish(&mut state.inner, run.inner, sums, outcome);
    }

    fn ends_at(&self, state: &Self::State, run: &Self::Run) -> Option<usize> {
        self.inner.ends_at(&state.inner, &run.inner)
    }

    fn tile<C: Real>(&self, state: &Self::State, run: &Self::Run, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        if Self::FUSES && self.fuses_now(state, run, tile.leaf) {
            return fused_tile(self, state, run, place, span, tile);
        }
        let inner = self.inner.shape();
        let (own, turn) = (place.after(inner), self.turn::<C>());
        if inner.barriers == 0 {
            if span.has(place.at) {
                let (mut room, n) = ([C::zero(); TILE], tile.len());
                let gradients = &mut room[..n];
                gradients.copy_from_slice(tile.input());
                self.inner.tile(&state.inner, &run.inner, place, span, tile);
                dispatch(tile.isa(), Restrain { turn, u: tile.u(), gradients });
            }
        } else {
            // The one pass that ends here is enough, whatever is run again later.
            if place.at == span.to {
                slots_read([&state.gradients], 0, tile, &Keep);
            }
            self.inner.tile(&state.inner, &run.inner, place, span, tile);
            if span.has(own.at) {
                slots_write([&state.gradients], 0, tile, &Restrained(turn));
            }
        }
        if own.at == span.to {
            let left = left(tile.u());
            tile.sums()[own.sum] += left;
        }
        if span.has(own.at + 1) {
            let factor = C::of(state.factors[tile.leaf]);
            tile.u().iter_mut().for_each(|u| *u *= factor);
        }
    }

    fn fuses_now(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> bool {
        Self::FUSES && self.inner.fuses_now(&state.inner, &run.inner, leaf)
    }

    #[inline]
    fn kernel<C: Real>(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> Self::Kernel<C> {
        let inner = self.inner.kernel(&state.inner, &run.inner, leaf);
        CautiousKernel { inner, turn: self.turn(), factor: C::of(state.factors[leaf]) }
    }

    fn slots(&self, state: &Self::State, leaf: usize, list: &mut SlotList) {
        self.inner.slots(&state.inner, leaf, list);
    }

    #[inline(always)]
    fn apply<C: Real>(
        k: &Self::Kernel<C>,
        at: usize,
        span: Span,
        slots: &mut [C],
        u: C,
        p: C,
        terms: &mut [Term],
    ) -> C {
        let (inside, own) = terms.split_at_mut(T::SHAPE.sums);
        let u =
            if span.has(at) { agreeing(k.turn, u, T::apply::<C>(&k.inner, at, span, slots, u, p, inside)) } else { u };
        // What is inside has no barriers if this is called. Only the pass that ends here counts.
        if at == span.to {
            own[0].count = u32::from(u != C::zero());
        }
        if span.has(at + 1) { u * k.factor } else { u }
    }

    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        let copy = state.gradients.dtype(leaf).map_or(0, |dtype| dtype.size());
        let kept = if at == span.to { copy } else { 0 };
        let used = if span.has(at + self.inner.shape().barriers) { copy } else { 0 };
        self.inner.state_bytes(&state.inner, leaf, at, span) + kept + used
    }

    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str)) {
        self.inner.unused(&state.inner, report);
    }

    fn recipe(&self) -> Recipe {
        Recipe::call(
            "cautious",
            [
                ("inner", self.inner.recipe()),
                ("xi", self.xi.to_recipe()),
                ("against_gradient", self.against_gradient.to_recipe()),
            ],
        )
    }

    fn describe(&self) -> String {
        format!("cautious({})", self.inner.describe())
    }
}

/// Leaves out what the gradients do not agree with.
struct Restrain<'a, C> {
    turn: C,
    u: &'a mut [C],
    gradients: &'a [C],
}

impl<C: Real> Job for Restrain<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.u.iter_mut().zip(self.gradients).for_each(|(u, g)| *u = agreeing(self.turn, *g, *u));
    }
}

/// Copies the gradients.
struct Keep;

impl<C: Real> SlotsJob<C, 1> for Keep {
    #[inline(always)]
    fn read(&self, u: &[C], _: &[C], [gradients]: [&mut [C]; 1], _: &mut [f64]) {
        gradients.copy_from_slice(u);
    }
}

/// Leaves out what the copied gradients do not agree with.
struct Restrained<C>(C);

impl<C: Real> SlotsWriter<C, 1> for Restrained<C> {
    #[inline(always)]
    fn write(&self, u: &mut [C], _: &[C], [gradients]: [&mut [C]; 1], _: &mut [f64]) {
        u.iter_mut().zip(gradients).for_each(|(u, g)| *u = agreeing(self.0, *g, *u));
    }
}
