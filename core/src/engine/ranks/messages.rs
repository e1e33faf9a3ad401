//! The layout of chunks in messages between processes.
#![allow(unsafe_code, reason = "disjoint slices of messages and arrays on many threads; see `memory`")]

use core::ops::Range;

use super::Ranks;
use crate::collective::pairwise::{merge_all, merge_equal};
use crate::element::{DType, Element, Real, convert, with_dtype};
use crate::engine::chunks::{CHUNK, Chunk};
use crate::engine::{TILE, Tile};
use crate::memory::{RawBytes, bytes_of, bytes_of_mut, numbers_in};
use crate::numeric::convert::Convert;
use crate::numeric::simd::{Job, SimdLevel, current_simd_level, dispatch};
use crate::numeric::split::parallel_for;
use crate::state::Moments;
use crate::tree::Structure;

/// The layout of all chunks in messages, one per round, in the order of ranks.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The dtype in messages, if narrower than the compute type.
    narrow: Option<DType>,
    of_leaf: Vec<Range<usize>>,
    /// Each chunk's round, and its offset in that message.
    places: Vec<(usize, usize)>,
    /// Bytes by round and rank.
    pub(crate) lens: Vec<Vec<usize>>,
    rank: usize,
    /// This rank's chunks by round, with offsets in its part of the message.
    here: Vec<Vec<(Chunk, usize)>>,
}

impl Layout {
    pub(crate) fn new(ranks: &Ranks, structure: &Structure, narrow: Option<DType>) -> Layout {
        let (chunks, rounds) = (&ranks.chunks, ranks.rounds());
        let mut layout = Layout {
            narrow,
            of_leaf: chunks.of_leaf.clone(),
            places: vec![(0, 0); chunks.all.len()],
            lens: vec![Vec::new(); rounds],
            rank: ranks.collective.rank(),
            here: vec![Vec::new(); rounds],
        };
        for round in 0..rounds {
            let mut begins = 0;
            for rank in 0..ranks.size() {
                let mut at = 0;
                for number in ranks.in_round(rank, round) {
                    let chunk = chunks.all[*number];
                    layout.places[*number] = (round, begins + at);
                    if rank == layout.rank {
                        layout.here[round].push((chunk, at));
                    }
                    at += chunk.len * layout.message_dtype(structure.leaves()[chunk.leaf].dtype().compute()).size();
                }
                layout.lens[round].push(at);
                begins += at;
            }
        }
        layout
    }

    /// Returns the layout of messages with this rank's part only.
    pub(crate) fn own(&self) -> Layout {
        let mut own = self.clone();
        for (round, here) in self.here.iter().enumerate() {
            for (chunk, at) in here {
                own.places[self.number(chunk.leaf, chunk.start)] = (round, *at);
            }
            own.lens[round] = vec![self.lens[round][self.rank]];
        }
        own
    }

    /// Returns the dtype in messages.
    fn message_dtype(&self, own: DType) -> DType {
        self.narrow.filter(|narrow| narrow.size() < own.size()).unwrap_or(own)
    }

    pub(crate) fn lend(&self, messages: &mut [Vec<u8>]) -> Vec<RawBytes> {
        let lend = |(message, lens): (&mut Vec<u8>, &Vec<usize>)| {
            message.resize(lens.iter().sum(), 0);
            RawBytes::of(message)
        };
        messages.iter_mut().zip(&self.lens).map(lend).collect()
    }

    fn number(&self, leaf: usize, start: usize) -> usize {
        let number = self.of_leaf[leaf].start + start / CHUNK;
        assert!(self.of_leaf[leaf].contains(&number), "only active leaves are exchanged");
        number
    }

    /// Returns the round of a range, and its offset in that message.
    fn place<C: Real>(&self, leaf: usize, start: usize) -> (usize, usize) {
        let (round, at) = self.places[self.number(leaf, start)];
        (round, at + start % CHUNK * self.message_dtype(C::DTYPE).size())
    }

    /// Writes a tile to the messages, unless none are lent.
    pub(crate) fn store<C: Real>(&self, messages: &[RawBytes], tile: &mut Tile<'_, C>) {
        let (round, at) = self.place::<C>(tile.leaf, tile.start);
        let Some(message) = messages.get(round) else { return };
        let (message_dtype, simd) = (self.message_dtype(C::DTYPE), tile.simd);
        let values = tile.input();
        // SAFETY: the messages are borrowed for the step, and each range belongs to one task in a pass.
        write(simd, message_dtype, values, unsafe { message.slice_mut(at, values.len() * message_dtype.size()) });
    }

    pub(crate) fn read_tile<C: Real>(&self, messages: &[RawBytes], tile: &mut Tile<'_, C>) {
        let (round, at) = self.place::<C>(tile.leaf, tile.start);
        // SAFETY: the messages are borrowed for the step, and nothing writes them in this pass.
        let bytes = unsafe { messages[round].slice(at, size_of_val(tile.u)) };
        // Copying a page is faster than a loop that waits for two arrays.
        bytes_of_mut(tile.u).copy_from_slice(bytes);
        (tile.source, tile.zero) = (None, false);
    }

    /// Averages a round's messages to this rank into arrays. A rank's message is a mean of `parts` parts; they are
    /// added pairwise: neighbours, then pairs of neighbours, and so on.
    pub(crate) fn mean(&self, round: usize, parts: &[u64], received: &[u8], arrays: &mut Moments) {
        let simd = current_simd_level();
        let of_each = received.chunks((received.len() / parts.len()).max(1));
        let messages: Vec<_> = parts.iter().copied().zip(of_each).collect();
        let here = &self.here[round];
        parallel_for(0..here.len(), false, &|chunk| {
            let (Chunk { leaf, start, len, .. }, at) = &here[chunk];
            let Some(array) = arrays.raw(*leaf) else { return };
            let dtype = self.message_dtype(array.dtype());
            match array.dtype() {
                // SAFETY: the arrays are held exclusively, and each chunk belongs to one task.
                DType::F64 => mean::<f64>(simd, dtype, &messages, *at, unsafe { array.slice_mut(*start, *len) }),
                // SAFETY: as above.
                _ => mean::<f32>(simd, dtype, &messages, *at, unsafe { array.slice_mut(*start, *len) }),
            }
        });
    }
}

fn write<C: Real>(simd: SimdLevel, message_dtype: DType, values: &[C], message: &mut [u8]) {
    if message_dtype == C::DTYPE {
        return message.copy_from_slice(bytes_of(values));
    }
    with_dtype!(message_dtype, T => {
        let mut there = [T::default(); TILE];
        let there = &mut there[..values.len()];
        dispatch(simd, Convert { from: values, to: &mut *there });
        message.copy_from_slice(bytes_of(there));
    });
}

/// Stores or adds the numbers of a message, times a weight.
struct AccumulateMessage<'a, C, T> {
    numbers: &'a [T],
    weight: C,
    to: &'a mut [C],
    accumulates: bool,
}

impl<C: Real, T: Element> Job for AccumulateMessage<'_, C, T> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let AccumulateMessage { numbers, weight, to, accumulates } = self;
        let numbers = &numbers[..to.len()];
        for i in 0..to.len() {
            let x = convert::<T, C>(numbers[i]) * weight;
            to[i] = if accumulates { to[i] + x } else { x };
        }
    }
}

struct Sum<'a, C>(&'a mut [C; TILE], &'a [C; TILE]);

impl<C: Real> Job for Sum<'_, C> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Sum(sum, more) = self;
        for i in 0..TILE {
            sum[i] += more[i];
        }
    }
}

struct Mean<'a, C> {
    sum: &'a [C; TILE],
    count: C,
    to: &'a mut [C],
}

impl<C: Real> Job for Mean<'_, C> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Mean { sum, count, to } = self;
        let sum = &sum[..to.len()];
        for i in 0..to.len() {
            to[i] = sum[i] / count;
        }
    }
}

/// Averages all ranks' messages from byte `at` on.
fn mean<C: Real>(simd: SimdLevel, message_dtype: DType, messages: &[(u64, &[u8])], mut at: usize, to: &mut [C]) {
    let count = C::of(messages.iter().map(|(parts, _)| *parts as f64).sum());
    // Each sum's number of parts, and its index in `rows`.
    let (mut sums, mut rows): (Vec<(u64, usize)>, Vec<[C; TILE]>) = (Vec::new(), Vec::new());
    for to in to.chunks_mut(TILE) {
        for (parts, message) in messages {
            let accumulates = sums.last().is_some_and(|(n, _)| n == parts);
            if !accumulates {
                sums.push((0, sums.len()));
                rows.resize(rows.len().max(sums.len()), [C::zero(); TILE]);
            }
            let Some((n, row)) = sums.last_mut() else { return };
            *n += parts;
            let (weight, sum) = (C::of(*parts as f64), &mut rows[*row][..to.len()]);
            with_dtype!(message_dtype, T => {
                let bytes = &message[at..at + size_of::<T>() * to.len()];
                let mut weigh =
                    |numbers: &[T]| dispatch(simd, AccumulateMessage { numbers, weight, to: sum, accumulates });
                match numbers_in(bytes) {
                    Some(numbers) => weigh(numbers),
                    None => {
                        let mut scratch = [T::default(); TILE];
                        bytes_of_mut(&mut scratch[..to.len()]).copy_from_slice(bytes);
                        weigh(&scratch[..to.len()]);
                    }
                }
            });
            merge_equal(&mut sums, &mut |before, last| add(simd, &mut rows, *before, *last));
        }
        merge_all(&mut sums, &mut |before, last| add(simd, &mut rows, *before, *last));
        sums.clear();
        dispatch(simd, Mean { sum: &rows[0], count, to: &mut *to });
        at += to.len() * message_dtype.size();
    }
}

fn add<C: Real>(simd: SimdLevel, rows: &mut [[C; TILE]], before: usize, last: usize) {
    let (first, second) = rows.split_at_mut(last);
    dispatch(simd, Sum(&mut first[before], &second[0]));
}
