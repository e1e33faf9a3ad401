//! Float arrays, one for each leaf.

#[cfg(feature = "program")]
mod in_order;

use core::hash::{Hash, Hasher};

use ndarray::ArrayD;

use super::{Entry, EntryMut, State, StateWalk, StateWalkMut};
use crate::element::{DType, Element, Real, RecordedArray, with_dtype};
use crate::error::{Error, Result};
use crate::layout::elements;
use crate::memory::{Buffer, PageOffset, RawSlice};
use crate::numeric::quantization;
use crate::tree::{
    LeafMut, LeafParts, LeafRef, LeafSpec, PartOf, Structure, Tree, TreeMut, WalkMut, dense_strides, for_each_leaf,
};

/// Float arrays, one for each active leaf: first and second moments, traces, accumulators.
///
/// An array usually has its leaf's shape and memory order, so that the engine walks both in step; it may have another
/// shape (the row and column factors of Adafactor, the history of L-BFGS). Its type is fixed at creation.
#[derive(Clone, Debug, Default)]
pub struct Moments {
    arrays: Vec<Option<MomentArray>>,
}

#[derive(Clone, Debug)]
struct MomentArray {
    shape: Vec<usize>,
    strides: Vec<isize>,
    data: Buffer,
    /// The whole array, if this has a part of its leaf in memory order, as one axis.
    part: Option<Box<PartOf>>,
}

impl MomentArray {
    fn parts(&self) -> LeafParts {
        LeafParts::new(self.data.raw(), &self.shape, &self.strides)
    }

    fn decoded(&self) -> Option<Vec<f32>> {
        self.data.dtype().is_quantized().then(|| self.parts().decoded())
    }

    fn fill(&mut self, value: f64) {
        if self.data.dtype().is_quantized() {
            return self.parts().encode(&vec![value as f32; self.data.len()]);
        }
        self.data.fill(value);
    }

    /// Returns the place of element `i` of an array with strides `order`.
    fn translate(&self, i: usize, order: &[isize]) -> usize {
        let axes = self.shape.iter().zip(order).zip(&self.strides);
        axes.map(|((&len, &theirs), &ours)| i / theirs as usize % len.max(1) * ours as usize).sum()
    }
}

impl Moments {
    /// Returns one array for each active leaf, of its shape, filled with `value`, of the type that `dtype` returns.
    ///
    /// For a [sharded] leaf it has the elements of this process, in memory order.
    ///
    /// # Errors
    ///
    /// Fails if memory for an array cannot be allocated, or a type is 16-bit without the feature `half`.
    ///
    /// [sharded]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.sharded.html
    pub fn like(
        structure: &Structure,
        active: &[bool],
        value: f64,
        dtype: impl Fn(&LeafSpec) -> DType,
    ) -> Result<Moments> {
        let quantization = structure.leaves().iter().map(&dtype).find(|dtype| dtype.is_quantized());
        quantization.map_or(Ok(()), |dtype| Err(Error::argument("moments", "dtype", "an unquantized dtype", dtype)))?;
        Moments::filled(structure, active, value, &|_, leaf| dtype(leaf))
    }

    /// As [`like`](Moments::like); compiled once.
    pub(crate) fn filled(
        structure: &Structure,
        active: &[bool],
        value: f64,
        dtype: &dyn Fn(usize, &LeafSpec) -> DType,
    ) -> Result<Moments> {
        let place = PageOffset::next();
        let arrays = structure.leaves().iter().zip(active).enumerate().map(|(number, (leaf, on))| {
            if !on {
                return Ok(None);
            }
            let part = (!leaf.is_whole()).then(|| {
                let (shape, strides) = (leaf.shape().into(), leaf.strides().into());
                Box::new(PartOf { begins: leaf.begins(), shape, strides })
            });
            let shape = if part.is_some() { vec![leaf.here().len()] } else { leaf.shape().into() };
            let data = zeros(leaf, dtype(number, leaf), &shape, place)?;
            let strides = if part.is_some() { vec![1] } else { leaf.strides().into() };
            let mut array = MomentArray { shape, strides, data, part };
            if value != 0.0 {
                array.fill(value);
            }
            Ok(Some(array))
        });
        Ok(Moments { arrays: arrays.collect::<Result<_>>()? })
    }

    /// Returns one array of zeros for each active leaf for which `shape` returns a shape, in row-major order.
    ///
    /// # Errors
    ///
    /// As [`like`](Moments::like).
    pub fn with_shapes(
        structure: &Structure,
        active: &[bool],
        dtype: impl Fn(&LeafSpec) -> DType,
        shape: impl Fn(&LeafSpec) -> Option<Vec<usize>>,
    ) -> Result<Moments> {
        Moments::shaped(structure, active, &dtype, &shape)
    }

    /// As [`with_shapes`](Moments::with_shapes); compiled once.
    fn shaped(
        structure: &Structure,
        active: &[bool],
        dtype: &dyn Fn(&LeafSpec) -> DType,
        shape: &dyn Fn(&LeafSpec) -> Option<Vec<usize>>,
    ) -> Result<Moments> {
        let place = PageOffset::next();
        let arrays = structure.leaves().iter().zip(active).map(|(leaf, on)| {
            let Some(shape) = on.then(|| shape(leaf)).flatten() else { return Ok(None) };
            let data = zeros(leaf, dtype(leaf), &shape, place)?;
            Ok(Some(MomentArray { strides: dense_strides(&shape).to_vec(), shape, data, part: None }))
        });
        Ok(Moments { arrays: arrays.collect::<Result<_>>()? })
    }

    /// Copies a tree's leaves, in the types that `dtype` returns and in the memory order of the structure's leaves.
    ///
    /// The arrays of a state for parameters of this structure have the same order.
    ///
    /// # Errors
    ///
    /// Fails if the tree has another structure, or a leaf's elements would be rounded; or as [`like`](Moments::like).
    pub fn of_tree<T: Tree + ?Sized>(
        tree: &T,
        structure: &Structure,
        dtype: impl Fn(&LeafSpec) -> DType,
    ) -> Result<Moments> {
        let mut copies = Moments::like(structure, &vec![true; structure.len()], 0.0, &dtype)?;
        let found = Structure::of(tree)?;
        let differences = structure.compare(&found, |ours, theirs| theirs.size() <= ours.compute().size());
        if !differences.is_empty() {
            return Err(Error::structure("a tree does not fit the parameters", differences));
        }
        let (mut copies_of, mut wider) = (copies.views_mut(), None);
        for_each_leaf(tree, |path, leaf| {
            let Some((number, mut copy)) = copies_of.next() else { return };
            if leaf.dtype().size() > copy.dtype().size() {
                wider.get_or_insert((path.to_owned(), structure.leaves()[number].dtype(), leaf.dtype()));
            }
            copy.assign_f64(&leaf.to_f64());
        });
        drop(copies_of);
        match wider {
            Some((path, expected, found)) => Err(Error::argument("of_tree", &path, &expected.to_string(), found)),
            None => Ok(copies),
        }
    }

    /// Copies arrays from [`of_tree`](Moments::of_tree) back into a tree.
    ///
    /// # Errors
    ///
    /// Fails, with nothing changed, if the tree has another structure.
    pub fn to_tree<T: TreeMut + ?Sized>(&self, tree: &mut T, structure: &Structure) -> Result<()> {
        let differences = structure.differences(&*tree);
        if !differences.is_empty() {
            return Err(Error::structure("a tree does not fit the parameters", differences));
        }
        let mut views = self.views();
        let mut assign = |_: &str, mut leaf: LeafMut<'_>| {
            views.next().into_iter().for_each(|(_, view)| leaf.assign_f64(&view.to_f64()));
        };
        tree.walk_mut(&mut WalkMut::new(&mut String::new(), &mut assign));
        Ok(())
    }

    /// Returns the number of leaves of the tree, with or without an array.
    pub fn len(&self) -> usize {
        self.arrays.len()
    }

    /// Returns whether the tree has no leaves.
    pub fn is_empty(&self) -> bool {
        self.arrays.is_empty()
    }

    /// Iterates over all magnitudes.
    #[doc(hidden)]
    pub fn sizes(&self) -> impl Iterator<Item = f64> + '_ {
        fn of<C: Real>(moments: &Moments, leaf: usize) -> Vec<f64> {
            moments.get::<C>(leaf).unwrap_or_default().iter().map(|x| x.as_f64().abs()).collect()
        }
        self.leaves().flat_map(|leaf| match self.dtype(leaf) {
            Some(DType::F64) => of::<f64>(self, leaf),
            _ => of::<f32>(self, leaf),
        })
    }

    /// Returns the type of a leaf's array; `None` without an array.
    pub fn dtype(&self, leaf: usize) -> Option<DType> {
        self.array(leaf).map(|a| a.data.dtype())
    }

    /// Returns the shape of a leaf's array; `None` without an array.
    pub fn shape(&self, leaf: usize) -> Option<&[usize]> {
        self.array(leaf).map(|a| a.shape.as_slice())
    }

    /// Returns the elements of a leaf's array in memory order, if it exists and is of type `T`.
    ///
    /// [Quantized] state is of no such type; [`to_array`](Moments::to_array) decodes it.
    ///
    /// [Quantized]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.quantized.html
    pub fn get<T: Element>(&self, leaf: usize) -> Option<&[T]> {
        self.array(leaf).and_then(|a| a.data.get())
    }

    /// Returns the elements of a leaf's array in memory order for writing, if it exists and is of type `T`.
    pub fn get_mut<T: Element>(&mut self, leaf: usize) -> Option<&mut [T]> {
        self.arrays.get_mut(leaf)?.as_mut()?.data.get_mut()
    }

    /// Passes the elements of a leaf's array, of any type, to a function in chunks, and stores its results.
    ///
    /// The function receives the index of the first element, in memory order, and the chunk.
    ///
    /// An array of type `C` is one chunk. Others are converted; every number of [quantized]
    /// state is rounded to a code, changed or not.
    ///
    /// [quantized]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.quantized.html
    pub fn rewrite<C: Real>(&mut self, leaf: usize, mut f: impl FnMut(usize, &mut [C])) {
        let Some(array) = self.arrays.get_mut(leaf).and_then(Option::as_mut) else { return };
        match array.data.get_mut::<C>() {
            Some(elements) => f(0, elements),
            None => array.parts().rewrite(&mut f),
        }
    }

    /// Returns the fraction of 8-bit elements without significant digits at their block's scale.
    pub(crate) fn floored(&self, leaf: usize) -> Option<f64> {
        let array = self.array(leaf).filter(|array| array.data.dtype().is_quantized())?;
        let floored = quantization::floored(array.data.dtype(), array.data.as_bytes());
        Some(floored as f64 / array.data.len().max(1) as f64)
    }

    /// Copies a leaf's array to `f64`, which represents each element exactly; 8-bit elements are decoded.
    pub fn to_array(&self, leaf: usize) -> Option<ArrayD<f64>> {
        let array = self.array(leaf)?;
        let values = LeafRef::lend(array.parts()).to_f64();
        ArrayD::from_shape_vec(array.shape.clone(), values).ok()
    }

    /// Sets every element of every array.
    pub fn fill(&mut self, value: f64) {
        self.arrays.iter_mut().flatten().for_each(|a| a.fill(value));
    }

    /// Iterates over the leaves that have an array.
    pub fn leaves(&self) -> impl Iterator<Item = usize> + '_ {
        self.arrays.iter().enumerate().filter_map(|(leaf, array)| array.as_ref().map(|_| leaf))
    }

    /// Returns the bytes of all arrays.
    pub fn bytes(&self) -> usize {
        self.arrays.iter().flatten().map(|a| a.data.as_bytes().len()).sum()
    }

    /// Copies arrays of compute types that both have, in memory order.
    #[doc(hidden)]
    pub fn copy_from(&mut self, from: &Moments) {
        for leaf in 0..self.arrays.len() {
            if let (Some(to), Some(from)) = (self.get_mut::<f64>(leaf), from.get::<f64>(leaf)) {
                to.copy_from_slice(from);
            } else if let (Some(to), Some(from)) = (self.get_mut::<f32>(leaf), from.get::<f32>(leaf)) {
                to.copy_from_slice(from);
            } else if let (Some(to), Some(from)) = (self.get_mut::<f64>(leaf), from.get::<f32>(leaf)) {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = f64::from(*from));
            } else if let (Some(to), Some(from)) = (self.get_mut::<f32>(leaf), from.get::<f64>(leaf)) {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = *from as f32);
            }
        }
    }

    pub(crate) fn take(&mut self, from: &Moments, leaf: usize) {
        self.arrays[leaf].clone_from(&from.arrays[leaf]);
    }

    #[doc(hidden)]
    pub fn layout_hash(&self) -> impl Hash + '_ {
        LayoutHash(self)
    }

    pub(crate) fn raw(&self, leaf: usize) -> Option<RawSlice> {
        self.array(leaf).map(|a| a.data.raw().with_first(a.part.as_ref().map_or(0, |part| part.begins)))
    }

    /// Returns an array's id, for recorded values, which have no storage.
    pub(crate) fn recorded_array(&self, leaf: usize) -> Option<RecordedArray> {
        self.dtype(leaf).map(|dtype| RecordedArray { address: self.address(), dtype })
    }

    pub(crate) fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Returns the bytes of a leaf's elements in memory order, in host byte order; `None` without an array.
    pub fn as_bytes(&self, leaf: usize) -> Option<&[u8]> {
        self.array(leaf).map(|a| a.data.as_bytes())
    }

    /// As [`as_bytes`](Moments::as_bytes), for writing. All bytes are valid numbers.
    pub fn as_bytes_mut(&mut self, leaf: usize) -> Option<&mut [u8]> {
        self.arrays.get_mut(leaf)?.as_mut().map(|a| a.data.as_bytes_mut())
    }

    #[doc(hidden)]
    pub fn views(&self) -> impl Iterator<Item = (usize, LeafRef<'_>)> {
        let leaf = |array: &MomentArray| LeafRef::lend(array.parts()).of_part(array.part.clone());
        self.arrays.iter().enumerate().filter_map(move |(i, array)| Some((i, leaf(array.as_ref()?))))
    }

    #[doc(hidden)]
    pub fn views_mut(&mut self) -> impl Iterator<Item = (usize, LeafMut<'_>)> {
        let leaf = |array: &mut MomentArray| LeafMut::lend(array.parts()).of_part(array.part.clone());
        self.arrays.iter_mut().enumerate().filter_map(move |(i, array)| Some((i, leaf(array.as_mut()?))))
    }

    /// Replaces element `i` of each array by `f(leaf, i, old)`, in `f64`, rounded once.
    pub(crate) fn map(&mut self, f: impl Fn(usize, usize, f64) -> f64) {
        for (leaf, array) in self.arrays.iter_mut().enumerate() {
            let Some(array) = array else { continue };
            if let Some(mut numbers) = array.decoded() {
                numbers.iter_mut().enumerate().for_each(|(i, x)| *x = f(leaf, i, f64::from(*x)) as f32);
                array.parts().encode(&numbers);
                continue;
            }
            with_dtype!(array.data.dtype(), T => {
                for (i, x) in array.data.get_mut::<T>().unwrap_or_default().iter_mut().enumerate() {
                    *x = T::from_f64(f(leaf, i, x.as_f64()));
                }
            });
        }
    }

    /// Returns the strides of a dense array; empty without an array.
    pub(crate) fn strides(&self, leaf: usize) -> &[isize] {
        self.array(leaf).map_or(&[], |a| &a.strides)
    }

    /// Returns the start of an array that holds a part of its leaf, in memory order.
    pub(crate) fn begins(&self, leaf: usize) -> Option<usize> {
        self.array(leaf)?.part.as_ref().map(|part| part.begins)
    }

    /// Returns a copy with 8-bit arrays decoded.
    pub(crate) fn wide(&self) -> Moments {
        let wide = |array: &MomentArray| {
            let Some(numbers) = array.decoded() else { return array.clone() };
            let mut data = Buffer::zeros(DType::F32, numbers.len());
            data.get_mut::<f32>().unwrap_or_default().copy_from_slice(&numbers);
            MomentArray { data, ..array.clone() }
        };
        Moments { arrays: self.arrays.iter().map(|array| array.as_ref().map(wide)).collect() }
    }

    /// Returns element `i` by strides `order` of an array that is not 8-bit; zero without an array.
    pub(crate) fn at(&self, leaf: usize, i: usize, order: &[isize]) -> f64 {
        let Some(array) = self.array(leaf) else { return 0.0 };
        let i = if array.strides == order { i } else { array.translate(i, order) };
        with_dtype!(array.data.dtype(), T => array.data.get::<T>().map_or(0.0, |data| data[i].as_f64()))
    }

    fn array(&self, leaf: usize) -> Option<&MomentArray> {
        self.arrays.get(leaf)?.as_ref()
    }
}

struct LayoutHash<'a>(&'a Moments);

impl Hash for LayoutHash<'_> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let arrays = self.0.arrays.iter().map(|array| array.as_ref().map(|a| (a.data.dtype(), &a.shape, &a.strides)));
        arrays.for_each(|array| array.hash(hasher));
    }
}

fn zeros(leaf: &LeafSpec, dtype: DType, shape: &[usize], place: PageOffset) -> Result<Buffer> {
    let refused =
        |problem| Err(Error::state(format!("leaf `{}`: an array of {dtype} {shape:?}", leaf.path()), problem));
    if !dtype.is_supported() && !dtype.is_quantized() {
        return refused("16-bit types need the feature `half`");
    }
    elements(shape).and_then(|len| Buffer::try_zeros(dtype, len, place)).map_or_else(|| refused("out of memory"), Ok)
}

impl State for Moments {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.entry(Entry::Moments(self));
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        walk.entry(EntryMut::Moments(self));
    }
}
