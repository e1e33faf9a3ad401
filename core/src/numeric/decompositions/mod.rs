//! Matrix decompositions by faer, in `f64`, on one thread, of column-major matrices. Bits depend on the CPU, whose
//! fused multiply-add is used.

mod qr;
mod svd;
mod symmetric;

use core::fmt;

use faer::dyn_stack::{MemBuffer, MemStack, StackReq};

pub use qr::{Orthogonal, orthogonalize};
pub use svd::Svd;
pub use symmetric::Symmetric;

/// Scratch memory, reused by the next decomposition.
#[derive(Default)]
pub(crate) struct Scratch(Option<MemBuffer>);

impl Scratch {
    fn of(&mut self, size: StackReq) -> &mut MemStack {
        if !self.0.as_mut().is_some_and(|memory| MemStack::new(memory).can_hold(size)) {
            self.0 = None;
        }
        MemStack::new(self.0.get_or_insert_with(|| MemBuffer::new(size)))
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}

fn zeros(scratch: &mut Vec<f64>, len: usize) -> &mut [f64] {
    scratch.clear();
    scratch.resize(len, 0.0);
    scratch
}

/// Scales elements so that squares neither overflow nor vanish, and returns the divisor; `None` if one is not finite.
fn scale(elements: &mut [f64]) -> Option<f64> {
    let largest = elements.iter().fold(0.0, |most: f64, x| if x.is_nan() { f64::INFINITY } else { most.max(x.abs()) });
    if !largest.is_finite() {
        return None;
    }
    let scale = if largest > 0.0 { largest } else { 1.0 };
    elements.iter_mut().for_each(|x| *x /= scale);
    Some(scale)
}
