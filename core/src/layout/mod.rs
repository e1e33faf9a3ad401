//! Leaves without their values: path, type, shape, and memory order.

mod buffer;
mod spec;
mod strided;
mod weights;

pub use buffer::BufferSpec;
pub use spec::{Difference, LeafSpec};
pub use strided::{Cursor, Strides, axes_by_stride, dense_strides, elements, is_dense, matching_strides, sort_axes};
pub(crate) use strided::{Extent, Run, Shape, Strided, axes};
pub use weights::Layout;
