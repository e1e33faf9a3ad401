//! One function on each element of a tile and its state arrays, outside a fused chain.

use super::super::Tile;
use super::super::fused::with_list;
use super::super::isa::{Job, dispatch};
use super::super::kernel::Slots;
use super::SlotArray;
use super::state::Arrays;
use crate::element::Real;

/// What is done to one element.
pub(super) trait OnElement<C: Real>: Copy {
    /// The state of one element.
    type Slots: SlotArray<C>;
    /// Must be `#[inline(always)]`, so that it takes on the instruction set of its caller.
    fn apply(self, slots: &mut Self::Slots, u: C, p: C) -> C;
}

/// The loops, once for each number of state arrays: arguments are known not to overlap, and fields of a struct are not (see
/// `kernel`). The first rewrites the updates, the second only the arrays.
macro_rules! loops {
    ($($rewrite:ident $read:ident ($($s:ident $i:tt),*);)*) => {$(
        #[inline(always)]
        #[allow(clippy::too_many_arguments, reason = "arguments do not overlap; see above")]
        fn $rewrite<F: OnElement<C>, C: Real>(f: F, u: &mut [C], p: &[C], $($s: &mut [C]),*) {
            let n = u.len();
            let p = &p[..n];
            $(let $s = &mut $s[..n];)*
            for i in 0..n {
                let mut slots = [$($s[i]),*];
                u[i] = f.apply(F::Slots::of(&mut slots), u[i], p[i]);
                [$($s[i]),*] = slots;
            }
        }

        #[inline(always)]
        #[allow(clippy::too_many_arguments, reason = "as above")]
        fn $read<F: OnElement<C>, C: Real>(f: F, u: &[C], p: &[C], $($s: &mut [C]),*) {
            let n = u.len();
            let p = &p[..n];
            $(let $s = &mut $s[..n];)*
            for i in 0..n {
                let mut slots = [$($s[i]),*];
                f.apply(F::Slots::of(&mut slots), u[i], p[i]);
                [$($s[i]),*] = slots;
            }
        }
    )*};
}
loops! {
    rewrite_0 read_0 ();
    rewrite_1 read_1 (a 0);
    rewrite_2 read_2 (a 0, b 1);
    rewrite_3 read_3 (a 0, b 1, c 2);
    rewrite_4 read_4 (a 0, b 1, c 2, d 3);
    rewrite_5 read_5 (a 0, b 1, c 2, d 3, e 4);
    rewrite_6 read_6 (a 0, b 1, c 2, d 3, e 4, f_ 5);
    rewrite_7 read_7 (a 0, b 1, c 2, d 3, e 4, f_ 5, g 6);
    rewrite_8 read_8 (a 0, b 1, c 2, d 3, e 4, f_ 5, g 6, h 7);
}

struct Rewrite<'a, F, C>(F, &'a mut [C], &'a [C], Slots<'a, C>);

impl<F: OnElement<C>, C: Real> Job for Rewrite<'_, F, C> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Rewrite(f, u, p, [a, b, c, d, e, f_, g, h]) = self;
        match <F::Slots as SlotArray<C>>::LEN {
            0 => rewrite_0(f, u, p),
            1 => rewrite_1(f, u, p, a),
            2 => rewrite_2(f, u, p, a, b),
            3 => rewrite_3(f, u, p, a, b, c),
            4 => rewrite_4(f, u, p, a, b, c, d),
            5 => rewrite_5(f, u, p, a, b, c, d, e),
            6 => rewrite_6(f, u, p, a, b, c, d, e, f_),
            7 => rewrite_7(f, u, p, a, b, c, d, e, f_, g),
            _ => rewrite_8(f, u, p, a, b, c, d, e, f_, g, h),
        }
    }
}

struct Read<'a, F, C>(F, &'a [C], &'a [C], Slots<'a, C>);

impl<F: OnElement<C>, C: Real> Job for Read<'_, F, C> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Read(f, u, p, [a, b, c, d, e, f_, g, h]) = self;
        match <F::Slots as SlotArray<C>>::LEN {
            0 => read_0(f, u, p),
            1 => read_1(f, u, p, a),
            2 => read_2(f, u, p, a, b),
            3 => read_3(f, u, p, a, b, c),
            4 => read_4(f, u, p, a, b, c, d),
            5 => read_5(f, u, p, a, b, c, d, e),
            6 => read_6(f, u, p, a, b, c, d, e, f_),
            7 => read_7(f, u, p, a, b, c, d, e, f_, g),
            _ => read_8(f, u, p, a, b, c, d, e, f_, g, h),
        }
    }
}

/// Rewrites the updates of a tile, and its state arrays.
pub(super) fn each<F: OnElement<C>, C: Real>(f: F, arrays: &Arrays, tile: &mut Tile<'_, C>) {
    let isa = tile.isa;
    with_tile(arrays, tile, |slots, _, u, p| dispatch(isa, Rewrite(f, u, p, slots)));
}

/// Calls a function with what belongs to a tile: its state arrays, the number of its first element, updates to rewrite, and
/// parameters.
pub(super) fn with_tile<C: Real>(
    arrays: &Arrays,
    tile: &mut Tile<'_, C>,
    f: impl FnOnce(Slots<'_, C>, usize, &mut [C], &[C]),
) {
    let Some(list) = arrays.of_leaf(tile.leaf) else { return };
    tile.settle();
    let (start, n, isa) = (tile.start, tile.u.len(), tile.isa);
    let spare = core::mem::take(&mut tile.spare);
    let (u, p) = (&mut *tile.u, tile.p);
    with_list(&list, start, n, isa, spare, |slots| f(slots, start, u, p));
    tile.spare = spare;
}

/// Rewrites the state arrays of a tile; its updates are read where they are.
pub(super) fn each_read<F: OnElement<C>, C: Real>(f: F, arrays: &Arrays, tile: &mut Tile<'_, C>) {
    let Some(list) = arrays.of_leaf(tile.leaf) else { return };
    if tile.zero {
        tile.settle();
    }
    let (start, n, isa) = (tile.start, tile.u.len(), tile.isa);
    let spare = core::mem::take(&mut tile.spare);
    let (u, p) = (tile.source.unwrap_or(tile.u), tile.p);
    with_list(&list, start, n, isa, spare, |slots| dispatch(isa, Read(f, u, p, slots)));
    tile.spare = spare;
}
