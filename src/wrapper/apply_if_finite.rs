use super::multi_steps::not_finite;
use crate::element::Real;
use crate::engine::{
    InitContext, Job, Outcome, Place, Shape, SlotList, Span, Stage, StepContext, Sums, Tile, WholeTree, dispatch,
    fused_tile, sum_tile,
};
use crate::error::Result;
use crate::recipe::{Recipe, ToRecipe};
use crate::state::state_fields;
use crate::state::{Count, Flag, State};

/// Runs a transformation only if all gradients are finite; otherwise the update is zero and nothing inside is touched.
///
/// After more than `max_consecutive_errors` such steps in a row it gives up and lets them through, so that a run that
/// cannot recover shows it.
///
/// # Arithmetic
///
/// ```text
/// all gradients finite:                     u ← inner(u);  notfinite_count ← 0
/// else, notfinite_count < max:              u ← 0;         notfinite_count ← notfinite_count + 1
/// else:                                     u ← inner(u);  notfinite_count ← notfinite_count + 1
/// ```
///
/// # Cost
///
/// One more pass, which reads the gradients.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = apply_if_finite(sgd(0.5), 2);
/// let mut params = 1.0_f32;
/// let mut state = optimizer.init(&params)?;
/// let outcome = optimizer.step(&mut params, &f32::NAN, &mut state)?;
/// assert!(outcome.skipped() && params == 1.0);
/// optimizer.step(&mut params, &1.0_f32, &mut state)?;
/// assert_eq!(params, 0.5);
/// assert_eq!(state.total_notfinite().get(), 1);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`apply_if_finite`](https://optax.readthedocs.io/en/latest/api/optimizer_wrappers.html). Differs: the inner
/// transformation is not run on gradients that are thrown away.
pub fn apply_if_finite<T: Stage>(inner: T, max_consecutive_errors: u32) -> ApplyIfFinite<T> {
    ApplyIfFinite { inner, max_consecutive_errors }
}

/// See [`apply_if_finite`].
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct ApplyIfFinite<T> {
    inner: T,
    max_consecutive_errors: u32,
}

/// The state of an [`apply_if_finite`].
#[derive(Clone, Debug)]
pub struct ApplyIfFiniteState<S> {
    notfinite_count: Count,
    last_finite: Flag,
    total_notfinite: Count,
    inner: S,
}

state_fields!(ApplyIfFiniteState<S: State> { notfinite_count, last_finite, total_notfinite, inner });

impl<S> ApplyIfFiniteState<S> {
    /// Steps in a row, up to the last, whose gradients were not finite.
    pub fn notfinite_count(&self) -> Count {
        self.notfinite_count
    }

    /// Whether the last gradients were finite.
    pub fn last_finite(&self) -> Flag {
        self.last_finite
    }

    /// Steps whose gradients were not finite.
    pub fn total_notfinite(&self) -> Count {
        self.total_notfinite
    }

    /// The state of the transformation inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The state of the transformation inside, to write.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

struct CountNotFinite<'a, C>(&'a [C]);

impl<C: Real> Job for CountNotFinite<'_, C> {
    type Output = f64;
    #[inline(always)]
    fn run(self) -> f64 {
        sum_tile(self.0, not_finite)
    }
}

const TEST: Shape = Shape { barriers: 1, stateful: 0, reads_params: 0, materializes: 0, sums: 1 };

#[doc(hidden)]
#[derive(Debug)]
pub struct ApplyIfFiniteRun<R> {
    decided: bool,
    inner: Option<R>,
}

impl<T: Stage> Stage for ApplyIfFinite<T> {
    type Needs = T::Needs;
    type State = ApplyIfFiniteState<T::State>;
    type Run = ApplyIfFiniteRun<T::Run>;
    type Kernel<C: Real> = T::Kernel<C>;

    const SHAPE: Shape = TEST.then(T::SHAPE);
    const SLOTS: usize = T::SLOTS;
    const FUSES: bool = T::FUSES && crate::engine::fits(Self::SHAPE, Self::SLOTS);

    fn shape(&self) -> Shape {
        TEST.then(self.inner.shape())
    }

    fn needs(&self) -> crate::needs::Level {
        self.inner.needs()
    }

    fn validate(&self) -> Result<()> {
        self.inner.validate()
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        Ok(ApplyIfFiniteState {
            notfinite_count: Count::default(),
            last_finite: Flag::new(true),
            total_notfinite: Count::default(),
            inner: self.inner.init_state(at)?,
        })
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        self.inner.check(&state.inner, at)
    }

    fn begin(&self, _: &mut Self::State, _: &StepContext<'_>) -> Self::Run {
        ApplyIfFiniteRun { decided: false, inner: None }
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
        if let Some(before) = index.checked_sub(1) {
            if let Some(inner) = &mut run.inner {
                self.inner.barrier(&mut state.inner, inner, at, before, sums.skip(1), tree);
            }
            return;
        }
        let finite = sums.total(0) == 0.0;
        state.last_finite.set(finite);
        if finite {
            state.notfinite_count.reset();
        } else {
            state.notfinite_count.increment();
            state.total_notfinite.increment();
        }
        run.decided = true;
        if finite || state.notfinite_count.get() > u64::from(self.max_consecutive_errors) {
            run.inner = Some(self.inner.begin(&mut state.inner, at));
        }
    }

    fn finish(&self, state: &mut Self::State, run: Self::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        match run.inner {
            Some(inner) => self.inner.finish(&mut state.inner, inner, sums.skip(1), outcome),
            None => {
                outcome.emitted = false;
                outcome.skipped = true;
            }
        }
    }

    fn ends_at(&self, state: &Self::State, run: &Self::Run) -> Option<usize> {
        match &run.inner {
            Some(inner) => self.inner.ends_at(&state.inner, inner).map(|end| 1 + end),
            None => run.decided.then_some(1),
        }
    }

    fn tile<C: Real>(&self, state: &Self::State, run: &Self::Run, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        if Self::FUSES && self.fuses_now(state, run, tile.leaf) {
            return fused_tile(self, state, run, place, span, tile);
        }
        if place.at == span.to {
            let count = dispatch(crate::engine::current_isa(), CountNotFinite(tile.input()));
            tile.sums()[place.sum] += count;
        } else if let Some(inner) = &run.inner {
            self.inner.tile(&state.inner, inner, place.after(TEST), span, tile);
        } else if place.at < span.to {
            tile.set_zero();
        }
    }

    fn fuses_now(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> bool {
        Self::FUSES && run.inner.as_ref().is_some_and(|inner| self.inner.fuses_now(&state.inner, inner, leaf))
    }

    #[inline]
    fn kernel<C: Real>(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> T::Kernel<C> {
        let inner = run.inner.as_ref().expect("the fused loop is run once the gradients are known to be finite");
        self.inner.kernel(&state.inner, inner, leaf)
    }

    fn slots(&self, state: &Self::State, leaf: usize, list: &mut SlotList) {
        self.inner.slots(&state.inner, leaf, list);
    }

    #[inline(always)]
    fn apply<C: Real>(k: &T::Kernel<C>, at: usize, span: Span, slots: &mut [C], u: C, p: C, tally: &mut [u32]) -> C {
        T::apply::<C>(k, at + 1, span, slots, u, p, &mut tally[1..])
    }

    #[inline(always)]
    fn reduce<C: Real>(k: &T::Kernel<C>, place: Place, span: Span, u: &[C], p: &[C], sums: &mut [f64]) {
        T::reduce::<C>(k, place.after(TEST), span, u, p, sums);
    }

    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        self.inner.state_bytes(&state.inner, leaf, at + 1, span)
    }

    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str)) {
        self.inner.unused(&state.inner, report);
    }

    fn recipe(&self) -> Recipe {
        Recipe::call(
            "apply_if_finite",
            [("inner", self.inner.recipe()), ("max_consecutive_errors", self.max_consecutive_errors.to_recipe())],
        )
    }

    fn describe(&self) -> String {
        format!("apply_if_finite({}, {})", self.inner.describe(), self.max_consecutive_errors)
    }
}
