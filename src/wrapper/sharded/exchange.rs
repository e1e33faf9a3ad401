//! Gradients to where the state is, and updates to everybody.

use core::convert::Infallible;
use core::ops::Range;

use crate::collective::pairwise::{merge_all, merge_equal};
use crate::collective::{all_gather, all_to_all};
use crate::element::{DType, Element, Real, convert, with_dtype};
use crate::engine::ranks::Ranks;
use crate::engine::{TILE, WholeTree};
use crate::error::Result;
use crate::state::Moments;
use crate::tree::{LeafMut, LeafRef};

/// Pieces of each rank that travel together: 16 MiB of `f32` of all ranks, but no more than a MiB of one, and no less
/// than a piece.
fn together(size: usize) -> usize {
    (256 / size).clamp(1, 16)
}

/// Runs `$body` with `$C` standing for the type that arithmetic on a leaf is done in.
macro_rules! compute {
    ($dtype:expr, $C:ident => $body:expr) => {
        match $dtype {
            DType::F64 => {
                type $C = f64;
                $body
            }
            _ => {
                type $C = f32;
                $body
            }
        }
    };
}

/// The mean gradients and the updates of this rank's share, and room for messages.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    /// Of how many parts of a batch each rank's gradients are the mean.
    pub(super) parts: Vec<u64>,
    /// The type in which gradients travel, where it is narrower than that of their arithmetic.
    pub(super) reduce_dtype: Option<DType>,
    pub(super) grads: Moments,
    pub(super) updates: Moments,
    pub(super) send: Vec<u8>,
    pub(super) received: Vec<u8>,
}

impl Exchange {
    /// The mean gradients, and where the updates go.
    pub(super) fn arrays(&self) -> [&Moments; 2] {
        [&self.grads, &self.updates]
    }

    /// Brings the mean of all ranks' gradients here.
    pub(super) fn reduce(&mut self, ranks: &Ranks, tree: &WholeTree<'_>) -> Result<()> {
        let (size, rank, narrow) = (ranks.size(), ranks.collective.rank(), self.reduce_dtype);
        let travels = |own: DType| narrow.filter(|narrow| narrow.size() < own.size()).unwrap_or(own);
        for round in rounds(ranks) {
            self.send.clear();
            let mut to = Vec::with_capacity(size);
            for other in 0..size {
                let before = self.send.len();
                for piece in ranks.pieces(other).skip(round.start).take(round.len()) {
                    let (stored, place) = (&tree.stored[piece.leaf], piece.start..piece.start + piece.len);
                    let travels = travels(stored.dtype());
                    compute!(stored.dtype(), C => put(stored.get::<C>(), place, travels, &mut self.send));
                }
                to.push(self.send.len() - before);
            }
            let from = vec![to[rank]; size];
            all_to_all(&*ranks.collective, &mut self.send, &to, &mut self.received, &from)?;
            let mut messages: Vec<_> = self.parts.iter().copied().zip(self.received.chunks(to[rank].max(1))).collect();
            for piece in ranks.pieces(rank).skip(round.start).take(round.len()) {
                let start = piece.start - self.grads.begins(piece.leaf).unwrap_or(0);
                let place = start..start + piece.len;
                compute!(tree.stored[piece.leaf].dtype(), C => {
                    mean(&mut messages, travels(C::DTYPE), self.grads.get_mut::<C>(piece.leaf), place);
                });
            }
        }
        Ok(())
    }

    /// Brings the updates of all ranks to all; if there are any, else they are zero.
    pub(super) fn spread(&mut self, ranks: &Ranks, tree: &mut WholeTree<'_>, emitted: bool) -> Result<()> {
        if !emitted {
            tree.leaves().for_each(|leaf| tree.stored[leaf].fill(0.0));
            return Ok(());
        }
        let (size, rank) = (ranks.size(), ranks.collective.rank());
        for round in rounds(ranks) {
            self.send.clear();
            for piece in ranks.pieces(rank).skip(round.start).take(round.len()) {
                let start = piece.start - self.updates.begins(piece.leaf).unwrap_or(0);
                let place = start..start + piece.len;
                compute!(tree.stored[piece.leaf].dtype(), C => {
                    put(self.updates.get::<C>(piece.leaf), place, C::DTYPE, &mut self.send);
                });
            }
            let there = |rank| ranks.pieces(rank).skip(round.start).take(round.len());
            let bytes = |leaf: usize| tree.stored[leaf].dtype().size();
            let from: Vec<usize> =
                (0..size).map(|rank| there(rank).map(|piece| piece.len * bytes(piece.leaf)).sum()).collect();
            all_gather(&*ranks.collective, &mut self.send, &mut self.received, &from)?;
            let mut rest = &self.received[..];
            for piece in (0..size).flat_map(there) {
                let (stored, place) = (&mut tree.stored[piece.leaf], piece.start..piece.start + piece.len);
                compute!(stored.dtype(), C => {
                    stored.get_mut::<C>().into_iter().for_each(|u| take(&mut rest, C::DTYPE, &mut u[place.clone()]));
                });
            }
        }
        Ok(())
    }
}

/// The pieces of each rank, by number, that travel together.
fn rounds(ranks: &Ranks) -> impl Iterator<Item = Range<usize>> + use<> {
    let most = (0..ranks.size()).map(|rank| ranks.pieces(rank).len()).max().unwrap_or(0);
    let len = together(ranks.size());
    (0..most).step_by(len).map(move |start| start..start + len)
}

/// Appends the numbers at a place to a message, as numbers of the type in which they travel.
fn put<C: Real>(values: Option<&[C]>, place: Range<usize>, travels: DType, message: &mut Vec<u8>) {
    let values = &values.unwrap_or_default()[place];
    if travels == C::DTYPE {
        return append(values, message);
    }
    with_dtype!(travels, T => for tile in values.chunks(TILE) {
        let mut there = [T::default(); TILE];
        there.iter_mut().zip(tile).for_each(|(to, x)| *to = convert(*x));
        append(&there[..tile.len()], message);
    });
}

fn append<T: Element>(values: &[T], message: &mut Vec<u8>) {
    let values = LeafRef::from_slice(values, &[values.len()]).expect("a slice is as long as it is");
    let Ok(()) = values.read_bytes(|bytes| {
        message.extend_from_slice(bytes);
        Ok::<(), Infallible>(())
    });
}

/// Takes numbers from the beginning of what is left of a message.
fn take<C: Real>(message: &mut &[u8], travels: DType, to: &mut [C]) {
    if travels == C::DTYPE {
        return split(message, to);
    }
    with_dtype!(travels, T => for to in to.chunks_mut(TILE) {
        let mut there = [T::default(); TILE];
        split(message, &mut there[..to.len()]);
        to.iter_mut().zip(there).for_each(|(to, x)| *to = convert(x));
    });
}

fn split<T: Element>(message: &mut &[u8], to: &mut [T]) {
    let bytes = message.split_off(..size_of_val(to)).expect("messages are as long as their pieces");
    let len = to.len();
    let mut to = LeafMut::from_slice(to, &[len]).expect("a slice is as long as it is");
    to.take_bytes(bytes);
}

/// The mean of what comes next in each rank's message, of which each stands for so many parts: of neighbours, of pairs
/// of neighbours, and so on.
fn mean<C: Real>(messages: &mut [(u64, &[u8])], travels: DType, to: Option<&mut [C]>, place: Range<usize>) {
    let count = C::of(messages.iter().map(|(parts, _)| *parts as f64).sum());
    let mut sums: Vec<(u64, [C; TILE])> = Vec::with_capacity(8);
    let Some(to) = to else { return };
    for to in to[place].chunks_mut(TILE) {
        for (parts, message) in &mut *messages {
            sums.push((*parts, [C::zero(); TILE]));
            if let Some((_, values)) = sums.last_mut() {
                take(message, travels, &mut values[..to.len()]);
                let weight = C::of(*parts as f64);
                values.iter_mut().for_each(|x| *x *= weight);
            }
            merge_equal(&mut sums, &mut add);
        }
        merge_all(&mut sums, &mut add);
        if let Some((_, sum)) = sums.pop() {
            to.iter_mut().zip(sum).for_each(|(to, sum)| *to = sum / count);
        }
    }
}

fn add<C: Real>(before: &mut [C; TILE], last: &[C; TILE]) {
    before.iter_mut().zip(last).for_each(|(before, last)| *before += *last);
}
