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

/// Shares the work and the state of a transformation out among the ranks of a [`Collective`]: ZeRO, stage 1, for any
/// chain.
///
/// Every rank has all parameters and gradients of its own, such as those of its part of a batch. Each has the state of
/// its share of the parameters only. In a step the mean of all ranks' gradients is brought to where the state is, each
/// rank works out the updates of its share, and all get all updates.
///
/// The leaves are cut where the engine cuts them for threads, into pieces of 16384 elements, and each rank gets as many
/// bytes of them. What must see whole leaves, such as [`muon`](crate::muon()), [`sm3`](crate::optimizer::sm3()) or
/// [`adafactor`](crate::adafactor()), gets them whole: each of its leaves is one rank's, and each rank has as much of
/// such work as can be. Norms and other sums are added up in the order of the pieces, whoever has worked them out.
///
/// # The same bits
///
/// The result has the same bits for every number of ranks, and without this wrapper, as long as the mean of the
/// gradients has. That is added up in pairs of neighbouring ranks, pairs of pairs, and so on, and divided by their
/// number. Let each rank give the [`PairwiseMean`](crate::collective::PairwiseMean) of its
/// [`parts`](crate::collective::parts) of a batch, and say by [`parts`](Sharded::parts) how many these are. Then the
/// mean has the same bits for every number of ranks, as long as no element overflows or is subnormal.
///
/// # Arithmetic
///
/// ```text
/// g ← (p₀·g₀ + … + pₖ₋₁·gₖ₋₁) / (p₀ + … + pₖ₋₁)      p the parts, 1 unless said
/// u ← inner(g)
/// ```
///
/// # Where it goes
///
/// Around all that looks at the mean gradient, such as a clip or [`apply_if_finite`](crate::apply_if_finite). What is
/// outside of it sees the gradient of its own rank: so [`multi_steps`](crate::multi_steps) around it adds up on each
/// rank, and gradients travel once a window, but for the word that every step compares; inside it they travel at every
/// mini-step, and the sum is shared out too. What is outside must decide the same on all ranks; an `apply_if_finite`
/// there does not, and ends in an error of all.
///
/// The state is that of what is inside, under the same names, without the elements that other ranks have.
///
/// # Errors
///
/// `init` compares the transformation and the leaves of all ranks; the first step compares the parameters' values, and
/// every step the counts, flags and numbers of the state, injected hyperparameters among them, and the loss if it is
/// needed. If ranks disagree, all of them have an error that says in what, and nothing has been changed.
///
/// Refused by name at `init` is what works on several leaves together in memory: [`lbfgs`](crate::lbfgs()), line
/// searches, [`flatten`](crate::wrapper::flatten()), projections of the whole tree, GaLore, private aggregates.
/// Gradients of [rows](crate::tree::SparseRows) are refused at the step.
///
/// If a rank is lost in the middle of a step, the others have an error that [`is_collective`](Error::is_collective)
/// within the collective's time, their parameters have not been changed, and the state [cannot be used any
/// more](Error::is_poisoned).
///
/// # Cost
///
/// For `n` elements of `f32`, each rank sends `4n(k − 1)/k` bytes of gradients and as many of updates, 8 for each sum
/// and 16384 elements after a pass that adds up, and a word for the comparison. A first pass brings all gradients to
/// messages, a last one updates from messages to the parameters: `4n` bytes of memory on every rank, and of its share
/// twice more. While one message travels, the one before is added up.
///
/// One rank runs what is inside as it is, in the passes of what is around, and sends nothing in a step.
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
///             // Two of the three pieces are one rank's, with both moments.
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
/// models](https://arxiv.org/abs/1910.02054), 2019, section 5.1. Differs: no word of a sum depends on how a library
/// adds up. PyTorch's `ZeroRedundancyOptimizer` shares out whole parameters, and has norms computed by the user;
/// DeepSpeed is an optimizer of its own. Optax leaves it to JAX.
pub fn sharded<T: Stage>(inner: T, collective: impl Collective + 'static) -> Sharded<T> {
    let is_alone = collective.size() == 1;
    Sharded { inner, collective: Arc::new(collective), is_alone, parts: 1, reduce_dtype: None }
}

/// See [`sharded`].
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Sharded<T> {
    inner: T,
    collective: Arc<dyn Collective>,
    /// Whether there is nobody to share with.
    is_alone: bool,
    parts: usize,
    reduce_dtype: Option<DType>,
}

/// Each is exactly a number of `f32`, as are products with those that have few bits.
const PARTS: RangeInclusive<usize> = 1..=1 << 24;

impl<T> Sharded<T> {
    /// Of how many parts of the batch this rank's gradients are the mean: the others weigh as many as theirs. From 1,
    /// which is what it is unless said, to 2²⁴; ranks may have others. See
    /// [`collective::parts`](crate::collective::parts).
    pub fn parts(self, parts: usize) -> Sharded<T> {
        Sharded { parts, ..self }
    }

    /// The type in which gradients travel, such as `bf16`, for half the bytes; those of a type that is as narrow travel
    /// as they are. Without it they travel in the type in which they are computed on, `f32` or `f64`. Needs the feature
    /// `half` for 16 bits; the same on all ranks.
    ///
    /// Each rank's gradient is rounded once, to the nearest, and added up as ever; that of one rank alone, which does
    /// not travel, is not. So the mean is off by
    ///
    /// ```text
    /// |ĝ − g| ≤ u·(p₀·|g₀| + … + pₖ₋₁·|gₖ₋₁|) / (p₀ + … + pₖ₋₁)      u = 2⁻⁸ for bf16, 2⁻¹¹ for f16, 2⁻²⁴ for f32
    /// ```
    ///
    /// and by what the sum itself rounds; and has other bits for another number of ranks. Below the smallest normal
    /// number (2⁻¹²⁶, of `f16` 2⁻¹⁴) the error is that of the smallest subnormal; above the largest (3.39·10³⁸, 65504)
    /// a gradient becomes infinite. Gradients of leaves of type `bf16` lose nothing, if nothing outside has changed
    /// them. DeepSpeed has `communication_data_type`, PyTorch's FSDP `MixedPrecision.reduce_dtype` for this, which add
    /// up in that type too.
    pub fn reduce_dtype(self, dtype: DType) -> Sharded<T> {
        Sharded { reduce_dtype: Some(dtype), ..self }
    }

    /// The ranks that it is shared out among.
    pub fn collective(&self) -> &Arc<dyn Collective> {
        &self.collective
    }
}

/// Those of what is inside.
impl<T: Arguments + Stage> Arguments for Sharded<T> {
    const NAME: &'static str = T::NAME;

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn arguments(&mut self, visit: &mut Visit<'_>) {
        self.inner.arguments(visit);
    }
}

/// The state of what is inside a [`sharded`]: this rank's share of it.
#[derive(Clone, Debug)]
pub struct ShardedState<S> {
    inner: S,
    /// None on one rank, which runs what is inside as it is.
    shared: Option<Shared>,
}

/// What several ranks have besides their share of the state.
#[derive(Clone, Debug)]
struct Shared {
    nested: Nested,
    exchange: Exchange,
    /// Whether the ranks' parameters have been compared.
    compared: Arc<Mutex<bool>>,
}

impl<S> ShardedState<S> {
    /// The state of the transformation inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The state of the transformation inside, to write: the same on all ranks.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

impl<S: State> State for ShardedState<S> {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.fact(SHARES, &self.shared.as_ref().map(|shared| (&shared.nested, shared.exchange.promised())));
        self.inner.walk(walk);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        self.inner.walk_mut(walk);
    }
}
