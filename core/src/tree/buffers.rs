//! Buffers: model values that are no leaves.

use core::fmt;

use ndarray::{Array, Dimension};

use super::{Tree, Walk};
use crate::error::{Error, Result};
use crate::layout::BufferSpec;

/// A model value that is no leaf: running statistics, a frozen parameter, integers.
///
/// A step neither reads nor writes it. A checkpoint with the parameters includes it, under its path, with its type,
/// shape and check sum; loading compares these and restores it; [`plan`](crate::GradientTransformation::plan) names it.
/// A tree shows its buffers by [`Walk::buffer`] and [`WalkMut::buffer`](super::WalkMut::buffer);
/// [`Slices::with_buffer`] and [`SlicesMut::with_buffer`] add one to a tree of slices.
///
/// Numbers, `bool`, and arrays of [`ndarray`] and `Vec`s of these are buffers. `#[derive(Tree)]` shows a field with
/// `#[tree(buffer)]` as one.
///
/// [`Slices::with_buffer`]: super::Slices::with_buffer
/// [`SlicesMut::with_buffer`]: super::SlicesMut::with_buffer
///
/// # Example
///
/// ```
/// # #[cfg(feature = "checkpoint")] {
/// use gradchain::checkpoint::{Checkpoint, Save};
/// use gradchain::prelude::*;
/// use gradchain::tree::{Tree, TreeMut, Walk, WalkMut};
/// use ndarray::{Array1, array};
///
/// struct Norm { scale: Array1<f32>, mean: Array1<f32>, batches: Vec<u64> }
///
/// impl Tree for Norm {
///     fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
///         walk.child("scale", &self.scale);
///         walk.buffer("mean", &self.mean);
///         walk.buffer("batches", &self.batches);
///     }
/// }
///
/// impl TreeMut for Norm {
///     fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
///         walk.child("scale", &mut self.scale);
///         walk.buffer("mean", &mut self.mean);
///         walk.buffer("batches", &mut self.batches);
///     }
/// }
///
/// let norm = Norm { scale: array![1.0, 1.0], mean: array![0.25, -2.0], batches: vec![7] };
/// let (optimizer, mut file) = (sgd(0.1), std::io::Cursor::new(Vec::new()));
/// let state = optimizer.init(&norm)?;
/// Save::new(&optimizer, &state).params(&norm).to_writer(&mut file)?;
///
/// let mut again = Norm { scale: array![0.0, 0.0], mean: array![0.0, 0.0], batches: vec![0] };
/// Checkpoint::from_bytes(file.into_inner())?.load(&optimizer, &mut again)?;
/// assert_eq!((again.mean, again.batches), (array![0.25, -2.0], vec![7]));
/// # }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// PyTorch: [`register_buffer`](https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html), part of a
/// `state_dict`. Optax saves the tree of parameters; Flax has such values in collections beside it.
pub trait Buffer: fmt::Debug + Send + Sync {
    /// Returns the name of the elements' type.
    ///
    /// It is `f16`, `bf16`, `f32`, `f64`, `bool`, `i8` to `i64`, `u8` to `u64`, or a custom name, whose bytes are saved
    /// unchanged.
    fn dtype(&self) -> &str;

    /// Returns the axis lengths.
    fn shape(&self) -> Vec<usize>;

    /// Passes the bytes of the elements to `show`, in one or several chunks: little-endian, in row-major order.
    ///
    /// # Errors
    ///
    /// Fails with the errors of `show`, or if the elements cannot be read.
    fn read(&self, show: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;

    /// Replaces the elements by bytes of the same type and shape, as `read` shows them.
    ///
    /// # Errors
    ///
    /// Fails, with nothing changed, if the bytes are no such elements.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
}

/// A number or `bool`, as an element of a [`Buffer`].
pub trait BufferElement: Copy + fmt::Debug + Send + Sync + 'static {
    /// The name of the type.
    const DTYPE: &'static str;
    /// The bytes of an element, little-endian.
    type Bytes: AsRef<[u8]> + for<'b> TryFrom<&'b [u8]>;

    /// Returns the element as bytes.
    fn bytes(self) -> Self::Bytes;

    /// Returns the element of these bytes; `None` if they are invalid.
    fn of(bytes: Self::Bytes) -> Option<Self>;
}

macro_rules! elements {
    ($($T:ty, $name:literal;)*) => {$(
        impl BufferElement for $T {
            const DTYPE: &'static str = $name;
            type Bytes = [u8; size_of::<$T>()];

            fn bytes(self) -> Self::Bytes {
                self.to_le_bytes()
            }

            fn of(bytes: Self::Bytes) -> Option<Self> {
                Some(<$T>::from_le_bytes(bytes))
            }
        }

        impl Buffer for $T {
            fn dtype(&self) -> &str {
                <$T>::DTYPE
            }

            fn shape(&self) -> Vec<usize> {
                Vec::new()
            }

            fn read(&self, show: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
                show(&self.bytes())
            }

            fn write(&mut self, bytes: &[u8]) -> Result<()> {
                *self = elements_of::<$T>(bytes, 1)?[0];
                Ok(())
            }
        }
    )*};
}
elements! {
    f32, "f32"; f64, "f64";
    i8, "i8"; i16, "i16"; i32, "i32"; i64, "i64";
    u8, "u8"; u16, "u16"; u32, "u32"; u64, "u64";
}
#[cfg(feature = "half")]
elements! { half::f16, "f16"; half::bf16, "bf16"; }

impl BufferElement for bool {
    const DTYPE: &'static str = "bool";
    type Bytes = [u8; 1];

    fn bytes(self) -> [u8; 1] {
        [self.into()]
    }

    fn of([byte]: [u8; 1]) -> Option<bool> {
        (byte < 2).then_some(byte == 1)
    }
}

impl Buffer for bool {
    fn dtype(&self) -> &str {
        bool::DTYPE
    }

    fn shape(&self) -> Vec<usize> {
        Vec::new()
    }

    fn read(&self, show: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        show(&self.bytes())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        *self = elements_of::<bool>(bytes, 1)?[0];
        Ok(())
    }
}

impl<T: BufferElement, D: Dimension> Buffer for Array<T, D> {
    fn dtype(&self) -> &str {
        T::DTYPE
    }

    fn shape(&self) -> Vec<usize> {
        (**self).shape().to_vec()
    }

    fn read(&self, show: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.iter().try_for_each(|x| show(x.bytes().as_ref()))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let elements = elements_of::<T>(bytes, self.len())?;
        self.iter_mut().zip(elements).for_each(|(x, new)| *x = new);
        Ok(())
    }
}

impl<T: BufferElement> Buffer for Vec<T> {
    fn dtype(&self) -> &str {
        T::DTYPE
    }

    fn shape(&self) -> Vec<usize> {
        vec![self.len()]
    }

    fn read(&self, show: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.iter().try_for_each(|x| show(x.bytes().as_ref()))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        *self = elements_of::<T>(bytes, self.len())?;
        Ok(())
    }
}

impl<B: Buffer + ?Sized> Buffer for &mut B {
    fn dtype(&self) -> &str {
        (**self).dtype()
    }

    fn shape(&self) -> Vec<usize> {
        (**self).shape()
    }

    fn read(&self, show: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        (**self).read(show)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        (**self).write(bytes)
    }
}

/// Returns the buffers of a tree, with their descriptions.
pub fn buffers_of<T: Tree + ?Sized>(tree: &T) -> Vec<(BufferSpec, &dyn Buffer)> {
    let mut found = Vec::new();
    let mut add = |path: &str, buffer| {
        let buffer: &dyn Buffer = buffer;
        found.push((BufferSpec::new(path, buffer.dtype(), buffer.shape()), buffer));
    };
    tree.walk(&mut Walk::of_buffers(&mut String::new(), &mut |_, _| {}, &mut add));
    found
}

pub(super) fn elements_of<T: BufferElement>(bytes: &[u8], len: usize) -> Result<Vec<T>> {
    let chunks = bytes.chunks_exact(size_of::<T>());
    let elements: Option<Vec<T>> = chunks.map(|chunk| T::of(chunk.try_into().ok()?)).collect();
    elements.filter(|elements| elements.len() == len && len * size_of::<T>() == bytes.len()).ok_or_else(|| {
        let problem = format!("expected {len} elements of type {}, found {} bytes", T::DTYPE, bytes.len());
        Error::state("buffer", problem)
    })
}
