//! Buffers of a module, besides trained parameters: frozen parameters, running statistics, integers, `bool`s.

use core::fmt;
use std::sync::Arc;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::kind::Basic;
use burn::tensor::{Bool, BoolStore, DType, Int, Tensor, TensorData};
use gradchain::tree::Buffer;
use gradchain::{Error, Result};

/// A tensor that is no leaf, and its replacement.
#[derive(Clone)]
pub(crate) struct ModuleBuffer {
    pub(crate) path: String,
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    read: Arc<dyn Fn() -> TensorData + Send + Sync>,
    pub(crate) new: Option<TensorData>,
}

impl ModuleBuffer {
    fn of<const D: usize, K: Basic + 'static>(path: String, tensor: Tensor<D, K>) -> ModuleBuffer {
        let (dtype, shape) = (tensor.dtype(), tensor.dims().to_vec());
        let name = match dtype {
            DType::Bool(BoolStore::Native | BoolStore::U8) => "bool".into(),
            dtype => format!("{dtype:?}").to_lowercase(),
        };
        ModuleBuffer { path, name, dtype, shape, read: Arc::new(move || tensor.to_data()), new: None }
    }
}

impl fmt::Debug for ModuleBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {:?}", self.path, self.name, self.shape)
    }
}

impl Buffer for ModuleBuffer {
    fn dtype(&self) -> &str {
        &self.name
    }

    fn shape(&self) -> Vec<usize> {
        self.shape.clone()
    }

    fn read(&self, show: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        match &self.new {
            Some(new) => show(new.as_bytes()),
            None => show((self.read)().as_bytes()),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let data = TensorData::try_from_bytes_vec(bytes.to_vec(), self.shape.clone(), self.dtype);
        self.new = Some(data.map_err(|error| Error::state(&*self.path, format!("{error:?}")))?);
        Ok(())
    }
}

/// Returns the buffers, in burn's order.
pub(crate) fn buffers<M: Module>(module: &M) -> Vec<ModuleBuffer> {
    #[derive(Default)]
    struct ModuleBuffers {
        path: Vec<String>,
        all: Vec<ModuleBuffer>,
    }

    impl ModuleBuffers {
        fn add<const D: usize, K: Basic + 'static>(&mut self, tensor: Tensor<D, K>) {
            self.all.push(ModuleBuffer::of(self.path.join("/"), tensor));
        }
    }

    impl ModuleVisitor for ModuleBuffers {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.path.push(name.into());
        }

        fn exit_module(&mut self, _: &str, _: &str) {
            self.path.pop();
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if !param.is_require_grad() {
                self.add(param.val().inner());
            }
        }

        fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
            self.add(param.val());
        }

        fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
            self.add(param.val());
        }
    }

    // Merges the last batch into running statistics; no other public call does.
    drop(module.valid());
    let mut found = ModuleBuffers::default();
    module.visit(&mut found);
    found.all
}
