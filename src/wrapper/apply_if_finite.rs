use crate::GradientTransformation;
use crate::part::prelude::*;

/// Runs a transformation only if all gradients are finite; otherwise the update is zero.
///
/// The inner state is then unmodified, and neither later members of a chain nor wrappers run in such a step.
///
/// It checks the gradients, not the update, which can be infinite for a finite gradient. To check the updates as well,
/// put a second one, around `identity`, after the optimizer: `chain((optimizer, apply_if_finite(identity(), n)))`
/// leaves parameters unmodified if an update is not finite in the compute type. The state of the optimizer then
/// includes the step.
///
/// After more than `max_consecutive_errors` such steps in a row it lets them through, so that a run that cannot recover
/// becomes visible.
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
/// One additional pass, which reads the gradients.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::identity;
///
/// let optimizer = apply_if_finite(sgd(0.5), 2);
/// let mut params = 1.0_f32;
/// let mut state = optimizer.init(&params)?;
/// let outcome = optimizer.step(&mut params, &f32::NAN, &mut state)?;
/// assert!(outcome.skipped() && params == 1.0);
/// optimizer.step(&mut params, &1.0_f32, &mut state)?;
/// assert_eq!(params, 0.5);
/// assert_eq!(state.total_notfinite().get(), 1);
///
/// let optimizer = chain((sgd(1e10), apply_if_finite(identity(), 2)));
/// let mut state = optimizer.init(&params)?;
/// assert!(optimizer.step(&mut params, &1e30_f32, &mut state)?.skipped());
/// assert_eq!(params, 0.5);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`apply_if_finite`](https://optax.readthedocs.io/en/latest/api/optimizer_wrappers.html). Differs: neither the
/// inner transformation nor later members run in a step whose gradients are discarded; Optax runs them on these or on
/// zeros.
pub fn apply_if_finite<T: GradientTransformation>(inner: T, max_consecutive_errors: u32) -> ApplyIfFinite<T> {
    ApplyIfFinite::with(inner, max_consecutive_errors)
}

wrapper! {
    /// See [`apply_if_finite`].
    pub ApplyIfFinite<T> as "apply_if_finite" around inner: Around {
        max_consecutive_errors: u32;
    }
    shows "{}": max_consecutive_errors;
}

/// The state of an [`apply_if_finite`].
pub type ApplyIfFiniteState<S> = WrapperState<ApplyIfFiniteMemory, S>;

memory! {
    /// The memory of an [`apply_if_finite`], besides the inner state.
    pub ApplyIfFiniteMemory {
        notfinite_count: Count,
        last_finite: Flag = Flag::new(true),
        total_notfinite: Count,
    }
}

impl ApplyIfFiniteMemory {
    /// Returns the number of steps in a row, up to the last, whose gradients were not finite.
    pub fn notfinite_count(&self) -> Count {
        self.notfinite_count
    }

    /// Returns whether the last gradients were finite.
    pub fn last_finite(&self) -> Flag {
        self.last_finite
    }

    /// Returns the number of steps whose gradients were not finite.
    pub fn total_notfinite(&self) -> Count {
        self.total_notfinite
    }
}

impl<T: GradientTransformation> Wrapper for ApplyIfFinite<T> {
    type Memory = ApplyIfFiniteMemory;
    const RUNS: Runs = Runs::DECIDED.reduces_gradients(true).holds_back(true);

    #[inline(always)]
    fn gradient_term<C: Real>(u: C) -> C::Wide {
        let is_finite = u.abs() < C::infinity();
        <C::Wide as Real>::of(if is_finite { 0.0 } else { 1.0 })
    }

    fn decide(&self, memory: &mut ApplyIfFiniteMemory, _: &StepContext<'_>, not_finite: f64) -> Decision {
        memory.last_finite.set(not_finite == 0.0);
        if not_finite == 0.0 {
            memory.notfinite_count.reset();
            return Decision::Run;
        }
        memory.notfinite_count.increment();
        memory.total_notfinite.increment();
        let gives_up = memory.notfinite_count.get() > u64::from(self.max_consecutive_errors);
        if gives_up { Decision::Run } else { Decision::Skip }
    }
}
