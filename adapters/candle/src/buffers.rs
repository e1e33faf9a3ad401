//! Variables that are not trained, as buffers of the tree of trained ones.

use candle_core::{Tensor, Var};
use gradchain::tree::Buffer;
use gradchain::{Error, Result};

/// A variable that is no leaf.
#[derive(Clone, Debug)]
pub(crate) struct UntrainedVar {
    pub(crate) path: String,
    pub(crate) var: Var,
    /// True if only its name makes it untrained.
    pub(crate) by_name: bool,
}

impl UntrainedVar {
    fn failed(&self, error: &candle_core::Error) -> Error {
        Error::state(&*self.path, error.to_string())
    }
}

impl Buffer for UntrainedVar {
    fn dtype(&self) -> &str {
        self.var.dtype().as_str()
    }

    fn shape(&self) -> Vec<usize> {
        self.var.dims().to_vec()
    }

    fn read(&self, show: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut bytes = Vec::new();
        self.var.write_bytes(&mut bytes).map_err(|error| self.failed(&error))?;
        show(&bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let size = self.var.elem_count() * self.var.dtype().size_in_bytes();
        if bytes.len() != size {
            return Err(Error::state(&*self.path, format!("{} bytes for a variable of {size}", bytes.len())));
        }
        let made = Tensor::from_raw_buffer(bytes, self.var.dtype(), self.var.dims(), self.var.device());
        made.and_then(|made| self.var.set(&made)).map_err(|error| self.failed(&error))
    }
}
