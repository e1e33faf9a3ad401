use crate::numeric::random::{BLOCK, leaf_key, normal, normals, path_hash};
use crate::part::prelude::*;
use crate::state::RandomKey;
use crate::tree::{Cursor, Strides, dense_strides, is_dense};

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
/// Each number is a function of the seed, the step, the leaf's path, and the element's place in row-major order, and of
/// nothing else: it is the same for every number of threads, memory layout and machine, and does not depend on which other
/// leaves there are. Numbers are drawn in `f64`.
///
/// # Cost
///
/// No state for elements. Does not fuse into one loop, since numbers are drawn for a stretch at a time; reads no
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
/// 3](https://doi.org/10.1145/2063384.2063405), 2011, for Philox4x32-10; Box and Muller, A note on the generation of random
/// normal deviates, 1958. Optax, [`add_noise`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs:
/// other random numbers; the seed must be given.
pub fn add_noise(eta: impl IntoHyperparam, gamma: impl IntoHyperparam, seed: u64) -> AddNoise {
    AddNoise::with(eta, gamma, seed)
}

part! {
    /// See [`add_noise`].
    #[derive(Clone, Debug, PartialEq)]
    pub AddNoise as "add_noise": OneElementWithMemory, ALONG;
    required {
        /// The variance at the first step.
        eta: NOT_NEGATIVE;
        /// How fast the variance decays.
        gamma: FINITE;
    }
    given {
        /// Chooses the random numbers.
        seed: u64;
    }
}

/// What [`add_noise`] remembers.
#[derive(Clone, Debug)]
pub struct AddNoiseState {
    /// Steps done.
    pub count: Count,
    /// The seed, which a run that goes on from this state keeps.
    pub key: RandomKey,
    leaves: Vec<NoiseLeaf>,
    /// The number of this step, from 0, and the noise's standard deviation in it.
    step: u64,
    deviation: f64,
}

state_fields!(AddNoiseState { count, key } knows { leaves });

#[derive(Clone, Debug, Hash)]
struct NoiseLeaf {
    /// FNV-1a of the path.
    hash: u64,
    shape: Vec<usize>,
    /// The strides, if memory order is not row-major order.
    strides: Option<Strides>,
}

impl RuleWithMemory for AddNoise {
    const APART: bool = true;
    type Needs = Nothing;
    type Memory = AddNoiseState;
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = ();

    fn start(&self, at: &InitContext<'_>) -> Result<AddNoiseState> {
        let leaf = |leaf: &crate::tree::LeafSpec| {
            let dense = is_dense(leaf.shape(), leaf.strides(), &dense_strides(leaf.shape()));
            NoiseLeaf {
                hash: path_hash(leaf.path()),
                shape: leaf.shape().into(),
                strides: (!dense).then(|| leaf.strides().into()),
            }
        };
        let leaves = at.structure().leaves().iter().map(leaf).collect();
        let (count, key) = (Count::default(), RandomKey::new(self.seed));
        Ok(AddNoiseState { count, key, leaves, step: 0, deviation: 0.0 })
    }

    fn begin(&self, memory: &mut AddNoiseState, _: &StepContext<'_>) {
        let count = memory.count.get();
        memory.count.increment();
        let variance = self.eta.at(count) / (count as f64 + 1.0).powf(self.gamma.at(count));
        (memory.step, memory.deviation) = (count, variance.sqrt());
    }

    fn scalars<C: Real>(&self, _: &AddNoiseState, _: usize) {}

    // A leaf that gets noise is apart.
    #[inline(always)]
    fn apply<C: Real>((): (), _: &mut [C; 0], u: C, _: C, _: &mut [u32]) -> C {
        u
    }

    fn is_apart(&self, memory: &AddNoiseState, _: usize) -> bool {
        memory.deviation != 0.0
    }

    #[inline(always)]
    fn apply_apart<C: Real>(&self, memory: &AddNoiseState, (): (), []: [&mut [C]; 0], at: Stretch<'_, C>) {
        let (leaf, deviation, n) = (&memory.leaves[at.leaf], memory.deviation, at.u.len());
        let key = leaf_key(memory.key.get(), memory.step, leaf.hash);
        let Some(strides) = &leaf.strides else { return add_normals(at.u, at.start, key, deviation) };
        let mut u = at.u.iter_mut();
        for run in Cursor::new(&leaf.shape, strides, &dense_strides(&leaf.shape), at.start).take(n) {
            for i in 0..run.len as isize {
                if let Some(u) = u.next() {
                    let place = (run.offset + i * run.stride) as u64;
                    *u += C::of(deviation * normal(place, key));
                }
            }
        }
    }
}

/// Adds noise to elements that follow one another in row-major order, `first` being the number of the first.
///
/// Plain loops: what iterators call for each block may not be inlined, and is compiled without vectors then.
#[inline(always)]
fn add_normals<C: Real>(u: &mut [C], first: usize, key: [u32; 2], deviation: f64) {
    // Only the first block of a stretch may be begun.
    let (head, rest) = u.split_at_mut(first.next_multiple_of(BLOCK).min(first + u.len()) - first);
    for (i, u) in head.iter_mut().enumerate() {
        *u += C::of(deviation * normal((first + i) as u64, key));
    }
    let block = first.div_ceil(BLOCK) as u64;
    let (blocks, tail) = rest.as_chunks_mut::<BLOCK>();
    for (i, u) in blocks.iter_mut().enumerate() {
        let numbers = normals(block + i as u64, key);
        for (u, x) in u.iter_mut().zip(&numbers) {
            *u += C::of(deviation * x);
        }
    }
    let numbers = normals(block + blocks.len() as u64, key);
    for (u, x) in tail.iter_mut().zip(&numbers) {
        *u += C::of(deviation * x);
    }
}
