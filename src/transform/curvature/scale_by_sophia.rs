use crate::GradientTransformation;
use crate::part::prelude::*;
use crate::transform::moment::Mean;

/// Divides a running mean of the updates by a running mean of the Hessian's diagonal, and clips the quotient.
///
/// Every `update_interval` steps the transformation `hessian_diagonal_fn` estimates the diagonal from the updates, for
/// example [`hutchinson_estimator_diag_hessian`](crate::transform::hutchinson_estimator_diag_hessian). Its needs apply
/// to every step.
///
/// # Arithmetic
///
/// At step `t`, counted from 1:
///
/// ```text
/// m ← b1·m + (1 − b1)·u
/// d = m / (1 − b1ᵗ) / max(gamma·h, eps)
/// every update_interval steps, from the first:   h ← b2·h + (1 − b2)·hessian_diagonal_fn(u)       for the next step
/// u ← min(max(d, −clip_threshold), clip_threshold)
/// ```
///
/// # Cost
///
/// Two floats of state per parameter, and scratch space for one more. Steps that estimate the diagonal store the
/// updates in memory.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1)`, `eps`, `gamma` or `clip_threshold` is negative or NaN, or
/// `update_interval` is 0.
///
/// # Example
///
/// Without a positive estimate of the Hessian the step is the sign of the mean; otherwise Newton's:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::{scale_by_sophia, set_to_zero};
///
/// // Takes the diagonal to be 4.
/// let optimizer = scale_by_sophia(chain((set_to_zero(), add_decayed_weights(4.0)))).gamma(1.0).b1(0.0).b2(0.0);
/// let params = 1.0_f64;
/// let mut state = optimizer.init(&params)?;
/// let first = optimizer.update(&2.0, &mut state, &params)?;
/// assert_eq!(first.to_vec::<f64>("").unwrap(), [1.0]);
/// assert_eq!(state.win_rate(), 0.0); // it was clipped
/// let second = optimizer.update(&2.0, &mut state, &params)?;
/// assert_eq!(second.to_vec::<f64>("").unwrap(), [0.5]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Liu, Li, Hall, Liang and Ma, [Sophia: a scalable stochastic second-order optimizer for language model
/// pre-training](https://arxiv.org/abs/2305.14342), 2023, algorithm 3. Optax,
/// [`contrib.sophia`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: the share of elements that are
/// not clipped is in the state instead of being printed. Differs from the paper, as Optax: there the estimate is used
/// in the step that makes it.
pub fn scale_by_sophia<H: GradientTransformation>(hessian_diagonal_fn: H) -> ScaleBySophia<H> {
    ScaleBySophia::with(hessian_diagonal_fn)
}

wrapper! {
    /// See [`scale_by_sophia`].
    pub ScaleBySophia<H> as "scale_by_sophia" around hessian_diagonal_fn, with state hessian_fn_state: AroundWithReductions {
        /// Sets the decay of the mean of the updates, in `[0, 1)`.
        b1: Hyperparam in DECAY = 0.965;
        /// Sets the decay of the mean of the diagonals, in `[0, 1)`.
        b2: Hyperparam in DECAY = 0.99;
        /// Sets the lower bound of the divisor; not negative.
        eps: Hyperparam in AT_LEAST_0 = 1e-8;
        /// Sets the factor of the mean of the diagonals; not negative.
        gamma: Hyperparam in AT_LEAST_0 = 0.01;
        /// Sets the largest update; not negative.
        clip_threshold: Option<Hyperparam> in AT_LEAST_0 = Some(1.0.into());
        /// Sets the number of steps between estimates of the diagonal; at least 1.
        update_interval: u64 in AT_LEAST_1 = 10;
        /// Sets the dtype of the mean of the updates; by default the compute type.
        mu_dtype: Option<DType> = None;
    }
    effect SCALE_INVARIANT;
}

impl<H> ScaleBySophia<H> {
    /// Disables clipping.
    pub fn without_clipping(mut self) -> Self {
        self.clip_threshold = None;
        self
    }
}

memory! {
    /// The state of [`scale_by_sophia`] besides the arrays: `mu` for the updates, `nu` for the diagonals.
    pub SophiaMemory {
        count: Count,
        updates: PerLeaf<Count>,
        win_rate: Scalar,
    }
    beside {
        /// The step counts before this step.
        clock: Clock = Clock::after(0),
        /// Number of elements of each leaf that this acts on.
        elements: Vec<usize>,
    }
}

/// The state of a [`scale_by_sophia`] around that of its estimator.
pub type ScaleBySophiaState<H> = WrapperState<SophiaMemory, H>;

impl SophiaMemory {
    /// Returns the fraction of elements that was not clipped in the last step. The authors recommend 0.1 to 0.5; a
    /// larger `gamma` raises it.
    pub fn win_rate(&self) -> f64 {
        self.win_rate.get()
    }
}

/// Scalars of [`ScaleBySophia`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct SophiaScalars<C> {
    mean1: Mean<C>,
    /// Advances only in steps that estimate a diagonal.
    mean2: Option<Mean<C>>,
    unbias: C,
    eps: C,
    gamma: C,
    clip: C,
}

impl<H: GradientTransformation> ScaleBySophia<H> {
    fn is_due(&self, memory: &SophiaMemory) -> bool {
        memory.clock.count.is_multiple_of(self.update_interval)
    }
}

impl<H: GradientTransformation> Wrapper for ScaleBySophia<H> {
    type Memory = SophiaMemory;
    const RUNS: Runs = Runs::DECIDED.estimates();

    fn start(&self, memory: &mut SophiaMemory, at: &InitContext<'_>) -> Result<()> {
        let leaves = at.structure().leaves().iter().zip(at.active());
        memory.elements = leaves.map(|(leaf, on)| if *on { leaf.len() } else { 0 }).collect();
        memory.updates = at.updates();
        Ok(())
    }

    fn decide(&self, memory: &mut SophiaMemory, at: &StepContext<'_>, _: f64) -> Decision {
        memory.clock = Clock::begin(&mut memory.count, &mut memory.updates, at);
        if self.is_due(memory) { Decision::Run } else { Decision::ArithmeticOnly }
    }
}

impl<H: GradientTransformation> Reducing for ScaleBySophia<H> {
    const SLOTS: &'static [Slot] = &[Slot::signed("mu"), Slot::signed("nu")];
    const PASSES: ReducingPasses = ReducingPasses::ONE
        .combines()
        .accesses([&[], &[Access::Write, Access::Read], &[]])
        .rare_accesses([&[], &[Access::Write; 2], &[]]);
    type Slots<C: Real> = [C; 2];
    type Accumulated<W: Real> = [W; 0];
    /// Number of unclipped elements.
    type Measured<W: Real> = [W; 1];
    type Scalars<C: Real> = SophiaScalars<C>;

    fn is_rare(&self, memory: &SophiaMemory) -> bool {
        self.is_due(memory)
    }

    fn scalars<C: Real>(&self, memory: &SophiaMemory, leaf: usize) -> SophiaScalars<C> {
        let clock = memory.clock.of_leaf(&memory.updates, leaf);
        let at = |h: &Hyperparam| h.at(clock.count);
        let b1 = at(&self.b1);
        SophiaScalars {
            mean1: Mean::of(b1),
            mean2: self.is_due(memory).then(|| Mean::of(at(&self.b2))),
            unbias: C::of(1.0 / clock.bias_correction(b1)),
            eps: C::of(at(&self.eps)),
            gamma: C::of(at(&self.gamma)),
            clip: C::of(self.clip_threshold.as_ref().map_or(f64::INFINITY, at)),
        }
    }

    #[inline(always)]
    fn accumulate<C: Real>(_: SophiaScalars<C>, _: &mut [C; 2], _: C, _: C) -> [C::Wide; 0] {
        []
    }

    /// Compares instead of `max`, which loses NaN.
    #[inline(always)]
    fn combine<C: Real>(k: SophiaScalars<C>, [m, h]: &mut [C; 2], diagonal: C, gradient: C) -> C {
        *m = k.mean1.with(*m, gradient);
        let scaled = k.gamma * *h;
        let divisor = if scaled < k.eps { k.eps } else { scaled };
        let d = k.unbias * *m / divisor;
        if let Some(mean2) = k.mean2 {
            *h = mean2.with(*h, diagonal);
        }
        let d = if d > k.clip { k.clip } else { d };
        if d < -k.clip { -k.clip } else { d }
    }

    #[inline(always)]
    fn measure<C: Real>(k: SophiaScalars<C>, u: C) -> [C::Wide; 1] {
        [if u.abs() < k.clip { C::Wide::of(1.0) } else { C::Wide::of(0.0) }]
    }

    fn reduced(&self, memory: &mut SophiaMemory, sums: Sums<'_>) {
        let seen = memory.elements.iter().enumerate().filter(|(leaf, _)| !sums.rests(*leaf));
        let elements: usize = seen.map(|(_, elements)| elements).sum();
        memory.win_rate.set(sums.total(0) / elements.max(1) as f64);
    }
}
