//! A device, and the arrays of a training run on it.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, hash_map};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::Arc;

use gradchain::extra::Extra;
use gradchain::needs::Provides;
use gradchain::program::{Arrays, Executor, LeafProgram, Pass, Traffic, download, upload};
use gradchain::state::{Moments, State};
use gradchain::tree::{LeafSpec, Structure};
use gradchain::{Error, GradientTransformation, OptState, Outcome, Result, Tree, TreeMut};

use crate::backend::{Backend, Launch};
use crate::print::{self, Bound};

/// A device that runs steps, with its compiled kernels.
///
/// ```no_run
/// use gradchain::prelude::*;
/// use gradchain_gpu::Device;
///
/// let device = Device::wgpu()?;
/// let optimizer = chain((clip_by_global_norm(1.0), adamw(1e-3)));
/// let mut params = vec![1.0_f32; 1000];
/// let mut run = device.init(&optimizer, &params)?;
/// for _ in 0..10 {
///     run.set_gradients(&vec![0.5_f32; 1000])?; // or write them into `run.gradient("")` on the device
///     device.step(&optimizer, &mut run)?;
/// }
/// run.params_into(&mut params)?;
/// # Ok::<(), gradchain::Error>(())
/// ```
#[derive(Debug)]
pub struct Device<B: Backend> {
    shared: Rc<Shared<B>>,
}

struct Shared<B: Backend> {
    backend: B,
    kernels: RefCell<Vec<(Key, Rc<Compiled<B>>)>>,
    traffic: Cell<Traffic>,
}

impl<B: Backend> std::fmt::Debug for Shared<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} with {} kernels", self.backend.name(), self.kernels.borrow().len())
    }
}

/// True if the kernel starts from stored updates, and a leaf.
struct Key(bool, LeafProgram);

fn same_kernel(leaf: &LeafProgram, other: &LeafProgram) -> bool {
    let types = leaf.arrays.iter().map(|array| array.dtype);
    let arrays = Arc::ptr_eq(&leaf.arrays, &other.arrays) || types.eq(other.arrays.iter().map(|array| array.dtype));
    arrays && leaf.dtype == other.dtype && leaf.program == other.program
}

struct Compiled<B: Backend> {
    printed: print::Kernel,
    kernel: B::Kernel,
}

impl<B: Backend> Device<B> {
    pub(crate) fn with(backend: B) -> Device<B> {
        Device { shared: Rc::new(Shared { backend, kernels: RefCell::default(), traffic: Cell::default() }) }
    }

    /// Returns the backend, to launch work of your own.
    pub fn backend(&self) -> &B {
        &self.shared.backend
    }

    /// Returns the number of compiled kernels: one for each distinct program; schedules do not change programs.
    pub fn kernels(&self) -> usize {
        self.shared.kernels.borrow().len()
    }

    /// Returns the bytes transferred since the device was opened.
    pub fn traffic(&self) -> Traffic {
        self.shared.traffic.get()
    }

    /// Copies parameters to the device, and makes the state before the first step there.
    ///
    /// # Errors
    ///
    /// As [`init`](GradientTransformation::init) and [`programs`](GradientTransformation::programs); if the device has
    /// no memory left, or lacks a dtype; if a leaf has 2³² elements or more, which kernels cannot count.
    pub fn init<T, P>(&self, optimizer: &T, params: &P) -> Result<OnDevice<T, B>>
    where
        T: GradientTransformation,
        P: Tree + ?Sized,
    {
        self.resume(optimizer, params, optimizer.init(params)?)
    }

    /// Copies parameters and an existing state to the device: from a checkpoint, a CPU or another device.
    ///
    /// # Errors
    ///
    /// As [`init`](Self::init), and if the state was made for parameters of another structure.
    pub fn resume<T, P>(&self, optimizer: &T, params: &P, state: OptState<T>) -> Result<OnDevice<T, B>>
    where
        T: GradientTransformation,
        P: Tree + ?Sized,
    {
        let programs = optimizer.programs(params)?;
        programs.passes().iter().flat_map(|pass| &pass.leaves).try_for_each(LeafProgram::require_elementwise)?;
        let arrays = self.arrays(params, &*state, state.structure())?;
        Ok(OnDevice { state, arrays })
    }

    /// Copies parameters and the arrays of their state to the device.
    ///
    /// Use it if you keep the state yourself and call [`step_on`](GradientTransformation::step_on).
    ///
    /// # Errors
    ///
    /// As [`resume`](Self::resume).
    pub fn arrays<P, S>(&self, params: &P, state: &S, structure: &Structure) -> Result<DeviceArrays<B>>
    where
        P: Tree + ?Sized,
        S: State,
    {
        let elements = |leaf: &LeafSpec| leaf.shape().iter().product::<usize>();
        if let Some(leaf) = structure.leaves().iter().find(|leaf| u32::try_from(elements(leaf)).is_err()) {
            return Err(Error::argument("Device", leaf.path(), "of fewer than 2³² elements", elements(leaf)));
        }
        let params = Moments::of_tree(params, structure, |leaf| leaf.dtype())?;
        let state = upload(state, |bytes, _| self.shared.allocate_from(bytes))?;
        let zeros = Moments::like(structure, &vec![true; structure.len()], 0.0, |leaf| leaf.dtype().compute())?;
        Ok(DeviceArrays {
            params: self.shared.upload_all(&params)?,
            gradients: self.shared.upload_all(&zeros)?,
            stored: HashMap::new(),
            state,
            sums: Vec::new(),
            structure: structure.clone(),
            shared: self.shared.clone(),
        })
    }

    /// Runs a [`step`](GradientTransformation::step) with the gradients on the device.
    ///
    /// The device sends only reductions, and receives only the scalars of the step.
    ///
    /// # Errors
    ///
    /// As [`step_on`](GradientTransformation::step_on).
    pub fn step<T>(&self, optimizer: &T, run: &mut OnDevice<T, B>) -> Result<Outcome>
    where
        T: GradientTransformation,
        (): Provides<T::Needs>,
    {
        self.step_with(optimizer, (), run)
    }

    /// Runs a step with the optimizer's [other inputs](gradchain::needs), such as the loss.
    ///
    /// # Errors
    ///
    /// As [`step`](Self::step).
    pub fn step_with<T, E>(&self, optimizer: &T, extra: E, run: &mut OnDevice<T, B>) -> Result<Outcome>
    where
        T: GradientTransformation,
        E: Extra<()> + Provides<T::Needs>,
    {
        optimizer.step_on(&mut run.arrays, extra, &mut run.state)
    }
}

impl<B: Backend> Shared<B> {
    fn count(&self, to_device: usize, to_host: usize) {
        let mut traffic = self.traffic.get();
        traffic.to_device += to_device as u64;
        traffic.to_host += to_host as u64;
        self.traffic.set(traffic);
    }

    fn write(&self, buffer: &mut B::Buffer, bytes: &[u8]) -> Result<()> {
        self.count(bytes.len(), 0);
        self.backend.write(buffer, bytes)
    }

    fn read(&self, buffer: &B::Buffer, bytes: usize) -> Result<Vec<u8>> {
        self.count(0, bytes);
        self.backend.read(buffer, bytes)
    }

    fn read_all(&self, buffers: &[(&B::Buffer, usize)]) -> Result<Vec<u8>> {
        self.count(0, buffers.iter().map(|(_, bytes)| bytes).sum());
        self.backend.read_all(buffers)
    }

    fn allocate(&self, bytes: usize) -> Result<DeviceArray<B>> {
        Ok(DeviceArray { buffer: self.backend.buffer(bytes)?, bytes })
    }

    fn allocate_from(&self, bytes: &[u8]) -> Result<DeviceArray<B>> {
        let mut device_array = self.allocate(bytes.len())?;
        self.write(&mut device_array.buffer, bytes)?;
        Ok(device_array)
    }

    fn upload_all(&self, moments: &Moments) -> Result<HashMap<usize, DeviceArray<B>>> {
        let arrays = moments.leaves().filter_map(|leaf| Some((leaf, moments.as_bytes(leaf)?)));
        arrays.map(|(leaf, bytes)| Ok((leaf, self.allocate_from(bytes)?))).collect()
    }

    fn kernel(&self, from_stored: bool, leaf: &LeafProgram) -> Result<Rc<Compiled<B>>> {
        if let Some((_, compiled)) =
            self.kernels.borrow().iter().find(|(Key(from, of), _)| *from == from_stored && same_kernel(of, leaf))
        {
            return Ok(compiled.clone());
        }
        let key = Key(from_stored, leaf.clone());
        let printed = print::print(self.backend.language(), from_stored, leaf)?;
        let kernel = self.backend.compile(&printed.text, printed.bindings.len())?;
        let compiled = Rc::new(Compiled { printed, kernel });
        self.kernels.borrow_mut().push((key, compiled.clone()));
        Ok(compiled)
    }
}

/// A leaf's array; `bytes` bounds every kernel's accesses.
struct DeviceArray<B: Backend> {
    buffer: B::Buffer,
    bytes: usize,
}

/// Parameters, gradients and the arrays of a state, on a device.
///
/// They have the same dtypes and the same order as on a CPU.
pub struct DeviceArrays<B: Backend> {
    params: HashMap<usize, DeviceArray<B>>,
    gradients: HashMap<usize, DeviceArray<B>>,
    stored: HashMap<usize, DeviceArray<B>>,
    state: Arrays<DeviceArray<B>>,
    /// A pass's buffers for sums: one per leaf, or one for all.
    sums: Vec<DeviceArray<B>>,
    structure: Structure,
    shared: Rc<Shared<B>>,
}

impl<B: Backend> std::fmt::Debug for DeviceArrays<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceArrays").field("device", &self.shared).field("leaves", &self.structure.len()).finish()
    }
}

impl<B: Backend> DeviceArrays<B> {
    /// Returns the buffer of a leaf's gradients, for kernels that write them on the device.
    ///
    /// Its dtype is that of the leaf's arithmetic. Returns `None` for an unknown path.
    pub fn gradient(&self, path: &str) -> Option<&B::Buffer> {
        self.gradients.get(&self.structure.index_of(path)?).map(|device_array| &device_array.buffer)
    }

    /// Returns the buffer of a leaf's parameters, for kernels that read them on the device.
    pub fn param(&self, path: &str) -> Option<&B::Buffer> {
        self.params.get(&self.structure.index_of(path)?).map(|device_array| &device_array.buffer)
    }

    /// Copies gradients from the host to the device.
    ///
    /// # Errors
    ///
    /// If they do not fit the parameters, or if the device fails.
    pub fn set_gradients<G: Tree + ?Sized>(&mut self, gradients: &G) -> Result<()> {
        let copies = Moments::of_tree(gradients, &self.structure, |leaf| leaf.dtype().compute())?;
        for (leaf, device_array) in &mut self.gradients {
            if let Some(bytes) = copies.as_bytes(*leaf) {
                self.shared.write(&mut device_array.buffer, bytes)?;
            }
        }
        Ok(())
    }

    /// Copies the parameters from the device.
    ///
    /// # Errors
    ///
    /// If the tree has another structure, or if the device fails; then nothing has changed.
    pub fn params_into<P: TreeMut + ?Sized>(&self, params: &mut P) -> Result<()> {
        let mut copies = Moments::like(&self.structure, &vec![true; self.structure.len()], 0.0, |leaf| leaf.dtype())?;
        for (leaf, device_array) in &self.params {
            if let Some(bytes) = copies.as_bytes_mut(*leaf) {
                bytes.copy_from_slice(&self.shared.read(&device_array.buffer, device_array.bytes)?);
            }
        }
        copies.to_tree(params, &self.structure)
    }

    /// Copies the state's arrays from the device into a state of the same structure.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn state_into<S: State>(&self, state: &mut S) -> Result<()> {
        download(&self.state, state, |device_array| self.shared.read(&device_array.buffer, device_array.bytes))
    }

    /// Allocates the leaf's missing temporary arrays.
    fn allocate_temporaries(&mut self, of: &LeafProgram) -> Result<()> {
        let (leaf, size) = (of.leaf, of.program.dtype().size());
        if of.program.update().is_some() && !self.stored.contains_key(&leaf) {
            self.stored.insert(leaf, self.shared.allocate(of.len * size)?);
        }
        for array in of.arrays.iter().filter(|array| !array.is_persistent) {
            let of_leaves = self.state.entry(array.name.clone()).or_default();
            if let hash_map::Entry::Vacant(vacant) = of_leaves.entry(leaf) {
                vacant.insert(self.shared.allocate(of.len * array.dtype.size())?);
            }
        }
        Ok(())
    }

    /// Returns the kernel arguments of a leaf with sums from `sums_at` of buffer `sums` on.
    fn launch_arguments(
        &self,
        of: &LeafProgram,
        compiled: &Compiled<B>,
        [sums, sums_at]: [usize; 2],
    ) -> Result<Launch<'_, B::Buffer>> {
        let (leaf, size) = (of.leaf, of.program.dtype().size());
        let groups = compiled.printed.groups(of.len);
        let missing = |what: &str| Error::state(&of.path, format!("its {what} is not on the device"));
        let mut buffers = Vec::with_capacity(compiled.printed.bindings.len());
        for bound in &compiled.printed.bindings {
            let (device_array, bytes, what) = match bound {
                Bound::Numbers | Bound::Wide => continue,
                Bound::Sums => {
                    (self.sums.get(sums), (sums_at + groups * of.program.sums().len()) * 8, "place for sums")
                }
                Bound::Update => (self.gradients.get(&leaf), of.len * size, "gradient"),
                Bound::Stored => (self.stored.get(&leaf), of.len * size, "update"),
                Bound::Param => (self.params.get(&leaf), of.len * of.dtype.size(), "parameter"),
                Bound::Slot(slot) => {
                    let array = &of.arrays[*slot];
                    let device_array = self.state.get(&array.name).and_then(|of| of.get(&leaf));
                    (device_array, of.len * array.dtype.size(), array.name.as_str())
                }
            };
            let device_array =
                device_array.filter(|device_array| device_array.bytes >= bytes).ok_or_else(|| missing(what))?;
            buffers.push(&device_array.buffer);
        }
        Ok(Launch { numbers: compiled.printed.numbers([of.len, sums_at], &of.scalars), buffers, groups })
    }

    /// Allocates all sums; returns each leaf's buffer and offset.
    fn allocate_sums(&mut self, counts: &[usize]) -> Result<Vec<[usize; 2]>> {
        let (mut places, mut sizes) = (Vec::with_capacity(counts.len()), Vec::new());
        for (leaf, count) in counts.iter().enumerate() {
            let buffer = if B::SEPARATE_SUMS { leaf } else { 0 };
            sizes.resize(buffer + 1, 0);
            places.push([buffer, sizes[buffer]]);
            sizes[buffer] += count;
        }
        for (buffer, size) in sizes.into_iter().enumerate() {
            if self.sums.get(buffer).is_none_or(|device_array| device_array.bytes < size * 8) {
                let device_array = self.shared.allocate(size * 8)?;
                if buffer < self.sums.len() { self.sums[buffer] = device_array } else { self.sums.push(device_array) }
            }
        }
        Ok(places)
    }
}

impl<B: Backend> Executor for DeviceArrays<B> {
    /// Returns the batch size: the device processes a batch while the host records the next, in a hundred microseconds.
    fn batch_size(&self) -> usize {
        32
    }

    /// Launches leaves with equal programs together; waits once for all sums.
    fn pass(&mut self, pass: &Pass) -> Result<Vec<Vec<f64>>> {
        let shared = self.shared.clone();
        let (mut kernels, mut counts, mut which) = (Vec::<Rc<Compiled<B>>>::new(), Vec::new(), Vec::<usize>::new());
        for (i, leaf) in pass.leaves.iter().enumerate() {
            // Most leaves equal the previous one; this check is cheap.
            let same = i.checked_sub(1).filter(|before| same_kernel(&pass.leaves[*before], leaf));
            let kernel = match same {
                Some(before) => which[before],
                None => {
                    let kernel = shared.kernel(pass.from_stored, leaf)?;
                    kernels.iter().position(|known| Rc::ptr_eq(known, &kernel)).unwrap_or_else(|| {
                        kernels.push(kernel);
                        kernels.len() - 1
                    })
                }
            };
            counts.push(kernels[kernel].printed.groups(leaf.len) * leaf.program.sums().len());
            which.push(kernel);
            self.allocate_temporaries(leaf)?;
        }
        let places = self.allocate_sums(&counts)?;
        let mut launches: Vec<_> = kernels.iter().map(|_| Vec::new()).collect();
        for ((leaf, kernel), place) in pass.leaves.iter().zip(&which).zip(&places) {
            let launch = self.launch_arguments(leaf, &kernels[*kernel], *place)?;
            if !launch.buffers.is_empty() {
                shared.count(launch.numbers.bytes(), 0);
                launches[*kernel].push(launch);
            }
        }
        for (kernel, launches) in kernels.iter().zip(&launches).filter(|(_, launches)| !launches.is_empty()) {
            shared.backend.launch(&kernel.kernel, launches)?;
        }
        // A shared buffer holds sums in leaf order.
        let mut allocate_from: Vec<(&B::Buffer, usize)> = Vec::new();
        for (count, [buffer, at]) in counts.iter().zip(&places) {
            allocate_from.truncate(*buffer);
            allocate_from.push((&self.sums[*buffer].buffer, (at + count) * 8));
        }
        let read = shared.read_all(&allocate_from)?;
        let mut rest = read.as_slice();
        let of_leaf = which.iter().zip(&counts).map(|(kernel, count)| {
            let (these, others) = rest.split_at(count * 8);
            rest = others;
            kernels[*kernel].printed.sums(these)
        });
        Ok(of_leaf.collect())
    }
}

/// A training run on a device: an optimizer's state, and its [arrays](DeviceArrays) there.
///
/// Counts and scalars of the state are on the host.
pub struct OnDevice<T: GradientTransformation, B: Backend> {
    state: OptState<T>,
    arrays: DeviceArrays<B>,
}

impl<T: GradientTransformation, B: Backend> std::fmt::Debug for OnDevice<T, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.arrays.fmt(f)
    }
}

impl<T: GradientTransformation, B: Backend> Deref for OnDevice<T, B> {
    type Target = DeviceArrays<B>;
    fn deref(&self) -> &DeviceArrays<B> {
        &self.arrays
    }
}

impl<T: GradientTransformation, B: Backend> DerefMut for OnDevice<T, B> {
    fn deref_mut(&mut self) -> &mut DeviceArrays<B> {
        &mut self.arrays
    }
}

impl<T: GradientTransformation, B: Backend> OnDevice<T, B> {
    /// Returns the current state, with its arrays copied from the device: to save, average, read or resume it on a CPU.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn state(&mut self) -> Result<&mut OptState<T>> {
        self.arrays.state_into(&mut *self.state)?;
        Ok(&mut self.state)
    }
}
