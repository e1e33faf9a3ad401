//! Leaves in pages of memory that are larger than usual.

use super::sharing::extent;
use super::{Tree, Walk};
use crate::memory::move_to_huge_pages;

/// Has the system move the large leaves of a tree into huge pages, if it can: a hint, with which steps on millions of
/// parameters are faster.
///
/// State arrays of 2 MiB and more are in huge pages from the start, where the system gives them to who asks. Parameters
/// and gradients are your own: so they are only if you, your allocator or your system see to it. Call this once, on
/// parameters that stay where they are, and on gradients if their memory is used again in each step.
///
/// Returns how many bytes of leaves lie in huge pages afterwards: what of a leaf is not a whole page of 2 MiB, and so
/// all leaves that are smaller, stays where it is. 0 where the system has no such pages for who asks: elsewhere than on
/// Linux 6.1 and later. It also has what was asked for then with `transparent_hugepage` set to `never`.
///
/// # Cost
///
/// What lies in small pages is copied once: 36 MiB took 11 ms. On one AMD EPYC a step of `adam` on 10⁷ parameters then
/// took 0.9 of its time, one of `sgd` with momentum 0.8; figures are in `docs/performance.md`.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::tree::huge_pages;
///
/// let mut params = (vec![1.0_f32; 3 << 20], vec![0.0_f32; 4]);
/// let bytes = huge_pages(&params);
/// assert!(bytes <= 12 << 20 && bytes.is_multiple_of(2 << 20));
/// // Nothing else has changed.
/// let optimizer = adam(0.1);
/// let mut state = optimizer.init(&params)?;
/// # assert!(params.0.iter().all(|p| *p == 1.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn huge_pages<T: Tree + ?Sized>(tree: &T) -> usize {
    let mut bytes = 0;
    tree.walk(&mut Walk::new(&mut String::new(), &mut |_, leaf| {
        if leaf.parts.data.len() > 0 {
            let extent = extent(&leaf.parts);
            bytes += move_to_huge_pages(extent.start as usize..extent.end as usize);
        }
    }));
    bytes
}
