//! The interface of a kind of device.

use gradchain::{Error, Result};

use crate::print::{Language, Numbers};

/// A kind of device: memory, and kernels compiled from source.
///
/// [`Wgpu`](crate::Wgpu) and [`Cuda`](crate::Cuda) implement it.
pub trait Backend: Kernels {
    /// Memory on the device.
    type Buffer;

    /// Returns the name of the device.
    fn name(&self) -> String;
    /// Allocates a buffer of `bytes` bytes.
    ///
    /// # Errors
    ///
    /// If the device is out of memory.
    fn buffer(&self, bytes: usize) -> Result<Self::Buffer>;
    /// Writes bytes to the beginning of a buffer.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn write(&self, buffer: &mut Self::Buffer, bytes: &[u8]) -> Result<()>;
    /// Reads the first `bytes` bytes of a buffer, after all earlier launches.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn read(&self, buffer: &Self::Buffer, bytes: usize) -> Result<Vec<u8>>;
    /// Reads the first bytes of several buffers, concatenated.
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

/// The kernel interface of a backend, sealed: it has no path outside of this crate.
pub trait Kernels: Sized {
    type Kernel;
    /// True if each leaf has its own buffer for sums; otherwise all leaves share one, which needs a single copy.
    ///
    /// Separate buffers suit devices that serialize kernels which write to the same buffer.
    const SEPARATE_SUMS: bool;

    #[allow(private_interfaces, reason = "called by this crate only")]
    fn language(&self) -> Language;
    fn compile(&self, text: &str, bindings: usize) -> Result<Self::Kernel>;
    /// Runs the kernel on each leaf; leaves share no buffer except the one for sums.
    #[allow(private_interfaces, reason = "called by this crate only")]
    fn launch(&self, kernel: &Self::Kernel, leaves: &[Launch<'_, Self::Buffer>]) -> Result<()>
    where
        Self: Backend;
}

/// The arguments of a kernel for one leaf.
pub(crate) struct Launch<'a, B> {
    pub(crate) numbers: Numbers,
    /// The bindings except numbers.
    pub(crate) buffers: Vec<&'a B>,
    pub(crate) groups: usize,
}

pub(crate) fn failure(device: &str, problem: impl std::fmt::Display) -> Error {
    Error::state(device, problem.to_string())
}
