//! A module as a tree: a walk finds the leaves, takes them out for a step, and puts them back.

use core::fmt;

use burn::module::{Module, ParamId};
use burn::optim::GradientsParams;
use gradchain::tree::{Layout, Tree, TreeMut, Walk, WalkMut};
use gradchain::{Error, Result};

use crate::buffers::{ModuleBuffer, buffers};
use crate::host::Host;
use crate::walkers::{LeafStorage, PutLeaves, Reader, TakeLeaves, Values};

/// The values of a module's parameters, or their gradients, as a tree: a snapshot that shares their memory.
///
/// [`params`] and [`gradients`] return it. It does not follow changes of the module, and writing to it changes nothing
/// else: the first writer makes a copy. Drop it before the next step, or that step copies all parameters.
#[derive(Clone, Debug, Default)]
pub struct Leaves {
    pub(crate) leaves: Vec<Leaf<Host>>,
    pub(crate) buffers: Vec<ModuleBuffer>,
}

/// A parameter, and its value or gradient.
#[derive(Clone, Debug)]
pub(crate) struct Leaf<H> {
    pub(crate) path: String,
    pub(crate) id: ParamId,
    pub(crate) layout: Layout,
    pub(crate) held: H,
}

/// Returns the trained parameters of a module as a tree to read.
///
/// Every function that takes a tree accepts it: [`init`](gradchain::GradientTransformation::init),
/// [`plan`](gradchain::GradientTransformation::plan), [checkpoints](gradchain::checkpoint), norms.
///
/// A leaf is a float parameter that requires gradients. Its path consists of the names of the fields, as in
/// `fc1/weight`, of indices in `Vec`s, arrays and tuples, and of the names of enum variants. A parameter in two places
/// (clones, with one `ParamId`) is one leaf, under its first path.
///
/// Weights of convolutions are stored outputs first and declare that [`Layout`], for [`muon`](gradchain::muon()) and
/// similar transformations; all others are stored inputs first, as burn's `Linear`.
///
/// Everything else that burn shows of a module is a [buffer](gradchain::tree::Buffer), which checkpoints save and load
/// with the parameters, and plans name: frozen parameters, running statistics, parameters of integers and of `bool`.
/// Running statistics are merged with the last batch first. burn shows neither flags such as that of `Dropout`, which
/// its records omit too, nor a plain `Tensor` field: make a constant a `Param` that requires no gradient.
///
/// # Cost
///
/// Two walks over the module. It copies only leaves that are not in row-major order.
///
/// # Errors
///
/// If no parameter requires gradients, as after `valid()`; if a parameter is not in host memory, or its dtype is not
/// `f64`, `f32`, `f16` or `bf16`; if two parameters have one `ParamId` and different values.
///
/// # Example
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::Device;
/// use gradchain::tree::tree_norm;
///
/// let layer = LinearConfig::new(3, 2).init(&Device::flex().autodiff());
/// let params = gradchain_burn::params(&layer)?;
/// let structure = gradchain::tree::Structure::of(&params)?;
/// assert_eq!(structure.paths().collect::<Vec<_>>(), ["weight", "bias"]);
/// assert!(tree_norm(&params) > 0.0);
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn params<M: Module>(module: &M) -> Result<Leaves> {
    let leaves = Reader::read(module, Values).params()?;
    Ok(Leaves { leaves, buffers: buffers(module) })
}

/// Returns the gradients of a module's trained parameters, under the paths of [`params`].
///
/// A parameter without a gradient has no leaf: an error in a step, unless the optimizer is a
/// [`skip_absent`](gradchain::wrapper::skip_absent).
///
/// # Cost
///
/// A walk over the module. It copies only gradients that are not in row-major order.
///
/// # Errors
///
/// If a gradient is not in host memory, or belongs to none of the trained parameters. For a part of a module take
/// `GradientsParams::from_module(&mut gradients, &part)`.
///
/// # Panics
///
/// In burn, if a gradient was registered with another rank than its parameter's.
pub fn gradients<M: Module>(module: &M, grads: &GradientsParams) -> Result<Leaves> {
    found_gradients(module, grads).map(Leaves::of)
}

pub(crate) fn found_gradients<M: Module, H: LeafStorage>(module: &M, grads: &GradientsParams) -> Result<Vec<Leaf<H>>> {
    let leaves = Reader::read(module, grads).leaves()?;
    match grads.len() - leaves.len() {
        0 => Ok(leaves),
        more => Err(Error::argument(
            "gradients",
            "grads",
            "of the module's trained parameters only",
            format!("{more} of {} that match none of them", grads.len()),
        )),
    }
}

/// Returns the trained parameters of a module as a tree to write: the leaves of [`params`], all open at once, in place.
///
/// Use it with functions that write a tree: `step_with`, [`Checkpoint::load`](gradchain::checkpoint::Checkpoint::load),
/// [`tree_assign`](gradchain::tree::tree_assign), [`flush`](gradchain::wrapper::MultiSteps::flush). The parameters are
/// taken out of the module. Dropping the tree puts them back, also after an error or a panic, with their `ParamId`s,
/// mappers and autodiff settings. Parameters that were tied are tied again.
///
/// # Cost
///
/// Three walks over the module, two clones of its other fields, and a tensor of one element per parameter. Elements are
/// copied only if they are shared, for example with a clone of the module, or not in row-major order.
///
/// # Errors
///
/// As [`params`]. The module is unchanged.
///
/// # Example
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::Device;
/// use gradchain::tree::tree_fill;
///
/// let mut layer = LinearConfig::new(3, 2).init(&Device::flex().autodiff());
/// let id = layer.weight.id;
/// tree_fill(&mut gradchain_burn::params_mut(&mut layer)?, 0.5);
/// assert_eq!(layer.weight.val().into_data().try_to_vec::<f32>().unwrap(), [0.5; 6]);
/// assert_eq!(layer.weight.id, id);
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn params_mut<M: Module>(module: &mut M) -> Result<LeavesMut<'_, M>> {
    let buffers = buffers(module);
    let mut params = trained_mut(module)?;
    params.leaves.buffers = buffers;
    Ok(params)
}

/// Returns the leaves without buffers, for a step.
pub(crate) fn trained_mut<M: Module>(module: &mut M) -> Result<LeavesMut<'_, M>> {
    let mut taker = TakeLeaves::default();
    let hollow = module.clone().map(&mut taker);
    let mut leaves = taker.found.params()?;
    // From here on the module holds none of the values.
    *module = hollow;
    leaves.iter_mut().for_each(|leaf| leaf.held.own());
    Ok(LeavesMut { module, leaves: Leaves::of(leaves) })
}

/// The trained parameters of a module while they are written; see [`params_mut`].
///
/// If it is leaked, as by [`core::mem::forget`], the module is left with tensors of one element.
#[must_use = "the parameters are out of the module while it lives"]
pub struct LeavesMut<'m, M: Module> {
    module: &'m mut M,
    pub(crate) leaves: Leaves,
}

impl<M: Module> LeavesMut<'_, M> {
    /// Returns [`gradients`] for the module of these parameters.
    ///
    /// # Errors
    ///
    /// As [`gradients`].
    pub fn gradients(&self, grads: &GradientsParams) -> Result<Leaves> {
        gradients(&*self.module, grads)
    }
}

impl<M: Module> Drop for LeavesMut<'_, M> {
    fn drop(&mut self) {
        let leaves = core::mem::take(&mut self.leaves);
        *self.module = PutLeaves::put(self.module.clone(), leaves.leaves, leaves.buffers);
    }
}

impl<M: Module> fmt::Debug for LeavesMut<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.leaves.fmt(f)
    }
}

impl<M: Module> Tree for LeavesMut<'_, M> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        self.leaves.walk(walk);
    }
}

impl<M: Module> TreeMut for LeavesMut<'_, M> {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        let Leaves { leaves, buffers } = &mut self.leaves;
        leaves.iter_mut().for_each(|leaf| walk.child(&leaf.path, &mut leaf.held));
        buffers.iter_mut().for_each(|buffer| walk.buffer(&buffer.path.clone(), buffer));
    }
}

impl Leaves {
    pub(crate) fn of(leaves: Vec<Leaf<Host>>) -> Leaves {
        Leaves { leaves, buffers: Vec::new() }
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = (ParamId, &str)> {
        self.leaves.iter().map(|leaf| (leaf.id, &*leaf.path))
    }
}

impl Tree for Leaf<Host> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        walk.layout(self.layout);
        self.held.walk(walk);
    }
}

impl Tree for Leaves {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        self.leaves.iter().for_each(|leaf| walk.child(&leaf.path, leaf));
        self.buffers.iter().for_each(|buffer| walk.buffer(&buffer.path, buffer));
    }
}

/// Shows no buffers, which a snapshot cannot write: load into [`params_mut`].
impl TreeMut for Leaves {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        self.leaves.iter_mut().for_each(|leaf| walk.child(&leaf.path, &mut leaf.held));
    }
}
