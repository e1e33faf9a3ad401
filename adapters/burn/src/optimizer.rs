//! Optimizers of burn's own type: for [`ModuleOptimizer`] and the `Learner`.

use core::cell::RefCell;
use std::io::Cursor;
use std::sync::Arc;

use burn::module::{Module, Param, ParamId};
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::optim::{GradientsParams, LearningRate, ModuleOptimizer, Optimizer, RecordState, StateSink, StateSource};
use burn::tensor::{Device, Tensor, TensorData};
use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::needs::Nothing;
use gradchain::recipe::Recipe;
use gradchain::transform::{Scale, scale};
use gradchain::wrapper::InjectHyperparams;
use gradchain::{Error, GradientTransformation, OptState, Outcome, Result, Tree, TreeMut, inject_hyperparams};

use crate::host::Host;
use crate::leaves::{Leaves, trained_mut};
use crate::walkers::LeafStorage;

/// The source of a step's learning rate.
///
/// burn's scheduler passes a rate to every step, which multiplies the updates. One of the two rates must be 1, since
/// their product would train at the square of a rate; anything else is an error.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain_burn::{Rate, whole_tree};
///
/// // The chain's own, with a `ConstantLr::from(1.0)` in burn's `Learner`.
/// whole_tree(chain((clip_by_global_norm(1.0), adamw(cosine_decay(1e-3, 1000)))), Rate::Own)?;
/// // That of burn's scheduler.
/// whole_tree(chain((clip_by_global_norm(1.0), adamw(1.0))), Rate::Burn)?;
///
/// let error = whole_tree(adamw(1e-3), Rate::Burn).err().unwrap().to_string();
/// assert!(error.contains("`$.adamw.learning_rate` of 0.001"), "{error}");
/// # Ok::<(), gradchain::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// The transformation's own rate. burn's must be 1; another rate is an error in that step.
    Own,
    /// The rate of burn's scheduler; the transformation's own must be 1.
    ///
    /// Constructing the optimizer fails otherwise, and also if a `scale` or `scale_by_schedule` in it has another
    /// factor than 1.
    Burn,
}

impl Rate {
    /// Refuses a transformation with a rate if the rate is burn's.
    fn check<T: GradientTransformation>(self, function: &str, optimizer: &T) -> Result<()> {
        let found = if self == Rate::Burn { own_rate("$", &optimizer.recipe()) } else { None };
        let expected = "of learning rate 1, since burn's scheduler sets the rate (`Rate::Burn`): a learning rate of \
                        its own needs `Rate::Own`, and `ConstantLr::from(1.0)` in burn";
        found.map_or(Ok(()), |found| Err(Error::argument(function, "optimizer", expected, found)))
    }
}

/// Returns true if an argument multiplies the updates.
fn is_rate(key: &str) -> bool {
    key.ends_with("learning_rate") && !key.starts_with("scale_by") || key.starts_with("step_size")
}

/// Returns the place and value of a factor of the updates other than 1.
fn own_rate(place: &str, recipe: &Recipe) -> Option<String> {
    match recipe {
        Recipe::List(items) => items.iter().enumerate().find_map(|(i, item)| own_rate(&format!("{place}[{i}]"), item)),
        // The rate of an adversary does not scale the updates.
        Recipe::Map(entries) => entries.iter().filter(|(key, _)| key != "adv_optimizer").find_map(|(key, value)| {
            let here = format!("{place}.{key}");
            match value {
                _ if !(is_rate(key)) => own_rate(&here, value),
                Recipe::Number(rate) if rate.abs() == 1.0 => None,
                Recipe::Integer(1 | -1) | Recipe::Null => None,
                Recipe::Number(rate) => Some(format!("`{here}` of {rate}")),
                Recipe::Integer(rate) => Some(format!("`{here}` of {rate}")),
                _ => Some(format!("`{here}`, a schedule")),
            }
        }),
        _ => None,
    }
}

/// Returns an optimizer of burn's type that transforms each tensor separately, with a state for each.
///
/// Use it in code that takes a [`ModuleOptimizer`] and must not change, and for one of several groups of parameters
/// ([`ModuleOptimizer::with_group`]). Everywhere else [`whole_tree`] and [`step`](crate::step) do more.
///
/// # Arithmetic
///
/// ```text
/// u ← optimizer(gradient)
/// p ← p + learning_rate·u          the rate that burn gives the step
/// ```
///
/// [`Rate`] selects the source of that rate.
///
/// # Cost
///
/// One pass over each tensor, in place if its memory is not shared; a table of leaves for each tensor.
///
/// # Errors
///
/// If the transformation needs more than one pass, as norms over all gradients do: it would see one tensor instead of
/// all. If an argument is out of its range. If a mask needs a path, which tensors lack here. If the rate is
/// [burn's](Rate::Burn) and the transformation has one too.
///
/// # Panics
///
/// In a step, since burn's trait has no errors: if the rate is the transformation's [own](Rate::Own) and burn gives
/// another than 1, if the tensors are not in memory that the CPU can address, or the state in a record was saved by
/// another optimizer.
///
/// # Example
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::optim::GradientsParams;
/// use burn::tensor::{Device, Tensor};
/// use gradchain::prelude::*;
/// use gradchain_burn::Rate;
///
/// let device = Device::flex().autodiff();
/// let layer = LinearConfig::new(2, 1).with_bias(false).init(&device);
/// let before = layer.weight.val().into_data().try_to_vec::<f32>().unwrap();
/// let mut optimizer = gradchain_burn::per_tensor(chain((clip(1.0), sgd(1.0))), Rate::Burn)?;
///
/// let loss = layer.forward(Tensor::<2>::from_floats([[3.0, 0.5]], &device)).sum();
/// let grads = GradientsParams::from_grads(loss.backward(), &layer);
/// let layer = optimizer.step(0.125, layer, grads);
/// let after = layer.weight.val().into_data().try_to_vec::<f32>().unwrap();
/// assert_eq!(after, [before[0] - 0.125, before[1] - 0.0625]);
///
/// let error = gradchain_burn::per_tensor(clip_by_global_norm(1.0), Rate::Own).err().unwrap();
/// assert!(error.to_string().contains("one pass"));
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn per_tensor<T: GradientTransformation<Needs = Nothing>>(optimizer: T, rate: Rate) -> Result<ModuleOptimizer> {
    rate.check("per_tensor", &optimizer)?;
    let plan = optimizer.plan(&[0.0_f32; 2])?;
    match plan.passes.len() {
        1 => Ok(BurnOptimizer::new(optimizer, rate, false).into()),
        passes => Err(Error::argument(
            "per_tensor",
            "optimizer",
            "element-wise, with one pass",
            format!("{passes} passes in {}", plan.transformation),
        )),
    }
}

/// Returns an optimizer of burn's type that steps all parameters of a module together, for its `Learner`.
///
/// The [`ModuleOptimizer`] holds the whole state: its records, and so the checkpoints of the `Learner`, save and load
/// it bit for bit. The model's `TrainStep` must call [`optimize`] for each step.
///
/// The rate that burn gives the step multiplies the updates, as in [`per_tensor`]; [`Rate`] selects its source.
///
/// # Errors
///
/// If the rate is [burn's](Rate::Burn) and the transformation has one too. In [`optimize`]: if it is the
/// transformation's [own](Rate::Own) and burn passes another than 1.
///
/// # Panics
///
/// In a step without [`optimize`], since burn's trait has no errors.
///
/// # Example
///
/// ```
/// use burn::nn::{Linear, LinearConfig};
/// use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
/// use burn::optim::{GradientsParams, ModuleOptimizer};
/// use burn::prelude::*;
/// use burn::train::{TrainOutput, TrainStep};
/// use gradchain::prelude::*;
/// use gradchain_burn::Rate;
///
/// #[derive(Module, Debug)]
/// struct Model { layer: Linear }
///
/// impl TrainStep for Model {
///     type Input = Tensor<2>;
///     type Output = ();
///
///     fn step(&self, images: Tensor<2>) -> TrainOutput<()> {
///         TrainOutput::new(self, self.layer.forward(images).sum().backward(), ())
///     }
///
///     fn optimize(mut self, optim: &mut ModuleOptimizer, lr: ModuleLearningRate, grads: GradientsParams) -> Self {
///         gradchain_burn::optimize(optim, lr, &mut self, &grads).expect("the gradients of this model");
///         self
///     }
/// }
///
/// let device = Device::flex().autodiff();
/// let model = Model { layer: LinearConfig::new(2, 1).init(&device) };
/// let mut optimizer = gradchain_burn::whole_tree(chain((clip_by_global_norm(1.0), adamw(1.0))), Rate::Burn)?;
/// let grads = model.step(Tensor::from_floats([[1.0, 2.0]], &device)).grads;
/// let model = model.optimize(&mut optimizer, 1e-3.into(), grads);
/// # let _ = model;
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn whole_tree<T: GradientTransformation<Needs = Nothing>>(optimizer: T, rate: Rate) -> Result<ModuleOptimizer> {
    rate.check("whole_tree", &optimizer)?;
    Ok(BurnOptimizer::new(optimizer, rate, true).into())
}

/// Steps all trained parameters of a module together, with an optimizer from [`whole_tree`].
///
/// It ignores optimizers for groups of parameters ([`ModuleOptimizer::with_group`]), which burn does not reveal. Use a
/// [`partition`](gradchain::partition()) instead.
///
/// # Cost
///
/// That of [`step`](crate::step). The `Learner` clones its model for each step, so each step copies the parameters
/// once.
///
/// # Errors
///
/// As [`step`](crate::step); if the optimizer was not made by [`whole_tree`]; if it has burn's clipping, which would
/// see none of these gradients; if the learning rate differs between parameters, or is not 1 and the rate is the
/// transformation's [own](Rate::Own); if the state in a record was saved by another optimizer, or for other parameters.
/// Module and state are unchanged.
pub fn optimize<M: Module>(
    optim: &mut ModuleOptimizer,
    lr: impl Into<ModuleLearningRate>,
    module: &mut M,
    grads: &GradientsParams,
) -> Result<Outcome> {
    let lr = lr.into();
    let refuse = |argument, expected, found: &str| Err(Error::argument("optimize", argument, expected, found));
    if optim.has_gradient_clipping() {
        return refuse(
            "optim",
            "without clipping of burn's: put `clip_by_global_norm` into the chain",
            "one with clipping",
        );
    }
    let device = module.devices().first().cloned().unwrap_or_default().inner();
    let mut params = trained_mut(module)?;
    let grads = params.gradients(grads)?;
    let rate = lr.lr_from_param(tree_id(), Some(""));
    if let Some((_, path)) =
        params.leaves.ids().find(|(id, path)| lr.lr_from_param(*id, Some(&path.replace('/', "."))) != rate)
    {
        return refuse(
            "lr",
            "one rate for all parameters: put the others into a `partition`",
            &format!("another for `{path}`"),
        );
    }

    // burn has erased the optimizer's type and passes tensors only, so one tensor stands for the tree.
    let tensor = Tensor::<1>::zeros([1], &device);
    let mut shown = GradientsParams::new();
    shown.register(tree_id(), tensor.clone());
    let lent = Lent::new(&mut params.leaves, grads);
    optim.step(rate, Param::initialized(tree_id(), Tensor::from_inner(tensor).require_grad()), shown);
    match lent.outcome() {
        Some(outcome) => outcome,
        None => refuse("optim", "made by `whole_tree`", "another optimizer"),
    }
}

/// Returns the id of the tensor that stands for the tree.
fn tree_id() -> ParamId {
    ParamId::from(0)
}

thread_local! {
    /// The tree of the step that burn's optimizer runs on this thread.
    static CURRENT_STEP: RefCell<Option<CurrentStep>> = const { RefCell::new(None) };
}

struct CurrentStep {
    params: Leaves,
    grads: Leaves,
    outcome: Option<Result<Outcome>>,
}

/// Parameters lent to [`CURRENT_STEP`] until the drop, also in a panic.
struct Lent<'p>(&'p mut Leaves);

impl<'p> Lent<'p> {
    fn new(params: &'p mut Leaves, grads: Leaves) -> Lent<'p> {
        let current = CurrentStep { params: core::mem::take(params), grads, outcome: None };
        CURRENT_STEP.set(Some(current));
        Lent(params)
    }

    fn outcome(self) -> Option<Result<Outcome>> {
        CURRENT_STEP.with_borrow_mut(|current| current.as_mut().and_then(|current| current.outcome.take()))
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(current) = CURRENT_STEP.take() {
            *self.0 = current.params;
        }
    }
}

/// A transformation followed by burn's rate.
type Scaled<T> = (T, InjectHyperparams<Scale>);

#[derive(Clone)]
struct BurnOptimizer<T> {
    chain: Arc<Scaled<T>>,
    rate: Rate,
    whole: bool,
}

impl<T: GradientTransformation<Needs = Nothing>> BurnOptimizer<T> {
    fn new(optimizer: T, rate: Rate, whole: bool) -> BurnOptimizer<T> {
        BurnOptimizer { chain: Arc::new((optimizer, inject_hyperparams(scale(1.0)))), rate, whole }
    }

    fn step_tree<P: TreeMut, G: Tree>(
        &self,
        lr: LearningRate,
        params: &mut P,
        grads: &G,
        kept: &mut Option<RecordedState<T>>,
    ) -> Result<Outcome> {
        if self.rate == Rate::Own && lr != 1.0 {
            let function = if self.whole { "optimize" } else { "step" };
            let expected = "1, since the rate is the transformation's own (`Rate::Own`): give burn a \
                            `ConstantLr::from(1.0)`, or the transformation a learning rate of 1 and `Rate::Burn`";
            return Err(Error::argument(function, "lr", expected, lr));
        }
        let state = match kept {
            Some(RecordedState::Live(_, state)) => state,
            other => {
                let state = match other {
                    Some(RecordedState::Saved(bytes)) => {
                        Checkpoint::from_bytes(bytes.clone())?.load_state(&*self.chain, params)?
                    }
                    _ => self.chain.init(params)?,
                };
                let RecordedState::Live(_, state) =
                    other.insert(RecordedState::Live(self.chain.clone(), Box::new(state)))
                else {
                    unreachable!("what was just put there");
                };
                state
            }
        };
        state.1.hyperparams_mut().set("step_size", lr)?;
        self.chain.step(params, grads, state)
    }
}

impl<T: GradientTransformation<Needs = Nothing>> Optimizer for BurnOptimizer<T> {
    type State<const D: usize> = RecordedState<T>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<D>,
        grad: Tensor<D>,
        mut state: Option<RecordedState<T>>,
    ) -> (Tensor<D>, Option<RecordedState<T>>) {
        if self.whole {
            CURRENT_STEP.with_borrow_mut(|current| {
                let current = current.as_mut().expect(NOT_BY_OPTIMIZE);
                current.outcome = Some(self.step_tree(lr, &mut current.params, &current.grads, &mut state));
            });
            return (tensor, state);
        }
        let host = |tensor| Host::of(tensor).unwrap_or_else(|found| panic!("per_tensor: {found}"));
        let (mut params, grads) = (host(tensor), host(grad));
        self.step_tree(lr, &mut params, &grads, &mut state).unwrap_or_else(|error| panic!("per_tensor: {error}"));
        (params.into_tensor(), state)
    }

    fn to_device<const D: usize>(state: RecordedState<T>, _: &Device) -> RecordedState<T> {
        state
    }
}

/// The state in a [`ModuleOptimizer`]; a record stores the bytes of a checkpoint.
#[derive(Clone)]
enum RecordedState<T: GradientTransformation<Needs = Nothing>> {
    Live(Arc<Scaled<T>>, Box<OptState<Scaled<T>>>),
    /// Bytes from a record, until the first step supplies the optimizer.
    Saved(Vec<u8>),
}

impl<T: GradientTransformation<Needs = Nothing>> RecordState for RecordedState<T> {
    fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
        let bytes = match self {
            RecordedState::Saved(bytes) => bytes.clone(),
            RecordedState::Live(chain, state) => {
                let mut bytes = Cursor::new(Vec::new());
                Save::new(&**chain, state).to_writer(&mut bytes).unwrap_or_else(|error| panic!("to_record: {error}"));
                bytes.into_inner()
            }
        };
        let shape = [bytes.len()];
        out.push_tensor(prefix, NAME, TensorData::new(bytes, shape));
    }

    fn state_unflatten(prefix: &str, src: &mut StateSource, _: &Device) -> Option<Self> {
        src.take_tensor(prefix, NAME).map(|data| RecordedState::Saved(data.as_bytes().to_vec()))
    }
}

const NOT_BY_OPTIMIZE: &str =
    "the optimizer of `whole_tree` is stepped by `gradchain_burn::optimize`, from `TrainStep::optimize`";

const NAME: &str = "gradchain";
