//! Leaves without their values: path, type, shape, and memory order.

mod buffer;
mod spec;
mod strided;
mod weights;

pub use buffer::BufferSpec;
pub use spec::{Difference, LeafSpec};
pub(crate) use strided::{
    Cursor, Extent, Run, Shape, Strided, Strides, axes, axes_by_stride, dense_strides, elements, is_dense,
    matching_strides, sort_axes,
};
pub use weights::Layout;
