//! Import of PyTorch and Optax state from a safetensors file.

mod contents;
mod fit;
mod origin;

use std::path::Path;

use self::contents::Contents;
use self::fit::Request;
pub use self::origin::Origin;
use super::source::{Bytes, Source};
use super::tensors::Tensors;
use crate::tree::{Tree, TreeMut};
use crate::{GradientTransformation, Migration, OptState, Result};

/// A file with the state of an optimizer of PyTorch or Optax, to continue from.
///
/// # The file
///
/// Safetensors, with these names; `docs/importing.md` has the Python code that writes it. Only [`load`](Import::load)
/// needs `params/…`.
///
/// | here | PyTorch | Optax |
/// |---|---|---|
/// | a parameter | `params/{name}` | `params/{path}` |
/// | a [buffer](crate::tree::Buffer) | `buffers/{name}`, or `params/{name}` if frozen | `buffers/{path}`, or `params/{path}` |
/// | `mu` of `adam`, `adamw`, `amsgrad` | `state/{name}/exp_avg` | `mu/{path}` |
/// | `nu` of these | `state/{name}/exp_avg_sq` | `nu/{path}` |
/// | `nu_max` of `amsgrad` | `state/{name}/max_exp_avg_sq` | `nu_max/{path}` |
/// | `trace` of `sgd`, `mu` of `muon` | `state/{name}/momentum_buffer` | `trace/{path}`, `mu/{path}` |
/// | `nu` of `rmsprop`, `mu` if centered | `state/{name}/square_avg`, `…/grad_avg` | `nu/{path}`, `mu/{path}` |
/// | `sum_of_squares` of `adagrad` | `state/{name}/sum` | `sum_of_squares/{path}` |
/// | counts of steps | `state/{name}/step`, for each parameter | `count`, one for all |
///
/// The dots of PyTorch's names become the slashes of paths: `layers.0.weight` is `layers/0/weight`.
/// [`migrating`](Import::migrating) renames leaves with other paths. State by number, as in a `state_dict`, needs
/// [`names`](Import::names).
///
/// # Supported optimizers
///
/// The optimizers of the table and their parts, such as [`scale_by_adam`](crate::scale_by_adam()) and
/// [`trace`](crate::transform::trace()); also in a [`chain`](crate::chain) with parts whose only state is a count, such
/// as clipping and schedules; in a [`partition`](crate::partition); in [`masked`](crate::masked),
/// [`freezable`](crate::wrapper::freezable()), [`skip_absent`](crate::wrapper::skip_absent()),
/// [`inject_hyperparams`](crate::inject_hyperparams()) and [`multi_steps`](crate::multi_steps()), which begins a
/// window. For other wrappers [`wrap_part`](Migration::wrap_part) starts their own state as in `init`. Everything else
/// is refused, since a file does not name its algorithm: two moments could as well be those of RAdam.
///
/// The file lacks the optimizer's arguments; those of the optimizer here are used. PyTorch and Optax have other
/// defaults: `AdamW` decays by 1e-2 in PyTorch, by 1e-4 in Optax and here.
///
/// 16-bit moments are widened if they are `f32` here, which is exact. Counts that differ between parameters become
/// those of the leaves here.
///
/// # Errors
///
/// Loading compares everything before anything is changed, and lists every difference: a missing or an unused tensor,
/// another shape, another type (nothing is rounded without [`cast`](Migration::cast) or
/// [`cast_part`](Migration::cast_part)).
///
/// Nothing is filled in. PyTorch has no state for a parameter without a gradient so far, and its `SGD` has no buffer
/// before the first step and never a count: use [`fresh`](Migration::fresh) for such leaves, and
/// [`at_step`](Import::at_step).
///
/// # Example
///
/// ```
/// use gradchain::checkpoint::{Import, Origin};
/// use gradchain::prelude::*;
/// use gradchain::tree::DynTree;
/// use ndarray::array;
/// # use safetensors::{Dtype, tensor::TensorView};
/// # let bytes = |x: [f32; 2]| x.map(f32::to_le_bytes).concat();
/// # let (w, m, v) = (bytes([1.0, 2.0]), bytes([0.5, -0.5]), bytes([0.25, 0.25]));
/// # let step = 3.0_f32.to_le_bytes();
/// # let array = |data| TensorView::new(Dtype::F32, vec![2], data).unwrap();
/// # let file = safetensors::serialize([
/// #     ("params/fc.weight", array(&w[..])),
/// #     ("state/fc.weight/exp_avg", array(&m)),
/// #     ("state/fc.weight/exp_avg_sq", array(&v)),
/// #     ("state/fc.weight/step", TensorView::new(Dtype::F32, vec![], &step).unwrap()),
/// # ], None).unwrap();
///
/// let mut params = DynTree::new();
/// params.insert("fc/weight", array![0.0_f32, 0.0]);
/// let optimizer = adamw(1e-3).weight_decay(1e-2);
/// // From a file on disk: `Import::torch("run.safetensors")?`
/// let import = Import::from_bytes(Origin::Torch, file)?;
/// let state = import.load(&optimizer, &mut params)?;
/// assert_eq!(state.0.count.get(), 3);
/// assert_eq!(state.0.moment("mu").unwrap().get::<f32>(0), Some(&[0.5, -0.5][..]));
/// assert_eq!(params.get::<f32>("fc/weight").unwrap(), array![1.0, 2.0].into_dyn());
///
/// // Another model: nothing is changed, and everything that differs is named.
/// let mut other = DynTree::new();
/// other.insert("fc/weight", array![0.0_f32, 0.0, 0.0]);
/// assert_eq!(
///     import.load(&optimizer, &mut other).unwrap_err().to_string(),
///     "the file does not fit: 3 differences\n  \
///        `params/fc.weight`: expected f32 [3], found f32 [2]\n  \
///        `state/fc.weight/exp_avg`: expected f32 [3], found f32 [2]\n  \
///        `state/fc.weight/exp_avg_sq`: expected f32 [3], found f32 [2]"
/// );
/// # Ok::<(), gradchain::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing is loaded until `load` or `load_state` is called"]
pub struct Import {
    contents: Contents,
    step: Option<u64>,
    migration: Migration,
}

impl Import {
    /// Opens a file with the state of a PyTorch optimizer.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, is truncated, or is no safetensors file.
    pub fn torch(path: impl AsRef<Path>) -> Result<Import> {
        Ok(Import::of(Origin::Torch, Tensors::open(path.as_ref())?.0))
    }

    /// Opens a file with the state of an Optax optimizer.
    ///
    /// # Errors
    ///
    /// As [`torch`](Import::torch).
    pub fn optax(path: impl AsRef<Path>) -> Result<Import> {
        Ok(Import::of(Origin::Optax, Tensors::open(path.as_ref())?.0))
    }

    /// Opens a file in memory.
    ///
    /// # Errors
    ///
    /// As [`torch`](Import::torch).
    pub fn from_bytes(origin: Origin, bytes: Vec<u8>) -> Result<Import> {
        let (tensors, _) = Tensors::read("the file".into(), Source::Bytes(Bytes::Owned(bytes)))?;
        Ok(Import::of(origin, tensors))
    }

    fn of(origin: Origin, tensors: Tensors) -> Import {
        Import { contents: Contents::of(origin, tensors, &[]), step: None, migration: Migration::new() }
    }

    /// Names the parameters of a PyTorch file whose state is by number, as in `optimizer.state_dict()`.
    ///
    /// Give them in the order in which they were passed to the optimizer.
    ///
    /// ```
    /// use gradchain::checkpoint::{Import, Origin};
    /// use gradchain::prelude::*;
    /// use gradchain::tree::DynTree;
    /// # use safetensors::{Dtype, tensor::TensorView};
    /// # let [w, m] = [[1.0_f32, 2.0], [0.5, -0.5]].map(|x| x.map(f32::to_le_bytes).concat());
    /// # let array = |data| TensorView::new(Dtype::F32, vec![2], data).unwrap();
    /// # let file = [("params/fc.weight", array(&w[..])), ("state/0/momentum_buffer", array(&m))];
    /// # let file = safetensors::serialize(file, None).unwrap();
    ///
    /// let mut params = DynTree::new();
    /// params.insert("fc/weight", ndarray::array![0.0_f32, 0.0]);
    /// let import = Import::from_bytes(Origin::Torch, file)?.names(["fc.weight"]).at_step(3);
    /// let state = import.load(&sgd(0.1).momentum(0.9), &mut params)?;
    /// assert_eq!(state.0.moment("trace").unwrap().get::<f32>(0), Some(&[0.5, -0.5][..]));
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn names(self, names: impl IntoIterator<Item = impl Into<String>>) -> Import {
        let Contents { origin, tensors, .. } = self.contents;
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        Import { contents: Contents::of(origin, tensors, &names), ..self }
    }

    /// Sets the number of steps done, if the file lacks it. An Optax file with another number is refused, as is a
    /// PyTorch file with a parameter that has had more.
    pub fn at_step(mut self, steps: u64) -> Import {
        self.step = Some(steps);
        self
    }

    /// Describes the differences here, by the verbs of a [`Migration`].
    ///
    /// [`rename`](Migration::rename), [`fresh`](Migration::fresh) and [`drop`](Migration::drop) describe leaves that
    /// have other paths here, start anew, or are unused. Fresh leaves keep their values; updates are then counted by
    /// leaf, so that the first steps of fresh ones are those of a new optimizer. [`cast`](Migration::cast) permits
    /// leaves of another type here.
    ///
    /// Of the verbs on parts of the state, [`wrap_part`](Migration::wrap_part),
    /// [`wrap_in_chain`](Migration::wrap_in_chain), [`insert_part`](Migration::insert_part) and
    /// [`fresh_part`](Migration::fresh_part) name parts that the file lacks, and [`cast_part`](Migration::cast_part)
    /// arrays that are rounded. [`params_to_part`](Migration::params_to_part) fills the copies of
    /// [`master`](crate::wrapper::master).
    pub fn migrating(mut self, migration: Migration) -> Import {
        self.migration = migration;
        self
    }

    fn request(&self, with_params: bool) -> Request<'_> {
        Request { contents: &self.contents, steps: self.step, migration: &self.migration, with_params }
    }

    /// Loads the parameters, and returns the state that the file describes.
    ///
    /// Fields that the file lacks start as `init` makes them from the loaded parameters.
    ///
    /// # Errors
    ///
    /// Fails, with nothing changed, if anything differs, as [above](Import#errors). If the disk fails while parameters
    /// are read, they may be partly loaded.
    pub fn load<T: GradientTransformation, P: TreeMut + ?Sized>(
        &self,
        transformation: &T,
        params: &mut P,
    ) -> Result<OptState<T>> {
        let fit = self.request(true).fit(transformation, params)?;
        let buffers = fit.buffers()?;
        buffers.fit(params)?;
        fit.fill_params(params)?;
        buffers.write(params)?;
        fit.state(transformation, params)
    }

    /// Returns the state that the file describes, for existing parameters.
    ///
    /// Parameters in the file are compared in type and shape, and not read.
    ///
    /// # Errors
    ///
    /// As [`load`](Import::load).
    pub fn load_state<T: GradientTransformation, P: Tree + ?Sized>(
        &self,
        transformation: &T,
        params: &P,
    ) -> Result<OptState<T>> {
        self.request(false).fit(transformation, params)?.state(transformation, params)
    }
}
