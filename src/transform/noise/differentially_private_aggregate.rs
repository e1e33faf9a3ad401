use crate::extra::Extra;
use crate::internal::engine::Examples;
use crate::internal::numeric::{BLOCK, Normal, SMALL, leaf_key, path_hash};
use crate::internal::state::state_fields;
use crate::needs::Provides;
use crate::part::prelude::*;
use crate::recipe::{Recipe, ToRecipe};
use crate::state::RandomKey;
use crate::transform::rescale::shrink;
use crate::tree::{LeafSpec, Tree, TreeMut};
use crate::{GradientTransformation, OptState, Updates};

/// Averages per-example gradients, each clipped to a norm, with Gaussian noise: the gradient of DP-SGD.
///
/// It takes per-example gradients (per-sample in PyTorch): a tree like the parameters, whose leaves have a leading
/// batch axis. Hence it is not a member of a chain, but precedes one: pass the chain to [`then`](PerExample::then).
/// [`step_per_example`](PerExample::step_per_example) does a step.
///
/// # Arithmetic
///
/// For `n` examples with gradients `gᵢ`, each norm being over all leaves together:
///
/// ```text
/// u ← (Σᵢ gᵢ·min(1, l2_norm_clip / ‖gᵢ‖) + l2_norm_clip·noise_multiplier·N(0, 1)) / n
/// ```
///
/// Sums and noise are in `f64`, whatever the dtype of a leaf. Each noise value is a function of the seed, the step, the
/// leaf's path, and the element's place in row-major order. An example whose norm is not finite makes the mean NaN.
///
/// The noise has good statistical quality, but its generator, Philox, is not cryptographic: the seed determines the
/// noise. Choose the seed at random, and keep it secret.
///
/// # Cost
///
/// The examples' gradients are read twice. Scratch space for one gradient, and for an `f64` for each element of the
/// largest leaf.
///
/// # Errors
///
/// `init` fails if `l2_norm_clip` is not positive, or `noise_multiplier` is negative or not finite. A step fails if the
/// gradients lack a leading batch axis of the same length in all leaves.
///
/// # Example
///
/// Of two examples, one is clipped from a norm of 5 to 1:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::differentially_private_aggregate;
/// use ndarray::array;
///
/// let optimizer = differentially_private_aggregate(1.0, 0.0, 42).then(sgd(2.0));
/// let mut params = array![0.0, 0.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step_per_example(&mut params, &array![[3.0, 4.0], [0.0, 0.5]], &mut state)?;
/// approx::assert_relative_eq!(params[0], -0.6, max_relative = 1e-12);
/// approx::assert_relative_eq!(params[1], -1.3, max_relative = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// It cannot follow another stage:
///
/// ```compile_fail
/// use gradchain::prelude::*;
/// use gradchain::transform::differentially_private_aggregate;
///
/// let private = differentially_private_aggregate(1.0, 1.1, 42);
/// let optimizer = multi_steps(chain((clip(1.0), private)), 4);
/// let state = optimizer.init(&0.0); // a sum of batches is not a sum of examples
/// ```
///
/// # References
///
/// Abadi et al., [Deep learning with differential privacy](https://arxiv.org/abs/1607.00133), 2016, algorithm 1. Optax,
/// [`contrib.differentially_private_aggregate`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: it
/// must come first, which the types enforce; other random numbers; for a NaN norm, Optax adds that example without
/// clipping.
pub fn differentially_private_aggregate(
    l2_norm_clip: impl IntoHyperparam,
    noise_multiplier: impl IntoHyperparam,
    key: u64,
) -> PerExample<()> {
    let aggregate =
        PrivateAggregate { l2_norm_clip: l2_norm_clip.into(), noise_multiplier: noise_multiplier.into(), key };
    PerExample { aggregate, inner: () }
}

/// The aggregation of per-example gradients; see [`differentially_private_aggregate`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PrivateAggregate {
    /// The largest norm of an example's gradient; positive.
    pub l2_norm_clip: Hyperparam,
    /// The noise's standard deviation, in units of `l2_norm_clip`; not negative.
    pub noise_multiplier: Hyperparam,
    /// Seed of the random numbers.
    pub key: u64,
}

impl PrivateAggregate {
    fn validate(&self) -> Result<()> {
        const NAME: &str = "differentially_private_aggregate";
        self.l2_norm_clip.validate(NAME, "l2_norm_clip", "positive", |x| x > 0.0)?;
        self.noise_multiplier
            .validate(NAME, "noise_multiplier", "finite and not negative", |x| x >= 0.0 && x.is_finite())
    }
}

/// A [`differentially_private_aggregate`], and the transformation of the mean.
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct PerExample<T> {
    aggregate: PrivateAggregate,
    inner: T,
}

impl PerExample<()> {
    /// Passes the mean to a transformation, which should end with a step against the gradient.
    pub fn then<T: GradientTransformation>(self, transformation: T) -> PerExample<T> {
        PerExample { aggregate: self.aggregate, inner: transformation }
    }
}

/// The state of the aggregate.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PrivateAggregateState {
    /// Steps done.
    pub count: Count,
    /// The seed; a run resumed from this state keeps it.
    pub rng_key: RandomKey,
}

state_fields!(PrivateAggregateState { count, rng_key });

/// The state of a [`PerExample`], for parameters of one structure.
#[derive(Clone, Debug)]
pub struct PerExampleState<T: GradientTransformation> {
    aggregate: PrivateAggregateState,
    inner: OptState<T>,
    mean: Updates,
    factors: Vec<f64>,
    sum: Vec<f64>,
    clipped: usize,
}

impl<T: GradientTransformation> PerExampleState<T> {
    /// Returns the state of the aggregate.
    pub fn aggregate(&self) -> &PrivateAggregateState {
        &self.aggregate
    }

    /// Returns the state of the aggregate, mutably.
    pub fn aggregate_mut(&mut self) -> &mut PrivateAggregateState {
        &mut self.aggregate
    }

    /// Returns the state of the transformation of the mean.
    pub fn inner(&self) -> &OptState<T> {
        &self.inner
    }

    /// Returns the state of the transformation of the mean, mutably.
    pub fn inner_mut(&mut self) -> &mut OptState<T> {
        &mut self.inner
    }

    /// Returns the number of examples clipped in the last step. It depends on single examples: publishing it takes a
    /// privacy budget of its own.
    pub fn num_clipped(&self) -> usize {
        self.clipped
    }
}

impl<T> PerExample<T> {
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> PerExample<U> {
        PerExample { aggregate: self.aggregate, inner: f(self.inner) }
    }

    #[cfg(feature = "config")]
    pub(crate) fn try_map<U, E>(self, f: impl FnOnce(T) -> Result<U, E>) -> Result<PerExample<U>, E> {
        Ok(PerExample { aggregate: self.aggregate, inner: f(self.inner)? })
    }
}

impl<T: GradientTransformation> PerExample<T> {
    /// Returns the state before the first step, for parameters of this structure.
    ///
    /// # Errors
    ///
    /// Fails if an argument is out of its range, or as [`init`](GradientTransformation::init) does.
    pub fn init<P: Tree + ?Sized>(&self, params: &P) -> Result<PerExampleState<T>> {
        self.aggregate.validate()?;
        let inner = self.inner.init(params)?;
        let mean = inner.zero_updates_of(|leaf| leaf.dtype().compute());
        let aggregate = PrivateAggregateState { count: Count::default(), rng_key: RandomKey::new(self.aggregate.key) };
        Ok(PerExampleState { aggregate, inner, mean, factors: Vec::new(), sum: Vec::new(), clipped: 0 })
    }

    /// Does a step with the gradient of each example.
    ///
    /// # Errors
    ///
    /// Fails, with nothing changed, if the leaves of `grads` do not have the shapes of the parameters with a leading
    /// batch axis of one length; and as [`step`](GradientTransformation::step).
    pub fn step_per_example<P, G>(&self, params: &mut P, grads: &G, state: &mut PerExampleState<T>) -> Result<Outcome>
    where
        P: TreeMut + ?Sized,
        G: Tree + ?Sized,
        (): Provides<T::Needs>,
    {
        self.step_per_example_with(params, grads, (), state)
    }

    /// As [`step_per_example`](Self::step_per_example), with the further [needs](crate::needs) of the transformation.
    ///
    /// # Errors
    ///
    /// As [`step_per_example`](Self::step_per_example).
    pub fn step_per_example_with<P, G, E>(
        &self,
        params: &mut P,
        grads: &G,
        extra: E,
        state: &mut PerExampleState<T>,
    ) -> Result<Outcome>
    where
        P: TreeMut + ?Sized,
        G: Tree + ?Sized,
        E: Extra<P> + Provides<T::Needs>,
    {
        self.take_mean(grads, state)?;
        let outcome = self.inner.step_with(params, &state.mean, extra, &mut state.inner)?;
        state.aggregate.count.increment();
        Ok(outcome)
    }

    /// Transforms per-example gradients into updates, for inspection or for a later step.
    ///
    /// # Errors
    ///
    /// As [`step_per_example`](Self::step_per_example).
    pub fn update_per_example<P, G>(&self, grads: &G, state: &mut PerExampleState<T>, params: &P) -> Result<Updates>
    where
        P: Tree + ?Sized,
        G: Tree + ?Sized,
        (): Provides<T::Needs>,
    {
        self.take_mean(grads, state)?;
        let updates = self.inner.update(&state.mean, &mut state.inner, params)?;
        state.aggregate.count.increment();
        Ok(updates)
    }

    /// Returns the recipe: the construction as data.
    pub fn recipe(&self) -> Recipe {
        let aggregate = Recipe::call(
            "differentially_private_aggregate",
            [
                ("l2_norm_clip", self.aggregate.l2_norm_clip.to_recipe()),
                ("noise_multiplier", self.aggregate.noise_multiplier.to_recipe()),
                ("key", self.aggregate.key.to_recipe()),
            ],
        );
        Recipe::Map(vec![("chain".into(), Recipe::List(vec![aggregate, self.inner.recipe()]))])
    }

    fn take_mean<G: Tree + ?Sized>(&self, grads: &G, state: &mut PerExampleState<T>) -> Result<()> {
        let examples = Examples::of(grads, state.inner.structure())?;
        let count = state.aggregate.count.get();
        let most = self.aggregate.l2_norm_clip.at(count);
        let deviation = most * self.aggregate.noise_multiplier.at(count);
        let PerExampleState { aggregate, mean, factors, sum, clipped, .. } = state;
        let leaves = || mean.structure.leaves().iter().enumerate();
        factors.clear();
        factors.extend((0..examples.count()).map(|example| {
            let norm = |scale: f64| {
                let squares: f64 = leaves().map(|(i, leaf)| examples.squares(i, leaf, example, scale)).sum();
                squares.sqrt() / scale
            };
            // A gradient whose squares underflow is not clipped.
            shrink(Some(norm(1.0)).filter(|norm| norm.is_finite()).unwrap_or_else(|| norm(SMALL)), most)
        }));
        *clipped = factors.iter().filter(|factor| **factor < 1.0).count();
        let n = examples.count() as f64;
        for ((i, leaf), to) in mean.structure.leaves().iter().enumerate().zip(&mut mean.leaves) {
            sum.clear();
            sum.resize(leaf.len(), 0.0);
            factors.iter().enumerate().for_each(|(example, factor)| examples.add(i, leaf, example, *factor, sum));
            if deviation > 0.0 {
                add_normal(leaf, leaf_key(aggregate.rng_key.get(), count, path_hash(leaf.path())), deviation, sum);
            }
            match to.dtype() {
                DType::F64 => {
                    to.get_mut::<f64>().unwrap_or_default().iter_mut().zip(&*sum).for_each(|(to, x)| *to = x / n)
                }
                _ => to
                    .get_mut::<f32>()
                    .unwrap_or_default()
                    .iter_mut()
                    .zip(&*sum)
                    .for_each(|(to, x)| *to = (x / n) as f32),
            }
        }
        Ok(())
    }
}

fn add_normal(leaf: &LeafSpec, key: [u32; 2], deviation: f64, to: &mut [f64]) {
    let (mut number, mut block) = (0, [0.0; BLOCK]);
    leaf.each_place(|place| {
        if number % BLOCK == 0 {
            f64::normals((number / BLOCK) as u64, key, core::slice::from_mut(&mut block));
        }
        to[place] += deviation * block[number % BLOCK];
        number += 1;
    });
}
