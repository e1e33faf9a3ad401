//! Tensors with elements in host memory, by burn's backend.

#[cfg(feature = "flex")]
use core::ops::Range;
use std::collections::HashSet;

#[cfg(feature = "flex")]
use burn::backend::Flex;
#[cfg(feature = "flex")]
use burn::tensor::DType;
use burn::tensor::{BackendPrimitive, Device, Float, Tensor};
use gradchain::tree::{LeafMut, LeafRef, Tree, TreeMut, Walk, WalkMut};
#[cfg(feature = "ndarray")]
use ndarray::{ArcArray, IxDyn};

use crate::leaves::Leaf;
use crate::walkers::LeafStorage;

type Primitive<B> = <Float as BackendPrimitive<B>>::Primitive;

#[cfg(feature = "ndarray")]
#[allow(deprecated, reason = "as long as burn has it")]
type NdArray = burn::backend::NdArray;

/// The elements of a float tensor, in row-major order. Clones share memory.
#[derive(Clone, Debug)]
pub(crate) enum Host {
    #[cfg(feature = "flex")]
    Flex(Primitive<Flex>),
    #[cfg(feature = "ndarray")]
    NdArray32(ArcArray<f32, IxDyn>),
    #[cfg(feature = "ndarray")]
    NdArray64(ArcArray<f64, IxDyn>),
}

/// Runs code with the element type of a [`Host::Flex`] bound to a name.
#[cfg(feature = "flex")]
macro_rules! with_type {
    (@$Type:ty, $T:ident => $code:expr) => {{
        type $T = $Type;
        $code
    }};
    ($tensor:expr, $T:ident => $code:expr) => {
        match $tensor.dtype() {
            DType::F64 => with_type!(@f64, $T => $code),
            DType::F16 => with_type!(@burn::tensor::f16, $T => $code),
            DType::BF16 => with_type!(@burn::tensor::bf16, $T => $code),
            _ => with_type!(@f32, $T => $code),
        }
    };
}

/// Returns the device for copies in host memory.
pub(crate) fn device() -> Device {
    #[cfg(feature = "flex")]
    return Device::flex();
    #[cfg(not(feature = "flex"))]
    Device::ndarray()
}

impl LeafStorage for Host {
    const EXPECTED: &'static str =
        "floats in CPU memory (a tensor on flex; on other backends, step with `DeviceState`)";

    /// Takes the elements; copies them unless they are in row-major order.
    fn of<const D: usize>(tensor: Tensor<D>) -> Result<Host, String> {
        let tensor = tensor.inner();
        let (device, dtype) = (tensor.device(), tensor.dtype());
        #[cfg(feature = "flex")]
        if let Ok(tensor) = tensor.clone().try_into_primitive::<Flex>() {
            if !matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16) {
                return Err(format!("elements of type {dtype:?}"));
            }
            return Ok(Host::Flex(if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() }));
        }
        #[cfg(feature = "ndarray")]
        if let Ok(tensor) = tensor.try_into_primitive::<NdArray>() {
            return match tensor {
                Primitive::<NdArray>::F32(elements) => Ok(Host::NdArray32(elements.into_owned())),
                Primitive::<NdArray>::F64(elements) => Ok(Host::NdArray64(elements.into_owned())),
                _ => Err(format!("elements of type {dtype:?}")),
            };
        }
        Err(format!("a tensor of {dtype:?} on {device:?}"))
    }

    fn into_tensor<const D: usize>(self) -> Tensor<D> {
        match self {
            #[cfg(feature = "flex")]
            Host::Flex(tensor) => Tensor::from_primitive::<Flex>(tensor),
            #[cfg(feature = "ndarray")]
            Host::NdArray32(elements) => Tensor::from_primitive::<NdArray>(elements.into()),
            #[cfg(feature = "ndarray")]
            Host::NdArray64(elements) => Tensor::from_primitive::<NdArray>(elements.into()),
        }
    }

    /// Returns true if both share memory or are bitwise identical.
    fn same_value(&self, other: &Host) -> bool {
        let (a, b) = (self.leaf(), other.leaf());
        let bits = |leaf: &LeafRef<'_>| leaf.to_f64().into_iter().map(f64::to_bits).collect::<Vec<_>>();
        (a.dtype(), a.shape()) == (b.dtype(), b.shape()) && (self.address() == other.address() || bits(&a) == bits(&b))
    }

    /// Copies tensors that began as clones but have separate ids: they are separate parameters.
    fn unshare(leaves: &mut [Leaf<Host>]) {
        let mut known = HashSet::new();
        leaves.iter_mut().filter(|leaf| !known.insert(leaf.held.address())).for_each(|leaf| leaf.held.own());
    }
}

impl Host {
    /// Copies shared elements before a write.
    pub(crate) fn own(&mut self) {
        let _ = self.leaf_mut();
    }

    fn address(&self) -> *const u8 {
        match self {
            #[cfg(feature = "flex")]
            Host::Flex(tensor) => tensor.bytes().as_ptr(),
            #[cfg(feature = "ndarray")]
            Host::NdArray32(elements) => elements.as_ptr().cast(),
            #[cfg(feature = "ndarray")]
            Host::NdArray64(elements) => elements.as_ptr().cast(),
        }
    }

    fn leaf(&self) -> LeafRef<'_> {
        match self {
            #[cfg(feature = "flex")]
            Host::Flex(tensor) => with_type!(tensor, T => {
                let (shape, elements) = (tensor.layout().shape(), range(tensor));
                let elements: &[T] = if elements.is_empty() { &[] } else { &tensor.storage::<T>()[elements] };
                LeafRef::from_slice(elements, shape.as_slice()).ok()
            }),
            #[cfg(feature = "ndarray")]
            Host::NdArray32(elements) => LeafRef::from_array(elements),
            #[cfg(feature = "ndarray")]
            Host::NdArray64(elements) => LeafRef::from_array(elements),
        }
        .expect(WHOLE)
    }

    /// Returns the elements for writing, after copying shared ones.
    fn leaf_mut(&mut self) -> LeafMut<'_> {
        match self {
            #[cfg(feature = "flex")]
            Host::Flex(tensor) => with_type!(tensor, T => {
                let (shape, elements) = (tensor.layout().shape().clone(), range(tensor));
                let elements: &mut [T] =
                    if elements.is_empty() { &mut [] } else { &mut tensor.storage_mut::<T>()[elements] };
                LeafMut::from_slice(elements, shape.as_slice()).ok()
            }),
            #[cfg(feature = "ndarray")]
            Host::NdArray32(elements) => LeafMut::from_array(elements),
            #[cfg(feature = "ndarray")]
            Host::NdArray64(elements) => LeafMut::from_array(elements),
        }
        .expect(WHOLE)
    }
}

impl Tree for Host {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        walk.leaf(self.leaf());
    }
}

impl TreeMut for Host {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        walk.leaf(self.leaf_mut());
    }
}

const WHOLE: &str = "the elements are floats, and as many as the shape says";

/// Returns a row-major tensor's range in its memory.
#[cfg(feature = "flex")]
fn range(tensor: &Primitive<Flex>) -> Range<usize> {
    let layout = tensor.layout();
    layout.start_offset()..layout.start_offset() + layout.num_elements()
}
