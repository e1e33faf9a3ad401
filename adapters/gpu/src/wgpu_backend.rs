//! Vulkan, Metal and Direct3D 12 devices, through wgpu.

use wgpu::{BufferUsages, Features};

use crate::backend::{Backend, Kernels, Launch, failure};
use crate::print::{self, Language};
use gradchain::Result;
use gradchain::program::{LeafProgram, Pass};

const NAME: &str = "wgpu";

/// A Vulkan, Metal or Direct3D 12 device, with kernels in WGSL; see [`Device::wgpu`](crate::Device::wgpu).
#[derive(Debug)]
pub struct Wgpu {
    name: String,
    device: wgpu::Device,
    queue: wgpu::Queue,
    wide: bool,
}

/// Returns the WGSL source of a leaf's kernel in a pass, for a device with 64-bit floats if `wide`.
///
/// # Errors
///
/// If WGSL cannot express it.
pub fn wgsl_source(pass: &Pass, leaf: &LeafProgram, wide: bool) -> Result<String> {
    print::print(Language::Wgsl { wide }, pass.from_stored, leaf).map(|kernel| kernel.text)
}

impl Wgpu {
    pub(crate) fn new(wide: bool) -> Result<Wgpu> {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let options = wgpu::RequestAdapterOptions {
            power_preference: wgpu::PowerPreference::HighPerformance,
            ..wgpu::RequestAdapterOptions::default()
        };
        let adapter = pollster::block_on(instance.request_adapter(&options))
            .map_err(|error| failure(NAME, format!("no device was found: {error}")))?;
        let wide = wide && adapter.features().contains(Features::SHADER_F64);
        let descriptor = wgpu::DeviceDescriptor {
            required_features: if wide { Features::SHADER_F64 } else { Features::empty() },
            // Chains with much state need many bindings, large leaves large ones.
            required_limits: adapter.limits(),
            ..wgpu::DeviceDescriptor::default()
        };
        let (device, queue) =
            pollster::block_on(adapter.request_device(&descriptor)).map_err(|error| failure(NAME, error))?;
        Ok(Wgpu { name: adapter.get_info().name, device, queue, wide })
    }

    /// Returns the device, to launch work of your own that writes gradients.
    pub fn device(&self) -> &wgpu::Device {
        &self.device
    }

    /// Returns the queue of the steps.
    pub fn queue(&self) -> &wgpu::Queue {
        &self.queue
    }

    fn make(&self, bytes: usize, usage: BufferUsages) -> Result<wgpu::Buffer> {
        let size = (bytes as u64).next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT).max(16);
        let most = self.device.limits().max_storage_buffer_binding_size;
        if size > most {
            return Err(failure(&self.name, format!("a leaf has {size} bytes, and a binding at most {most}")));
        }
        let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        self.with_error_scopes(|| self.device.create_buffer(&descriptor))
    }

    /// Runs `does`; fails with a device error reported meanwhile.
    fn with_error_scopes<T>(&self, does: impl FnOnce() -> T) -> Result<T> {
        let scopes = [wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation];
        let scopes = scopes.map(|filter| self.device.push_error_scope(filter));
        let done = does();
        let mut problem = None;
        for scope in scopes.into_iter().rev() {
            problem = problem.or(pollster::block_on(scope.pop()));
        }
        problem.map_or(Ok(done), |problem| Err(failure(&self.name, problem)))
    }
}

impl Backend for Wgpu {
    type Buffer = wgpu::Buffer;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn buffer(&self, bytes: usize) -> Result<wgpu::Buffer> {
        self.make(bytes, BufferUsages::STORAGE | BufferUsages::COPY_DST | BufferUsages::COPY_SRC)
    }

    fn write(&self, buffer: &mut wgpu::Buffer, bytes: &[u8]) -> Result<()> {
        let whole = bytes.len() / 4 * 4;
        self.with_error_scopes(|| {
            self.queue.write_buffer(buffer, 0, &bytes[..whole]);
            if whole < bytes.len() {
                let mut rest = [0; 4];
                rest[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
                self.queue.write_buffer(buffer, whole as u64, &rest);
            }
        })
    }

    fn read(&self, buffer: &wgpu::Buffer, bytes: usize) -> Result<Vec<u8>> {
        self.read_all(&[(buffer, bytes)])
    }

    /// Copies all to one buffer, to wait once.
    fn read_all(&self, buffers: &[(&wgpu::Buffer, usize)]) -> Result<Vec<u8>> {
        let padded = |bytes: usize| (bytes as u64).next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT);
        let size: u64 = buffers.iter().map(|(_, bytes)| padded(*bytes)).sum();
        if size == 0 {
            return Ok(Vec::new());
        }
        let here = self.make(size as usize, BufferUsages::MAP_READ | BufferUsages::COPY_DST)?;
        self.with_error_scopes(|| {
            let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            let mut at = 0;
            for (buffer, bytes) in buffers.iter().filter(|(_, bytes)| *bytes > 0) {
                encoder.copy_buffer_to_buffer(buffer, 0, &here, at, padded(*bytes));
                at += padded(*bytes);
            }
            self.queue.submit([encoder.finish()]);
        })?;
        let (told, tells) = std::sync::mpsc::channel();
        here.slice(..).map_async(wgpu::MapMode::Read, move |mapped| drop(told.send(mapped)));
        self.device.poll(wgpu::PollType::wait_indefinitely()).map_err(|error| failure(&self.name, error))?;
        match tells.recv() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(failure(&self.name, error)),
            Err(error) => return Err(failure(&self.name, error)),
        }
        let mapped = here.slice(..).get_mapped_range().map_err(|error| failure(&self.name, error))?;
        let (mut all, mut at) = (Vec::with_capacity(size as usize), 0);
        for (_, bytes) in buffers {
            all.extend_from_slice(&mapped[at..at + bytes]);
            at += padded(*bytes) as usize;
        }
        Ok(all)
    }
}

impl Kernels for Wgpu {
    type Kernel = wgpu::ComputePipeline;
    const SEPARATE_SUMS: bool = true;

    #[allow(private_interfaces, reason = "called by this crate only")]
    fn language(&self) -> Language {
        Language::Wgsl { wide: self.wide }
    }

    fn compile(&self, text: &str, bindings: usize) -> Result<wgpu::ComputePipeline> {
        let most = self.device.limits().max_storage_buffers_per_shader_stage;
        if bindings > most as usize {
            let problem = format!("a pass has {bindings} arrays, and a shader of this device at most {most}");
            return Err(failure(&self.name, problem));
        }
        self.with_error_scopes(|| {
            let source = wgpu::ShaderSource::Wgsl(text.into());
            let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
            self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: None,
                layout: None,
                module: &module,
                entry_point: Some("run"),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache: None,
            })
        })
    }

    #[allow(private_interfaces, reason = "called by this crate only")]
    fn launch(&self, kernel: &wgpu::ComputePipeline, leaves: &[Launch<'_, wgpu::Buffer>]) -> Result<()> {
        // All leaves' numbers share a buffer, aligned for bindings.
        let apart = self.device.limits().min_storage_buffer_offset_alignment as usize;
        let (mut bytes, mut places) = (Vec::new(), Vec::with_capacity(leaves.len()));
        let mut add = |part: Vec<u8>| {
            let at = bytes.len();
            let size = std::num::NonZeroU64::new(part.len() as u64)?;
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(apart), 0);
            Some((at as u64, size))
        };
        for leaf in leaves {
            let single = add(leaf.numbers.single.iter().flat_map(|bits| bits.to_le_bytes()).collect());
            let wide = add(leaf.numbers.wide.iter().flat_map(|bits| bits.to_le_bytes()).collect());
            places.push([single, wide]);
        }
        let mut numbers = self.buffer(bytes.len())?;
        self.write(&mut numbers, &bytes)?;
        self.with_error_scopes(|| {
            let layout = kernel.get_bind_group_layout(0);
            let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            {
                let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
                pass.set_pipeline(kernel);
                for (leaf, places) in leaves.iter().zip(&places) {
                    let of_numbers = places.iter().flatten().map(|(offset, size)| {
                        wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                            buffer: &numbers,
                            offset: *offset,
                            size: Some(*size),
                        })
                    });
                    let whole = leaf.buffers.iter().map(|buffer| buffer.as_entire_binding());
                    let bound = of_numbers.chain(whole).zip(0..);
                    let entries: Vec<_> =
                        bound.map(|(resource, binding)| wgpu::BindGroupEntry { binding, resource }).collect();
                    let group = wgpu::BindGroupDescriptor { label: None, layout: &layout, entries: &entries };
                    pass.set_bind_group(0, &self.device.create_bind_group(&group), &[]);
                    pass.dispatch_workgroups(leaf.groups as u32, 1, 1);
                }
            }
            self.queue.submit([encoder.finish()]);
        })
    }
}
