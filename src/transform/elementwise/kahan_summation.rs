use crate::DType;
use crate::internal::engine::{OneElementWithMemory, RuleWithMemory};
use crate::internal::numeric::Rounding;
use crate::part::prelude::*;
use gradchain_core::wrappers::LeafTypes;

/// Compensates for the rounding of parameters: Kahan summation.
///
/// It remembers the part of an update that rounding loses, and adds it to the next update.
///
/// It comes last in a chain, and is for 16-bit parameters, which lose any update below a five-hundredth of their size
/// (`bf16`). `f32` and `f64` parameters gain little.
///
/// # Arithmetic
///
/// With `compensation`, which starts at 0 and has the dtype of the leaf, as `p` has:
///
/// ```text
/// wanted = u + compensation
/// p' = p + wanted, rounded
/// compensation ← wanted − (p' − p), rounded
/// u ← p' − p
/// ```
///
/// The emitted update is rounded to the dtype of the leaf, as every update is. The compensation includes that loss.
///
/// **Parameters that are changed from outside** keep their compensation, which is at most half of the distance to the
/// next number.
///
/// # Cost
///
/// An array of the leaf's dtype: 2 bytes for each element of a 16-bit leaf. Fuses; 16-bit leaves run tile by tile.
/// Reads parameters.
///
/// # Errors
///
/// `init` fails if there is not enough memory.
///
/// # Example
///
/// ```
/// # #[cfg(feature = "half")] {
/// use gradchain::prelude::*;
/// use gradchain::transform::kahan_summation;
/// use half::bf16;
///
/// let optimizer = chain((sgd(1e-3), kahan_summation()));
/// let mut params = vec![bf16::ONE];
/// let mut state = optimizer.init(&params)?;
/// for _ in 0..100 {
///     optimizer.step(&mut params, &vec![bf16::ONE], &mut state)?;
/// }
/// assert_eq!(params, [bf16::from_f32(0.9)]); // it would have stayed at 1: the number below is 0.99609375
/// # }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Kahan, [Further remarks on reducing truncation errors](https://doi.org/10.1145/363707.363723), 1965; Zamirai and
/// others, [Revisiting BFloat16 training](https://arxiv.org/abs/2010.06192), 2020, section 3.2. Optax and `torch.optim`
/// have none; torchdistX's `AnyPrecisionAdamW` has it as `use_kahan_summation`. Differs: the sums are in `f32`, and
/// rounded to the leaf's dtype once.
pub fn kahan_summation() -> KahanSummation {
    KahanSummation::with()
}

part! {
    /// See [`kahan_summation`].
    pub KahanSummation as "kahan_summation": OneElementWithMemory, SAME_DIRECTION;
}

impl RuleWithMemory for KahanSummation {
    const SLOTS: &'static [Slot] = &[Slot::exact("compensation").of_leaf_dtype()];
    const READS_PARAMS: bool = true;
    const TYPED: bool = true;
    type Memory = LeafTypes;
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = Rounding;

    fn start(&self, at: &InitContext<'_>) -> Result<LeafTypes> {
        Ok(LeafTypes::of(at))
    }

    fn scalars<C: Real>(&self, memory: &LeafTypes, leaf: usize) -> Rounding {
        memory.rounding(leaf)
    }

    #[inline(always)]
    fn typed<C: Real>(to: Rounding, dtype: DType) -> Rounding {
        to.known(dtype)
    }

    #[inline(always)]
    fn apply<C: Real>(to: Rounding, [compensation]: &mut [C; 1], u: C, p: C, _: &mut [u32]) -> C {
        let wanted = u + *compensation;
        let update = ((p + wanted).rounded(to) - p).rounded(to);
        *compensation = wanted - ((p + update).rounded(to) - p);
        update
    }
}
