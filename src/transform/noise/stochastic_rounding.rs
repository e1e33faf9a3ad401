use super::draws::{Draws, Numbers};
use crate::internal::engine::{LeafSlice, OneElementWithMemory, RuleWithMemory};
#[cfg(feature = "half")]
use crate::internal::numeric::HalfFloat;
use crate::internal::numeric::{WORDS, word, words};
use crate::part::prelude::*;

/// Rounds 16-bit parameters stochastically when updates are added, so that rounding leaves their mean unchanged.
///
/// It comes last in a chain: an update too small to move a `bf16` or `f16` to the next number moves it there
/// occasionally. Leaves of other dtypes pass unchanged.
///
/// # Arithmetic
///
/// For each element of a 16-bit leaf, where `t` lies between the neighbours `a` and `b` among the numbers of its dtype:
///
/// ```text
/// t = p + u                                 in f32
/// t ← b with probability (t − a)/(b − a), else a
/// u ← t − p
/// ```
///
/// The mean of `p` after the step is `p + u`, as computed in `f32`, if `|u| ≤ |p|` or `p` is 0. The emitted update is
/// rounded to the dtype of the leaf, as every update is. For larger updates, if that rounding would move the sum, `u`
/// is rounded stochastically instead, or the mean is off by at most half of the distance of two neighbours. Values too
/// large for the dtype become infinite, as with rounding to nearest.
///
/// The choice is a function of the seed, the step, the leaf's path, and the element's place in row-major order alone:
/// it is the same for every number of threads, memory layout and CPU, and after a run is resumed.
///
/// # Cost
///
/// No state for elements. 16-bit leaves do not fuse into one loop, since numbers are drawn for a chunk at a time; the
/// others do. Reads parameters.
///
/// # Errors
///
/// None of its own.
///
/// # Example
///
/// ```
/// # #[cfg(feature = "half")] {
/// use gradchain::prelude::*;
/// use gradchain::transform::stochastic_rounding;
/// use half::bf16;
///
/// let optimizer = chain((sgd(1e-3), stochastic_rounding(7)));
/// let mut params = vec![bf16::ONE; 4096];
/// let mut state = optimizer.init(&params)?;
/// for _ in 0..10 {
///     optimizer.step(&mut params, &vec![bf16::ONE; 4096], &mut state)?;
/// }
/// // To nearest, none would have moved: the number below 1 is 0.99609375.
/// let mean = params.iter().map(|p| p.to_f64()).sum::<f64>() / 4096.0;
/// assert!((mean - 0.99).abs() < 5e-4);
/// # }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Zamirai and others, [Revisiting BFloat16 training](https://arxiv.org/abs/2010.06192), 2020, section 3.2; Gupta and
/// others, [Deep learning with limited numerical precision](https://arxiv.org/abs/1502.02551), 2015. Optax and
/// `torch.optim` have none; torchao's optimizers have it as `bf16_stochastic_round`. Differs: `f16` too, and random
/// numbers by counter.
pub fn stochastic_rounding(seed: u64) -> StochasticRounding {
    StochasticRounding::with(seed)
}

part! {
    /// See [`stochastic_rounding`].
    pub StochasticRounding as "stochastic_rounding": OneElementWithMemory, SAME_DIRECTION;
    given {
        /// Seed of the random numbers.
        seed: u64;
    }
}

struct Word;

impl Numbers<WORDS> for Word {
    type Number = u16;
    #[inline(always)]
    fn one(element: u64, key: [u32; 2]) -> u16 {
        word(element, key)
    }
    #[inline(always)]
    fn blocks(first: u64, key: [u32; 2], to: &mut [[u16; WORDS]]) {
        words(first, key, to);
    }
}

impl RuleWithMemory for StochasticRounding {
    const USES_SLICES: bool = true;
    const READS_PARAMS: bool = true;
    type Memory = Draws;
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = ();

    fn start(&self, at: &InitContext<'_>) -> Result<Draws> {
        Ok(Draws::new(self.seed, at))
    }

    fn begin(&self, memory: &mut Draws, _: &StepContext<'_>) {
        memory.begin();
    }

    fn scalars<C: Real>(&self, _: &Draws, _: usize) {}

    // 16-bit leaves have their own loop.
    #[inline(always)]
    fn apply<C: Real>((): (), _: &mut [C; 0], u: C, _: C, _: &mut [u32]) -> C {
        u
    }

    fn uses_slices(&self, memory: &Draws, leaf: usize) -> bool {
        memory.dtype(leaf) != memory.dtype(leaf).compute()
    }

    #[inline(always)]
    fn apply_slice<C: Real>(&self, memory: &Draws, (): (), []: [&mut [C]; 0], at: LeafSlice<'_, C>) {
        let LeafSlice { leaf, start, u, p, .. } = at;
        let (key, mut scratch) = (memory.key(leaf), [0; WORDS]);
        for (i, u) in u.chunks_mut(WORDS).enumerate() {
            let (n, first) = (u.len(), i * WORDS);
            let (scratch, p) = (&mut scratch[..n], &p[first..first + n]);
            memory.fill::<Word, _>((leaf, key), start + first, scratch);
            #[cfg(feature = "half")]
            match memory.dtype(leaf) {
                DType::Bf16 => add_stochastic::<half::bf16, C>(u, p, scratch),
                _ => add_stochastic::<half::f16, C>(u, p, scratch),
            }
            #[cfg(not(feature = "half"))]
            let _ = (p, u);
        }
    }
}

#[cfg(feature = "half")]
#[inline(always)]
fn add_stochastic<H: HalfFloat, C: Real>(u: &mut [C], p: &[C], words: &[u16]) {
    let (p, words) = (&p[..u.len()], &words[..u.len()]);
    for i in 0..u.len() {
        u[i] = stochastic::<H, C>(u[i], p[i], words[i]);
    }
}

/// Returns the update to a stochastically rounded sum, computed in `f32` for 16-bit leaves.
#[cfg(feature = "half")]
#[inline(always)]
fn stochastic<H: HalfFloat, C: Real>(u: C, p: C, word: u16) -> C {
    let [u, p] = [u.as_f64() as f32, p.as_f64() as f32];
    let t = p + u;
    // A sum smaller than both terms is a multiple of their common unit, so that the sum with a rounded update is exact;
    // the step to a rounded sum might not be an update of that dtype.
    let shrinks = t.abs() < u.abs() && t.abs() < p.abs();
    let rounded = H::stochastic(if shrinks { u } else { t }, word);
    C::of(f64::from(if shrinks || !rounded.is_finite() { rounded } else { rounded - p }))
}
