//! One function on each element of a tile and its state arrays, outside a fused chain.

use super::super::Tile;
use super::super::fused::{with_list, with_slots};
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

/// Rewrites updates and arrays.
struct Rewrite<'a, F, C, const N: usize>(F, &'a mut [C], &'a [C], [&'a mut [C]; N]);

/// Rewrites arrays alone.
struct Read<'a, F, C, const N: usize>(F, &'a [C], &'a [C], [&'a mut [C]; N]);

/// The loops, once for each number of state arrays: arguments are known not to overlap, and fields of a struct are not (see
/// `kernel`).
macro_rules! loops {
    ($($n:literal $rewrite:ident $read:ident ($($s:ident $i:tt),*);)*) => {
        $(
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

            impl<F: OnElement<C>, C: Real> Job for Rewrite<'_, F, C, $n> {
                type Output = ();
                #[inline(always)]
                fn run(self) {
                    let Rewrite(f, u, p, [$($s),*]) = self;
                    $rewrite(f, u, p, $($s),*);
                }
            }

            impl<F: OnElement<C>, C: Real> Job for Read<'_, F, C, $n> {
                type Output = ();
                #[inline(always)]
                fn run(self) {
                    let Read(f, u, p, [$($s),*]) = self;
                    $read(f, u, p, $($s),*);
                }
            }
        )*

        /// Rewrites the updates of a tile, and its state arrays.
        pub(super) fn each<F: OnElement<C>, C: Real>(f: F, arrays: &Arrays, tile: &mut Tile<'_, C>) {
            tile.settle();
            let (leaf, start, n, isa) = (tile.leaf, tile.start, tile.u.len(), tile.isa);
            let spare = core::mem::take(&mut tile.spare);
            let (u, p) = (&mut *tile.u, tile.p);
            match <F::Slots as SlotArray<C>>::LEN {
                $($n => with_slots(arrays.first::<$n>(), leaf, start, n, isa, spare, |slots| {
                    dispatch(isa, Rewrite::<F, C, $n>(f, u, p, slots));
                }),)*
                _ => unreachable!("a part has at most 8 slots"),
            }
            tile.spare = spare;
        }

        /// Rewrites the state arrays of a tile; its updates are read where they are.
        pub(super) fn each_read<F: OnElement<C>, C: Real>(f: F, arrays: &Arrays, tile: &mut Tile<'_, C>) {
            if tile.zero {
                tile.settle();
            }
            let (leaf, start, n, isa) = (tile.leaf, tile.start, tile.u.len(), tile.isa);
            let spare = core::mem::take(&mut tile.spare);
            let (u, p) = (tile.source.unwrap_or(tile.u), tile.p);
            match <F::Slots as SlotArray<C>>::LEN {
                $($n => with_slots(arrays.first::<$n>(), leaf, start, n, isa, spare, |slots| {
                    dispatch(isa, Read::<F, C, $n>(f, u, p, slots));
                }),)*
                _ => unreachable!("a part has at most 8 slots"),
            }
            tile.spare = spare;
        }
    };
}
loops! {
    0 rewrite_0 read_0 ();
    1 rewrite_1 read_1 (a 0);
    2 rewrite_2 read_2 (a 0, b 1);
    3 rewrite_3 read_3 (a 0, b 1, c 2);
    4 rewrite_4 read_4 (a 0, b 1, c 2, d 3);
    5 rewrite_5 read_5 (a 0, b 1, c 2, d 3, e 4);
    6 rewrite_6 read_6 (a 0, b 1, c 2, d 3, e 4, f_ 5);
    7 rewrite_7 read_7 (a 0, b 1, c 2, d 3, e 4, f_ 5, g 6);
    8 rewrite_8 read_8 (a 0, b 1, c 2, d 3, e 4, f_ 5, g 6, h 7);
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
