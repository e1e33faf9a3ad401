//! The loops: every element of every fused chain goes through one of these.
//!
//! Two shapes: `map` transforms a tile of updates; `apply` reads gradients and adds the finished update to the parameters.
//! Each comes once for each number of state arrays, because arguments are known not to overlap and fields of a struct
//! are not: with the arrays as arguments the loops vectorise without run-time checks. They are flat loops over elements
//! of whole slices, the form that vectorises most reliably; `apply`, which waits for memory most, runs such a loop over one
//! short block after the other, and asks for the memory of a later block before each.
#![allow(unsafe_code, reason = "a hint to the processor; see `ahead`")]

use super::isa::{Isa, Job, dispatch};
use super::{Span, Stage};
use crate::element::Real;
use crate::tree::add_update;

/// The most state arrays that a fused chain may have.
pub(crate) const MOST_SLOTS: usize = 8;
/// The most sums that a fused chain may have.
pub(crate) const MOST_SUMS: usize = 8;
/// The most barriers that a fused chain may have.
pub(crate) const MOST_BARRIERS: usize = 2;

/// Counts of elements, one place for each sum of a chain.
pub(crate) type Tally = [u32; MOST_SUMS];
/// The state arrays of one piece; those past the chain's own are empty.
pub(crate) type Slots<'a, C> = [&'a mut [C]; MOST_SLOTS];

/// Elements between two requests for memory: two or four lines of each array, so that the requests of a block do not
/// fill the queue that they wait in.
const BLOCK: usize = 32;
/// How far ahead memory is asked for. The processor's own prefetcher follows each array, but it stops at the end of each
/// page and falls behind where the arithmetic of a block takes long; further ahead is slower again.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const AHEAD: usize = 384;

/// Asks for the memory that the loop comes to so many bytes (`AHEAD`) after the start of this block; elsewhere than on x86-64
/// there is no way to ask.
#[inline(always)]
fn ahead<C>(block: &[C; BLOCK]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in (0..size_of_val(block)).step_by(64) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = block.as_ptr().cast::<i8>().wrapping_add(AHEAD + line);
        // SAFETY: a prefetch is a hint: it neither reads nor faults, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = block;
}

pub(crate) struct Map<'a, S: Stage, C: Real, const FROM: usize, const TO: usize> {
    pub(crate) kernel: S::Kernel<C>,
    pub(crate) from: &'a [C],
    pub(crate) u: &'a mut [C],
    pub(crate) p: &'a [C],
    pub(crate) slots: Slots<'a, C>,
}

pub(crate) struct Apply<'a, S: Stage, C: Real, const FROM: usize, const TO: usize> {
    pub(crate) kernel: S::Kernel<C>,
    pub(crate) g: &'a [C],
    pub(crate) p: &'a mut [C],
    pub(crate) slots: Slots<'a, C>,
}

macro_rules! loops {
    ($($map:ident $flat:ident $apply:ident ($($s:ident $i:tt),*);)*) => {$(
        #[inline(always)]
        #[allow(clippy::too_many_arguments, reason = "arguments do not overlap; see above")]
        fn $map<S: Stage, C: Real, const FROM: usize, const TO: usize>(
            kernel: S::Kernel<C>, from: &[C], u: &mut [C], p: &[C], $($s: &mut [C],)* tally: &mut Tally,
        ) {
            let (n, span) = (u.len(), Span { from: FROM, to: TO });
            let (from, p) = (&from[..n], &p[..n]);
            $(let $s = &mut $s[..n];)*
            // Of its own, so that it lives in registers.
            let mut counts: Tally = [0; MOST_SUMS];
            for i in 0..n {
                let mut slots = [$($s[i]),*];
                u[i] = S::apply::<C>(&kernel, 0, span, &mut slots, from[i], p[i], &mut counts);
                [$($s[i]),*] = slots;
            }
            *tally = counts;
        }

        #[inline(always)]
        #[allow(clippy::too_many_arguments, reason = "as above")]
        fn $flat<S: Stage, C: Real, const FROM: usize, const TO: usize>(
            kernel: S::Kernel<C>, g: &[C], p: &mut [C], $($s: &mut [C],)* tally: &mut Tally,
        ) {
            let (n, span) = (p.len(), Span { from: FROM, to: TO });
            let g = &g[..n];
            $(let $s = &mut $s[..n];)*
            // Of its own, so that it lives in registers.
            let mut counts: Tally = [0; MOST_SUMS];
            for i in 0..n {
                let mut slots = [$($s[i]),*];
                let u = S::apply::<C>(&kernel, 0, span, &mut slots, g[i], p[i], &mut counts);
                p[i] = add_update(p[i], u);
                [$($s[i]),*] = slots;
            }
            *tally = counts;
        }

        #[inline(always)]
        #[allow(clippy::too_many_arguments, reason = "as above")]
        fn $apply<S: Stage, C: Real, const FROM: usize, const TO: usize>(
            kernel: S::Kernel<C>, g: &[C], p: &mut [C], $($s: &mut [C],)* tally: &mut Tally,
        ) {
            if S::SHAPE.sums > 0 {
                // A sum over the lanes after each block would cost more than the blocks bring.
                return $flat::<S, C, FROM, TO>(kernel, g, p, $($s,)* tally);
            }
            let (g, g_end) = g.as_chunks::<BLOCK>();
            let (p, p_end) = p.as_chunks_mut::<BLOCK>();
            let n = p.len();
            let g = &g[..n];
            $(let $s = $s.as_chunks_mut::<BLOCK>(); let $s = (&mut $s.0[..n], $s.1);)*
            for b in 0..n {
                ahead(&g[b]);
                ahead(&p[b]);
                $(ahead(&$s.0[b]);)*
                $flat::<S, C, FROM, TO>(kernel, &g[b], &mut p[b], $(&mut $s.0[b],)* tally);
            }
            $flat::<S, C, FROM, TO>(kernel, g_end, p_end, $($s.1,)* tally);
        }
    )*};
}
loops! {
    map_0 flat_0 apply_0 ();
    map_1 flat_1 apply_1 (a 0);
    map_2 flat_2 apply_2 (a 0, b 1);
    map_3 flat_3 apply_3 (a 0, b 1, c 2);
    map_4 flat_4 apply_4 (a 0, b 1, c 2, d 3);
    map_5 flat_5 apply_5 (a 0, b 1, c 2, d 3, e 4);
    map_6 flat_6 apply_6 (a 0, b 1, c 2, d 3, e 4, f 5);
    map_7 flat_7 apply_7 (a 0, b 1, c 2, d 3, e 4, f 5, g_ 6);
    map_8 flat_8 apply_8 (a 0, b 1, c 2, d 3, e 4, f 5, g_ 6, h 7);
}

impl<S: Stage, C: Real, const FROM: usize, const TO: usize> Job for Map<'_, S, C, FROM, TO> {
    type Output = Tally;
    #[inline(always)]
    fn run(self) -> Tally {
        let mut t = [0; MOST_SUMS];
        let (k, x, u, p) = (self.kernel, self.from, self.u, self.p);
        let [a, b, c, d, e, f, g_, h] = self.slots;
        match S::SLOTS {
            0 => map_0::<S, C, FROM, TO>(k, x, u, p, &mut t),
            1 => map_1::<S, C, FROM, TO>(k, x, u, p, a, &mut t),
            2 => map_2::<S, C, FROM, TO>(k, x, u, p, a, b, &mut t),
            3 => map_3::<S, C, FROM, TO>(k, x, u, p, a, b, c, &mut t),
            4 => map_4::<S, C, FROM, TO>(k, x, u, p, a, b, c, d, &mut t),
            5 => map_5::<S, C, FROM, TO>(k, x, u, p, a, b, c, d, e, &mut t),
            6 => map_6::<S, C, FROM, TO>(k, x, u, p, a, b, c, d, e, f, &mut t),
            7 => map_7::<S, C, FROM, TO>(k, x, u, p, a, b, c, d, e, f, g_, &mut t),
            _ => map_8::<S, C, FROM, TO>(k, x, u, p, a, b, c, d, e, f, g_, h, &mut t),
        }
        t
    }
}

impl<S: Stage, C: Real, const FROM: usize, const TO: usize> Job for Apply<'_, S, C, FROM, TO> {
    type Output = Tally;
    #[inline(always)]
    fn run(self) -> Tally {
        let mut t = [0; MOST_SUMS];
        let (k, g, p) = (self.kernel, self.g, self.p);
        let [a, b, c, d, e, f, g_, h] = self.slots;
        match S::SLOTS {
            0 => apply_0::<S, C, FROM, TO>(k, g, p, &mut t),
            1 => apply_1::<S, C, FROM, TO>(k, g, p, a, &mut t),
            2 => apply_2::<S, C, FROM, TO>(k, g, p, a, b, &mut t),
            3 => apply_3::<S, C, FROM, TO>(k, g, p, a, b, c, &mut t),
            4 => apply_4::<S, C, FROM, TO>(k, g, p, a, b, c, d, &mut t),
            5 => apply_5::<S, C, FROM, TO>(k, g, p, a, b, c, d, e, &mut t),
            6 => apply_6::<S, C, FROM, TO>(k, g, p, a, b, c, d, e, f, &mut t),
            7 => apply_7::<S, C, FROM, TO>(k, g, p, a, b, c, d, e, f, g_, &mut t),
            _ => apply_8::<S, C, FROM, TO>(k, g, p, a, b, c, d, e, f, g_, h, &mut t),
        }
        t
    }
}

/// Transforms a tile of updates as the chain does in a pass, from one place to another: the first loop of a pass reads the
/// gradients where they are.
pub(crate) fn map<S: Stage, C: Real>(
    isa: Isa,
    span: Span,
    kernel: S::Kernel<C>,
    from: &[C],
    u: &mut [C],
    p: &[C],
    slots: Slots<'_, C>,
) -> Tally {
    // Only the spans that a chain with so many barriers can have are compiled.
    match (S::SHAPE.barriers, span.from, span.to) {
        (_, 0, 0) => dispatch(isa, Map::<S, C, 0, 0> { kernel, from, u, p, slots }),
        (1.., 0, 1) => dispatch(isa, Map::<S, C, 0, 1> { kernel, from, u, p, slots }),
        (1.., 1, 1) => dispatch(isa, Map::<S, C, 1, 1> { kernel, from, u, p, slots }),
        (2.., 0, 2) => dispatch(isa, Map::<S, C, 0, 2> { kernel, from, u, p, slots }),
        (2.., 1, 2) => dispatch(isa, Map::<S, C, 1, 2> { kernel, from, u, p, slots }),
        (2.., 2, 2) => dispatch(isa, Map::<S, C, 2, 2> { kernel, from, u, p, slots }),
        _ => unreachable!("a fused chain has at most {MOST_BARRIERS} barriers"),
    }
}

/// Does the chain's last pass on a piece, from gradients (or stored updates) to parameters.
pub(crate) fn apply<S: Stage, C: Real>(
    isa: Isa,
    kernel: S::Kernel<C>,
    g: &[C],
    p: &mut [C],
    slots: Slots<'_, C>,
) -> Tally {
    let span = S::SHAPE.span(S::SHAPE.barriers);
    match (S::SHAPE.barriers, span.from) {
        (0, _) => dispatch(isa, Apply::<S, C, 0, 0> { kernel, g, p, slots }),
        (1, 0) => dispatch(isa, Apply::<S, C, 0, 1> { kernel, g, p, slots }),
        (1, _) => dispatch(isa, Apply::<S, C, 1, 1> { kernel, g, p, slots }),
        (_, 0) => dispatch(isa, Apply::<S, C, 0, 2> { kernel, g, p, slots }),
        (_, 1) => dispatch(isa, Apply::<S, C, 1, 2> { kernel, g, p, slots }),
        _ => dispatch(isa, Apply::<S, C, 2, 2> { kernel, g, p, slots }),
    }
}
