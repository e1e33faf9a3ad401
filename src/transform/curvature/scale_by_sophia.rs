use crate::arguments::{Argument, Arguments};
use crate::element::{DType, Real};
use crate::engine::{
    Clock, InitContext, Nested, Outcome, Place, Shape, SlotsWriter, Span, Stage, StepContext, Sums, Tile, WholeTree,
    slots_write,
};
use crate::error::{Error, Result};
use crate::needs::Level;
use crate::recipe::{Recipe, ToRecipe};
use crate::schedule::Hyperparam;
use crate::state::{Count, Moments, Scalar, State, state_fields};

/// Divides a running mean of the updates by a running mean of the Hessian's diagonal, and clips the quotient.
///
/// The diagonal is what `hessian_diagonal_fn`, a transformation, makes of the updates every `update_interval` steps, such as
/// a [`hutchinson_estimator_diag_hessian`](crate::hutchinson_estimator_diag_hessian); what that needs is then needed here.
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
/// Two floats of state for each parameter, and room for one more. Updates are stored in memory for the estimate; every
/// `update_interval` steps that is made.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1)`, `eps`, `gamma` or `clip_threshold` is negative or NaN, or
/// `update_interval` is 0.
///
/// # Example
///
/// Where nothing is known of the Hessian, or it is negative, the step is the sign of the mean; else Newton's:
///
/// ```
/// use gradchain::prelude::*;
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
/// [`contrib.sophia`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: the share of elements that are not
/// clipped is in the state instead of being printed. Differs from the paper, as Optax: there the estimate is used in the step
/// that makes it.
pub fn scale_by_sophia<H: Stage>(hessian_diagonal_fn: H) -> ScaleBySophia<H> {
    ScaleBySophia {
        b1: 0.965.into(),
        b2: 0.99.into(),
        eps: 1e-8.into(),
        gamma: 0.01.into(),
        clip_threshold: Some(1.0.into()),
        update_interval: 10,
        mu_dtype: None,
        hessian_diagonal_fn,
    }
}

/// See [`scale_by_sophia`].
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct ScaleBySophia<H> {
    /// Decay of the mean of the updates, in `[0, 1)`.
    pub b1: Hyperparam,
    /// Decay of the mean of the diagonals, in `[0, 1)`.
    pub b2: Hyperparam,
    /// The least that is divided by; not negative.
    pub eps: Hyperparam,
    /// What the mean of the diagonals is multiplied by; not negative.
    pub gamma: Hyperparam,
    /// The largest update, if there is one; not negative.
    pub clip_threshold: Option<Hyperparam>,
    /// Every how many steps the diagonal is estimated; at least 1.
    pub update_interval: u64,
    /// Type of the mean of the updates; by default the one that arithmetic is done in.
    pub mu_dtype: Option<DType>,
    /// What makes the diagonal of the updates.
    pub hessian_diagonal_fn: H,
}

impl<H> ScaleBySophia<H> {
    /// Sets [`b1`](struct@ScaleBySophia).
    pub fn b1(mut self, b1: impl Into<Hyperparam>) -> Self {
        self.b1 = b1.into();
        self
    }

    /// Sets [`b2`](struct@ScaleBySophia).
    pub fn b2(mut self, b2: impl Into<Hyperparam>) -> Self {
        self.b2 = b2.into();
        self
    }

    /// Sets [`eps`](struct@ScaleBySophia).
    pub fn eps(mut self, eps: impl Into<Hyperparam>) -> Self {
        self.eps = eps.into();
        self
    }

    /// Sets [`gamma`](struct@ScaleBySophia).
    pub fn gamma(mut self, gamma: impl Into<Hyperparam>) -> Self {
        self.gamma = gamma.into();
        self
    }

    /// Sets [`clip_threshold`](struct@ScaleBySophia).
    pub fn clip_threshold(mut self, clip_threshold: impl Into<Hyperparam>) -> Self {
        self.clip_threshold = Some(clip_threshold.into());
        self
    }

    /// Does not clip.
    pub fn without_clipping(mut self) -> Self {
        self.clip_threshold = None;
        self
    }

    /// Sets [`update_interval`](struct@ScaleBySophia).
    pub fn update_interval(mut self, update_interval: u64) -> Self {
        self.update_interval = update_interval;
        self
    }

    /// Sets [`mu_dtype`](struct@ScaleBySophia).
    pub fn mu_dtype(mut self, mu_dtype: impl Into<Option<DType>>) -> Self {
        self.mu_dtype = mu_dtype.into();
        self
    }
}

impl<H: Stage> Arguments for ScaleBySophia<H> {
    const NAME: &'static str = "scale_by_sophia";

    fn arguments(&mut self, visit: &mut dyn FnMut(&'static str, Argument<'_>)) {
        visit("b1", Argument::Hyperparam(&mut self.b1));
        visit("b2", Argument::Hyperparam(&mut self.b2));
        visit("eps", Argument::Hyperparam(&mut self.eps));
        visit("gamma", Argument::Hyperparam(&mut self.gamma));
        match &mut self.clip_threshold {
            Some(clip) => visit("clip_threshold", Argument::Hyperparam(clip)),
            None => visit("clip_threshold", Argument::Static(&Recipe::Null)),
        }
        visit("update_interval", Argument::Static(&self.update_interval));
        visit("hessian_diagonal_fn", Argument::Static(&self.hessian_diagonal_fn.recipe()));
        visit("mu_dtype", Argument::Static(&self.mu_dtype));
    }
}

/// What [`scale_by_sophia`] remembers.
#[derive(Clone, Debug)]
pub struct ScaleBySophiaState<H> {
    count: Count,
    mu: Moments,
    nu: Moments,
    win_rate: Scalar,
    hessian_fn_state: H,
    nested: Nested,
    /// The diagonal, in steps that estimate it.
    diagonal: Moments,
    elements: usize,
}

impl<H> ScaleBySophiaState<H> {
    /// The mean of the updates.
    pub fn mu(&self) -> &Moments {
        &self.mu
    }

    /// The mean of the diagonals.
    pub fn nu(&self) -> &Moments {
        &self.nu
    }

    /// Which part of the elements was not clipped in the last step. The authors would see it between 0.1 and 0.5; a larger
    /// `gamma` makes it larger.
    pub fn win_rate(&self) -> f64 {
        self.win_rate.get()
    }

    /// The state of what estimates the diagonal.
    pub fn hessian_fn_state(&self) -> &H {
        &self.hessian_fn_state
    }
}

state_fields!(ScaleBySophiaState<H: State> { count, mu, nu, win_rate, hessian_fn_state } knows { nested });

/// What [`ScaleBySophia`] works out once a step.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct SophiaRun {
    b1: f64,
    b2: f64,
    unbias: f64,
    eps: f64,
    gamma: f64,
    clip: f64,
    /// Whether the diagonal is estimated in this step.
    due: bool,
}

/// The arithmetic of one tile.
#[derive(Clone, Copy)]
struct Scale<C> {
    keep1: C,
    take1: C,
    keep2: C,
    take2: C,
    unbias: C,
    eps: C,
    gamma: C,
    clip: C,
}

impl<C: Real> Scale<C> {
    fn of(k: &SophiaRun) -> Scale<C> {
        Scale {
            keep1: C::of(k.b1),
            take1: C::of(1.0 - k.b1),
            keep2: C::of(k.b2),
            take2: C::of(1.0 - k.b2),
            unbias: C::of(k.unbias),
            eps: C::of(k.eps),
            gamma: C::of(k.gamma),
            clip: C::of(k.clip),
        }
    }

    /// The update, and whether it was not clipped. Written with comparisons instead of `max`, which loses a NaN.
    #[inline(always)]
    fn next(self, u: C, m: &mut C, h: C) -> (C, u32) {
        *m = self.keep1 * *m + self.take1 * u;
        let scaled = self.gamma * h;
        let divisor = if scaled < self.eps { self.eps } else { scaled };
        let d = self.unbias * *m / divisor;
        let inside = u32::from(d.abs() < self.clip);
        let d = if d > self.clip { self.clip } else { d };
        (if d < -self.clip { -self.clip } else { d }, inside)
    }
}

impl<C: Real> SlotsWriter<C, 2> for Scale<C> {
    #[inline(always)]
    fn write(&self, u: &mut [C], _: &[C], [m, h]: [&mut [C]; 2], sums: &mut [f64]) {
        let mut inside = 0;
        for ((u, m), h) in u.iter_mut().zip(m).zip(h) {
            let (d, counts) = self.next(*u, m, *h);
            *u = d;
            inside += counts;
        }
        sums[0] += f64::from(inside);
    }
}

impl<C: Real> SlotsWriter<C, 3> for Scale<C> {
    #[inline(always)]
    fn write(&self, u: &mut [C], _: &[C], [m, h, diagonal]: [&mut [C]; 3], sums: &mut [f64]) {
        let mut inside = 0;
        for (((u, m), h), diagonal) in u.iter_mut().zip(m).zip(h).zip(diagonal) {
            let (d, counts) = self.next(*u, m, *h);
            *u = d;
            *h = self.keep2 * *h + self.take2 * *diagonal;
            inside += counts;
        }
        sums[0] += f64::from(inside);
    }
}

const STORE: Shape = Shape { barriers: 1, stateful: 0, reads_params: 1, materializes: 1, sums: 0 };

impl<H: Stage> Stage for ScaleBySophia<H> {
    type Needs = H::Needs;
    type State = ScaleBySophiaState<H::State>;
    type Run = SophiaRun;
    type Kernel<C: Real> = ();

    const SHAPE: Shape = STORE.then(Shape { sums: 1, ..Shape::elementwise(true, false) });
    const FUSES: bool = false;

    fn needs(&self) -> Level {
        self.hessian_diagonal_fn.needs()
    }

    fn validate(&self) -> Result<()> {
        let name = <Self as Arguments>::NAME;
        for (argument, beta) in [("b1", &self.b1), ("b2", &self.b2)] {
            beta.validate(name, argument, "in [0, 1)", |x| (0.0..1.0).contains(&x))?;
        }
        let others =
            [("eps", Some(&self.eps)), ("gamma", Some(&self.gamma)), ("clip_threshold", self.clip_threshold.as_ref())];
        for (argument, value) in others {
            value.map_or(Ok(()), |value| value.validate(name, argument, "not negative", |x| x >= 0.0))?;
        }
        if self.update_interval == 0 {
            return Err(Error::argument(name, "update_interval", "at least 1", 0));
        }
        self.hessian_diagonal_fn.validate()
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        let mut nested = Nested::new(at.structure(), at.active(), self.hessian_diagonal_fn.shape());
        let leaves = at.structure().leaves().iter().zip(at.active());
        Ok(ScaleBySophiaState {
            count: Count::default(),
            mu: at.moments_of(self.mu_dtype)?,
            nu: at.moments()?,
            win_rate: Scalar::default(),
            hessian_fn_state: nested.init(&self.hessian_diagonal_fn, &at.params_as_moments()?)?,
            nested,
            diagonal: at.moments()?,
            elements: leaves.map(|(leaf, on)| if *on { leaf.len() } else { 0 }).sum(),
        })
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        state.nested.check(&self.hessian_diagonal_fn, &state.hessian_fn_state, at)
    }

    fn begin(&self, state: &mut Self::State, _: &StepContext<'_>) -> SophiaRun {
        let clock = Clock::after(state.count.get());
        state.count.increment();
        let at = |h: &Hyperparam| h.at(clock.count);
        let b1 = at(&self.b1);
        SophiaRun {
            b1,
            b2: at(&self.b2),
            unbias: 1.0 / clock.bias_correction(b1),
            eps: at(&self.eps),
            gamma: at(&self.gamma),
            clip: self.clip_threshold.as_ref().map_or(f64::INFINITY, at),
            due: clock.count.is_multiple_of(self.update_interval),
        }
    }

    fn barrier(
        &self,
        state: &mut Self::State,
        run: &mut SophiaRun,
        at: &StepContext<'_>,
        _: usize,
        _: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        if run.due {
            let ScaleBySophiaState { nested, hessian_fn_state, diagonal, .. } = state;
            nested.run_beside(&self.hessian_diagonal_fn, hessian_fn_state, at, tree, diagonal);
        }
    }

    fn finish(&self, state: &mut Self::State, _: SophiaRun, sums: Sums<'_>, outcome: &mut Outcome) {
        outcome.emitted = true;
        state.win_rate.set(sums.total(0) / state.elements.max(1) as f64);
    }

    fn tile<C: Real>(&self, state: &Self::State, run: &SophiaRun, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        let inside = place.after(STORE);
        if !span.has(inside.at) {
            return;
        }
        let scale = Scale::<C>::of(run);
        match run.due {
            false => slots_write([&state.mu, &state.nu], inside.sum, tile, &scale),
            true => slots_write([&state.mu, &state.nu, &state.diagonal], inside.sum, tile, &scale),
        }
    }

    fn kernel<C: Real>(&self, _: &Self::State, _: &SophiaRun, _: usize) {}

    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        let each = |m: &Moments| m.dtype(leaf).map_or(0, |dtype| dtype.size());
        if span.has(at + 1) { 2 * each(&state.mu) + each(&state.nu) } else { 0 }
    }

    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str)) {
        self.hessian_diagonal_fn.unused(&state.hessian_fn_state, report);
    }

    fn recipe(&self) -> Recipe {
        let hyperparam = |h: &Hyperparam| h.to_recipe();
        Recipe::call(
            <Self as Arguments>::NAME,
            [
                ("b1", hyperparam(&self.b1)),
                ("b2", hyperparam(&self.b2)),
                ("eps", hyperparam(&self.eps)),
                ("gamma", hyperparam(&self.gamma)),
                ("clip_threshold", self.clip_threshold.to_recipe()),
                ("update_interval", self.update_interval.to_recipe()),
                ("hessian_diagonal_fn", self.hessian_diagonal_fn.recipe()),
                ("mu_dtype", self.mu_dtype.to_recipe()),
            ],
        )
    }

    fn describe(&self) -> String {
        format!("scale_by_sophia({})", self.hessian_diagonal_fn.describe())
    }
}
