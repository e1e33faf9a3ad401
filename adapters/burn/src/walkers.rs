//! Walks over modules.

use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::kind::Basic;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use gradchain::tree::Layout;
use gradchain::{Error, Result};

use crate::buffers::ModuleBuffer;
use crate::host::{self, Host};
use crate::leaves::Leaf;

pub(crate) trait LeafStorage: Sized {
    /// The expected kind of tensor, for messages.
    const EXPECTED: &'static str;

    /// Takes a tensor's contents; returns a description of the tensor if they are inaccessible.
    fn of<const D: usize>(tensor: Tensor<D>) -> Result<Self, String>;

    fn into_tensor<const D: usize>(self) -> Tensor<D>;

    /// Returns true if two holders of one id have the same value.
    fn same_value(&self, other: &Self) -> bool;

    /// Copies leaves that share memory with an earlier leaf, so that each can be written.
    fn unshare(leaves: &mut [Leaf<Self>]);
}

pub(crate) struct ModuleLeaves<H> {
    path: Vec<String>,
    /// The enclosing layer's weight layout, per level of the path.
    layouts: Vec<Layout>,
    leaves: Vec<Leaf<H>>,
    places: HashMap<ParamId, usize>,
    problem: Option<Error>,
}

impl<H> Default for ModuleLeaves<H> {
    fn default() -> ModuleLeaves<H> {
        ModuleLeaves {
            path: Vec::new(),
            layouts: Vec::new(),
            leaves: Vec::new(),
            places: HashMap::new(),
            problem: None,
        }
    }
}

impl<H> ModuleLeaves<H> {
    /// Enters a field of a layer of burn's kind `container`.
    fn enter(&mut self, name: &str, container: &str) {
        self.path.push(name.into());
        self.layouts.push(layout_of(container));
    }

    fn exit(&mut self) {
        self.path.pop();
        self.layouts.pop();
    }
}

/// Returns the weight layout: outputs first for convolutions, inputs first for other layers.
fn layout_of(container: &str) -> Layout {
    let name = container.strip_prefix("Struct:").unwrap_or_default();
    if name.starts_with("Conv") || name.starts_with("DeformConv") { Layout::OutIn } else { Layout::InOut }
}

impl<H: LeafStorage> ModuleLeaves<H> {
    fn add<const D: usize>(&mut self, id: ParamId, tensor: Tensor<D>) {
        if self.problem.is_none() {
            self.problem = self.try_add(id, tensor).err();
        }
    }

    fn try_add<const D: usize>(&mut self, id: ParamId, tensor: Tensor<D>) -> Result<()> {
        let path = self.path.join("/");
        let refuse = |expected: &str, found: String| Err(Error::argument("gradchain_burn", &path, expected, found));
        let held = match H::of(tensor) {
            Ok(held) => held,
            Err(found) => return refuse(H::EXPECTED, found),
        };
        match self.places.get(&id).map(|place| &self.leaves[*place]) {
            Some(first) if first.held.same_value(&held) => {}
            Some(first) => {
                let expected = format!("the value of `{}`, which has the same ParamId", first.path);
                return refuse(&expected, "another value".into());
            }
            None => {
                self.places.insert(id, self.leaves.len());
                self.leaves.push(Leaf { path, id, layout: self.layouts.last().copied().unwrap_or_default(), held });
            }
        }
        Ok(())
    }

    pub(crate) fn leaves(self) -> Result<Vec<Leaf<H>>> {
        let ModuleLeaves { mut leaves, problem, .. } = self;
        if let Some(problem) = problem {
            return Err(problem);
        }
        H::unshare(&mut leaves);
        Ok(leaves)
    }

    /// Returns the parameters; fails if the module has none.
    pub(crate) fn params(self) -> Result<Vec<Leaf<H>>> {
        let leaves = self.leaves()?;
        if leaves.is_empty() {
            let found = "none (`valid()` and frozen modules have none, nor have those on a device without autodiff)";
            return Err(Error::argument(
                "gradchain_burn",
                "module",
                "one with parameters that require gradients",
                found,
            ));
        }
        Ok(leaves)
    }
}

/// The tensor read for each trained parameter.
pub(crate) trait Source {
    fn tensor<const D: usize>(&self, param: &Param<Tensor<D>>) -> Option<Tensor<D>>;
}

pub(crate) struct Values;

impl Source for Values {
    fn tensor<const D: usize>(&self, param: &Param<Tensor<D>>) -> Option<Tensor<D>> {
        Some(param.val())
    }
}

/// The parameter in host memory, copied if it is elsewhere.
pub(crate) struct HostCopies;

impl Source for HostCopies {
    fn tensor<const D: usize>(&self, param: &Param<Tensor<D>>) -> Option<Tensor<D>> {
        Some(param.val().inner().to_device(&host::device()))
    }
}

impl Source for &GradientsParams {
    fn tensor<const D: usize>(&self, param: &Param<Tensor<D>>) -> Option<Tensor<D>> {
        self.get(param.id)
    }
}

pub(crate) struct Reader<S, H> {
    pub(crate) source: S,
    pub(crate) found: ModuleLeaves<H>,
}

impl<S: Source, H: LeafStorage> Reader<S, H> {
    pub(crate) fn read<M: Module>(module: &M, source: S) -> ModuleLeaves<H> {
        let mut reader = Reader { source, found: ModuleLeaves::default() };
        module.visit(&mut reader);
        reader.found
    }
}

impl<S: Source, H: LeafStorage> ModuleVisitor for Reader<S, H> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.found.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.found.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.is_require_grad()
            && let Some(tensor) = self.source.tensor(param)
        {
            self.found.add(param.id, tensor);
        }
    }
}

/// Takes the trained parameters out of a module; leaves one-element tensors with the same autodiff settings.
#[derive(Default)]
pub(crate) struct TakeLeaves {
    pub(crate) found: ModuleLeaves<Host>,
}

impl ModuleMapper for TakeLeaves {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.found.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.found.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        if !tensor.is_require_grad() {
            return Param::from_mapped_value(id, tensor, mapper);
        }
        let hollow = with_autodiff_of(Tensor::zeros([1; D], &tensor.device().inner()), &tensor, id);
        self.found.add(id, tensor);
        Param::from_mapped_value(id, hollow, mapper)
    }
}

/// Puts trained parameters back, in place of the current ones or of a [`TakeLeaves`]'s one-element tensors, and
/// buffers.
pub(crate) struct PutLeaves<H> {
    path: Vec<String>,
    held: HashMap<ParamId, H>,
    /// By id, so that a parameter in two places stays one tensor.
    put: GradientsParams,
    buffers: HashMap<String, TensorData>,
}

impl<H: LeafStorage> PutLeaves<H> {
    /// Returns the module with these parameters and buffers.
    pub(crate) fn put<M: Module>(
        module: M,
        leaves: impl IntoIterator<Item = Leaf<H>>,
        buffers: impl IntoIterator<Item = ModuleBuffer>,
    ) -> M {
        let held = leaves.into_iter().map(|leaf| (leaf.id, leaf.held)).collect();
        let buffers = buffers.into_iter().filter_map(|buffer| Some((buffer.path, buffer.new?))).collect();
        module.map(&mut PutLeaves { path: Vec::new(), held, put: GradientsParams::new(), buffers })
    }

    fn buffer(&mut self) -> Option<TensorData> {
        if self.buffers.is_empty() { None } else { self.buffers.remove(&self.path.join("/")) }
    }
}

impl<H: LeafStorage> ModuleMapper for PutLeaves<H> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, hollow, mapper) = param.consume();
        if !hollow.is_require_grad() {
            let tensor = match self.buffer() {
                Some(data) => tensor_from(data, &hollow.device()),
                None => hollow,
            };
            return Param::from_mapped_value(id, tensor, mapper);
        }
        if let Some(held) = self.held.remove(&id) {
            self.put.register(id, with_autodiff_of(held.into_tensor::<D>(), &hollow, id));
        }
        let tensor = self.put.get(id).unwrap_or(hollow);
        Param::from_mapped_value(id, tensor, mapper)
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        match self.buffer() {
            Some(data) => param.map(|tensor| tensor_from(data, &tensor.device())),
            None => param,
        }
    }

    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<D, Bool>>) -> Param<Tensor<D, Bool>> {
        match self.buffer() {
            Some(data) => param.map(|tensor| tensor_from(data, &tensor.device())),
            None => param,
        }
    }
}

fn tensor_from<const D: usize, K: Basic>(data: TensorData, device: &Device) -> Tensor<D, K> {
    let dtype = data.dtype();
    Tensor::from_data(data, (device, dtype))
}

/// Gives a tensor the autodiff settings of another that requires gradients.
fn with_autodiff_of<const D: usize>(value: Tensor<D>, like: &Tensor<D>, id: ParamId) -> Tensor<D> {
    let mut tensor = Tensor::from_inner(value);
    if let Some(strategy) = like.gradient_checkpointing_strategy() {
        tensor = tensor.with_gradient_checkpointing_strategy(strategy);
    }
    tensor = tensor.require_grad();
    if like.is_distributed() { tensor.set_distributed(id) } else { tensor }
}
