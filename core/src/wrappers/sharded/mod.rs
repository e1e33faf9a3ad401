mod agreement;
mod exchange;
mod stage;

use core::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use self::exchange::Exchange;
use crate::arguments::{Arguments, Visit};
use crate::collective::Collective;
use crate::engine::Nested;
use crate::part::prelude::*;
use crate::state::{SHARES, StateWalk, StateWalkMut};

/// Shards the work and state of a transformation over the ranks of a [`Collective`]: ZeRO, stage 1, for any chain.
///
/// Every rank has all parameters, the gradients of its part of a batch, and a shard of the state. A step
/// reduce-scatters the gradients to the owners of the state, each rank computes the updates of its shard, and an
/// all-gather distributes the updates.
///
/// Leaves are sharded by the engine's chunks of 16384 elements, and each rank gets the same number of bytes. Parts that
/// need whole leaves, such as [`muon`], [`sm3`] or
/// [`adafactor`], get whole leaves, each owned by one rank; their cost is divided as evenly as
/// possible. Norms and other reductions are added in the order of chunks, whichever rank computed them.
///
/// # Reproducibility
///
/// The result is bitwise identical for every number of ranks, and without this wrapper, if the mean of the gradients
/// is. That mean is a pairwise sum over neighbouring ranks, divided by their number. Let each rank pass the
/// [`PairwiseMean`](crate::collective::PairwiseMean) of its [`parts`](crate::collective::parts) of a batch, and set
/// their number with [`parts`](Sharded::parts). Then the mean is bitwise identical for every number of ranks, if no
/// element overflows or is subnormal.
///
/// Needs the feature `collective`.
///
/// # Arithmetic
///
/// ```text
/// g ← (p₀·g₀ + … + pₖ₋₁·gₖ₋₁) / (p₀ + … + pₖ₋₁)      p the parts, 1 by default
/// u ← inner(g)
/// ```
///
/// # Placement
///
/// Put it around all parts that need the mean gradient, such as a clip or [`apply_if_finite`].
/// Parts outside see the gradient of their own rank. So [`multi_steps`] around it accumulates on
/// each rank, and gradients are sent once a window; only the comparison of each step is sent in between. Inside,
/// gradients are sent in every mini-step, and the accumulator is sharded too. Outer parts must decide the same on all
/// ranks; an outer `apply_if_finite` does not, and ends in an error on all ranks.
///
/// The state is the inner state, with the same names, without the elements that other ranks own.
///
/// # Errors
///
/// `init` compares the transformation and the leaves of all ranks; the first step compares the parameters' values, and
/// every step the counts, flags and numbers of the state, injected hyperparameters among them, and the loss if it is
/// needed. If ranks disagree, all return an error that names the difference, and nothing has been changed.
///
/// `init` refuses, by name, parts that work on several leaves together in memory: [`lbfgs`], line
/// searches, [`flatten`], projections of the whole tree, GaLore, private aggregates. A step
/// refuses [row-sparse](crate::tree::SparseRows) gradients.
///
/// If a rank is lost during a step, the others return an error that [`is_collective`](Error::is_collective) within the
/// collective's timeout, their parameters have not been changed, and the state is [poisoned](Error::is_poisoned).
///
/// # Cost
///
/// For `n` elements of `f32`, each rank sends `4n(k − 1)/k` bytes of gradients and as many of updates, 8 bytes for each
/// reduction and 16384 elements after a reducing pass, and a word for the comparison. An additional first pass copies
/// all gradients to messages, and a last one updates from messages to the parameters: `4n` bytes of memory on every
/// rank, and twice more for its share. The reduction of a message overlaps the transfer of the next.
///
/// A single rank runs the inner transformation directly, in the passes of the outer chain, and sends nothing in a step.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use gradchain::collective::{Collective, threads};
/// use gradchain::prelude::*;
/// use gradchain::wrapper::sharded;
///
/// std::thread::scope(|scope| {
///     for ranks in threads(2, Duration::from_secs(10)) {
///         scope.spawn(move || {
///             let gradient = vec![if ranks.rank() == 0 { 6.0_f32 } else { 0.0 }; 40_000];
///             let optimizer = sharded(chain((clip_by_global_norm(300.0), adamw(0.5).weight_decay(0.0))), ranks);
///             let mut params = vec![1.0_f32; 40_000];
///             let mut state = optimizer.init(&params)?;
///             // The mean is 3, its norm 600.
///             optimizer.step(&mut params, &gradient, &mut state)?;
///             assert!(params.iter().all(|p| (p - 0.5).abs() < 1e-6));
///             // One rank owns two of the three chunks, with both moments.
///             assert!(state.schema().size().total_bytes() <= 2 * 4 * 2 * 16_384 + 16);
///             Ok::<(), gradchain::Error>(())
///         });
///     }
/// });
/// ```
///
/// # References
///
/// Rajbhandari and others, [ZeRO: memory optimizations toward training trillion parameter
/// models](https://arxiv.org/abs/1910.02054), 2019, section 5.1. Differs: no reduction depends on the order in which a
/// library adds. PyTorch's `ZeroRedundancyOptimizer` shards whole parameters, and leaves norms to the user; DeepSpeed
/// is an optimizer of its own. Optax leaves it to JAX.
///
/// [`muon`]: https://docs.rs/gradchain/latest/gradchain/optimizer/fn.muon.html
/// [`sm3`]: https://docs.rs/gradchain/latest/gradchain/optimizer/fn.sm3.html
/// [`adafactor`]: https://docs.rs/gradchain/latest/gradchain/optimizer/fn.adafactor.html
/// [`apply_if_finite`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.apply_if_finite.html
/// [`multi_steps`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.multi_steps.html
/// [`lbfgs`]: https://docs.rs/gradchain/latest/gradchain/optimizer/fn.lbfgs.html
/// [`flatten`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.flatten.html
pub fn sharded<T: Stage>(inner: T, collective: impl Collective + 'static) -> Sharded<T> {
    let is_single_rank = collective.size() == 1;
    Sharded { inner, collective: Arc::new(collective), is_single_rank, parts: 1, reduce_dtype: None }
}

/// See [`sharded`].
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Sharded<T> {
    inner: T,
    collective: Arc<dyn Collective>,
    is_single_rank: bool,
    parts: usize,
    reduce_dtype: Option<DType>,
}

/// Exact in `f32`, as are their products with short significands.
const PARTS: RangeInclusive<usize> = 1..=1 << 24;

impl<T> Sharded<T> {
    /// Sets the number of batch parts in the mean gradients of this rank, which is their weight.
    ///
    /// From 1, the default, to 2²⁴; ranks may differ. See [`collective::parts`](crate::collective::parts).
    pub fn parts(self, parts: usize) -> Sharded<T> {
        Sharded { parts, ..self }
    }

    /// Sets the dtype of gradients in messages, such as `bf16`, for half the bytes.
    ///
    /// Gradients of a dtype as narrow are sent unmodified. By default they are sent in the compute type, `f32` or
    /// `f64`. 16-bit dtypes need the feature `half`. All ranks must use the same.
    ///
    /// Each rank's gradient is rounded once, to nearest, and added in the compute type. A single rank sends nothing and
    /// does not round. The error of the mean is
    ///
    /// ```text
    /// |ĝ − g| ≤ u·(p₀·|g₀| + … + pₖ₋₁·|gₖ₋₁|) / (p₀ + … + pₖ₋₁)      u = 2⁻⁸ for bf16, 2⁻¹¹ for f16, 2⁻²⁴ for f32
    /// ```
    ///
    /// plus the rounding of the sum itself; the result differs between numbers of ranks. Below the smallest normal
    /// number (2⁻¹²⁶, for `f16` 2⁻¹⁴) the error is that of the smallest subnormal; above the largest (3.39·10³⁸, 65504)
    /// a gradient becomes infinite. Gradients of `bf16` leaves lose nothing if no outer part has changed them.
    /// DeepSpeed has `communication_data_type`, PyTorch's FSDP `MixedPrecision.reduce_dtype` for this, which also add
    /// in that dtype.
    pub fn reduce_dtype(self, dtype: DType) -> Sharded<T> {
        Sharded { reduce_dtype: Some(dtype), ..self }
    }

    /// Returns the collective.
    pub fn collective(&self) -> &Arc<dyn Collective> {
        &self.collective
    }
}

/// The arguments of the inner transformation.
impl<T: Arguments + Stage> Arguments for Sharded<T> {
    const NAME: &'static str = T::NAME;

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn arguments(&mut self, visit: &mut Visit<'_>) {
        self.inner.arguments(visit);
    }
}

/// The state of a [`sharded`]: this rank's share of the inner state.
#[derive(Clone, Debug)]
pub struct ShardedState<S> {
    inner: S,
    /// `None` on a single rank, which runs the inner transformation directly.
    shared: Option<Shared>,
}

/// Several ranks' buffers, besides their share of the state.
#[derive(Clone, Debug)]
struct Shared {
    nested: Nested,
    exchange: Exchange,
    compared: Arc<Mutex<bool>>,
}

impl<S> ShardedState<S> {
    /// Returns the state of the inner transformation.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Returns the state of the inner transformation, to write: the same on all ranks.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

impl<S: State> State for ShardedState<S> {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.fact(SHARES, &self.shared.as_ref().map(|shared| (&shared.nested, shared.exchange.init_facts())));
        self.inner.walk(walk);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        self.inner.walk_mut(walk);
    }
}
