//! Optimizers of [gradchain](https://docs.rs/gradchain) on GPUs: parameters, gradients and the state's arrays stay on
//! the device.
//!
//! ```text
//! cargo add gradchain gradchain-gpu
//! ```
//!
//! A step is recorded as [programs](gradchain::program), a pass at a time, which are printed as kernels: in WGSL for
//! [`Device::wgpu`], in CUDA C for [`Device::cuda`]. What follows from sums and schedules is worked out on this machine
//! in `f64`, as on a CPU, and comes to the kernels as numbers, so that each kernel is compiled once.
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
//! The parameters and the state have the bits that a CPU gives them: by CUDA always; by wgpu where the device adds and
//! multiplies as IEEE 754 says, as Mesa's `lavapipe` and NVIDIA's driver do. Quotients and roots of `f32` are worked
//! out so that they have them on any such device. Other functions (`exp`, `ln`, powers) may differ in the last bits.
//! The guide's page [On a device](_guide) says more.

mod backend;
#[cfg(feature = "cuda")]
mod by_cuda;
#[cfg(feature = "wgpu")]
mod by_wgpu;
mod device;
mod print;

pub use backend::Backend;
#[cfg(feature = "cuda")]
pub use by_cuda::{Cuda, compile_cuda, cuda_source};
#[cfg(feature = "wgpu")]
pub use by_wgpu::{Wgpu, wgsl_source};
pub use device::{Device, DeviceArrays, OnDevice};
pub use gradchain::program::Traffic;

#[cfg(any(doc, doctest))]
#[doc = include_str!("../guide.md")]
pub mod _guide {}

#[cfg(feature = "wgpu")]
impl Device<Wgpu> {
    /// The first device that Vulkan, Metal or Direct3D 12 has, the fastest if there are several.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn wgpu() -> gradchain::Result<Device<Wgpu>> {
        Wgpu::new(true).map(Device::with)
    }

    /// The same, as if it had no numbers of 64 bits: sums are added up in pairs of `f32`.
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
    /// The NVIDIA device of this number, from 0.
    ///
    /// # Errors
    ///
    /// If there is none, or the driver's library or that of the compiler (NVRTC) is not found.
    pub fn cuda(number: usize) -> gradchain::Result<Device<Cuda>> {
        Cuda::new(number).map(Device::with)
    }
}
