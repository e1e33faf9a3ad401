use core::fmt;

use super::spec::Named;

/// Path, type and shape of a [`Buffer`](crate::tree::Buffer).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BufferSpec {
    path: String,
    dtype: String,
    shape: Vec<usize>,
}

impl BufferSpec {
    #[doc(hidden)]
    pub fn new(path: impl Into<String>, dtype: impl Into<String>, shape: impl Into<Vec<usize>>) -> BufferSpec {
        BufferSpec { path: path.into(), dtype: dtype.into(), shape: shape.into() }
    }

    /// Returns the path in the tree, such as `norm/running_mean`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the name of the elements' type, such as `i64`.
    pub fn dtype(&self) -> &str {
        &self.dtype
    }

    /// Returns the axis lengths.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
}

impl fmt::Display for BufferSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {:?}", Named(&self.path), self.dtype, self.shape)
    }
}
