use core::ops::{Deref, DerefMut};

use super::draws::{Draws, Numbers};
use crate::internal::engine::{LeafSlice, OneElementWithMemory, RuleWithMemory};
use crate::internal::numeric::{BATCH, BLOCK, Normal};
use crate::part::prelude::*;
use crate::state::{StateWalk, StateWalkMut};

/// Adds Gaussian noise whose variance decays with the steps.
///
/// # Arithmetic
///
/// At step `t`, counted from 1:
///
/// ```text
/// u ← u + √(eta / t^gamma)·N(0, 1)
/// ```
///
/// Each number is a function of the seed, the step, the leaf's path, and the element's place in row-major order alone:
/// it is the same for every number of threads, memory layout and CPU, and does not depend on the other leaves. Numbers
/// are drawn in the compute type: for leaves of `f64` from 64 random bits each, with magnitudes up to 8.5; for others
/// in `f32` from 32 bits, up to 6.6.
///
/// # Cost
///
/// No state for elements. Does not fuse into one loop, since numbers are drawn for a chunk at a time; reads no
/// parameters.
///
/// # Errors
///
/// `init` fails if `eta` is negative, or `eta` or `gamma` is not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::add_noise;
///
/// let optimizer = add_noise(0.25, 0.0, 42);
/// let params = vec![0.0_f64; 10_000];
/// let updates = optimizer.update(&params, &mut optimizer.init(&params)?, &params)?;
/// let noise = updates.to_vec::<f64>("").unwrap();
/// let variance = noise.iter().map(|x| x * x).sum::<f64>() / 1e4;
/// assert!((variance - 0.25).abs() < 0.02);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Neelakantan et al., [Adding gradient noise improves learning for very deep
/// networks](https://arxiv.org/abs/1511.06807), 2015; Salmon et al., [Parallel random numbers: as easy as 1, 2,
/// 3](https://doi.org/10.1145/2063384.2063405), 2011, for Philox4x32-10; Box and Muller, A note on the generation of
/// random normal deviates, 1958. Optax, [`add_noise`](https://optax.readthedocs.io/en/latest/api/transformations.html).
/// Differs: other random numbers; the seed must be given.
pub fn add_noise(eta: impl IntoHyperparam, gamma: impl IntoHyperparam, seed: u64) -> AddNoise {
    AddNoise::with(eta, gamma, seed)
}

part! {
    /// See [`add_noise`].
    pub AddNoise as "add_noise": OneElementWithMemory, SAME_DIRECTION;
    required {
        /// The variance at the first step.
        eta: NOT_NEGATIVE;
        /// Exponent of the decay of the variance.
        gamma: FINITE;
    }
    given {
        /// Seed of the random numbers.
        seed: u64;
    }
}

/// The state of [`add_noise`]: the step count and the seed.
#[derive(Clone, Debug)]
pub struct AddNoiseState {
    draws: Draws,
    /// The standard deviation in this step.
    deviation: f64,
}

impl State for AddNoiseState {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        self.draws.walk(walk);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        self.draws.walk_mut(walk);
    }
}

impl Deref for AddNoiseState {
    type Target = Draws;
    fn deref(&self) -> &Draws {
        &self.draws
    }
}

impl DerefMut for AddNoiseState {
    fn deref_mut(&mut self) -> &mut Draws {
        &mut self.draws
    }
}

impl<X: Normal> Numbers<BLOCK> for X {
    type Number = X;
    #[inline(always)]
    fn one(element: u64, key: [u32; 2]) -> X {
        X::normal(element, key)
    }
    #[inline(always)]
    fn blocks(first: u64, key: [u32; 2], to: &mut [[X; BLOCK]]) {
        X::normals(first, key, to);
    }
}

impl RuleWithMemory for AddNoise {
    const USES_SLICES: bool = true;
    type Memory = AddNoiseState;
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = ();

    fn start(&self, at: &InitContext<'_>) -> Result<AddNoiseState> {
        Ok(AddNoiseState { draws: Draws::new(self.seed, at), deviation: 0.0 })
    }

    fn begin(&self, memory: &mut AddNoiseState, _: &StepContext<'_>) {
        let step = memory.draws.begin();
        let variance = self.eta.at(step) / (step as f64 + 1.0).powf(self.gamma.at(step));
        memory.deviation = variance.sqrt();
    }

    fn scalars<C: Real>(&self, _: &AddNoiseState, _: usize) {}

    // Leaves with noise have their own loop.
    #[inline(always)]
    fn apply<C: Real>((): (), _: &mut [C; 0], u: C, _: C, _: &mut [u32]) -> C {
        u
    }

    fn uses_slices(&self, memory: &AddNoiseState, _: usize) -> bool {
        memory.deviation != 0.0
    }

    #[inline(always)]
    fn apply_slice<C: Real>(&self, memory: &AddNoiseState, (): (), []: [&mut [C]; 0], at: LeafSlice<'_, C>) {
        match C::DTYPE {
            DType::F64 => add::<f64, C>(memory, at),
            _ => add::<f32, C>(memory, at),
        }
    }
}

/// Adds noise drawn in the compute type `X`.
#[inline(always)]
fn add<X: Normal + Real, C: Real>(memory: &AddNoiseState, at: LeafSlice<'_, C>) {
    let LeafSlice { leaf, start, u, .. } = at;
    let (key, mut scratch) = (memory.draws.key(leaf), [X::default(); BATCH]);
    let deviation = C::of(memory.deviation);
    for (i, u) in u.chunks_mut(BATCH).enumerate() {
        let scratch = &mut scratch[..u.len()];
        memory.draws.fill::<X, _>((leaf, key), start + i * BATCH, scratch);
        for i in 0..u.len() {
            u[i] += deviation * C::of(scratch[i].as_f64());
        }
    }
}
