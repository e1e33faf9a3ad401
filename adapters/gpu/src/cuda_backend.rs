//! NVIDIA devices, through CUDA.
#![allow(unsafe_code, reason = "kernels are called with pointers, and libraries are loaded while the program runs")]

use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DeviceRepr, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::{CompileOptions, Ptx, compile_ptx_with_opts};
use gradchain::Result;
use gradchain::program::{LeafProgram, Pass};

use crate::backend::{Backend, Kernels, Launch, failure};
use crate::print::cuda::{TABLE, leaf_bytes};
use crate::print::{self, Language, Numbers};

const NAME: &str = "cuda";

/// An NVIDIA device, with kernels in CUDA C compiled by NVRTC; see [`Device::cuda`](crate::Device::cuda).
#[derive(Debug)]
pub struct Cuda {
    name: String,
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    capability: (i32, i32),
}

/// Returns the CUDA C source of a leaf's kernel in a pass.
///
/// # Errors
///
/// If CUDA C cannot express it.
pub fn cuda_source(pass: &Pass, leaf: &LeafProgram) -> Result<String> {
    print::print(Language::Cuda, pass.from_stored, leaf).map(|kernel| kernel.text)
}

/// Compiles a kernel for a compute capability, such as `(9, 0)`, to PTX without fused operations.
///
/// # Errors
///
/// If NVRTC is not found, or rejects the source.
pub fn compile_cuda(text: &str, capability: (i32, i32)) -> Result<String> {
    compiled(text, capability).map(|ptx| ptx.to_src())
}

fn compiled(text: &str, (major, minor): (i32, i32)) -> Result<Ptx> {
    // SAFETY: it only loads NVIDIA's library, which is loaded next in any case.
    if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        return Err(failure(NAME, "libnvrtc, the compiler's library, is not in the linker's search path"));
    }
    let options = CompileOptions {
        fmad: Some(false),
        ftz: Some(false),
        prec_div: Some(true),
        prec_sqrt: Some(true),
        options: vec![format!("--gpu-architecture=compute_{major}{minor}")],
        ..CompileOptions::default()
    };
    compile_ptx_with_opts(text, options).map_err(|error| failure(NAME, format!("{error:?}")))
}

impl Cuda {
    pub(crate) fn new(number: usize) -> Result<Cuda> {
        // SAFETY: it only loads NVIDIA's library, which is loaded next in any case.
        if !unsafe { cudarc::driver::sys::is_culib_present() } {
            return Err(failure(NAME, "libcuda, the driver's library, is not found: is an NVIDIA device installed?"));
        }
        // SAFETY: as above.
        if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
            return Err(failure(NAME, "libnvrtc, the compiler's library, is not found"));
        }
        let driver_error = |error: cudarc::driver::DriverError| failure(NAME, error);
        let context = CudaContext::new(number).map_err(driver_error)?;
        let (name, capability) =
            (context.name().map_err(driver_error)?, context.compute_capability().map_err(driver_error)?);
        Ok(Cuda { name, stream: context.default_stream(), context, capability })
    }

    /// Returns the stream of the steps, to launch work of your own that writes gradients.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    fn driver_error(&self, error: cudarc::driver::DriverError) -> gradchain::Error {
        failure(&self.name, error)
    }
}

impl Backend for Cuda {
    type Buffer = CudaSlice<u8>;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn buffer(&self, bytes: usize) -> Result<CudaSlice<u8>> {
        self.stream.alloc_zeros(bytes.max(8)).map_err(|error| self.driver_error(error))
    }

    fn write(&self, buffer: &mut CudaSlice<u8>, bytes: &[u8]) -> Result<()> {
        let Some(mut to) = buffer.try_slice_mut(..bytes.len()).filter(|_| !bytes.is_empty()) else { return Ok(()) };
        self.stream.memcpy_htod(bytes, &mut to).map_err(|error| self.driver_error(error))
    }

    fn read(&self, buffer: &CudaSlice<u8>, bytes: usize) -> Result<Vec<u8>> {
        let Some(from) = buffer.try_slice(..bytes).filter(|_| bytes > 0) else { return Ok(Vec::new()) };
        self.stream.clone_dtoh(&from).map_err(|error| self.driver_error(error))
    }
}

impl Kernels for Cuda {
    type Kernel = CudaFunction;
    const SEPARATE_SUMS: bool = false;

    #[allow(private_interfaces, reason = "called by this crate only")]
    fn language(&self) -> Language {
        Language::Cuda
    }

    fn compile(&self, text: &str, _: usize) -> Result<CudaFunction> {
        let module =
            self.context.load_module(compiled(text, self.capability)?).map_err(|error| self.driver_error(error))?;
        module.load_function("run").map_err(|error| self.driver_error(error))
    }

    /// Passes as many leaves per launch as fit into the kernel argument, in the layout of the source's `Leaf`.
    ///
    /// A copy to the device would wait for earlier work.
    #[allow(private_interfaces, reason = "called by this crate only")]
    fn launch(&self, kernel: &CudaFunction, leaves: &[Launch<'_, CudaSlice<u8>>]) -> Result<()> {
        let Some(Launch { numbers, buffers, .. }) = leaves.first() else { return Ok(()) };
        // The first two single-precision numbers and the leaf's offset are counts.
        let bytes = leaf_bytes(numbers.wide.len() + buffers.len(), numbers.single.len() - 2);
        leaves.chunks(TABLE / bytes).try_for_each(|leaves| self.launch_batch(kernel, leaves))
    }
}

#[repr(C)]
struct Table([u64; TABLE / 8]);

// SAFETY: plain words; a kernel reads the number of words that it was printed for, which is no more.
unsafe impl DeviceRepr for Table {}

/// Appends a leaf in the layout of the source's `Leaf`.
///
/// 8-byte numbers and pointers, the leaf's offset, counts, 4-byte numbers.
fn add_leaf(table: &mut Vec<u64>, numbers: &Numbers, pointers: &[u64], begin: u32) {
    table.extend(numbers.wide.iter().chain(pointers));
    let fours: Vec<u32> = core::iter::once(begin).chain(numbers.single.iter().copied()).collect();
    let word = |pair: &[u32]| u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(0)) << 32;
    table.extend(fours.chunks(2).map(word));
}

impl Cuda {
    fn launch_batch(&self, kernel: &CudaFunction, leaves: &[Launch<'_, CudaSlice<u8>>]) -> Result<()> {
        let (mut words, mut begin, mut used) = (Vec::with_capacity(TABLE / 8), 0, Vec::new());
        for leaf in leaves {
            let each = leaf.buffers.iter().map(|buffer| buffer.device_ptr(&self.stream));
            let (pointers, until_launched): (Vec<_>, Vec<_>) = each.unzip();
            used.extend(until_launched);
            add_leaf(&mut words, &leaf.numbers, &pointers, begin);
            begin += leaf.groups as u32;
        }
        let mut table = Table([0; TABLE / 8]);
        table.0[..words.len()].copy_from_slice(&words);
        let config = LaunchConfig { grid_dim: (begin, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        let (mut launch, count) = (self.stream.launch_builder(kernel), leaves.len() as u32);
        launch.arg(&table).arg(&count);
        // SAFETY: the kernel was printed for leaves with these numbers, of these sizes, and one pointer of the right
        // type for each of these buffers. No two buffers alias except the one of sums, in which each leaf has its own
        // part. Each buffer holds at least the number of elements passed to the kernel, which accesses no others.
        unsafe { launch.launch(config) }.map(drop).map_err(|error| self.driver_error(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_lie_one_after_another_as_the_text_says() {
        for (wides, pointers, singles) in [(0, 1, 0), (0, 4, 12), (2, 3, 1), (1, 2, 4)] {
            let mut table = Vec::new();
            for leaf in 0..3 {
                // The first two are counts.
                let single = (0..2 + singles).map(|k| 100 * leaf + k).collect();
                let wide = (0..wides).map(|k| 1000 + u64::from(100 * leaf) + k).collect();
                let pointers: Vec<_> = (0..pointers).map(|k| 2000 + u64::from(100 * leaf) + k).collect();
                add_leaf(&mut table, &Numbers { single, wide }, &pointers, 7 * leaf);
            }
            let words = leaf_bytes((wides + pointers) as usize, singles as usize) / 8;
            assert_eq!(table.len(), 3 * words);
            for (leaf, told) in (0..).zip(table.chunks(words)) {
                let (eights, fours) = told.split_at((wides + pointers) as usize);
                let fours: Vec<_> = fours.iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]).collect();
                let first = if wides > 0 { 1000 } else { 2000 };
                assert_eq!((eights[0], fours[0], fours[1]), (first + 100 * u64::from(leaf), 7 * leaf, 100 * leaf));
                assert_eq!(fours[2 + singles as usize], 100 * leaf + singles + 1);
            }
        }
    }
}
