use crate::GradientTransformation;
use crate::part::Quantization;
use crate::part::prelude::*;
use crate::select::Mask;
use crate::state::{StateWalk, StateWalkMut};

/// Quantizes the inner state to 8 bits: blocks of 256 numbers, each with an `f32` scale.
///
/// Arithmetic is in `f32` as usual: the engine decodes state into L1, 1024 numbers at a time, and encodes it again, in
/// the pass that uses it. A part declares the [contents](crate::part::Slot) of each of its arrays. Exempt are:
///
/// * state that must not be quantized: parameter copies, accumulators that are emitted later, and all that is not an
///   array;
/// * arrays with an explicit dtype, as by [`mu_dtype`](crate::transform::ScaleByAdam::mu_dtype);
/// * the state of `f64` leaves, of leaves below [`min_elements`](Quantized::min_elements) and of those in
///   [`except`](Quantized::except);
/// * the memory of parts that see whole leaves, such as `soap`, `shampoo`, `lbfgs`, but for the means of
///   [`muon`](crate::muon()) and [`adam_mini`](crate::optimizer::adam_mini()).
///
/// [`schema`](crate::OptState::schema) shows the dtype of each array.
///
/// # Arithmetic
///
/// With `s` the absolute value of the largest finite number of a block, a code `k` represents
///
/// ```text
///                    of any sign (−127 ≤ k ≤ 127)    never negative (0 ≤ k ≤ 255)
/// root8, fourth_root8         s·k·|k|/127²                    s·(k/255)⁴
/// log8, unsigned_log8    s·2^((|k| − 127)/8)·sign k       s·2^((k − 255)/8)         0 for k = 0
/// ```
///
/// where the logarithms are spaced evenly in each octave. The default is roots, which are finest near the largest
/// number. [`logarithmic`](Quantized::logarithmic) codes have the same relative precision over 16 octaves (32 for
/// non-negative arrays), for blocks whose values differ by more than a hundredfold.
///
/// **Rounding** is stochastic: to one of the two adjacent codes, with probabilities in proportion to proximity, for
/// roots on the scale of the root. A step changes a second moment by about a thousandth, which rounding to nearest
/// would always undo; with stochastic rounding such changes accumulate. The random bits are the low bits of the number:
/// no seed is needed, results depend on neither threads nor SIMD levels, and representable numbers are exact. A
/// non-negative number becomes zero only if it is zero.
///
/// **Error.** Of a number `x` in a block with scale `s`, less than one step between codes: for roots `s·(2·√(|x|/s) +
/// 2/127)/127`, for fourth roots of at least `s/10⁴` the fraction `5/(255·(x/s)^¼)` of `x`, for logarithms an eighth of
/// `x`. In a running mean with decay `b` each error shrinks by the factor `b` per step, so that errors sum to at most
/// `1/(1 − b)` times the largest one; their signs are random, so that they amount to about `1/√(1 − b²)` times one.
/// [The guide](https://docs.rs/gradchain/latest/gradchain/_guide/few_bits/index.html) has measurements.
///
/// **Infinities and NaN** are kept, and affect no other number: the scale is the absolute value of the largest finite
/// one. In a block that contains them the two codes next to zero represent infinities and NaN.
///
/// **Loss of range** is the reading `floored`, for each array and leaf: the share of numbers with the code next to
/// zero, and of signed numbers also of zeros in a block with others.
///
/// # Cost
///
/// 1.016 bytes for each number of state: 2.03 per parameter of Adam, in place of 8. More arithmetic: if one thread has
/// the memory bandwidth to itself, a step takes longer than with state in `f32`; see [the
/// guide](https://docs.rs/gradchain/latest/gradchain/_guide/few_bits/index.html).
///
/// # Errors
///
/// `init` fails if the inner `init` fails. A step fails, before any change, if a leaf has
/// [row-sparse](crate::tree::SparseRows) gradients: a row may end within a block.
/// [`step_on`](https://docs.rs/gradchain/latest/gradchain/trait.GradientTransformation.html#method.step_on) is refused, because devices cannot read 8-bit state.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = quantized(adam(0.1));
/// let mut params = vec![1.0_f32; 4096];
/// let mut state = optimizer.init(&params)?;
/// for _ in 0..3 {
///     let gradient = params.clone();
///     optimizer.step(&mut params, &gradient, &mut state)?;
/// }
/// assert!(params.iter().all(|p| (0.69..0.72).contains(p)));
/// assert_eq!(state.schema().size().bytes(gradchain::state::Kind::Moment), 2 * (4096 + 4 * 16));
/// assert!(state.schema().to_string().contains("mu[]: moment root8 [4096]"));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Dettmers, Lewis, Shleifer and Zettlemoyer, [8-bit optimizers via block-wise
/// quantization](https://arxiv.org/abs/2110.02861), 2021, with codes from a table, rounded to nearest; Li, Chen and
/// Zhu, [Memory efficient optimizers with 4-bit states](https://arxiv.org/abs/2309.01507), 2023, on second moments that
/// become zero. Differs: computed codes, stochastic rounding, for any transformation. Optax has none. PyTorch has
/// `torchao`'s `AdamW8bit`, which exempts leaves below 4096 elements too, as bitsandbytes does; users of the latter
/// name embeddings by hand.
pub fn quantized<T: GradientTransformation>(inner: T) -> Quantized<T> {
    Quantized::with(inner)
}

wrapper! {
    /// See [`quantized`].
    pub Quantized<T> as "quantized" around inner: Around {
        /// Sets whether codes are logarithms in place of roots.
        logarithmic: bool = false;
        /// Sets the fewest elements of a quantized leaf; 4096 by default.
        min_elements: usize = 4096;
        /// Sets the leaves whose state is exempt; by default [embeddings, by their names](Mask::embeddings).
        ///
        /// `None` exempts no leaf.
        except: Option<Mask> = Some(Mask::embeddings());
    }
}

/// The state of a [`quantized`].
pub type QuantizedState<S> = WrapperState<ExemptLeaves, S>;

/// The leaves that the mask of a [`quantized`] exempts.
#[derive(Clone, Debug, Default)]
pub struct ExemptLeaves(Vec<bool>);

/// Not saved: the arrays' dtypes contain it.
impl State for ExemptLeaves {
    fn walk<'a>(&'a self, _: &mut StateWalk<'a, '_>) {}
    fn walk_mut<'a>(&'a mut self, _: &mut StateWalkMut<'a, '_>) {}
}

impl<T: GradientTransformation> Wrapper for Quantized<T> {
    type Memory = ExemptLeaves;
    const RUNS: Runs = Runs::ALWAYS;

    fn start(&self, memory: &mut ExemptLeaves, at: &InitContext<'_>) -> Result<()> {
        let what = format!("{}: except", Self::NAME);
        memory.0 = self.except.as_ref().map_or(Ok(Vec::new()), |except| except.resolve(at.structure(), &what))?;
        Ok(())
    }

    fn quantization<'a>(&self, memory: &'a ExemptLeaves) -> Option<Quantization<'a>> {
        let quantization = if self.logarithmic { Quantization::logarithms() } else { Quantization::roots() };
        Some(quantization.min_elements(self.min_elements).except(&memory.0))
    }

    fn check(&self, _: &ExemptLeaves, at: &StepContext<'_>) -> Result<()> {
        at.whole_leaves(Self::NAME)
    }
}
