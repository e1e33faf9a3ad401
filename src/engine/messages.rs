//! Where the numbers of pieces are in messages between machines, and how they get there and back.
#![allow(unsafe_code, reason = "pieces of messages and arrays on many threads; see `memory`")]

use core::ops::Range;

use super::convert::Convert;
use super::isa::{Isa, Job, current_isa, dispatch};
use super::pieces::{PIECE, Piece};
use super::ranks::Ranks;
use super::{TILE, Tile};
use crate::collective::pairwise::{merge_all, merge_equal};
use crate::element::{DType, Element, Real, convert, with_dtype};
use crate::memory::{RawBytes, bytes_of, bytes_of_mut, numbers_in};
use crate::numeric::split::shared;
use crate::state::Moments;
use crate::tree::Structure;

/// How the numbers of all pieces lie in messages, of which there is one for each round: some pieces of each rank, one
/// rank after another.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The type in which they travel, where it is narrower than that of their arithmetic.
    narrow: Option<DType>,
    /// The numbers of each leaf's pieces.
    of_leaf: Vec<Range<usize>>,
    /// Of each piece the round, and the first byte in that message.
    places: Vec<(usize, usize)>,
    /// How many bytes of each round are each rank's.
    pub(crate) lens: Vec<Vec<usize>>,
    /// Which rank this is.
    rank: usize,
    /// Its pieces in each round, and where in its part of the message they begin.
    here: Vec<Vec<(Piece, usize)>>,
}

impl Layout {
    pub(crate) fn new(ranks: &Ranks, structure: &Structure, narrow: Option<DType>) -> Layout {
        let (pieces, rounds) = (&ranks.pieces, ranks.rounds());
        let mut layout = Layout {
            narrow,
            of_leaf: pieces.of_leaf.clone(),
            places: vec![(0, 0); pieces.all.len()],
            lens: vec![Vec::new(); rounds],
            rank: ranks.collective.rank(),
            here: vec![Vec::new(); rounds],
        };
        for round in 0..rounds {
            let mut begins = 0;
            for rank in 0..ranks.size() {
                let mut at = 0;
                for number in ranks.in_round(rank, round) {
                    let piece = pieces.all[*number];
                    layout.places[*number] = (round, begins + at);
                    if rank == layout.rank {
                        layout.here[round].push((piece, at));
                    }
                    at += piece.len * layout.travels(structure.leaves()[piece.leaf].dtype().compute()).size();
                }
                layout.lens[round].push(at);
                begins += at;
            }
        }
        layout
    }

    /// The same for messages that have this rank's part only.
    pub(crate) fn own(&self) -> Layout {
        let mut own = self.clone();
        for (round, here) in self.here.iter().enumerate() {
            for (piece, at) in here {
                own.places[self.number(piece.leaf, piece.start)] = (round, *at);
            }
            own.lens[round] = vec![self.lens[round][self.rank]];
        }
        own
    }

    /// The type in which numbers of this one travel.
    fn travels(&self, own: DType) -> DType {
        self.narrow.filter(|narrow| narrow.size() < own.size()).unwrap_or(own)
    }

    /// Lends messages that are as long as they must be.
    pub(crate) fn lend(&self, messages: &mut [Vec<u8>]) -> Vec<RawBytes> {
        let lend = |(message, lens): (&mut Vec<u8>, &Vec<usize>)| {
            message.resize(lens.iter().sum(), 0);
            RawBytes::of(message)
        };
        messages.iter_mut().zip(&self.lens).map(lend).collect()
    }

    /// The number of the piece that an element is in.
    fn number(&self, leaf: usize, start: usize) -> usize {
        let number = self.of_leaf[leaf].start + start / PIECE;
        assert!(self.of_leaf[leaf].contains(&number), "only leaves that are acted on travel");
        number
    }

    /// The round of a stretch of a piece, and where it is in that message.
    fn place<C: Real>(&self, leaf: usize, start: usize) -> (usize, usize) {
        let (round, at) = self.places[self.number(leaf, start)];
        (round, at + start % PIECE * self.travels(C::DTYPE).size())
    }

    /// Brings the numbers of a stretch to the messages that are lent; none may be.
    pub(crate) fn put<C: Real>(&self, messages: &[RawBytes], tile: &mut Tile<'_, C>) {
        let (round, at) = self.place::<C>(tile.leaf, tile.start);
        let Some(message) = messages.get(round) else { return };
        let (travels, isa) = (self.travels(C::DTYPE), tile.isa);
        let values = tile.input();
        // SAFETY: the messages are lent for the step, and each stretch is one task's in a pass.
        write(isa, travels, values, unsafe { message.slice_mut(at, values.len() * travels.size()) });
    }

    /// Brings them back.
    pub(crate) fn take<C: Real>(&self, messages: &[RawBytes], tile: &mut Tile<'_, C>) {
        let (round, at) = self.place::<C>(tile.leaf, tile.start);
        // SAFETY: the messages are lent for the step, and nobody writes to them in this pass.
        let bytes = unsafe { messages[round].slice(at, size_of_val(tile.u)) };
        // Not read where they are: a copy of a page is faster than a loop that waits for two arrays.
        bytes_of_mut(tile.u).copy_from_slice(bytes);
        (tile.source, tile.zero) = (None, false);
    }

    /// Puts the mean of what all ranks have sent this one in a round, of which each is the mean of so many parts, into
    /// arrays: that of neighbours, of pairs of neighbours, and so on.
    pub(crate) fn mean(&self, round: usize, parts: &[u64], received: &[u8], arrays: &mut Moments) {
        let isa = current_isa();
        let of_each = received.chunks((received.len() / parts.len()).max(1));
        let messages: Vec<_> = parts.iter().copied().zip(of_each).collect();
        let here = &self.here[round];
        shared(0..here.len(), false, &|piece| {
            let (Piece { leaf, start, len, .. }, at) = &here[piece];
            let Some(array) = arrays.raw(*leaf) else { return };
            let travels = self.travels(array.dtype());
            match array.dtype() {
                // SAFETY: the arrays are held exclusively, and each piece is one task's.
                DType::F64 => mean::<f64>(isa, travels, &messages, *at, unsafe { array.slice_mut(*start, *len) }),
                // SAFETY: as above.
                _ => mean::<f32>(isa, travels, &messages, *at, unsafe { array.slice_mut(*start, *len) }),
            }
        });
    }
}

/// Writes numbers to a message, as numbers of the type in which they travel.
fn write<C: Real>(isa: Isa, travels: DType, values: &[C], message: &mut [u8]) {
    if travels == C::DTYPE {
        return message.copy_from_slice(bytes_of(values));
    }
    with_dtype!(travels, T => {
        let mut there = [T::default(); TILE];
        let there = &mut there[..values.len()];
        dispatch(isa, Convert { from: values, to: &mut *there });
        message.copy_from_slice(bytes_of(there));
    });
}

/// Numbers of a message, times a weight, in the place of others or added to them.
struct Weighed<'a, C, T> {
    numbers: &'a [T],
    weight: C,
    to: &'a mut [C],
    adds: bool,
}

impl<C: Real, T: Element> Job for Weighed<'_, C, T> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Weighed { numbers, weight, to, adds } = self;
        let numbers = &numbers[..to.len()];
        for i in 0..to.len() {
            let x = convert::<T, C>(numbers[i]) * weight;
            to[i] = if adds { to[i] + x } else { x };
        }
    }
}

/// The sum of two stretches, in the place of the first.
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

/// A sum, divided by how many it is of.
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

/// The mean of what lies from this byte on in each rank's message.
fn mean<C: Real>(isa: Isa, travels: DType, messages: &[(u64, &[u8])], mut at: usize, to: &mut [C]) {
    let count = C::of(messages.iter().map(|(parts, _)| *parts as f64).sum());
    // Of each sum how many parts it is of, and its number in `rows`.
    let (mut sums, mut rows): (Vec<(u64, usize)>, Vec<[C; TILE]>) = (Vec::new(), Vec::new());
    for to in to.chunks_mut(TILE) {
        for (parts, message) in messages {
            let adds = sums.last().is_some_and(|(n, _)| n == parts);
            if !adds {
                sums.push((0, sums.len()));
                rows.resize(rows.len().max(sums.len()), [C::zero(); TILE]);
            }
            let Some((n, row)) = sums.last_mut() else { return };
            *n += parts;
            let (weight, sum) = (C::of(*parts as f64), &mut rows[*row][..to.len()]);
            with_dtype!(travels, T => {
                let bytes = &message[at..at + size_of::<T>() * to.len()];
                let mut weigh = |numbers: &[T]| dispatch(isa, Weighed { numbers, weight, to: sum, adds });
                match numbers_in(bytes) {
                    Some(numbers) => weigh(numbers),
                    None => {
                        let mut room = [T::default(); TILE];
                        bytes_of_mut(&mut room[..to.len()]).copy_from_slice(bytes);
                        weigh(&room[..to.len()]);
                    }
                }
            });
            merge_equal(&mut sums, &mut |before, last| add(isa, &mut rows, *before, *last));
        }
        merge_all(&mut sums, &mut |before, last| add(isa, &mut rows, *before, *last));
        sums.clear();
        dispatch(isa, Mean { sum: &rows[0], count, to: &mut *to });
        at += to.len() * travels.size();
    }
}

fn add<C: Real>(isa: Isa, rows: &mut [[C; TILE]], before: usize, last: usize) {
    let (first, second) = rows.split_at_mut(last);
    dispatch(isa, Sum(&mut first[before], &second[0]));
}
