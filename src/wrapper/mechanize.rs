use crate::arguments::{Argument, Arguments};
use crate::element::Real;
use crate::engine::Inner;
use crate::engine::{
    InitContext, Outcome, Place, Shape, SlotsJob, SlotsWriter, Span, Stage, StepContext, Sums, Tile, WholeTree,
    slots_read, slots_write, sum_pairs, sum_tile, sum_triples,
};
use crate::error::{Error, Result};
use crate::recipe::{Recipe, ToRecipe};
use crate::schedule::Hyperparam;
use crate::state::state_fields;
use crate::state::{Count, Moments, Scalar, State};

/// Learns how far to go in the direction in which an optimizer has come: its learning rate, in effect.
///
/// The base optimizer should have the learning rate 1, or a schedule that peaks there. Where it would be by itself, without
/// feedback, is known from where the parameters are; they are put on the line from the first parameters to there, as far as
/// the factor `S` says, which is made of several tuners with decays 0.9, 0.99, and so on.
///
/// # Arithmetic
///
/// With `d` the base optimizer's update, `x₀` the parameters of the first step, `S = Σ sᵢ`, norms and sums over all leaves
/// in `f64`:
///
/// ```text
/// Δ = (x₀ − p) / (S + eps)
/// h = Σ Δ·(u + weight_decay·S·‖u‖ / (‖p‖ + eps)·p)
/// for each tuner i of num_betas, with β = 1 − 0.1ⁱ:
///     c = h, at least −m and at most m
///     m ← max(β·m, |h| + eps)
///     v ← β²·v + h²
///     r ← β·r + c·s
///     s ← (s_init·m / num_betas + max(r, 0)) / (√v + eps)
/// u ← x₀ − (Σ sᵢ)·(Δ − d) − p
/// ```
///
/// # Cost
///
/// One float of state for each parameter. One more pass.
///
/// # Errors
///
/// `init` fails if `weight_decay` is not finite, `eps` is negative or not finite, `s_init` is not positive and finite,
/// `num_betas` is 0 or more than 64, or the base optimizer refuses.
///
/// # Example
///
/// From a factor that is much too small it comes to the minimum of `(p − 3)²/2`:
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = mechanize(sgd(1.0));
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for _ in 0..400 {
///     let gradient = params - 3.0;
///     optimizer.step(&mut params, &gradient, &mut state)?;
/// }
/// assert!((params - 3.0).abs() < 0.1);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Cutkosky, Defazio and Mehta, [Mechanic: a learning rate tuner](https://arxiv.org/abs/2306.00144), 2023, algorithm 1. Optax,
/// [`contrib.mechanize`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: none but `f64` sums. Both clip `h`,
/// which the paper does not.
pub fn mechanize<T: Stage>(base_optimizer: T) -> Mechanize<T> {
    Mechanize { inner: base_optimizer, weight_decay: 1e-2.into(), eps: 1e-8.into(), s_init: 1e-6.into(), num_betas: 6 }
}

/// See [`mechanize`].
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Mechanize<T> {
    inner: T,
    weight_decay: Hyperparam,
    eps: Hyperparam,
    s_init: Hyperparam,
    num_betas: usize,
}

impl<T> Mechanize<T> {
    /// Sets how strongly parameters are drawn to zero.
    pub fn weight_decay(mut self, weight_decay: impl Into<Hyperparam>) -> Self {
        self.weight_decay = weight_decay.into();
        self
    }

    /// Sets what is added to what is divided by.
    pub fn eps(mut self, eps: impl Into<Hyperparam>) -> Self {
        self.eps = eps.into();
        self
    }

    /// Sets the first factor of each tuner: positive, and rather too small.
    pub fn s_init(mut self, s_init: impl Into<Hyperparam>) -> Self {
        self.s_init = s_init.into();
        self
    }

    /// Sets how many tuners there are.
    pub fn num_betas(mut self, num_betas: usize) -> Self {
        self.num_betas = num_betas;
        self
    }
}

impl<T: Stage> Arguments for Mechanize<T> {
    const NAME: &'static str = "mechanize";

    fn arguments(&mut self, visit: &mut dyn FnMut(&'static str, Argument<'_>)) {
        visit("base_optimizer", Argument::Static(&Inner(&self.inner)));
        visit("weight_decay", Argument::Hyperparam(&mut self.weight_decay));
        visit("eps", Argument::Hyperparam(&mut self.eps));
        visit("s_init", Argument::Hyperparam(&mut self.s_init));
        visit("num_betas", Argument::Static(&self.num_betas));
    }
}

/// The state of a [`mechanize`].
#[derive(Clone, Debug)]
pub struct MechanizeState<S> {
    count: Count,
    tuners: Vec<Tuner>,
    x0: Moments,
    inner: S,
}

state_fields!(MechanizeState<S: State> { count, tuners, x0, inner });

impl<S> MechanizeState<S> {
    /// Steps done.
    pub fn count(&self) -> Count {
        self.count
    }

    /// The factor, `S`.
    pub fn factor(&self) -> f64 {
        self.tuners.iter().map(|tuner| tuner.s.get()).sum()
    }

    /// The base optimizer's state.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The base optimizer's state, to write.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

/// One of the learners whose factors are added.
#[derive(Clone, Debug)]
struct Tuner {
    r: Scalar,
    m: Scalar,
    v: Scalar,
    s: Scalar,
}

state_fields!(Tuner<> { r, m, v, s });

impl Tuner {
    fn learn(&mut self, h: f64, beta: f64, eps: f64, share: f64) {
        let Tuner { r, m, v, s } = self;
        let clipped = if h.abs() > m.get() { m.get().copysign(h) } else { h };
        let least = beta * m.get();
        // Comparisons that let NaN through, which `max` would not.
        m.set(if least > h.abs() + eps { least } else { h.abs() + eps });
        v.set(beta * beta * v.get() + h * h);
        r.set(beta * r.get() + clipped * s.get());
        let reward = if r.get() < 0.0 { 0.0 } else { r.get() };
        s.set((share * m.get() + reward) / (v.get().sqrt() + eps));
    }
}

#[doc(hidden)]
#[derive(Debug)]
pub struct MechanizeRun<R> {
    count: u64,
    /// What `x₀ − p` is multiplied by to give `Δ`.
    of_distance: f64,
    /// `S` before this step, and after it.
    factors: [f64; 2],
    inner: R,
}

/// What is summed up while the base optimizer begins.
const MEASURE: Shape = Shape { barriers: 0, stateful: 0, reads_params: 1, materializes: 0, sums: 4 };
/// What comes after it.
const MOVE: Shape = Shape { barriers: 1, stateful: 0, reads_params: 0b10, materializes: 0, sums: 0 };

impl<T: Stage> Mechanize<T> {
    /// The barrier, of those of the whole, before which the base optimizer is done.
    fn own_barrier(&self) -> usize {
        self.inner.shape().barriers
    }

    /// Learns from the sums.
    fn learn(&self, state: &mut MechanizeState<T::State>, run: &mut MechanizeRun<T::Run>, sums: Sums<'_>) {
        let [gradients, params, along, outward] = [0, 1, 2, 3].map(|i| sums.total(i));
        let eps = self.eps.at(run.count);
        let decay = self.weight_decay.at(run.count) * run.factors[0] * gradients.sqrt() / (params.sqrt() + eps);
        let h = run.of_distance * (along + decay * outward);
        let share = self.s_init.at(run.count) / state.tuners.len() as f64;
        for (i, tuner) in state.tuners.iter_mut().enumerate() {
            tuner.learn(h, 1.0 - 0.1_f64.powi(i as i32 + 1), eps, share);
        }
        run.factors[1] = state.factor();
    }
}

impl<T: Stage> Stage for Mechanize<T> {
    type Needs = T::Needs;
    type State = MechanizeState<T::State>;
    type Run = MechanizeRun<T::Run>;
    type Kernel<C: Real> = ();

    const SHAPE: Shape = MEASURE.then(T::SHAPE).then(MOVE);
    const FUSES: bool = false;

    fn shape(&self) -> Shape {
        MEASURE.then(self.inner.shape()).then(MOVE)
    }

    fn needs(&self) -> crate::needs::Level {
        self.inner.needs()
    }

    fn validate(&self) -> Result<()> {
        const NAME: &str = "mechanize";
        self.weight_decay.validate(NAME, "weight_decay", "finite", f64::is_finite)?;
        self.eps.validate(NAME, "eps", "finite and not negative", |x| x >= 0.0 && x.is_finite())?;
        self.s_init.validate(NAME, "s_init", "positive and finite", |x| x > 0.0 && x.is_finite())?;
        if !(1..=64).contains(&self.num_betas) {
            return Err(Error::argument(NAME, "num_betas", "from 1 to 64", self.num_betas));
        }
        self.inner.validate()
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        let s = Scalar::new(self.s_init.at(0));
        let tuner = Tuner { r: Scalar::default(), m: Scalar::default(), v: Scalar::default(), s };
        Ok(MechanizeState {
            count: Count::default(),
            tuners: vec![tuner; self.num_betas],
            x0: at.params_as_moments()?,
            inner: self.inner.init_state(at)?,
        })
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        self.inner.check(&state.inner, at)
    }

    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> Self::Run {
        let count = state.count.get();
        state.count.increment();
        let factor = state.factor();
        let of_distance = 1.0 / (factor + self.eps.at(count));
        MechanizeRun { count, of_distance, factors: [factor; 2], inner: self.inner.begin(&mut state.inner, at) }
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
        if index < self.own_barrier() {
            return self.inner.barrier(&mut state.inner, &mut run.inner, at, index, sums.skip(MEASURE.sums), tree);
        }
        self.learn(state, run, sums);
    }

    fn finish(&self, state: &mut Self::State, run: Self::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        self.inner.finish(&mut state.inner, run.inner, sums.skip(MEASURE.sums), outcome);
        // Where nothing comes from inside, there is the way from the first parameters.
        outcome.emitted = true;
    }

    fn tile<C: Real>(&self, state: &Self::State, run: &Self::Run, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        // The one pass that ends here counts, whatever is run again later.
        if place.at == span.to {
            slots_read([&state.x0], place.sum, tile, &Measure { first: run.count == 0 });
        }
        let place = place.after(MEASURE);
        self.inner.tile(&state.inner, &run.inner, place, span, tile);
        if span.has(place.at + self.own_barrier() + 1) {
            let [of_distance, factor] = [run.of_distance, run.factors[1]].map(C::of);
            slots_write([&state.x0], 0, tile, &Move { of_distance, factor });
        }
    }

    fn kernel<C: Real>(&self, _: &Self::State, _: &Self::Run, _: usize) {}

    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        let own = state.x0.dtype(leaf).map_or(0, |dtype| dtype.size());
        let measures = if at == span.to { own } else { 0 };
        let moves = if span.has(at + self.own_barrier() + 1) { own } else { 0 };
        self.inner.state_bytes(&state.inner, leaf, at, span) + measures + moves
    }

    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str)) {
        self.inner.unused(&state.inner, report);
    }

    fn recipe(&self) -> Recipe {
        Recipe::call(
            "mechanize",
            [
                ("base_optimizer", self.inner.recipe()),
                ("weight_decay", self.weight_decay.to_recipe()),
                ("eps", self.eps.to_recipe()),
                ("s_init", self.s_init.to_recipe()),
                ("num_betas", self.num_betas.to_recipe()),
            ],
        )
    }

    fn describe(&self) -> String {
        format!("mechanize({})", self.inner.describe())
    }
}

struct Measure {
    /// Whether the parameters are those to start from.
    first: bool,
}

impl<C: Real> SlotsJob<C, 1> for Measure {
    #[inline(always)]
    fn read(&self, u: &[C], p: &[C], [x0]: [&mut [C]; 1], sums: &mut [f64]) {
        if self.first {
            x0.copy_from_slice(p);
        }
        sums[0] += sum_tile(u, |u| u.as_f64() * u.as_f64());
        sums[1] += sum_tile(p, |p| p.as_f64() * p.as_f64());
        sums[2] += sum_triples(u, p, x0, |u, p, x0| u.as_f64() * (x0.as_f64() - p.as_f64()));
        sums[3] += sum_pairs(p, x0, |p, x0| p.as_f64() * (x0.as_f64() - p.as_f64()));
    }
}

struct Move<C> {
    of_distance: C,
    factor: C,
}

impl<C: Real> SlotsWriter<C, 1> for Move<C> {
    #[inline(always)]
    fn write(&self, u: &mut [C], p: &[C], [x0]: [&mut [C]; 1], _: &mut [f64]) {
        for ((u, p), x0) in u.iter_mut().zip(p).zip(x0) {
            let distance = *x0 - *p;
            *u = distance - self.factor * (self.of_distance * distance - *u);
        }
    }
}
