//! The loops: every element of every fused chain goes through one of these.
//!
//! Two shapes: `map` transforms a tile of updates; `apply` reads gradients and adds the finished update to the
//! parameters. Each comes once for each number of state arrays, because arguments are known not to overlap and fields
//! of a struct are not: with the arrays as arguments the loops vectorise without run-time checks. They are flat loops
//! over elements of whole slices, the form that vectorises most reliably; `apply`, which waits for memory most, runs
//! such a loop over one short block after the other, and asks for the memory of a later block before each.
//!
//! # One of many
//!
//! There are loops for each number of arrays and of sums and for each span of passes, and a chain needs very few of
//! them. Which ones is known when it is compiled, so they are chosen by constants of function type. A condition would
//! not do: the compiler goes through all that is called in a function, also where the condition is a constant and
//! rules it out. That was a third of the time that the crate took to compile.
#![cfg_attr(feature = "half", allow(unsafe_code, reason = "instructions of the set that a loop is compiled for"))]

use core::marker::PhantomData;

use super::ahead::{prefetch_after, prefetch_beside, prefetch_to_read};
#[cfg(feature = "half")]
use super::blocks::{ReadBlocks, SlotBlocks, WriteBlocks};
#[cfg(feature = "half")]
use super::halves::{InBlocks, Source};
use super::isa::Set;
#[cfg(feature = "half")]
pub(super) use super::loop_types::On;
pub(super) use super::loop_types::ReadAhead;
use super::loop_types::{ApplyFn, MapFn, Typed};
pub(crate) use super::loop_types::{BLOCK, MOST_BARRIERS, MOST_SLOTS, Slots, no_slots};
#[cfg(feature = "half")]
use super::loop_types::{DropHalvesFn, HalvesFn, MixedFn};
use super::sums::{LANES, Lanes, MOST_SUMS, adds_later, went_into};
use super::uses::{arrays, asks_in, is_read, is_written, reads_any, writes_any};
use super::{Span, Stage};
use crate::element::{Real, Term};
use crate::numeric::opaque::{alone, hidden};
use crate::tree::add_update;

/// How many blocks of 16 bits are worked on before the first of them is added to the parameters. Rounding waits for the
/// root and the division before it, and while it waits the processor has no room for what follows.
#[cfg(feature = "half")]
const LAG: usize = 7;

/// The loops for so many state arrays.
struct Arrays<const COUNT: usize>;

/// The loops of a pass of a chain for as many arrays as it has, with so many sums.
pub(super) struct Loops<S, C, const FROM: usize, const TO: usize, const N: usize>(PhantomData<(S, C)>);

macro_rules! loops {
    ($($n:literal ($($s:ident $was:ident $k:tt),*);)*) => {$(impl Arrays<$n> {
        #[cfg(feature = "half")]
        #[inline(always)]
        #[allow(clippy::too_many_arguments, reason = "arguments do not overlap; see above")]
        fn halves<S: Stage, I: Set, H: InBlocks, const FROM: usize, const TO: usize, const N: usize>(
            kernel: S::Kernel<f32>,
            (g, stored): (&[u16], &[f32]),
            p: &mut [u16],
            $($s: &mut [f32],)*
            lanes: &mut Lanes<N>,
        ) {
            let (from_stored, dtype) = const { (FROM > 0, Some(H::DTYPE)) };
            let p = p.as_chunks_mut::<BLOCK>().0;
            let n = p.len();
            let (g, stored) = (g.as_chunks::<BLOCK>().0, stored.as_chunks::<BLOCK>().0);
            let (g, stored) = if from_stored { (g, &stored[..n]) } else { (&g[..n], stored) };
            $(let $s = &mut $s.as_chunks_mut::<BLOCK>().0[..n];)*
            let (lag, ring) = (const { if S::SHAPE.adds_in(TO) { 0 } else { LAG } }, &mut [[0.0; BLOCK]; LAG + 1]);
            for b in 0..n + lag {
                if b < n {
                    if from_stored { prefetch_after(&stored[b]) } else { prefetch_after(&g[b]) }
                    prefetch_after(&p[b]);
                    $(prefetch_after(&$s[b]);)*
                    // SAFETY: `dispatch` has chosen the instruction set, here and below.
                    let from = if from_stored { stored[b] } else { unsafe { H::widen_block::<I>(&g[b]) } };
                    // SAFETY: as above.
                    let here = unsafe { H::widen_block::<I>(&p[b]) };
                    let u = &mut ring[b % (lag + 1)];
                    if const { S::SHAPE.adds_in(TO) } {
                        let (from, u, here) = (from.as_chunks().0, u.as_chunks_mut().0, here.as_chunks().0);
                        Self::sum::<S, I, f32, false, false, false, FROM, TO, N>((kernel, dtype), from, u, here, $($s[b].as_chunks_mut().0,)* lanes);
                    } else {
                        Self::map::<S, f32, false, FROM, TO, N>((kernel, dtype), &from, u, &here, $(&mut $s[b],)* lanes);
                    }
                }
                if b >= lag {
                    // SAFETY: as above.
                    unsafe { H::add_block::<I>(ring[(b - lag) % (lag + 1)], &mut p[b - lag]) };
                }
            }
        }

        /// As `apply`, where arrays have 16 bits or 32: a block of each is brought into registers, and back. It adds
        /// nothing up.
        #[cfg(feature = "half")]
        #[inline(always)]
        fn mixed<S: Stage, I: Set, const FROM: usize, const TO: usize>(
            kernel: Typed<S, f32>, g: ReadBlocks<'_>, mut p: WriteBlocks<'_>, mut slots: SlotBlocks<'_>,
        ) {
            let (n, ring) = (p.len(), &mut [[0.0; BLOCK]; LAG + 1]);
            // Into 32 bits nothing is rounded that others would wait for.
            let lag = if p.is_single() { 0 } else { LAG };
            for b in 0..n + lag {
                if b < n {
                    g.prefetch_after(b);
                    p.to_read().prefetch_after(b);
                    // SAFETY: `dispatch` has chosen the instruction set, here and below.
                    let (from, here) = unsafe { (g.bring::<I>(b), p.to_read().bring::<I>(b)) };
                    let mut rows = [[0.0; BLOCK]; $n];
                    let many = rows.len();
                    for i in 0..many {
                        let slot = slots[i].to_read();
                        slot.prefetch_after(b);
                        // SAFETY: as above.
                        rows[i] = unsafe { slot.bring::<I>(b) };
                    }
                    let (mut u, [$($s),*]) = ([0.0; BLOCK], &mut rows);
                    Self::map::<S, f32, false, FROM, TO, 0>(kernel, &from, &mut u, &here, $($s,)* &mut Lanes::new());
                    for i in 0..many {
                        // SAFETY: as above.
                        unsafe { slots[i].put::<I>(b, &rows[i]) };
                    }
                    if p.is_single() { p.add(b, &here, &u) } else { ring[b % (LAG + 1)] = u }
                }
                if b >= lag {
                    // SAFETY: as above.
                    unsafe { p.add_rounded::<I>(b - lag, ring[(b - lag) % (LAG + 1)]) };
                }
            }
        }

        /// As `sum`, where updates are dropped.
        #[cfg(feature = "half")]
        #[inline(always)]
        #[allow(clippy::too_many_arguments, reason = "as above")]
        fn drop_halves<S: Stage, I: Set, H: InBlocks, const FROM: usize, const TO: usize, const N: usize>(
            kernel: S::Kernel<f32>, g: &[u16], p: &[u16], $($s: &mut [f32],)* lanes: &mut Lanes<N>,
        ) {
            let reads = const { Span::of(FROM, TO).meets(S::SHAPE.reads_params) };
            let g = g.as_chunks::<BLOCK>().0;
            let n = g.len();
            let p = if reads { &p.as_chunks::<BLOCK>().0[..n] } else { &[] };
            // What is not read need not be there, here and in `sum`.
            $(let $s = if const { is_read::<S>($k, FROM, TO) } { &mut $s.as_chunks_mut::<BLOCK>().0[..n] } else { &mut [] };)*
            for b in 0..n {
                prefetch_to_read(&g[b]);
                if reads {
                    prefetch_to_read(&p[b]);
                }
                $(if const { is_read::<S>($k, FROM, TO) } {
                    prefetch_to_read(&$s[b]);
                })*
                // SAFETY: `dispatch` has chosen the instruction set.
                let from = unsafe { H::widen_block::<I>(&g[b]) };
                // SAFETY: as above.
                let here = if reads { unsafe { H::widen_block::<I>(&p[b]) } } else { [0.0; BLOCK] };
                let (from, here) = (from.as_chunks().0, here.as_chunks().0);
                $(let $s = if const { is_read::<S>($k, FROM, TO) } { $s[b].as_chunks_mut().0 } else { &mut [] };)*
                Self::sum::<S, I, f32, true, false, false, FROM, TO, N>((kernel, Some(H::DTYPE)), from, &mut [], here, $($s,)* lanes);
            }
        }

        /// As `map`, block by block. It adds nothing up.
        #[inline(always)]
        #[allow(clippy::too_many_arguments, reason = "arguments do not overlap; see above")]
        fn tile<S: Stage, C: Real, const FROM: usize, const TO: usize>(
            kernel: S::Kernel<C>, from: &[C], u: &mut [C], p: &[C], $($s: &mut [C],)*
        ) {
            let lanes = &mut Lanes::new();
            let cut = u.len() / BLOCK * BLOCK;
            let ((from, from_end), (p, p_end), (u, u_end)) = (from.split_at(cut), p.split_at(cut), u.split_at_mut(cut));
            let (from, p, u) = (from.as_chunks::<BLOCK>().0, p.as_chunks::<BLOCK>().0, u.as_chunks_mut::<BLOCK>().0);
            let n = u.len();
            let (from, p) = (&from[..n], &p[..n]);
            $(let $s = $s.split_at_mut(cut); let $s = (&mut $s.0.as_chunks_mut::<BLOCK>().0[..n], $s.1);)*
            for b in 0..n {
                let b = alone(b, n);
                Self::map::<S, C, false, FROM, TO, 0>((kernel, None), &from[b], &mut u[b], &p[b], $(&mut $s.0[b],)* lanes);
            }
            Self::map::<S, C, true, FROM, TO, 0>((kernel, None), from_end, u_end, p_end, $($s.1,)* lanes);
        }

        #[inline(always)]
        #[allow(clippy::too_many_arguments, reason = "arguments do not overlap; see above")]
        fn map<S: Stage, C: Real, const LEFT: bool, const FROM: usize, const TO: usize, const N: usize>(
            (kernel, dtype): Typed<S, C>, from: &[C], u: &mut [C], p: &[C], $($s: &mut [C],)* lanes: &mut Lanes<N>,
        ) {
            let (n, span) = (u.len(), Span { dtype, ..Span::of(FROM, TO) });
            let (from, p) = (&from[..n], &p[..n]);
            $(let $s = if const { is_read::<S>($k, FROM, TO) } { &mut $s[..n] } else { &mut [] };)*
            for i in 0..n {
                let i = if LEFT { hidden(i).min(n - 1) } else { i };
                let mut slots = [$(if const { is_read::<S>($k, FROM, TO) } { $s[i] } else { C::zero() }),*];
                let mut terms = [Term::default(); MOST_SUMS];
                u[i] = S::apply::<C>(&kernel, 0, span, &mut slots, from[i], p[i], &mut terms);
                $(if const { is_written::<S>($k, FROM, TO) } { $s[i] = slots[$k]; })*
                if const { N > 0 && S::SHAPE.adds_in(TO) } {
                    lanes.add::<S, C>(i % LANES, &terms);
                }
            }
        }

        /// As `map` or `flat`, where something is added up: a lane's numbers are added up side by side. All that is
        /// indexed is an argument as it is, since of what is cut off one it is not known that it overlaps with nothing.
        /// If it adds updates to parameters, these are `u`. If its arrays lie in memory, and not in registers, it asks
        /// for them. Where sums can be [added to later](adds_later), a second loop over the
        /// block does it, from what went into the part and its state as it was.
        #[inline(always)]
        #[allow(clippy::too_many_arguments, reason = "as above")]
        fn sum<S: Stage, I: Set, C: Real, const DROPS: bool, const ADDS: bool, const ASKS: bool, const FROM: usize, const TO: usize, const N: usize>(
            (kernel, dtype): Typed<S, C>,
            from: &[[C; LANES]],
            u: &mut [[C; LANES]],
            p: &[[C; LANES]],
            $($s: &mut [[C; LANES]],)*
            lanes: &mut Lanes<N>,
        ) {
            let (n, span) = (from.len(), Span { dtype, ..Span::of(FROM, TO) });
            assert!((DROPS || u.len() == n) && (ADDS || p.len() == n));
            $(assert!(const { DROPS && !is_read::<S>($k, FROM, TO) } || $s.len() == n);)*
            // A loop that asks for arrays of other passes is slower with it. One without state only reads, or writes a
            // tile that is in the cache. One whose updates nobody reads has no others, if it writes any.
            let has_all = span.meets(S::SHAPE.stateful) && span.covers(S::SHAPE.stateful);
            let asks = ASKS && (has_all || const { DROPS && writes_any::<S>(FROM, TO) });
            let reads = span.meets(S::SHAPE.reads_params) && !ADDS;
            let only_reads = ASKS && const { !writes_any::<S>(FROM, TO) };
            for b in 0..n {
                if only_reads {
                    prefetch_to_read(&from[b]);
                    if reads {
                        prefetch_to_read(&p[b]);
                    }
                    $(if const { is_read::<S>($k, FROM, TO) } {
                        prefetch_to_read(&$s[b]);
                    })*
                } else if asks {
                    prefetch_after(&from[b]);
                    $(if const { !DROPS || is_read::<S>($k, FROM, TO) } {
                        prefetch_after(&$s[b]);
                    })*
                    if reads {
                        prefetch_after(&p[b]);
                    }
                    if !DROPS {
                        prefetch_after(&u[b]);
                    }
                }
                let mut block = Lanes::<N>::new();
                let mut went_in = [[C::zero(); LANES]; 2];
                $(let $was = if const { adds_later::<S, C>(DROPS, TO) && is_read::<S>($k, FROM, TO) } { $s[b] } else { [C::zero(); LANES] };)*
                for i in 0..LANES {
                    let mut slots = [$(if const { is_read::<S>($k, FROM, TO) } { $s[b][i] } else { C::zero() }),*];
                    let mut terms = [Term::default(); MOST_SUMS];
                    let p = if ADDS { u[b][i] } else { p[b][i] };
                    let next = S::apply::<C>(&kernel, 0, span, &mut slots, from[b][i], p, &mut terms);
                    if !DROPS {
                        u[b][i] = if ADDS { add_update(p, next) } else { next };
                    }
                    $(if const { is_written::<S>($k, FROM, TO) } { $s[b][i] = slots[$k]; })*
                    if const { adds_later::<S, C>(DROPS, TO) } {
                        [went_in[0][i], went_in[1][i]] = went_into::<S, C>(&terms);
                    } else {
                        block.set::<S, C>(i, &terms);
                    }
                }
                if const { adds_later::<S, C>(DROPS, TO) } {
                    for i in 0..LANES {
                        let (mut slots, went_in) = ([$($was[i]),*], Some((went_in[0][i], went_in[1][i])));
                        let mut terms = [Term { went_in, ..Term::default() }; MOST_SUMS];
                        let span = Span { later: true, ..span };
                        S::apply::<C>(&kernel, 0, span, &mut slots, C::zero(), C::zero(), &mut terms);
                        block.set::<S, C>(i, &terms);
                    }
                }
                lanes.add_block::<S, I>(&block);
            }
        }

        #[inline(always)]
        #[allow(clippy::too_many_arguments, reason = "as above")]
        fn flat<S: Stage, C: Real, const LEFT: bool, const FROM: usize, const TO: usize, const N: usize>(
            kernel: S::Kernel<C>, g: &[C], p: &mut [C], $($s: &mut [C],)* lanes: &mut Lanes<N>,
        ) {
            // What lies as it is calculated with has that type.
            let (n, span) = (p.len(), Span { dtype: Some(C::DTYPE), ..Span::of(FROM, TO) });
            let g = &g[..n];
            $(let $s = &mut $s[..n];)*
            for i in 0..n {
                let i = if LEFT { hidden(i).min(n - 1) } else { i };
                let mut slots = [$(if const { is_read::<S>($k, FROM, TO) } { $s[i] } else { C::zero() }),*];
                let mut terms = [Term::default(); MOST_SUMS];
                let u = S::apply::<C>(&kernel, 0, span, &mut slots, g[i], p[i], &mut terms);
                p[i] = add_update(p[i], u);
                $(if const { is_written::<S>($k, FROM, TO) } { $s[i] = slots[$k]; })*
                if LEFT && const { S::SHAPE.adds_in(TO) } {
                    lanes.add::<S, C>(i % LANES, &terms);
                }
            }
        }

        #[inline(always)]
        fn apply<S: Stage, I: Set, C: Real, const FROM: usize, const TO: usize, const N: usize>(
            kernel: S::Kernel<C>, (g, ahead): ReadAhead<'_, C>, p: &mut [C], [$($s,)* ..]: Slots<'_, C>, lanes: &mut Lanes<N>,
        ) {
            // As in `sums`, and what is added up once more is not looked at.
            let mut again = Lanes::new();
            let lanes = if const { $n == 0 && S::SHAPE.adds_in(TO) } {
                Self::sums::<S, I, C, true, FROM, TO, N>(kernel, g, &mut [], p, no_slots(), lanes);
                &mut again
            } else {
                lanes
            };
            let cut = p.len() / BLOCK * BLOCK;
            let ((g, g_end), (p, p_end)) = (g.split_at(cut), p.split_at_mut(cut));
            $(let $s = $s.split_at_mut(cut);)*
            if const { $n > 0 && S::SHAPE.adds_in(TO) } {
                let (g, p) = (g.as_chunks().0, p.as_chunks_mut().0);
                Self::sum::<S, I, C, false, true, true, FROM, TO, N>((kernel, Some(C::DTYPE)), g, p, &[], $($s.0.as_chunks_mut().0,)* lanes);
            } else {
                let touches = Span::of(FROM, TO).meets(S::SHAPE.stateful);
                let asks = asks_in::<S, C>(p);
                let (g, p) = (g.as_chunks::<BLOCK>().0, p.as_chunks_mut::<BLOCK>().0);
                let n = p.len();
                let g = &g[..n];
                $(let $s = &mut $s.0.as_chunks_mut::<BLOCK>().0[..n];)*
                for b in 0..n {
                    let b = if const { reads_any::<S>(FROM, TO) } { b } else { alone(b, n) };
                    if asks {
                        prefetch_beside(&g[b], ahead + b * size_of::<[C; BLOCK]>());
                        prefetch_after(&p[b]);
                        if touches {
                            $(prefetch_after(&$s[b]);)*
                        }
                    }
                    Self::flat::<S, C, false, FROM, TO, N>(kernel, &g[b], &mut p[b], $(&mut $s[b],)* lanes);
                }
            }
            Self::flat::<S, C, true, FROM, TO, N>(kernel, g_end, p_end, $($s.1,)* lanes);
        }

        /// As `map`, where something is added up or dropped: whole blocks of lanes, and what is left of one.
        #[inline(always)]
        #[allow(clippy::too_many_arguments, reason = "as above")]
        fn sums<S: Stage, I: Set, C: Real, const DROPS: bool, const FROM: usize, const TO: usize, const N: usize>(
            kernel: S::Kernel<C>, from: &[C], u: &mut [C], p: &[C], [$($s,)* ..]: Slots<'_, C>, lanes: &mut Lanes<N>,
        ) {
            let (from, u, p) = (from.as_chunks(), u.as_chunks_mut(), p.as_chunks());
            $(let $s = $s.as_chunks_mut();)*
            Self::sum::<S, I, C, DROPS, false, DROPS, FROM, TO, N>((kernel, None), from.0, u.0, p.0, $($s.0,)* lanes);
            if !from.1.is_empty() {
                let mut dropped = [C::zero(); LANES];
                let u = if DROPS { &mut dropped[..from.1.len()] } else { u.1 };
                Self::map::<S, C, true, FROM, TO, N>((kernel, None), from.1, u, p.1, $($s.1,)* lanes);
            }
        }

        /// As `tile`, with the arrays in one, as the two below: functions of one type for any number of arrays.
        #[inline(always)]
        #[allow(clippy::too_many_arguments, reason = "as above")]
        fn tile_of<S: Stage, C: Real, const FROM: usize, const TO: usize, const N: usize>(
            kernel: S::Kernel<C>, from: &[C], u: &mut [C], p: &[C], [$($s,)* ..]: Slots<'_, C>, _: &mut Lanes<N>,
        ) {
            Self::tile::<S, C, FROM, TO>(kernel, from, u, p, $($s,)*);
        }

        #[cfg(feature = "half")]
        #[inline(always)]
        fn halves_of<S: Stage, I: Set, H: InBlocks, const FROM: usize, const TO: usize, const N: usize>(
            kernel: S::Kernel<f32>, g: Source<'_>, p: &mut [u16], [$($s,)* ..]: Slots<'_, f32>, lanes: &mut Lanes<N>,
        ) {
            Self::halves::<S, I, H, FROM, TO, N>(kernel, g.both(), p, $($s,)* lanes);
        }

        #[cfg(feature = "half")]
        #[inline(always)]
        fn drop_halves_of<S: Stage, I: Set, H: InBlocks, const FROM: usize, const TO: usize, const N: usize>(
            kernel: S::Kernel<f32>, g: &[u16], p: &[u16], [$($s,)* ..]: Slots<'_, f32>, lanes: &mut Lanes<N>,
        ) {
            Self::drop_halves::<S, I, H, FROM, TO, N>(kernel, g, p, $($s,)* lanes);
        }
    })*

    impl<S: Stage, I: Set, C: Real, const FROM: usize, const TO: usize, const N: usize>
        Loops<S, (I, C), FROM, TO, N>
    {
        /// Of a pass that gives out updates.
        /// Of one without state arrays, which adds up in a loop of its own, what it adds is left out.
        pub(super) const MAP: MapFn<S, C, N> = match (arrays::<S>(), S::SHAPE.adds_in(TO) && arrays::<S>() > 0) {
            $(($n, false) => Arrays::<$n>::tile_of::<S, C, FROM, TO, N>,)*
            $(($n, true) => Arrays::<$n>::sums::<S, I, C, false, FROM, TO, N>,)*
            _ => unreachable!(),
        };

        /// Of a pass that drops updates: there is a barrier after it.
        pub(super) const DROP: MapFn<S, C, N> = match arrays::<S>() {
            $($n => Arrays::<$n>::sums::<S, I, C, true, FROM, TO, N>,)*
            _ => unreachable!(),
        };

        /// Of the pass that ends with parameters.
        pub(super) const APPLY: ApplyFn<S, C, N> = match arrays::<S>() {
            $($n => Arrays::<$n>::apply::<S, I, C, FROM, TO, N>,)*
            _ => unreachable!(),
        };
    }

    #[cfg(feature = "half")]
    impl<S: Stage, I: Set, H: InBlocks, const FROM: usize, const TO: usize, const N: usize>
        Loops<S, (I, H), FROM, TO, N>
    {
        pub(super) const HALVES: HalvesFn<S, N> = match arrays::<S>() {
            $($n => Arrays::<$n>::halves_of::<S, I, H, FROM, TO, N>,)*
            _ => unreachable!(),
        };

        pub(super) const DROP_HALVES: DropHalvesFn<S, N> = match arrays::<S>() {
            $($n => Arrays::<$n>::drop_halves_of::<S, I, H, FROM, TO, N>,)*
            _ => unreachable!(),
        };
    }

    #[cfg(feature = "half")]
    impl<S: Stage, I: Set, const FROM: usize, const TO: usize> Loops<S, On<I>, FROM, TO, 0> {
        pub(super) const MIXED: MixedFn<S> = match arrays::<S>() {
            $($n => Arrays::<$n>::mixed::<S, I, FROM, TO>,)*
            _ => unreachable!(),
        };
    }
    };
}
loops! {
    0 ();
    1 (a a0 0);
    2 (a a0 0, b b0 1);
    3 (a a0 0, b b0 1, c c0 2);
    4 (a a0 0, b b0 1, c c0 2, d d0 3);
    5 (a a0 0, b b0 1, c c0 2, d d0 3, e e0 4);
    6 (a a0 0, b b0 1, c c0 2, d d0 3, e e0 4, f f0 5);
    7 (a a0 0, b b0 1, c c0 2, d d0 3, e e0 4, f f0 5, g_ g0 6);
    8 (a a0 0, b b0 1, c c0 2, d d0 3, e e0 4, f f0 5, g_ g0 6, h h0 7);
}
