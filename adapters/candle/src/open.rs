//! The memory of variables and gradients, lent as trees for the duration of a call.

use std::cell::{Cell, RefCell};

use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, InplaceOp1, Layout, Storage, Tensor, Var};
use gradchain::tree::{Layout as Weights, Slices, SlicesMut};
use gradchain::{Error, Result};
use ndarray::{ArrayView, IxDyn, ShapeBuilder};

use crate::Vars;
use crate::buffers::UntrainedVar;

impl Vars {
    /// Lends the variables for reading, as a tree: to make a state for them, to plan a step, to save them.
    ///
    /// Untrained variables are the tree's buffers. Nothing is copied. Writers of a variable wait until `f` has
    /// returned; a write inside `f` deadlocks.
    ///
    /// ```
    /// use candle_core::{DType, Device, Var};
    /// use gradchain::prelude::*;
    /// use gradchain_candle::Vars;
    ///
    /// let vars = Vars::named([("w", Var::zeros(1000, DType::F32, &Device::Cpu)?)])?;
    /// let plan = vars.read(|params| adam(1e-3).plan(params))??;
    /// assert_eq!(plan.bytes_per_element(), 28.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a variable is not on the CPU. The return value of `f` is passed on unread.
    pub fn read<R>(&self, f: impl FnOnce(&Slices<'_>) -> R) -> Result<R> {
        let named = self.iter().map(|(path, var)| (path, var.as_tensor())).collect();
        lend(named, |trained| {
            let buffers = self.untrained().iter();
            f(&buffers.fold(trained.clone(), |all, untrained| all.with_buffer(&*untrained.path, untrained)))
        })
    }

    /// Lends the variables for writing, as a tree: to load a checkpoint into them, to project them, to average.
    ///
    /// Nothing is copied: `f` writes to the memory of the variables. All are locked until `f` has returned, so any
    /// other use of one inside `f`, such as a forward pass, deadlocks.
    ///
    /// ```
    /// use candle_core::{DType, Device, Var};
    /// use gradchain::tree::tree_fill;
    /// use gradchain_candle::Vars;
    ///
    /// let w = Var::zeros(2, DType::F64, &Device::Cpu)?;
    /// let vars = Vars::named([("w", w.clone())])?;
    /// vars.write(|params| tree_fill(params, 1.5))?;
    /// assert_eq!(w.to_vec1::<f64>()?, [1.5, 1.5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a variable is not on the CPU; then `f` is not called. The return value of `f` is passed on unread.
    pub fn write<R>(&self, f: impl FnOnce(&mut SlicesMut<'_>) -> R) -> Result<R> {
        self.write_with_buffers(self.untrained(), f)
    }

    fn write_with_buffers<R>(&self, untrained: &[UntrainedVar], f: impl FnOnce(&mut SlicesMut<'_>) -> R) -> Result<R> {
        self.iter().try_for_each(|(path, var)| Vars::on_cpu(path, var.device()))?;
        let (mut f, mut made) = (Some(f), None);
        let mut then = |mut tree: SlicesMut<'_>| made = f.take().map(|f| f(&mut tree));
        let (mut untrained, mut beside) = (untrained.to_vec(), SlicesMut::new().layout(Weights::OutIn));
        for untrained in &mut untrained {
            beside = beside.with_buffer(untrained.path.clone(), untrained);
        }
        let opened = open(self.as_slice(), beside, &mut then);
        opened.and_then(|()| made.ok_or(candle_core::Error::UnwrapNone)).map_err(crate::from_candle)
    }

    /// Lends the variables for writing and their gradients for reading.
    ///
    /// [`step`](crate::step) is built on it; use it for steps that need more than gradients. A variable without a
    /// gradient has no leaf in the tree of gradients. Transposed and broadcast gradients are lent with their strides.
    ///
    /// ```
    /// use candle_core::{Device, Var};
    /// use gradchain::extra;
    /// use gradchain::prelude::*;
    /// use gradchain::optimizer::polyak_sgd;
    /// use gradchain_candle::{Vars, init};
    ///
    /// let w = Var::new(2.0_f64, &Device::Cpu)?;
    /// let vars = Vars::named([("w", w.clone())])?;
    /// let optimizer = polyak_sgd();
    /// let mut state = init(&optimizer, &vars)?;
    ///
    /// let loss = w.sqr()?.affine(0.5, 0.0)?;
    /// let (value, grads) = (loss.to_scalar::<f64>()?, loss.backward()?);
    /// vars.write_with(&grads, |params, grads| {
    ///     optimizer.step_with(params, grads, extra::value(value), &mut state)
    /// })??;
    /// assert_eq!(w.to_scalar::<f64>()?, 1.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); and if a gradient is not on the CPU, is not of floats, or shares the memory of a
    /// variable.
    pub fn write_with<R>(&self, grads: &GradStore, f: impl FnOnce(&mut SlicesMut<'_>, &Slices<'_>) -> R) -> Result<R> {
        let found = self.gradients(grads)?;
        lend(found, |grads| self.write_with_buffers(&[], |params| f(params, grads)))?
    }
}

/// Runs code with the float vector of a leaf's dtype.
macro_rules! with_floats {
    ($storage:expr, $path:expr, $data:ident => $do:expr) => {
        match $storage {
            CpuStorage::F32($data) => Ok($do),
            CpuStorage::F64($data) => Ok($do),
            CpuStorage::F16($data) => Ok($do),
            CpuStorage::BF16($data) => Ok($do),
            _ => Err(Error::argument("gradchain_candle", $path, "of type f32, f64, f16 or bf16", "another type")),
        }
    };
}

pub(crate) fn lend<R>(named: Vec<(&str, &Tensor)>, f: impl FnOnce(&Slices<'_>) -> R) -> Result<R> {
    named.iter().try_for_each(|(path, tensor)| Vars::on_cpu(path, tensor.device()))?;
    let guards: Vec<_> = named.iter().map(|(_, tensor)| tensor.storage_and_layout()).collect();
    let mut tree = Slices::new().layout(Weights::OutIn);
    for ((path, _), (storage, layout)) in named.iter().zip(&guards) {
        let Storage::Cpu(storage) = &**storage else { unreachable!("a tensor on the CPU has a storage there") };
        // ndarray checks the strides of empty arrays; candle's are arbitrary.
        let dense = layout.contiguous_offsets().or((layout.shape().elem_count() == 0).then_some((0, 0)));
        tree = with_floats!(storage, path, data => match dense {
            Some((start, end)) => tree.with(*path, &data[start..end], layout.dims())?,
            None => {
                let shape = IxDyn(layout.dims()).strides(IxDyn(layout.stride()));
                let view = ArrayView::from_shape(shape, &data[layout.start_offset()..]);
                tree.with_view(*path, view.map_err(|error| Error::state(*path, error.to_string()))?)
            }
        })?;
    }
    Ok(f(&tree))
}

type Then<'t> = dyn FnMut(SlicesMut<'_>) + 't;

/// Stack space per variable; [`open`] allocates more in steps of [`STACK`].
const FRAME: usize = 32 << 10;
const STACK: usize = 1 << 20;

/// Opens the variables by recursion; runs the continuation in the innermost call.
///
/// candle lends a variable's memory for the duration of a call, so only nested calls hold all of them open.
fn open(vars: &[(String, Var)], held: SlicesMut<'_>, then: &mut Then<'_>) -> candle_core::Result<()> {
    let Some(((path, var), rest)) = vars.split_first() else {
        then(held);
        return Ok(());
    };
    let opening = OpenVar { path, rest, held: Cell::new(held), then: RefCell::new(then) };
    stacker::maybe_grow(FRAME, STACK, || var.inplace_op1(&opening))
}

/// A variable to open, the open ones, and those to follow.
struct OpenVar<'o, 'v, 't> {
    path: &'v str,
    rest: &'v [(String, Var)],
    held: Cell<SlicesMut<'o>>,
    then: RefCell<&'v mut Then<'t>>,
}

impl InplaceOp1 for OpenVar<'_, '_, '_> {
    fn name(&self) -> &'static str {
        "gradchain"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let Some((start, end)) = layout.contiguous_offsets() else {
            candle_core::bail!("the variable `{}` is not contiguous: {layout:?}", self.path)
        };
        let held = self.held.take();
        let held = with_floats!(storage, self.path, data => held.with(self.path, &mut data[start..end], layout.dims()));
        let held = held.and_then(|held| held).map_err(candle_core::Error::wrap)?;
        open(self.rest, held, &mut **self.then.borrow_mut())
    }
}
