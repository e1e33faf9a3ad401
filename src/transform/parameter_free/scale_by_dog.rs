use super::anchored::{anchored, squared_norms};
use crate::internal::numeric::max_or_nan;
use crate::internal::state::state_fields;
use crate::part::prelude::*;
use crate::recipe::{self, FromRecipe, Node, Recipe, ToRecipe};
use crate::transform::rescale::factor_in;

/// Scales updates by the DoG step size: the largest distance from the start over the root of all squared gradients.
///
/// # Arithmetic
///
/// With `x0` the parameters in `init`, norms over all leaves together, summed in `f64`:
///
/// ```text
/// d ← max(d, ‖p − x0‖)                    starts as init_step says
/// G ← G + ‖u‖²                            starts at 0
/// u ← u · d / √(G + eps)                  0 where the divisor is 0
/// ```
///
/// # Cost
///
/// One float of state per parameter. One more pass, which reads gradients, parameters and the initial parameters. Does
/// not fuse into one loop.
///
/// # Errors
///
/// `init` fails if `init_step` is negative or not finite, or `eps` is.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::{InitStep, scale_by_dog};
///
/// let optimizer = scale_by_dog(InitStep::Distance(0.5)).eps(0.0);
/// let mut params = vec![1.0_f64, 1.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![3.0_f64, 4.0], &mut state)?;
/// approx::assert_relative_eq!(&params[..], &[1.3, 1.4][..], max_relative = 1e-15);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Ivgi, Hinder and Carmon, [DoG is SGD's best friend: a parameter-free dynamic step size
/// schedule](https://arxiv.org/abs/2302.12022), 2023, equation DoG. Optax, `contrib.scale_by_dog`. Differs: norms are
/// summed and kept in `f64`; with an `eps` of 0, Optax makes NaN while all gradients are zero.
pub fn scale_by_dog(init_step: InitStep) -> ScaleByDog {
    ScaleByDog::with(init_step)
}

part! {
    /// See [`scale_by_dog`].
    pub ScaleByDog as "scale_by_dog": TwoPass, SAME_DIRECTION;
    given {
        /// The size of the first step.
        init_step: InitStep;
    }
    hyperparams {
        /// Added to the squared gradients.
        eps: NOT_NEGATIVE = 1e-8;
    }
    check Self::check_init_step;
}

/// The size of the first step of [`dog`](crate::optimizer::dog()).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum InitStep {
    /// An initial value of the largest distance.
    Distance(f64),
    /// A learning rate for the first step.
    LearningRate(f64),
    /// An initial value `x·(1 + ‖x0‖)` of the largest distance: 1e-6 is safe, 1e-4 for networks with batch
    /// normalization.
    Heuristic(f64),
}

/// `[kind, number]`
impl ToRecipe for InitStep {
    fn to_recipe(&self) -> Recipe {
        let (kind, number) = match *self {
            InitStep::Distance(x) => ("distance", x),
            InitStep::LearningRate(x) => ("learning_rate", x),
            InitStep::Heuristic(x) => ("heuristic", x),
        };
        Recipe::List(vec![Recipe::text(kind), Recipe::Number(number)])
    }
}

impl FromRecipe for InitStep {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<InitStep> {
        let [kind, number] = &node.list()?[..] else { return Err(node.wrong("a kind and a number")) };
        let number = number.read()?;
        kind.choice(&[
            ("distance", InitStep::Distance(number)),
            ("learning_rate", InitStep::LearningRate(number)),
            ("heuristic", InitStep::Heuristic(number)),
        ])
    }

    fn schema() -> String {
        r#"{"type": "array", "prefixItems": [{"enum": ["distance", "learning_rate", "heuristic"]}, {"type": "number"}],
            "minItems": 2, "maxItems": 2}"#
            .into()
    }
}

/// The state of [`scale_by_dog`], besides the array `init_params` of the parameters in `init`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScaleByDogState {
    /// Steps done.
    pub count: Count,
    /// The largest distance from the initial parameters so far.
    pub max_dist: Scalar,
    /// The sum of squared gradients.
    pub sum_sq_norm_grads: Scalar,
}

state_fields!(ScaleByDogState { count, max_dist, sum_sq_norm_grads });

/// The hyperparameters of one step.
#[derive(Clone, Copy, Debug)]
pub struct DogScalars {
    eps: f64,
    /// The factor of the first step's gradients, if given.
    given: Option<f64>,
}

impl ScaleByDog {
    fn check_init_step(&self) -> Result<()> {
        let (InitStep::Distance(x) | InitStep::LearningRate(x) | InitStep::Heuristic(x)) = self.init_step;
        if !(x >= 0.0 && x.is_finite()) {
            return Err(Error::argument(Self::NAME, "init_step", "finite and not negative", x));
        }
        Ok(())
    }
}

impl TwoPasses for ScaleByDog {
    anchored!();
    type Memory = ScaleByDogState;
    type Run = DogScalars;

    fn start(&self, at: &InitContext<'_>) -> Result<ScaleByDogState> {
        let max_dist = match self.init_step {
            InitStep::Distance(x) => x,
            InitStep::LearningRate(_) => 0.0,
            InitStep::Heuristic(x) => x * (1.0 + squared_norms(at)?.into_iter().sum::<f64>().sqrt()),
        };
        Ok(ScaleByDogState {
            count: Count::default(),
            max_dist: Scalar::new(max_dist),
            sum_sq_norm_grads: Scalar::default(),
        })
    }

    fn begin(&self, memory: &mut ScaleByDogState, _: &StepContext<'_>) -> DogScalars {
        let count = memory.count.get();
        memory.count.increment();
        let given = match self.init_step {
            InitStep::LearningRate(x) if count == 0 => Some(x),
            _ => None,
        };
        DogScalars { eps: self.eps.at(count), given }
    }

    fn decide(&self, memory: &mut ScaleByDogState, _: &mut DogScalars, sums: Sums<'_>) {
        let [of_updates, of_distance] = [0, 1].map(|i| sums.total(i));
        memory.max_dist.set(max_or_nan(of_distance.sqrt(), memory.max_dist.get()));
        memory.sum_sq_norm_grads.set(memory.sum_sq_norm_grads.get() + of_updates);
    }

    fn scalars<C: Real>(&self, memory: &ScaleByDogState, k: &DogScalars, _: usize) -> C {
        let divisor = (memory.sum_sq_norm_grads.get() + k.eps).sqrt();
        factor_in(match k.given {
            Some(given) => given,
            None if divisor == 0.0 => 0.0,
            None => memory.max_dist.get() / divisor,
        })
    }
}
