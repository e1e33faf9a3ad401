//! Trees over raw slices, for a custom autodiff or buffers of a foreign framework.

use core::marker::PhantomData;

use ndarray::{ArrayView, Dimension};

use super::leaf::LeafParts;
use super::{Buffer, DynElement, Layout, LeafMut, LeafRef, Tree, TreeMut, Walk, WalkMut};
use crate::element::Element;
use crate::error::Result;

/// Gradients in your own slices: each with a path and a shape, in the given order.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::tree::{Slices, SlicesMut};
///
/// let (mut weights, gradients) = (vec![1.0_f32; 6], vec![0.5_f32; 6]);
/// let grads = Slices::new().with("dense/w", &gradients, &[2, 3])?;
/// let mut params = SlicesMut::new().with("dense/w", &mut weights, &[2, 3])?;
///
/// let optimizer = sgd(0.1);
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &grads, &mut state)?;
/// assert_eq!(weights, [0.95; 6]);
/// # Ok::<(), gradchain::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Slices<'a> {
    leaves: Vec<(String, LeafRef<'a>)>,
    buffers: Vec<(String, &'a dyn Buffer)>,
    layout: Layout,
}

impl<'a> Slices<'a> {
    /// Returns a tree without leaves.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a leaf: a slice in row-major order.
    ///
    /// # Errors
    ///
    /// Fails if the slice is not as long as the product of the shape.
    pub fn with<T: Element>(mut self, path: impl Into<String>, data: &'a [T], shape: &[usize]) -> Result<Self> {
        let path = path.into();
        let leaf = LeafRef::from_slice(data, shape).map_err(|error| error.of(format!("leaf `{path}`")))?;
        self.leaves.push((path, leaf));
        Ok(self)
    }

    /// Adds a leaf of any layout, without a copy: its elements may be permuted, strided, or one element repeated.
    ///
    /// ```
    /// use gradchain::prelude::*;
    /// use gradchain::tree::{Slices, SlicesMut};
    /// use ndarray::{ArrayView, ShapeBuilder};
    ///
    /// // A gradient that lies column after column, and one whose two elements are one.
    /// let turned = ArrayView::from_shape((2, 2).strides((1, 2)), &[1.0_f32, 3.0, 2.0, 4.0]).unwrap();
    /// let repeated = ArrayView::from_shape((2,).strides((0,)), &[5.0_f32]).unwrap();
    /// let grads = Slices::new().with_view("w", turned).with_view("b", repeated);
    ///
    /// let (mut w, mut b) = ([0.0_f32; 4], [0.0_f32; 2]);
    /// let mut params = SlicesMut::new().with("w", &mut w, &[2, 2])?.with("b", &mut b, &[2])?;
    /// let optimizer = sgd(1.0);
    /// let mut state = optimizer.init(&params)?;
    /// optimizer.step(&mut params, &grads, &mut state)?;
    /// assert_eq!((w, b), ([-1.0, -2.0, -3.0, -4.0], [-5.0, -5.0]));
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn with_view<T: DynElement, D: Dimension>(
        mut self,
        path: impl Into<String>,
        view: ArrayView<'a, T, D>,
    ) -> Self {
        let parts = LeafParts::array(view.as_ptr(), view.len(), view.shape(), view.strides());
        self.leaves.extend(parts.map(|parts| (path.into(), LeafRef::lend(parts))));
        self
    }

    /// Adds a [buffer](Buffer).
    pub fn with_buffer(mut self, path: impl Into<String>, buffer: &'a dyn Buffer) -> Self {
        self.buffers.push((path.into(), buffer));
        self
    }
}

impl Slices<'_> {
    /// Sets the layout of the weights, by default [`Layout::InOut`]. For parameters: gradients need none.
    ///
    /// ```
    /// use gradchain::tree::{Layout, Slices, Structure};
    ///
    /// let params = Slices::new().with("weight", &[0.0_f32; 6], &[2, 3])?.layout(Layout::OutIn);
    /// assert_eq!(Structure::of(&params)?.leaves()[0].layout(), Layout::OutIn);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn layout(self, layout: Layout) -> Self {
        Slices { layout, ..self }
    }
}

impl Tree for Slices<'_> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        walk.layout(self.layout);
        self.leaves.iter().for_each(|(path, leaf)| walk.child(path, leaf));
        self.buffers.iter().for_each(|(path, buffer)| walk.buffer(path, *buffer));
    }
}

impl Tree for LeafRef<'_> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        walk.leaf(self.clone());
    }
}

/// Parameters in your own slices; see [`Slices`].
#[derive(Debug, Default)]
pub struct SlicesMut<'a> {
    leaves: Vec<(String, Held<'a>)>,
    buffers: Vec<(String, &'a mut (dyn Buffer + 'static))>,
    layout: Layout,
}

/// Reborrowed by each walk.
#[derive(Debug)]
struct Held<'a> {
    parts: LeafParts,
    borrow: PhantomData<&'a mut [u8]>,
}

impl<'a> SlicesMut<'a> {
    /// Returns a tree without leaves.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a leaf: a slice in row-major order.
    ///
    /// # Errors
    ///
    /// Fails if the slice is not as long as the product of the shape.
    pub fn with<T: Element>(mut self, path: impl Into<String>, data: &'a mut [T], shape: &[usize]) -> Result<Self> {
        let path = path.into();
        let leaf = LeafMut::from_slice(data, shape).map_err(|error| error.of(format!("leaf `{path}`")))?;
        self.leaves.push((path, Held { parts: leaf.parts, borrow: PhantomData }));
        Ok(self)
    }

    /// Adds a [buffer](Buffer).
    pub fn with_buffer(mut self, path: impl Into<String>, buffer: &'a mut (dyn Buffer + 'static)) -> Self {
        self.buffers.push((path.into(), buffer));
        self
    }
}

impl SlicesMut<'_> {
    /// As [`Slices::layout`].
    pub fn layout(self, layout: Layout) -> Self {
        SlicesMut { layout, ..self }
    }
}

impl Tree for Held<'_> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        walk.leaf(LeafRef::lend(self.parts.clone()));
    }
}

impl TreeMut for Held<'_> {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        walk.leaf(LeafMut::lend(self.parts.clone()));
    }
}

impl Tree for SlicesMut<'_> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        walk.layout(self.layout);
        self.leaves.iter().for_each(|(path, leaf)| walk.child(path, leaf));
        self.buffers.iter().for_each(|(path, buffer)| walk.buffer(path, &**buffer));
    }
}

impl TreeMut for SlicesMut<'_> {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        self.leaves.iter_mut().for_each(|(path, leaf)| walk.child(path, leaf));
        self.buffers.iter_mut().for_each(|(path, buffer)| walk.buffer(path, &mut **buffer));
    }
}
