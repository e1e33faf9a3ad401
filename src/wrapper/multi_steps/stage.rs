//! How a `multi_steps` runs.

use super::{MultiSteps, MultiStepsState, SkipUpdate};
use crate::element::Real;
use crate::engine::{
    InitContext, Job, Outcome, Place, Shape, SlotJob, SlotList, SlotReader, Span, Stage, StepContext, Sums, Tile,
    WholeTree, dispatch, slot_read, slot_tile, sum_tile,
};
use crate::error::Result;
use crate::recipe::{Recipe, ToRecipe};
use crate::state::{Count, Flag, Scalar};

/// What a mini-step does; known from the start, unless it depends on a sum over the gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    /// Not decided before the first barrier.
    Undecided,
    /// The gradients are thrown away.
    Skip,
    /// They are added to the accumulator.
    Hold,
    /// What has been accumulated is given to the inner transformation.
    Emit,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Accumulate {
    /// By which the gradient, or its distance from the mean, is multiplied.
    factor: f64,
    mean: bool,
    /// There is no gradient; the accumulator is emitted as it is.
    flush: bool,
}

impl Accumulate {
    fn kernel<C: Real>(self) -> AccumulateKernel<C> {
        AccumulateKernel { factor: C::of(self.factor), mean: self.mean, flush: self.flush }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AccumulateKernel<C> {
    factor: C,
    mean: bool,
    flush: bool,
}

impl<C: Real> AccumulateKernel<C> {
    #[inline(always)]
    fn next(self, acc: C, u: C) -> C {
        if self.flush {
            return acc;
        }
        let change = if self.mean { u - acc } else { u };
        acc + change * self.factor
    }
}

impl<C: Real> SlotReader<C> for AccumulateKernel<C> {
    #[inline(always)]
    fn run(self, u: &[C], acc: &mut [C]) {
        hold(self, u, acc);
    }
}

#[inline(always)]
fn hold<C: Real>(k: AccumulateKernel<C>, u: &[C], acc: &mut [C]) {
    for (acc, u) in acc.iter_mut().zip(u) {
        *acc = k.next(*acc, *u);
    }
}

/// Turns a tile into what is emitted, and empties the accumulator.
struct Emit<C>(AccumulateKernel<C>);

impl<C: Real> SlotJob<C> for Emit<C> {
    #[inline(always)]
    fn run(self, u: &mut [C], _: &[C], acc: &mut [C]) {
        emit(self.0, u, acc);
    }
}

#[inline(always)]
fn emit<C: Real>(k: AccumulateKernel<C>, u: &mut [C], acc: &mut [C]) {
    for (acc, u) in acc.iter_mut().zip(u) {
        *u = k.next(*acc, *u);
        *acc = C::zero();
    }
}

struct Measure<'a, C, S> {
    u: &'a [C],
    skip: core::marker::PhantomData<S>,
}

impl<C: Real, S: SkipUpdate> Job for Measure<'_, C, S> {
    type Output = f64;
    #[inline(always)]
    fn run(self) -> f64 {
        sum_tile(self.u, S::measure)
    }
}

/// What is worked out for one mini-step.
#[doc(hidden)]
#[derive(Debug)]
pub struct MultiStepsRun<R> {
    act: Act,
    accumulate: Accumulate,
    /// The inner transformation's, on a mini-step that emits.
    inner: Option<R>,
    /// The loss that it is given.
    value: Option<f64>,
}

#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct MultiStepsKernel<K, C> {
    accumulate: AccumulateKernel<C>,
    inner: K,
}

impl<T: Stage, S: SkipUpdate> MultiSteps<T, S> {
    /// Decides between holding and emitting, counts, and on an emitting mini-step starts the inner transformation.
    fn decide(&self, state: &mut MultiStepsState<T::State>, run: &mut MultiStepsRun<T::Run>, at: &StepContext<'_>) {
        let (done, gradient_step) = (state.mini_step.get(), state.gradient_step.get());
        if at.flush {
            run.act = if done > 0 { Act::Emit } else { Act::Hold };
        } else {
            let weight = state.next_weight.get();
            let total = state.weight.get() + weight;
            run.accumulate.factor = if self.use_grad_mean { weight / total } else { weight };
            if let (Some(sum), Some(value)) = (&mut state.value, at.value) {
                let change = if self.use_grad_mean { value - sum.get() } else { value };
                sum.set(sum.get() + change * run.accumulate.factor);
            }
            state.weight.set(total);
            state.next_weight.set(1.0);
            state.mini_step.increment();
            run.act = if state.mini_step.get() as f64 >= self.window(gradient_step) { Act::Emit } else { Act::Hold };
        }
        if run.act == Act::Emit {
            state.mini_step.reset();
            state.weight.set(0.0);
            state.gradient_step.increment();
            // What is inside has its gradients, whether or not this step brought any.
            run.value = state.value.as_mut().map(|sum| core::mem::take(sum).get());
            let at = StepContext { flush: false, value: run.value, ..*at };
            run.inner = Some(self.inner.begin(&mut state.inner, &at));
        }
    }
}

impl<T: Stage, S: SkipUpdate> Stage for MultiSteps<T, S> {
    type Needs = T::Needs;
    type State = MultiStepsState<T::State>;
    type Run = MultiStepsRun<T::Run>;
    type Kernel<C: Real> = MultiStepsKernel<T::Kernel<C>, C>;

    const SHAPE: Shape = S::SHAPE.then(Shape::elementwise(true, false)).then(T::SHAPE);
    const SLOTS: usize = 1 + T::SLOTS;
    const FUSES: bool = T::FUSES && crate::engine::fits(Self::SHAPE, Self::SLOTS);

    fn shape(&self) -> Shape {
        S::SHAPE.then(Shape::elementwise(true, false)).then(self.inner.shape())
    }

    fn needs(&self) -> crate::needs::Level {
        self.inner.needs()
    }

    fn validate(&self) -> Result<()> {
        if let crate::schedule::Hyperparam::Schedule(schedule) = &self.every_k {
            schedule.validate()?;
        }
        self.check_window(0)?;
        self.skip.validate()?;
        self.inner.validate()
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        Ok(MultiStepsState {
            mini_step: Count::default(),
            gradient_step: Count::default(),
            weight: Scalar::default(),
            next_weight: Scalar::new(1.0),
            skipped: Flag::default(),
            measured: Scalar::default(),
            value: (self.inner.needs() >= crate::needs::Level::Value).then(Scalar::default),
            accumulator: at.moments_of(self.accumulator_dtype)?,
            inner: self.inner.init_state(at)?,
        })
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        self.check_window(state.gradient_step.get())?;
        self.inner.check(&state.inner, at)
    }

    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> Self::Run {
        let accumulate = Accumulate { factor: 1.0, mean: self.use_grad_mean, flush: at.flush };
        let mut run = MultiStepsRun { act: Act::Undecided, accumulate, inner: None, value: None };
        state.skipped.set(false);
        if !S::DECIDES {
            self.decide(state, &mut run, at);
        }
        run
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
        if S::DECIDES && index == 0 {
            state.measured.set(sums.total(0));
            if !at.flush && self.skip.skips(state.measured.get()) {
                state.skipped.set(true);
                run.act = Act::Skip;
            } else {
                self.decide(state, run, at);
            }
        } else if let Some(inner) = &mut run.inner {
            let index = index - S::SHAPE.barriers;
            let at = &StepContext { flush: false, value: run.value, ..*at };
            self.inner.barrier(&mut state.inner, inner, at, index, sums.skip(S::SHAPE.sums), tree);
        }
    }

    fn finish(&self, state: &mut Self::State, run: Self::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        outcome.skipped |= run.act == Act::Skip;
        match run.inner {
            Some(inner) => self.inner.finish(&mut state.inner, inner, sums.skip(S::SHAPE.sums), outcome),
            None => outcome.emitted = false,
        }
    }

    fn ends_at(&self, state: &Self::State, run: &Self::Run) -> Option<usize> {
        match (run.act, &run.inner) {
            (Act::Undecided, _) => None,
            (_, Some(inner)) => self.inner.ends_at(&state.inner, inner).map(|end| S::SHAPE.barriers + end),
            (_, None) => Some(S::SHAPE.barriers),
        }
    }

    fn tile<C: Real>(&self, state: &Self::State, run: &Self::Run, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        if Self::FUSES && self.fuses_now(state, run, tile.leaf) {
            return crate::engine::fused_tile(self, state, run, place, span, tile);
        }
        if S::DECIDES && place.at == span.to {
            let u = tile.input();
            let measured = dispatch(crate::engine::current_isa(), Measure { u, skip: core::marker::PhantomData::<S> });
            tile.sums()[place.sum] += measured;
            return;
        }
        let inside = place.after(S::SHAPE);
        let Some(inner) = &run.inner else {
            if span.has(inside.at) {
                if run.act == Act::Hold && !run.accumulate.flush {
                    slot_read(&state.accumulator, tile, run.accumulate.kernel::<C>());
                }
                tile.set_zero();
            }
            return;
        };
        if span.has(inside.at) {
            slot_tile(&state.accumulator, tile, Emit(run.accumulate.kernel::<C>()));
        }
        self.inner.tile(&state.inner, inner, inside, span, tile);
    }

    fn fuses_now(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> bool {
        Self::FUSES && run.inner.as_ref().is_some_and(|inner| self.inner.fuses_now(&state.inner, inner, leaf))
    }

    #[inline]
    fn kernel<C: Real>(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> Self::Kernel<C> {
        let inner = run.inner.as_ref().expect("the fused loop is run on emitting mini-steps only");
        let inner = self.inner.kernel(&state.inner, inner, leaf);
        MultiStepsKernel { accumulate: run.accumulate.kernel(), inner }
    }

    fn slots(&self, state: &Self::State, leaf: usize, list: &mut SlotList) {
        list.push(&state.accumulator, leaf);
        self.inner.slots(&state.inner, leaf, list);
    }

    #[inline(always)]
    fn apply<C: Real>(k: &Self::Kernel<C>, at: usize, span: Span, slots: &mut [C], u: C, p: C, tally: &mut [u32]) -> C {
        let at = at + S::SHAPE.barriers;
        let (acc, slots) = slots.split_at_mut(1);
        let mut u = u;
        if span.has(at) {
            u = k.accumulate.next(acc[0], u);
            acc[0] = C::zero();
        }
        let (_, tally) = tally.split_at_mut(S::SHAPE.sums);
        T::apply::<C>(&k.inner, at, span, slots, u, p, tally)
    }

    #[inline(always)]
    fn reduce<C: Real>(k: &Self::Kernel<C>, place: Place, span: Span, u: &[C], p: &[C], sums: &mut [f64]) {
        T::reduce::<C>(&k.inner, place.after(S::SHAPE), span, u, p, sums);
    }

    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        let at = at + S::SHAPE.barriers;
        let own = state.accumulator.dtype(leaf).map_or(0, |dtype| 2 * dtype.size());
        let inner = self.inner.state_bytes(&state.inner, leaf, at, span);
        if span.has(at) { own + inner } else { inner }
    }

    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str)) {
        self.inner.unused(&state.inner, report);
    }

    fn recipe(&self) -> Recipe {
        Recipe::call(
            "multi_steps",
            [
                ("inner", self.inner.recipe()),
                (
                    "every_k_schedule",
                    match self.every_k {
                        crate::schedule::Hyperparam::Number(k) if k.fract() == 0.0 => Recipe::Integer(k as i128),
                        _ => self.every_k.to_recipe(),
                    },
                ),
                ("use_grad_mean", self.use_grad_mean.to_recipe()),
                ("should_skip_update_fn", self.skip.to_recipe()),
                ("accumulator_dtype", self.accumulator_dtype.to_recipe()),
            ],
        )
    }

    fn describe(&self) -> String {
        match &self.every_k {
            crate::schedule::Hyperparam::Number(k) => format!("multi_steps({}, {k})", self.inner.describe()),
            schedule => format!("multi_steps({}, {schedule})", self.inner.describe()),
        }
    }
}
