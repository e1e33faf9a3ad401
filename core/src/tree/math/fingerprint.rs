//! Hashes of trees by their bits.

use crate::element::{Element, with_dtype};
use crate::tree::{Cursor, LeafParts, Run, Tree, Walk, dense_strides, is_dense};

/// Hashes the bits of a tree, to distinguish trees of one structure.
///
/// A change of one element always changes it; trees that differ in several collide with probability 2⁻¹²⁸.
pub fn fingerprint<T: Tree + ?Sized>(tree: &T) -> [u64; 2] {
    let mut print = [0x9e37_79b9_7f4a_7c15_u64, 0xd1b5_4a32_d192_ed03];
    let mut mix = |x: f64| {
        let [a, b] = print;
        // Each step is invertible, so different states stay different.
        print = [
            (a ^ x.to_bits()).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(31),
            b.wrapping_add(x.to_bits()).wrapping_mul(0xc4ce_b9fe_1a85_ec53).rotate_left(29),
        ];
    };
    tree.walk(&mut Walk::new(&mut String::new(), &mut |_, leaf| each(&leaf.parts, &mut mix)));
    print
}

/// Calls `show` with a leaf's elements, in row-major order.
fn each(leaf: &LeafParts, mut show: impl FnMut(f64)) {
    let view = leaf.view();
    let order = dense_strides(&leaf.shape);
    with_dtype!(leaf.data.dtype(), T => {
        let mut read = |run: Run| {
            // SAFETY: the leaf is borrowed, and both roads below stay inside its shape.
            #[allow(unsafe_code, reason = "strided memory; see `memory`")]
            unsafe { view.read::<T>(run, |x| show(x.as_f64())) }
        };
        if is_dense(&leaf.shape, &leaf.strides, &order) {
            read(Run { offset: 0, stride: 1, len: leaf.data.len() });
        } else {
            Cursor::new(&leaf.shape, &order, &leaf.strides, 0).take(leaf.data.len()).for_each(read);
        }
    });
}
