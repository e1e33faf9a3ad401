use crate::element::Real;
use crate::engine::{InitContext, Job, Place, Shape, Span, Stage, StepContext, Tile, dispatch};
use crate::error::Result;
use crate::macros::builder;
use crate::numeric::random::{leaf_key, pair, path_hash};
use crate::schedule::Hyperparam;
use crate::state::{Count, RandomKey, State, StateWalk, StateWalkMut};
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
pub fn add_noise(eta: impl Into<Hyperparam>, gamma: impl Into<Hyperparam>, seed: u64) -> AddNoise {
    AddNoise { eta: eta.into(), gamma: gamma.into(), seed }
}

/// See [`add_noise`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct AddNoise {
    /// The variance at the first step; not negative.
    pub eta: Hyperparam,
    /// How fast the variance decays.
    pub gamma: Hyperparam,
    /// Chooses the random numbers.
    pub seed: u64,
}

builder! {
    AddNoise as "add_noise" {
        hyperparams: eta, gamma;
        options: ;
        integers: seed: u64;
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
}

#[derive(Clone, Debug)]
struct NoiseLeaf {
    /// FNV-1a of the path.
    hash: u64,
    shape: Vec<usize>,
    /// The strides, if memory order is not row-major order.
    strides: Option<Strides>,
}

impl State for AddNoiseState {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.child("count", &self.count);
        walk.child("key", &self.key);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        walk.child("count", &mut self.count);
        walk.child("key", &mut self.key);
    }
}

/// The noise of one step.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct AddNoiseRun {
    deviation: f64,
    count: u64,
}

impl Stage for AddNoise {
    type Needs = crate::needs::Nothing;
    type State = AddNoiseState;
    type Run = AddNoiseRun;
    type Kernel<C: Real> = ();

    const SHAPE: Shape = Shape::elementwise(false, false);
    const FUSES: bool = false;

    fn validate(&self) -> Result<()> {
        let name = <Self as crate::wrapper::Arguments>::NAME;
        self.eta.validate(name, "eta", "finite and not negative", |x| x >= 0.0 && x.is_finite())?;
        self.gamma.validate(name, "gamma", "finite", f64::is_finite)
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<AddNoiseState> {
        let leaf = |leaf: &crate::tree::LeafSpec| {
            let dense = is_dense(leaf.shape(), leaf.strides(), &dense_strides(leaf.shape()));
            NoiseLeaf {
                hash: path_hash(leaf.path()),
                shape: leaf.shape().into(),
                strides: (!dense).then(|| leaf.strides().into()),
            }
        };
        let leaves = at.structure().leaves().iter().map(leaf).collect();
        Ok(AddNoiseState { count: Count::default(), key: RandomKey::new(self.seed), leaves })
    }

    fn begin(&self, state: &mut AddNoiseState, _: &StepContext<'_>) -> AddNoiseRun {
        let count = state.count.get();
        state.count.increment();
        let variance = self.eta.at(count) / (count as f64 + 1.0).powf(self.gamma.at(count));
        AddNoiseRun { deviation: variance.sqrt(), count }
    }

    fn tile<C: Real>(
        &self,
        state: &AddNoiseState,
        run: &AddNoiseRun,
        place: Place,
        span: Span,
        tile: &mut Tile<'_, C>,
    ) {
        // Without state for elements, it is worked out again in a pass that repeats an earlier one.
        if !span.has(place.at) || run.deviation == 0.0 {
            return;
        }
        let leaf = &state.leaves[tile.leaf()];
        let key = leaf_key(state.key.get(), run.count, leaf.hash);
        let (start, isa, deviation) = (tile.start(), tile.isa(), run.deviation);
        let u = tile.u();
        match &leaf.strides {
            None => dispatch(isa, Noise { u, first: start, key, deviation }),
            Some(strides) => {
                let row_major = dense_strides(&leaf.shape);
                let n = u.len();
                let mut u = u.iter_mut();
                for run in Cursor::new(&leaf.shape, strides, &row_major, start).take(n) {
                    for i in 0..run.len as isize {
                        if let Some(u) = u.next() {
                            let place = (run.offset + i * run.stride) as u64;
                            *u += C::of(deviation * pair(place / 2, key)[(place % 2) as usize]);
                        }
                    }
                }
            }
        }
    }

    fn kernel<C: Real>(&self, _: &AddNoiseState, _: &AddNoiseRun, _: usize) {}

    fn state_bytes(&self, _: &AddNoiseState, _: usize, _: usize, _: Span) -> usize {
        0
    }

    fn recipe(&self) -> crate::recipe::Recipe {
        crate::recipe::of_arguments(self)
    }

    fn describe(&self) -> String {
        <Self as crate::wrapper::Arguments>::NAME.into()
    }
}

/// Adds noise to elements that are next to each other in row-major order too.
struct Noise<'a, C> {
    u: &'a mut [C],
    first: usize,
    key: [u32; 2],
    deviation: f64,
}

impl<C: Real> Job for Noise<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Noise { u, first, key, deviation } = self;
        let (head, rest) = u.split_at_mut((first % 2).min(u.len()));
        let second = first.div_ceil(2) as u64;
        if let [u] = head {
            *u += C::of(deviation * pair(second - 1, key)[1]);
        }
        let (pairs, tail) = rest.as_chunks_mut::<2>();
        for (i, u) in pairs.iter_mut().enumerate() {
            let [a, b] = pair(second + i as u64, key);
            u[0] += C::of(deviation * a);
            u[1] += C::of(deviation * b);
        }
        if let [u] = tail {
            *u += C::of(deviation * pair(second + pairs.len() as u64, key)[0]);
        }
    }
}
