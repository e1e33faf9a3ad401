use crate::engine::Codes;
use crate::part::prelude::*;
use crate::select::Mask;
use crate::state::{StateWalk, StateWalkMut};

/// Keeps the state of what is inside in 8 bits: blocks of 256 numbers, each with a scale in `f32`.
///
/// Arithmetic is done in `f32` as ever: the engine brings state into the first-level cache, 1024 numbers at a time, and
/// writes it back as codes, in the pass in which it is used. A part says of each of its arrays what it
/// [holds](crate::part::Slot). Left as they are:
///
/// * numbers of which every bit counts: copies of parameters, sums that wait to be given out, and all that is no array;
/// * arrays for which a type was asked, as by [`mu_dtype`](crate::transform::ScaleByAdam::mu_dtype);
/// * the state of `f64` leaves, of leaves below [`min_elements`](Quantized::min_elements) and of those in
///   [`except`](Quantized::except);
/// * the memory of parts that look at whole leaves, such as `soap`, `shampoo`, [`lbfgs`](crate::lbfgs()), but for the
///   means of [`muon`](crate::muon()) and [`adam_mini`](crate::optimizer::adam_mini()).
///
/// [`schema`](crate::OptState::schema) shows which type each array has.
///
/// # Arithmetic
///
/// With `s` the size of the largest finite number of a block, a code `k` stands for
///
/// ```text
///                    of any sign (−127 ≤ k ≤ 127)    never negative (0 ≤ k ≤ 255)
/// root8, fourth_root8         s·k·|k|/127²                    s·(k/255)⁴
/// log8, unsigned_log8    s·2^((|k| − 127)/8)·sign k       s·2^((k − 255)/8)         0 for k = 0
/// ```
///
/// where the logarithm goes evenly through each octave. The default are the roots, which are finest near the largest
/// number. [`logarithmic`](Quantized::logarithmic) codes are as fine everywhere, 16 octaves down (32 where there is no
/// sign): for blocks in which sizes differ by more than a hundredfold.
///
/// **Rounding** goes to one of the two codes next to a number, with chances in proportion to how near they are: of
/// roots in the root. A step moves a second moment by about a thousandth, which rounding to the nearest code would take
/// back, always; so such changes add up. The chances are drawn from the last bits of the number: no key is needed,
/// threads and instruction sets make no difference, and what a code says exactly stays. What is never negative becomes
/// zero only if it is zero.
///
/// **Error.** Of a number `x` in a block with scale `s`, less than one step between codes: for roots `s·(2·√(|x|/s) +
/// 2/127)/127`, for fourth roots of at least `s/10⁴` a part `5/(255·(x/s)^¼)` of `x`, for logarithms an eighth of `x`.
/// In a running mean with decay `b` each error is `b` times as large a step later, so that they sum up to at most `1/(1
/// − b)` of the largest one; signs are by chance, so that they come to about `1/√(1 − b²)` of one. [The
/// guide](https://docs.rs/gradchain/latest/gradchain/_guide/few_bits/index.html) has what is measured.
///
/// **What is not finite** stays so, and harms no other number: the scale is the size of the largest finite one. In such
/// a block the two codes next to zero stand for infinities and NaN.
///
/// **Loss of range** is read as `floored`, for each array and leaf: the share of numbers with the code next to zero,
/// and of signed ones those that are zero in a block with others.
///
/// # Cost
///
/// 1.016 bytes for each number of state: 2.03 for each parameter of Adam, in the place of 8. More arithmetic: where one
/// thread alone has the memory to itself a step takes longer than with state in `f32`; see
/// [the guide](https://docs.rs/gradchain/latest/gradchain/_guide/few_bits/index.html).
///
/// # Errors
///
/// `init` fails if what is inside refuses. A step fails, before anything is changed, if the gradient of a leaf is of
/// [some rows](crate::tree::SparseRows): a row may end within a block.
/// [`step_on`](crate::GradientTransformation::step_on) is refused, since machines do not read the codes.
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
/// quantization](https://arxiv.org/abs/2110.02861), 2021, whose codes are from a table, rounded to the nearest; Li,
/// Chen and Zhu, [Memory efficient optimizers with 4-bit states](https://arxiv.org/abs/2309.01507), 2023, of second
/// moments that become zero. Differs: codes that are worked out, rounded by chance, for any transformation. Optax has
/// none; PyTorch has `torchao`'s `AdamW8bit`, which keeps leaves below 4096 elements too, as bitsandbytes does, whose
/// users name embeddings by hand.
pub fn quantized<T: Stage>(inner: T) -> Quantized<T> {
    Quantized::with(inner)
}

wrapper! {
    /// See [`quantized`].
    pub Quantized<T> as "quantized" around inner: Around {
        /// Sets whether codes are logarithms in place of roots.
        logarithmic: bool = false;
        /// Sets the fewest elements that a leaf must have: the state of smaller ones stays as it is. 4096 by default.
        min_elements: usize = 4096;
        /// Sets the leaves whose state stays as it is; by default [embeddings, by their names](Mask::embeddings);
        /// `None` for no leaf.
        except: Option<Mask> = Some(Mask::embeddings());
    }
}

/// The state of a [`quantized`].
pub type QuantizedState<S> = WrapperState<Exceptions, S>;

/// The leaves whose state a [`quantized`] leaves as it is by its mask.
#[derive(Clone, Debug, Default)]
pub struct Exceptions(Vec<bool>);

/// The types of the arrays say what follows from them.
impl State for Exceptions {
    fn walk<'a>(&'a self, _: &mut StateWalk<'a, '_>) {}
    fn walk_mut<'a>(&'a mut self, _: &mut StateWalkMut<'a, '_>) {}
}

impl<T: Stage> Wrapper for Quantized<T> {
    type Memory = Exceptions;
    const RUNS: Runs = Runs::ALWAYS;

    fn start(&self, memory: &mut Exceptions, at: &InitContext<'_>) -> Result<()> {
        let what = format!("{}: except", Self::NAME);
        memory.0 = self.except.as_ref().map_or(Ok(Vec::new()), |except| except.resolve(at.structure(), &what))?;
        Ok(())
    }

    fn codes<'a>(&self, memory: &'a Exceptions) -> Option<Codes<'a>> {
        let codes = if self.logarithmic { Codes::logarithms() } else { Codes::roots() };
        Some(codes.min_elements(self.min_elements).except(&memory.0))
    }

    fn check(&self, _: &Exceptions, at: &StepContext<'_>) -> Result<()> {
        at.whole_leaves(Self::NAME)
    }
}
