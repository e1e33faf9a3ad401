//! What a kind of device must be able to do.

use gradchain::{Error, Result};

use crate::print::{Language, Numbers};

/// A kind of device: memory, and kernels that are compiled from text. [`Wgpu`](crate::Wgpu) and [`Cuda`](crate::Cuda)
/// are the two.
pub trait Backend: Kernels {
    /// Memory on the device.
    type Buffer;

    /// The name of the device.
    fn name(&self) -> String;
    /// Memory of so many bytes.
    ///
    /// # Errors
    ///
    /// If there is none.
    fn buffer(&self, bytes: usize) -> Result<Self::Buffer>;
    /// Writes bytes to the beginning of a buffer.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn write(&self, buffer: &mut Self::Buffer, bytes: &[u8]) -> Result<()>;
    /// Reads so many bytes from the beginning of a buffer, after everything that was launched before.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn read(&self, buffer: &Self::Buffer, bytes: usize) -> Result<Vec<u8>>;
    /// Reads so many bytes from the beginning of each of some buffers, one after another.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn read_all(&self, buffers: &[(&Self::Buffer, usize)]) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        for (buffer, bytes) in buffers {
            all.extend(self.read(buffer, *bytes)?);
        }
        Ok(all)
    }
}

/// What is done with kernels. It has no path outside of this crate, so that nobody else makes a kind of device.
pub trait Kernels: Sized {
    type Kernel;
    /// Whether sums of different leaves lie in different buffers: where a kernel would wait for the one before that has
    /// written to the same buffer. Else they lie in one, which is one copy.
    const SUMS_APART: bool;

    #[allow(private_interfaces, reason = "called by this crate only")]
    fn language(&self) -> Language;
    fn compile(&self, text: &str, bindings: usize) -> Result<Self::Kernel>;
    /// Does to each of these leaves what the kernel does: they have no buffer in common but the one for sums.
    #[allow(private_interfaces, reason = "called by this crate only")]
    fn launch(&self, kernel: &Self::Kernel, leaves: &[Launch<'_, Self::Buffer>]) -> Result<()>
    where
        Self: Backend;
}

/// What a kernel is told of a leaf.
pub(crate) struct Launch<'a, B> {
    pub(crate) numbers: Numbers,
    /// All that it is bound to besides numbers.
    pub(crate) buffers: Vec<&'a B>,
    /// How many groups of threads go through the leaf.
    pub(crate) groups: usize,
}

/// What a device said that went wrong.
pub(crate) fn failure(device: &str, problem: impl std::fmt::Display) -> Error {
    Error::state(device, problem.to_string())
}
