//! Walks over modules.

use std::collections::{HashMap, HashSet};

use burn::module::{ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use gradchain::{Error, Result};

use crate::host::Host;
use crate::leaves::{Leaf, Leaves};

/// The leaves that a walk has come by.
#[derive(Default)]
pub(crate) struct Found {
    path: Vec<String>,
    leaves: Vec<Leaf>,
    places: HashMap<ParamId, usize>,
    problem: Option<Error>,
}

impl Found {
    fn add<const D: usize>(&mut self, id: ParamId, tensor: Tensor<D>) {
        if self.problem.is_none() {
            self.problem = self.try_add(id, tensor).err();
        }
    }

    fn try_add<const D: usize>(&mut self, id: ParamId, tensor: Tensor<D>) -> Result<()> {
        let path = self.path.join("/");
        let refuse = |expected: &str, found: String| Err(Error::argument("gradchain_burn", &path, expected, found));
        let host = match Host::of(tensor) {
            Ok(host) => host,
            Err(found) => return refuse("floats in memory that the CPU can address (a tensor on flex)", found),
        };
        match self.places.get(&id).map(|place| &self.leaves[*place]) {
            Some(first) if first.host.is(&host) => {}
            Some(first) => {
                let expected = format!("what `{}` is, whose ParamId it has", first.path);
                return refuse(&expected, "another value".into());
            }
            None => {
                self.places.insert(id, self.leaves.len());
                self.leaves.push(Leaf { path, id, host });
            }
        }
        Ok(())
    }

    /// What was found.
    pub(crate) fn leaves(self) -> Result<Leaves> {
        let Found { mut leaves, problem, .. } = self;
        if let Some(problem) = problem {
            return Err(problem);
        }
        // Tensors that have begun as clones, under ids of their own, are not one parameter.
        let mut known = HashSet::new();
        leaves.iter_mut().filter(|leaf| !known.insert(leaf.host.address())).for_each(|leaf| leaf.host.own());
        Ok(Leaves { leaves })
    }

    /// The same, of parameters, of which there must be some.
    pub(crate) fn params(self) -> Result<Leaves> {
        let leaves = self.leaves()?;
        if leaves.leaves.is_empty() {
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

/// What a [`Reader`] reads of each trained parameter.
pub(crate) trait Source {
    fn tensor<const D: usize>(&self, param: &Param<Tensor<D>>) -> Option<Tensor<D>>;
}

/// The parameter itself.
pub(crate) struct Values;

impl Source for Values {
    fn tensor<const D: usize>(&self, param: &Param<Tensor<D>>) -> Option<Tensor<D>> {
        Some(param.val())
    }
}

/// Its gradient.
impl Source for &GradientsParams {
    fn tensor<const D: usize>(&self, param: &Param<Tensor<D>>) -> Option<Tensor<D>> {
        self.get(param.id)
    }
}

/// Finds leaves to read.
pub(crate) struct Reader<S> {
    pub(crate) source: S,
    pub(crate) found: Found,
}

impl<S: Source> ModuleVisitor for Reader<S> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.found.path.push(name.into());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.found.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.is_require_grad()
            && let Some(tensor) = self.source.tensor(param)
        {
            self.found.add(param.id, tensor);
        }
    }
}

/// Takes the trained parameters out of a module and leaves tensors of one element, which are to autodiff what the
/// parameters were.
#[derive(Default)]
pub(crate) struct Taker {
    pub(crate) found: Found,
}

impl ModuleMapper for Taker {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.found.path.push(name.into());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.found.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        if !tensor.is_require_grad() {
            return Param::from_mapped_value(id, tensor, mapper);
        }
        let hollow = lifted(Tensor::zeros([1; D], &tensor.device().inner()), &tensor, id);
        self.found.add(id, tensor);
        Param::from_mapped_value(id, hollow, mapper)
    }
}

/// Puts parameters back to where a [`Taker`] took them from.
pub(crate) struct Putter {
    pub(crate) hosts: HashMap<ParamId, Host>,
    /// Those that have been put, by id: a parameter in two places is one tensor in both.
    pub(crate) put: GradientsParams,
}

impl ModuleMapper for Putter {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, hollow, mapper) = param.consume();
        if !hollow.is_require_grad() {
            return Param::from_mapped_value(id, hollow, mapper);
        }
        if let Some(host) = self.hosts.remove(&id) {
            self.put.register(id, lifted(host.into_tensor::<D>(), &hollow, id));
        }
        let tensor = self.put.get(id).unwrap_or(hollow);
        Param::from_mapped_value(id, tensor, mapper)
    }
}

/// A tensor that is to autodiff what another is that requires gradients.
fn lifted<const D: usize>(value: Tensor<D>, like: &Tensor<D>, id: ParamId) -> Tensor<D> {
    let mut tensor = Tensor::from_inner(value);
    if let Some(strategy) = like.gradient_checkpointing_strategy() {
        tensor = tensor.with_gradient_checkpointing_strategy(strategy);
    }
    tensor = tensor.require_grad();
    if like.is_distributed() { tensor.set_distributed(id) } else { tensor }
}
