//! Programs as operations on a framework's tensors, on any device.

mod lines;

use core::fmt;
use std::collections::HashMap;

use self::lines::{Lines, Numbers};
use super::{Binary, Comparison, Executor, LeafProgram, Op, Pass, Programs, Unary};
use crate::element::DType;
use crate::engine::recorded::CHUNK;
use crate::error::{Error, Result};
use crate::state::{Entry, EntryMut, State, StateWalk, StateWalkMut};

/// A framework's tensor operations, on which programs can be [replayed](StateTensors).
///
/// A tensor has the elements of a leaf in row-major order, or a single element, which every operation combines with
/// those of a leaf. Results are bitwise identical to the CPU's if operations round as IEEE 754 requires.
///
/// `gradchain-burn` and `gradchain-candle` implement it for two frameworks. A smaller implementation, on vectors:
///
/// ```
/// use gradchain::device::{DeviceTensor, TensorState};
/// use gradchain::prelude::*;
/// use gradchain::program::{Binary, Comparison, Tensors, Unary};
/// use gradchain::{DType, Result};
///
/// struct Vectors;
///
/// impl Tensors for Vectors {
///     const NAME: &'static str = "vectors";
///     type Tensor = Vec<f64>;
///     type Mask = Vec<bool>;
///
///     fn number(&self, value: f64, _: DType) -> Result<Vec<f64>> {
///         Ok(vec![value])
///     }
///     fn convert(&self, x: &Vec<f64>, _: DType) -> Result<Vec<f64>> {
///         Ok(x.clone()) // there is one type here
///     }
///     fn unary(&self, op: Unary, x: &Vec<f64>) -> Option<Result<Vec<f64>>> {
///         let f: fn(f64) -> f64 = match op {
///             Unary::Neg => |x| -x,
///             Unary::Abs => f64::abs,
///             Unary::Sqrt => f64::sqrt,
///             _ => return None,
///         };
///         Some(Ok(x.iter().map(|x| f(*x)).collect()))
///     }
///     fn binary(&self, op: Binary, x: &Vec<f64>, y: &Vec<f64>) -> Option<Result<Vec<f64>>> {
///         let f: fn(f64, f64) -> f64 = match op {
///             Binary::Add => |x, y| x + y,
///             Binary::Sub => |x, y| x - y,
///             Binary::Mul => |x, y| x * y,
///             Binary::Div => |x, y| x / y,
///             _ => return None,
///         };
///         let len = x.len().max(y.len());
///         Some(Ok((0..len).map(|i| f(x[i % x.len()], y[i % y.len()])).collect()))
///     }
///     fn compare(&self, op: Comparison, x: &Vec<f64>, y: &Vec<f64>) -> Result<Vec<bool>> {
///         let f: fn(&f64, &f64) -> bool = match op {
///             Comparison::Less => |x, y| x < y,
///             Comparison::LessOrEqual => |x, y| x <= y,
///             Comparison::Equal => |x, y| x == y,
///         };
///         let len = x.len().max(y.len());
///         Ok((0..len).map(|i| f(&x[i % x.len()], &y[i % y.len()])).collect())
///     }
///     fn select(&self, mask: &Vec<bool>, x: &Vec<f64>, y: &Vec<f64>) -> Result<Vec<f64>> {
///         let len = mask.len().max(x.len()).max(y.len());
///         let of = |i: usize| if mask[i % mask.len()] { x[i % x.len()] } else { y[i % y.len()] };
///         Ok((0..len).map(of).collect())
///     }
///     fn fill(&self, x: &Vec<f64>, len: usize) -> Result<Vec<f64>> {
///         Ok((0..len).map(|i| x[i % x.len()]).collect())
///     }
///     fn sums(&self, x: &Vec<f64>, piece: usize) -> Result<Vec<f64>> {
///         Ok(x.chunks(piece).map(|piece| piece.iter().sum()).collect())
///     }
///     fn read(&self, x: &Vec<f64>) -> Result<Vec<f64>> {
///         Ok(x.clone())
///     }
///     fn upload(&self, bytes: &[u8], _: DType) -> Result<Vec<f64>> {
///         Ok(bytes.as_chunks().0.iter().map(|bytes| f64::from_ne_bytes(*bytes)).collect())
///     }
///     fn download(&self, x: &Vec<f64>) -> Result<Vec<u8>> {
///         Ok(x.iter().flat_map(|x| x.to_ne_bytes()).collect())
///     }
/// }
///
/// let (optimizer, mut params, gradients) = (adamw(0.1), vec![1.0, 2.0], vec![3.0, -4.0]);
/// let placed = |x: &[f64]| DeviceTensor::new(x.to_vec(), DType::F64, [2]);
/// let given = [("", placed(&params))];
/// let mut there = TensorState::new(Vectors, &optimizer, optimizer.init(&params)?, &given, &params)?;
/// let mut new = Vec::new();
/// let mut write = |_, param| {
///     new = param;
///     Ok(())
/// };
/// let error = there.step(&optimizer, given.to_vec(), vec![None], &mut write).unwrap_err();
/// assert!(error.to_string().ends_with("must be f64 [2] on the device of the state, found none"));
/// there.step(&optimizer, given.to_vec(), vec![Some(placed(&gradients))], &mut write)?;
///
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &gradients, &mut state)?;
/// assert_eq!(new, params);
/// # Ok::<(), gradchain::Error>(())
/// ```
pub trait Tensors {
    /// Name of the framework, for errors.
    const NAME: &'static str;

    /// A tensor of numbers. A clone is the same tensor.
    type Tensor: Clone;

    /// The result of comparisons.
    type Mask: Clone;

    /// Returns the type of sums: `F64`, or `F32` if a device has no larger one.
    fn wide(&self) -> DType {
        DType::F64
    }

    /// Returns a tensor of one element, rounded to the type.
    ///
    /// # Errors
    ///
    /// Fails if the device fails, as do all methods below.
    fn number(&self, value: f64, dtype: DType) -> Result<Self::Tensor>;

    /// Converts to a type, rounding to nearest; returns the tensor itself if it is of that type.
    ///
    /// # Errors
    ///
    /// Fails if the device fails, or lacks the type.
    fn convert(&self, x: &Self::Tensor, dtype: DType) -> Result<Self::Tensor>;

    /// Applies a function to each element; `None` if the framework lacks it.
    ///
    /// It is not called for `Recip`, `Signum`, `Trunc`, `Fract` and `Round`, which are composed of others.
    fn unary(&self, op: Unary, x: &Self::Tensor) -> Option<Result<Self::Tensor>>;

    /// Applies a function to elements of two tensors; `None` if the framework lacks it.
    ///
    /// It is not called for `Max`, `Min` and `Copysign`, which are composed of others.
    fn binary(&self, op: Binary, x: &Self::Tensor, y: &Self::Tensor) -> Option<Result<Self::Tensor>>;

    /// Compares elements.
    ///
    /// # Errors
    ///
    /// Fails if the device fails.
    fn compare(&self, op: Comparison, x: &Self::Tensor, y: &Self::Tensor) -> Result<Self::Mask>;

    /// Selects the first's elements where the mask is set, elsewhere the second's.
    ///
    /// # Errors
    ///
    /// Fails if the device fails.
    fn select(&self, mask: &Self::Mask, x: &Self::Tensor, y: &Self::Tensor) -> Result<Self::Tensor>;

    /// Returns this many elements: the tensor itself, or its one element repeated.
    ///
    /// # Errors
    ///
    /// Fails if the device fails.
    fn fill(&self, x: &Self::Tensor, len: usize) -> Result<Self::Tensor>;

    /// Returns the same elements in memory that writes to a parameter do not reach.
    ///
    /// The default suits frameworks whose operations return new tensors.
    ///
    /// # Errors
    ///
    /// Fails if the device fails.
    fn keep(&self, x: &Self::Tensor) -> Result<Self::Tensor> {
        Ok(x.clone())
    }

    /// Sums each chunk of `chunk` elements, the last possibly shorter, in [`wide`](Self::wide) numbers on the device.
    ///
    /// # Errors
    ///
    /// Fails if the device fails.
    fn sums(&self, x: &Self::Tensor, chunk: usize) -> Result<Self::Tensor>;

    /// Transposes a row-major array of shape `[a, b, c, d]` to `[a, c, b, d]`; `None` if the framework lacks it.
    ///
    /// This and the next two are for parts that work on whole matrices, such as [`muon`].
    ///
    /// [`muon`]: https://docs.rs/gradchain/latest/gradchain/optimizer/fn.muon.html
    fn transpose(&self, x: &Self::Tensor, shape: [usize; 4]) -> Option<Result<Self::Tensor>> {
        let _ = (x, shape);
        None
    }

    /// Computes a batch of products of contiguous matrices `[n, k]` and `[k, m]`; `None` if the framework lacks it.
    ///
    /// The first of four numbers is the batch size. If transposed, the products are of `[n, k]` and the transpose of
    /// `[m, k]`.
    fn product(
        &self,
        x: &Self::Tensor,
        y: &Self::Tensor,
        shape: [usize; 4],
        transposed: bool,
    ) -> Option<Result<Self::Tensor>> {
        let _ = (x, y, shape, transposed);
        None
    }

    /// Repeats each element `times` times in place; `None` if the framework lacks it.
    fn repeat(&self, x: &Self::Tensor, times: usize) -> Option<Result<Self::Tensor>> {
        let _ = (x, times);
        None
    }

    /// Reads numbers. All sums of a pass are submitted before the first is read.
    ///
    /// # Errors
    ///
    /// Fails if the device fails.
    fn read(&self, x: &Self::Tensor) -> Result<Vec<f64>>;

    /// Returns a tensor of these elements of a type, in host byte order.
    ///
    /// # Errors
    ///
    /// Fails if the device fails, or lacks the type.
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<Self::Tensor>;

    /// Returns the bytes of a tensor, in host byte order.
    ///
    /// # Errors
    ///
    /// Fails if the device fails.
    fn download(&self, x: &Self::Tensor) -> Result<Vec<u8>>;
}

/// The number of bytes transferred between the host and a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes written to the device.
    pub to_device: u64,
    /// Bytes read from it.
    pub to_host: u64,
}

/// The arrays of a state on a device: by the path of the field, and the index of the leaf.
pub type Arrays<A> = HashMap<String, HashMap<usize, A>>;

/// Copies the arrays of a state that have elements to a device.
///
/// # Errors
///
/// Fails with the first error of `copy`, whose arguments are an array's bytes and their type.
pub fn upload<S: State, A>(state: &S, mut copy: impl FnMut(&[u8], DType) -> Result<A>) -> Result<Arrays<A>> {
    let (mut arrays, mut failed) = (Arrays::new(), None);
    state.walk(&mut StateWalk::new(&mut |name, entry| {
        let Entry::Moments(moments) = entry else { return };
        for leaf in moments.leaves() {
            let (Some(bytes), Some(dtype)) = (moments.as_bytes(leaf), moments.dtype(leaf)) else { continue };
            if bytes.is_empty() || failed.is_some() {
                continue;
            }
            match copy(bytes, dtype) {
                Ok(array) => _ = arrays.entry(name.to_owned()).or_default().insert(leaf, array),
                Err(error) => failed = Some(error),
            }
        }
    }));
    failed.map_or(Ok(arrays), Err)
}

/// Copies arrays from a device into those of a state like the one they were copied from.
///
/// # Errors
///
/// Fails with the first error of `copy`, which returns an array's bytes; or if their number differs from the state's.
pub fn download<S: State, A>(
    arrays: &Arrays<A>,
    state: &mut S,
    mut copy: impl FnMut(&A) -> Result<Vec<u8>>,
) -> Result<()> {
    let mut failed = None;
    state.walk_mut(&mut StateWalkMut::new(&mut |name, entry| {
        let EntryMut::Moments(moments) = entry else { return };
        for leaf in moments.leaves().collect::<Vec<_>>() {
            let array = arrays.get(name).and_then(|of| of.get(&leaf)).filter(|_| failed.is_none());
            let (Some(array), Some(bytes)) = (array, moments.as_bytes_mut(leaf)) else { continue };
            match copy(array) {
                Ok(found) if found.len() == bytes.len() => bytes.copy_from_slice(&found),
                Ok(found) => {
                    failed = Some(Error::state(
                        name,
                        format!("expected {} bytes, found {} on the device", bytes.len(), found.len()),
                    ))
                }
                Err(error) => failed = Some(error),
            }
        }
    }));
    failed.map_or(Ok(()), Err)
}

/// The arrays of a state as tensors of a framework, for replaying steps as its operations.
///
/// Parameters, gradients and arrays stay in place. A step uploads its scalars, such as the learning rate, and downloads
/// a number for each sum and each 16384 elements of a leaf.
///
/// Chains without sums are bitwise identical to [`step`](crate::GradientTransformation::step) if the framework rounds
/// as IEEE 754 requires. Sums are reduced in the framework's order, in [`wide`](Tensors::wide) numbers.
///
/// # Cost
///
/// An operation of the framework for each line of a program and each leaf.
#[derive(Clone)]
pub struct StateTensors<T: Tensors> {
    tensors: T,
    arrays: Arrays<T::Tensor>,
    constants: Numbers<T>,
    traffic: Traffic,
}

impl<T: Tensors> fmt::Debug for StateTensors<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateTensors").field("arrays", &self.arrays.keys()).field("traffic", &self.traffic).finish()
    }
}

impl<T: Tensors> StateTensors<T> {
    /// Copies the arrays of a state to the device.
    ///
    /// # Cost
    ///
    /// The copies, and a step on tensors of one element; products of matrices run on zeros of their sizes.
    ///
    /// # Errors
    ///
    /// Fails with the name of an operation that the framework lacks; or if the device fails.
    pub fn new<S: State>(tensors: T, programs: &Programs, state: &S) -> Result<StateTensors<T>> {
        // Tests each program on one element, whole-leaf programs on all.
        let (mut constants, mut scalars) = (Numbers::<T>::new(), Numbers::<T>::new());
        for of in programs.passes().iter().flat_map(|pass| &pass.leaves) {
            let compute = of.program.dtype();
            let element = tensors.number(0.0, compute)?;
            let slots = vec![element.clone(); of.arrays.len()];
            let mut lines = Lines { tensors: &tensors, compute, constants: &mut constants, scalars: &mut scalars };
            lines.run(of, [&element, &element], &slots, &[])?;
        }
        let mut traffic = Traffic::default();
        let arrays = upload(state, |bytes, dtype| {
            traffic.to_device += bytes.len() as u64;
            tensors.upload(bytes, dtype)
        })?;
        Ok(StateTensors { tensors, arrays, constants, traffic })
    }

    /// Copies the arrays into those of a state like the one they were copied from.
    ///
    /// # Errors
    ///
    /// Fails if the device fails.
    pub fn state_into<S: State>(&self, state: &mut S) -> Result<()> {
        download(&self.arrays, state, |array| self.tensors.download(array))
    }

    /// Returns the backend of one step, for [`step_on`](crate::GradientTransformation::step_on).
    ///
    /// It takes the parameters and gradients of all leaves, in order. `write` receives the index of each leaf, and its
    /// new parameter.
    pub fn replay<'a>(
        &'a mut self,
        params: Vec<T::Tensor>,
        gradients: Vec<T::Tensor>,
        write: &'a mut dyn FnMut(usize, T::Tensor) -> Result<()>,
    ) -> Replay<'a, T> {
        let (scalars, kept, stored) = (Numbers::<T>::new(), HashMap::new(), HashMap::new());
        Replay { held: self, params, gradients, write, scalars, kept, stored }
    }

    /// Returns the framework's operations.
    pub fn tensors(&self) -> &T {
        &self.tensors
    }

    /// Returns the transferred bytes: the arrays at creation; in each step its scalars, of at most 8 bytes, and the
    /// sums.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }
}

/// A step as operations of a framework; see [`StateTensors::replay`].
pub struct Replay<'a, T: Tensors> {
    held: &'a mut StateTensors<T>,
    params: Vec<T::Tensor>,
    gradients: Vec<T::Tensor>,
    write: &'a mut dyn FnMut(usize, T::Tensor) -> Result<()>,
    scalars: Numbers<T>,
    /// Arrays that a pass leaves for later ones of the step.
    kept: Arrays<T::Tensor>,
    /// Updates for the next pass.
    stored: HashMap<usize, T::Tensor>,
}

impl<T: Tensors> fmt::Debug for Replay<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.fmt(f)
    }
}

impl<T: Tensors> Replay<'_, T> {
    fn leaf(&mut self, pass: &Pass, of: &LeafProgram) -> Result<Vec<T::Tensor>> {
        let LeafProgram { leaf, path, len, program, arrays, dtype, .. } = of;
        let StateTensors { tensors, arrays: lasting, constants, .. } = &mut *self.held;
        let compute = program.dtype();
        let given = |of: &[T::Tensor], what: &str| match of.get(*leaf) {
            Some(tensor) => tensors.convert(tensor, compute),
            None => Err(Error::state(path, format!("its {what} is missing"))),
        };
        let param = given(&self.params, "parameter")?;
        let update = match self.stored.get(leaf).filter(|_| pass.from_stored) {
            Some(stored) => stored.clone(),
            None => given(&self.gradients, "gradient")?,
        };
        let mut lines = Lines { tensors, compute, constants, scalars: &mut self.scalars };
        let mut slots = Vec::with_capacity(arrays.len());
        for array in arrays.iter() {
            let held = if array.is_persistent { &*lasting } else { &self.kept };
            slots.push(match held.get(&array.name).and_then(|of| of.get(leaf)) {
                Some(held) => tensors.convert(held, compute)?,
                None if array.is_persistent => {
                    return Err(Error::state(
                        &array.name,
                        format!("it does not have one element per element of `{path}`"),
                    ));
                }
                None => lines.number(0.0, compute)?,
            });
        }

        let written: Vec<usize> = (0..arrays.len()).filter(|slot| program.writes(*slot)).collect();
        let new_param = program.param().filter(|line| program.lines()[*line as usize].0 != Op::Param);
        let new_slots = written.iter().map(|slot| program.new_slots()[*slot]);
        let wanted: Vec<u32> =
            new_slots.chain(program.update()).chain(new_param).chain(program.sums().iter().copied()).collect();
        let made = lines.run(of, [&update, &param], &slots, &wanted)?;
        let mut made = made.into_iter().zip(&wanted).map(|(made, line)| {
            let filled = tensors.fill(&made, *len)?;
            if program.lines()[*line as usize].0 == Op::Param { tensors.keep(&filled) } else { Ok(filled) }
        });
        let mut next = || made.next().unwrap_or_else(|| unreachable!("each requested line has a tensor"));

        for slot in written {
            let (array, new) = (&arrays[slot], tensors.convert(&next()?, arrays[slot].dtype)?);
            let place = if array.is_persistent { &mut *lasting } else { &mut self.kept };
            place.entry(array.name.clone()).or_default().insert(*leaf, new);
        }
        if program.update().is_some() {
            self.stored.insert(*leaf, next()?);
        }
        if new_param.is_some() {
            (self.write)(*leaf, tensors.convert(&next()?, *dtype)?)?;
        }
        program.sums().iter().map(|_| tensors.sums(&next()?, CHUNK)).collect()
    }

    /// Reads a leaf's sums, by chunk.
    fn read(&mut self, sums: &[T::Tensor]) -> Result<Vec<f64>> {
        let sums = sums.iter().map(|sum| self.held.tensors.read(sum)).collect::<Result<Vec<_>>>()?;
        self.held.traffic.to_host += 8 * sums.iter().map(Vec::len).sum::<usize>() as u64;
        let chunks = sums.first().map_or(0, Vec::len);
        if let Some(other) = sums.iter().find(|sum| sum.len() != chunks) {
            return Err(Error::state(
                T::NAME,
                format!("one reduction has {chunks} partial sums, another {}", other.len()),
            ));
        }
        Ok((0..chunks).flat_map(|chunk| sums.iter().map(move |sum| sum[chunk])).collect())
    }
}

impl<T: Tensors> Executor for Replay<'_, T> {
    fn pass(&mut self, pass: &Pass) -> Result<Vec<Vec<f64>>> {
        let sent = self.scalars.len() + self.held.constants.len();
        let sums = pass.leaves.iter().map(|leaf| self.leaf(pass, leaf)).collect::<Result<Vec<_>>>()?;
        self.held.traffic.to_device += 8 * (self.scalars.len() + self.held.constants.len() - sent) as u64;
        sums.iter().map(|sums| self.read(sums)).collect()
    }
}
