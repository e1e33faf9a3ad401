use crate::GradientTransformation;
use crate::part::prelude::*;

/// Zeroes the elements of an optimizer's updates that disagree with the gradient, and enlarges the others.
///
/// Momentum can point against the current gradient. Elements of the update that disagree are set to zero; the sum of
/// the leaf's updates stays about as large. The inner state does not change.
///
/// # Arithmetic
///
/// With `g` the incoming gradient and `d` the inner update, for each leaf of `n` elements:
///
/// ```text
/// d ← 0                                   where −d·g ≤ 0: where d does not go against g
/// k = the number of elements of d that are left
/// u ← n / (k + xi)·d
/// ```
///
/// Updates of an optimizer are added to the parameters, so they go against the gradient. Those of a part, such as
/// [`scale_by_adam`](crate::scale_by_adam), are reversed later: for a part, set
/// [`against_gradient(false)`](Cautious::against_gradient). Inner weight decay is masked like the rest; in
/// [`cautious_adamw`](crate::optimizer::cautious_adamw()) it is outside, as in the paper.
///
/// # Cost
///
/// No state. One additional pass; the updates are stored before it if the inner transformation has state. Fuses with
/// the inner transformation, unless that has passes of its own: then it keeps a copy of the gradients, which is not
/// part of the state.
///
/// # Errors
///
/// `init` fails if `xi` is not positive and finite, or if the inner transformation is known to have the other direction
/// than `against_gradient` declares: all correct elements would be zeroed.
///
/// # Example
///
/// In the second step the momentum of the first element, 1, still points against its gradient, −0.5:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::wrapper::cautious;
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
/// code](https://arxiv.org/abs/2411.16085), 2024, equation 5 and algorithm 2. Optax has none. Differs: an element with
/// a zero gradient is zeroed, as in the authors' code, even if the product is rounded. That code divides by the share
/// of elements that are left, but at least 0.001, instead of by `(k + xi) / n`.
pub fn cautious<T: GradientTransformation>(inner: T) -> Cautious<T> {
    Cautious::with(inner)
}

wrapper! {
    /// See [`cautious`].
    pub Cautious<T> as "cautious" around inner: AroundWithReductions {
        /// Sets the term added to the number of elements that are left; positive.
        xi: Hyperparam in POSITIVE = 1.0;
        /// Sets whether the inner updates go against the gradient, as an optimizer's do, or along it, as a part's do.
        against_gradient: bool = true;
    }
    check Self::check_direction;
}

memory! {
    /// The memory of a [`cautious`].
    pub CautiousMemory {
        count: Count,
    }
    beside {
        xi: f64,
        factors: Vec<f64>,
    }
}

/// The state of a [`cautious`], with the inner state.
pub type CautiousState<S> = WrapperState<CautiousMemory, S>;

impl<T: GradientTransformation> Cautious<T> {
    fn check_direction(&self) -> Result<()> {
        let [expected, found] = match (self.against_gradient, self.inner.summary().sign()) {
            (true, Some(1.0)) => [
                "an optimizer, whose updates point against the gradient",
                "one whose updates point along the gradient; for a part set `against_gradient(false)`",
            ],
            (false, Some(-1.0)) => [
                "a part, whose updates point along the gradient",
                "one whose updates point against the gradient; for an optimizer set `against_gradient(true)`",
            ],
            _ => return Ok(()),
        };
        Err(Error::argument("cautious", "inner", expected, found))
    }
}

impl<T: GradientTransformation> Wrapper for Cautious<T> {
    const RUNS: Runs = Runs::ALWAYS;
    type Memory = CautiousMemory;

    fn start(&self, memory: &mut CautiousMemory, at: &InitContext<'_>) -> Result<()> {
        memory.factors = vec![1.0; at.structure().len()];
        Ok(())
    }

    fn decide(&self, memory: &mut CautiousMemory, _: &StepContext<'_>, _: f64) -> Decision {
        memory.xi = self.xi.at(memory.count.get());
        Decision::Run
    }

    fn finish(&self, memory: &mut CautiousMemory, _: Decision, inside: Option<Outcome>, _: &mut T::State) {
        if inside.is_some() {
            memory.count.increment();
        }
    }
}

impl<T: GradientTransformation> Reducing for Cautious<T> {
    const PASSES: ReducingPasses = ReducingPasses::TWO.combines().keeps_zeros();
    type Slots<C: Real> = [C; 0];
    type Accumulated<W: Real> = [W; 0];
    /// Elements left.
    type Measured<W: Real> = [W; 1];
    /// The sign that turns inner updates along the gradient, and the leaf's factor.
    type Scalars<C: Real> = [C; 2];

    fn scalars<C: Real>(&self, memory: &CautiousMemory, leaf: usize) -> [C; 2] {
        [if self.against_gradient { -C::one() } else { C::one() }, C::of(memory.factors[leaf])]
    }

    #[inline(always)]
    fn accumulate<C: Real>(_: [C; 2], _: &mut [C; 0], _: C, _: C) -> [C::Wide; 0] {
        []
    }

    /// Keeps NaN.
    #[inline(always)]
    fn combine<C: Real>([direction, _]: [C; 2], _: &mut [C; 0], update: C, gradient: C) -> C {
        let along = direction * update;
        let zero = C::zero();
        // Their product could underflow.
        let against = ((gradient >= zero) & (along <= zero)) | ((gradient <= zero) & (along >= zero));
        if against { zero } else { update }
    }

    #[inline(always)]
    fn measure<C: Real>(_: [C; 2], u: C) -> [C::Wide; 1] {
        [if u == C::zero() { C::Wide::of(0.0) } else { C::Wide::of(1.0) }]
    }

    fn reduced(&self, memory: &mut CautiousMemory, sums: Sums<'_>) {
        for (i, factor) in memory.factors.iter_mut().enumerate() {
            *factor = sums.leaf_len(i) as f64 / (sums.leaf(0, i) + memory.xi);
        }
    }

    #[inline(always)]
    fn emit<C: Real>([_, factor]: [C; 2], _: &mut [C; 0], u: C, _: C) -> C {
        u * factor
    }
}
