//! Optimizers of [gradchain](https://docs.rs/gradchain) on GPUs, with parameters, gradients and state on the device.
//!
//! ```text
//! cargo add gradchain gradchain-gpu
//! ```
//!
//! Each pass of a step is recorded as [programs](gradchain::program) and printed as kernels: in WGSL for
//! [`Device::wgpu`], in CUDA C for [`Device::cuda`]. The host computes the values that follow from reductions and
//! schedules in `f64`, as on a CPU. Kernels take them as arguments, so each is compiled once.
//!
//! ```no_run
//! use gradchain::prelude::*;
//! use gradchain_gpu::Device;
//!
//! let device = Device::wgpu()?;
//! let optimizer = adamw(cosine_decay(1e-3, 1000));
//! let mut params = vec![1.0_f32; 1000];
//! let mut run = device.init(&optimizer, &params)?;
//! run.set_gradients(&vec![0.5_f32; 1000])?;
//! device.step(&optimizer, &mut run)?;
//! run.params_into(&mut params)?;
//! # Ok::<(), gradchain::Error>(())
//! ```
//!
//! # Which bits
//!
//! Parameters and state are bitwise identical to a CPU's: with CUDA always, with wgpu if the device adds and multiplies
//! according to IEEE 754, as Mesa's `lavapipe` and NVIDIA's driver do. The kernels correct quotients and roots of `f32`
//! on any such device. Other functions (`exp`, `ln`, powers) may differ in the last bits. See the guide's page [On a
//! device](_guide).

mod backend;
#[cfg(feature = "cuda")]
mod cuda_backend;
mod device;
mod print;
#[cfg(feature = "wgpu")]
mod wgpu_backend;

pub use backend::Backend;
#[cfg(feature = "cuda")]
pub use cuda_backend::{Cuda, compile_cuda, cuda_source};
pub use device::{Device, DeviceArrays, OnDevice};
pub use gradchain::program::Traffic;
#[cfg(feature = "wgpu")]
pub use wgpu_backend::{Wgpu, wgsl_source};

#[cfg(any(doc, doctest))]
#[doc = include_str!("../guide.md")]
pub mod _guide {}

#[cfg(feature = "wgpu")]
impl Device<Wgpu> {
    /// Opens a Vulkan, Metal or Direct3D 12 device, the fastest if the system has several.
    ///
    /// # Errors
    ///
    /// If the system has none.
    pub fn wgpu() -> gradchain::Result<Device<Wgpu>> {
        Wgpu::new(true).map(Device::with)
    }

    /// Opens the same device without its 64-bit floats: reductions add pairs of `f32`.
    ///
    /// # Errors
    ///
    /// As [`wgpu`](Self::wgpu).
    pub fn wgpu_in_pairs() -> gradchain::Result<Device<Wgpu>> {
        Wgpu::new(false).map(Device::with)
    }
}

#[cfg(feature = "cuda")]
impl Device<Cuda> {
    /// Opens the NVIDIA device of this number, counted from 0.
    ///
    /// # Errors
    ///
    /// If no such device exists, or the driver's library or that of the compiler (NVRTC) is not found.
    pub fn cuda(number: usize) -> gradchain::Result<Device<Cuda>> {
        Cuda::new(number).map(Device::with)
    }
}
