use crate::GradientTransformation;
use crate::internal::state::state_fields;
use crate::part::prelude::*;
use crate::state::StateWalk;

/// Learns the scale of an optimizer's total displacement: in effect, its learning rate.
///
/// The base optimizer should have the learning rate 1, or a schedule with that maximum. `mechanize` recovers the sum of
/// its updates from the parameters, and multiplies it by the factor `S`, a sum over tuners with decays 0.9, 0.99, and
/// so on.
///
/// Needs the feature `contrib`.
///
/// # Arithmetic
///
/// With `d` the base optimizer's update, `x₀` the parameters of the first step, `S = Σ sᵢ`, norms and sums over all
/// leaves in `f64`:
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
/// One float of state per parameter. One additional pass.
///
/// # Errors
///
/// `init` fails if `weight_decay` is not finite, `eps` is negative or not finite, `s_init` is not positive and finite,
/// `num_betas` is 0 or more than 64, or the base optimizer's `init` fails.
///
/// # Example
///
/// From a factor that is much too small it reaches the minimum of `(p − 3)²/2`:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::wrapper::mechanize;
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
/// Cutkosky, Defazio and Mehta, [Mechanic: a learning rate tuner](https://arxiv.org/abs/2306.00144), 2023, algorithm 1.
/// Optax, [`contrib.mechanize`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: none but `f64` sums.
/// Both clip `h`, which the paper does not.
pub fn mechanize<T: GradientTransformation>(base_optimizer: T) -> Mechanize<T> {
    Mechanize::with(base_optimizer)
}

wrapper! {
    /// See [`mechanize`].
    pub Mechanize<T> as "mechanize" around base_optimizer: AroundWithReductions {
        /// Sets the strength of weight decay.
        weight_decay: Hyperparam in FINITE = 1e-2;
        /// Sets the term added to divisors.
        eps: Hyperparam in NOT_NEGATIVE = 1e-8;
        /// Sets the first factor of each tuner: positive; better too small than too large.
        s_init: Hyperparam in POSITIVE = 1e-6;
        /// Sets the number of tuners.
        num_betas: usize = 6;
    }
    check Self::check_number;
}

memory! {
    /// The memory of a [`mechanize`], besides the array `x0` of the initial parameters.
    pub MechanizeMemory {
        count: Count,
        tuners: Vec<Tuner>,
    }
    beside {
        step: u64,
        /// The factor from `x₀ − p` to `Δ`.
        of_distance: f64,
        /// `S` before this step, and after it.
        factors: [f64; 2],
    }
    reads read;
}

/// The state of a [`mechanize`], with the base optimizer's state.
pub type MechanizeState<S> = WrapperState<MechanizeMemory, S>;

impl MechanizeMemory {
    /// Returns the number of steps.
    pub fn count(&self) -> Count {
        self.count
    }

    fn read(&self, walk: &mut StateWalk<'_, '_>) {
        walk.reading("factor", self.factor());
    }

    /// Returns the factor `S`.
    pub fn factor(&self) -> f64 {
        self.tuners.iter().map(|tuner| tuner.s.get()).sum()
    }
}

/// One of several tuners, whose factors are added.
#[derive(Clone, Debug, Default)]
struct Tuner {
    r: Scalar,
    m: Scalar,
    v: Scalar,
    s: Scalar,
}

state_fields!(Tuner { r, m, v, s });

impl Tuner {
    fn learn(&mut self, h: f64, beta: f64, eps: f64, share: f64) {
        let Tuner { r, m, v, s } = self;
        let clipped = if h.abs() > m.get() { m.get().copysign(h) } else { h };
        let least = beta * m.get();
        // Comparisons keep NaN, which `max` would drop.
        m.set(if least > h.abs() + eps { least } else { h.abs() + eps });
        v.set(beta * beta * v.get() + h * h);
        r.set(beta * r.get() + clipped * s.get());
        let reward = if r.get() < 0.0 { 0.0 } else { r.get() };
        s.set((share * m.get() + reward) / (v.get().sqrt() + eps));
    }
}

impl<T: GradientTransformation> Mechanize<T> {
    fn check_number(&self) -> Result<()> {
        match self.num_betas {
            1..=64 => Ok(()),
            found => Err(Error::argument("mechanize", "num_betas", "from 1 to 64", found)),
        }
    }
}

impl<T: GradientTransformation> Wrapper for Mechanize<T> {
    const RUNS: Runs = Runs::ALWAYS;
    type Memory = MechanizeMemory;

    fn start(&self, memory: &mut MechanizeMemory, _: &InitContext<'_>) -> Result<()> {
        let s = Scalar::new(self.s_init.at(0));
        memory.tuners = vec![Tuner { s, ..Tuner::default() }; self.num_betas];
        Ok(())
    }

    fn decide(&self, memory: &mut MechanizeMemory, _: &StepContext<'_>, _: f64) -> Decision {
        memory.step = memory.count.get();
        let factor = memory.factor();
        memory.of_distance = 1.0 / (factor + self.eps.at(memory.step));
        memory.factors = [factor; 2];
        Decision::Run
    }

    fn finish(&self, memory: &mut MechanizeMemory, _: Decision, inside: Option<Outcome>, _: &mut T::State) {
        if inside.is_some() {
            memory.count.increment();
        }
    }
}

impl<T: GradientTransformation> Reducing for Mechanize<T> {
    const SLOTS: &'static [Slot] = &[Slot::exact("x0").starts_as_params()];
    const PASSES: ReducingPasses = ReducingPasses::TWO
        .reads_params([true; 2])
        .accesses([&[Access::Read], &[], &[Access::Read]])
        .rare_accesses([&[Access::Write], &[], &[Access::Read]]);
    type Slots<C: Real> = [C; 1];
    /// Squares of gradients and parameters, and their products with the distance to `x₀`.
    type Accumulated<W: Real> = [W; 4];
    type Measured<W: Real> = [W; 0];
    /// True in the first step, which stores `x₀`; the factors of the distance to it.
    type Scalars<C: Real> = (bool, [C; 2]);

    fn is_rare(&self, memory: &MechanizeMemory) -> bool {
        memory.step == 0
    }

    fn scalars<C: Real>(&self, memory: &MechanizeMemory, _: usize) -> (bool, [C; 2]) {
        (memory.step == 0, [memory.of_distance, memory.factors[1]].map(C::of))
    }

    #[inline(always)]
    fn accumulate<C: Real>((first, _): Self::Scalars<C>, [x0]: &mut [C; 1], u: C, p: C) -> [C::Wide; 4] {
        *x0 = if first { p } else { *x0 };
        let distance = x0.wide() - p.wide();
        [u.wide() * u.wide(), p.wide() * p.wide(), u.wide() * distance, p.wide() * distance]
    }

    #[inline(always)]
    fn measure<C: Real>(_: Self::Scalars<C>, _: C) -> [C::Wide; 0] {
        []
    }

    fn reduced(&self, memory: &mut MechanizeMemory, sums: Sums<'_>) {
        let [gradients, params, along, outward] = [0, 1, 2, 3].map(|i| sums.total(i));
        let eps = self.eps.at(memory.step);
        let decay = self.weight_decay.at(memory.step) * memory.factors[0] * gradients.sqrt() / (params.sqrt() + eps);
        let h = memory.of_distance * (along + decay * outward);
        let share = self.s_init.at(memory.step) / memory.tuners.len() as f64;
        for (i, tuner) in memory.tuners.iter_mut().enumerate() {
            tuner.learn(h, 1.0 - 0.1_f64.powi(i as i32 + 1), eps, share);
        }
        memory.factors[1] = memory.factor();
    }

    #[inline(always)]
    fn emit<C: Real>((_, [of_distance, factor]): Self::Scalars<C>, [x0]: &mut [C; 1], u: C, p: C) -> C {
        let distance = *x0 - p;
        distance - factor * (of_distance * distance - u)
    }
}
