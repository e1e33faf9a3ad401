//! Gradients to where the state is, and updates to everybody.

use core::ops::Range;

use crate::collective::pairwise::{merge_all, merge_equal};
use crate::element::{DType, Real};
use crate::engine::ranks::Ranks;
use crate::engine::{TILE, WholeTree};
use crate::error::Result;
use crate::state::Moments;

/// Pieces of each rank that travel together: 16 MiB of `f32` of all ranks, but no more than a MiB of one, and no less than a piece.
fn together(size: usize) -> usize {
    (256 / size).clamp(1, 16)
}

/// The mean gradients and the updates of this rank's share, and room for messages.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    grads: Moments,
    updates: Moments,
    send: Vec<u8>,
    received: Vec<u8>,
}

impl Exchange {
    pub(super) fn new(grads: Moments, updates: Moments) -> Exchange {
        Exchange { grads, updates, send: Vec::new(), received: Vec::new() }
    }

    /// The mean gradients, and where the updates go.
    pub(super) fn arrays(&self) -> [&Moments; 2] {
        [&self.grads, &self.updates]
    }

    /// Brings the mean of all ranks' gradients here.
    pub(super) fn reduce(&mut self, ranks: &Ranks, tree: &WholeTree<'_>) -> Result<()> {
        let (size, rank) = (ranks.size(), ranks.collective.rank());
        for round in rounds(ranks) {
            self.send.clear();
            let mut to = Vec::with_capacity(size);
            for other in 0..size {
                let before = self.send.len();
                for piece in ranks.pieces(other).skip(round.start).take(round.len()) {
                    let stored = &tree.stored[piece.leaf];
                    let bytes = stored.dtype().size();
                    self.send.extend_from_slice(&stored.as_bytes()[piece.start * bytes..][..piece.len * bytes]);
                }
                to.push(self.send.len() - before);
            }
            let from = vec![to[rank]; size];
            ranks.collective.all_to_all(&mut self.send, &to, &mut self.received, &from)?;
            let parts: Vec<&[u8]> = (0..size).map(|i| &self.received[i * to[rank]..][..to[rank]]).collect();
            let mut at = 0;
            for piece in ranks.pieces(rank).skip(round.start).take(round.len()) {
                let start = piece.start - self.grads.begins(piece.leaf).unwrap_or(0);
                let place = start..start + piece.len;
                at += match self.grads.dtype(piece.leaf) {
                    Some(DType::F64) => mean(&parts, at, self.grads.get_mut::<f64>(piece.leaf), place),
                    _ => mean(&parts, at, self.grads.get_mut::<f32>(piece.leaf), place),
                };
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
                let bytes = self.updates.dtype(piece.leaf).map_or(0, DType::size);
                let array = self.updates.as_bytes(piece.leaf).unwrap_or_default();
                self.send.extend_from_slice(&array[start * bytes..][..piece.len * bytes]);
            }
            let there = |rank| ranks.pieces(rank).skip(round.start).take(round.len());
            let bytes = |leaf: usize| tree.stored[leaf].dtype().size();
            let from: Vec<usize> =
                (0..size).map(|rank| there(rank).map(|piece| piece.len * bytes(piece.leaf)).sum()).collect();
            ranks.collective.all_gather(&mut self.send, &mut self.received, &from)?;
            let mut rest = &self.received[..];
            for piece in (0..size).flat_map(there) {
                let (stored, place) = (&mut tree.stored[piece.leaf], piece.start..piece.start + piece.len);
                let (now, later) = rest.split_at(piece.len * stored.dtype().size());
                match stored.dtype() {
                    DType::F64 => stored.get_mut::<f64>().into_iter().for_each(|u| read(now, &mut u[place.clone()])),
                    _ => stored.get_mut::<f32>().into_iter().for_each(|u| read(now, &mut u[place.clone()])),
                }
                rest = later;
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

/// The numbers that some bytes are.
#[inline]
fn read<C: Real>(bytes: &[u8], to: &mut [C]) {
    match C::DTYPE {
        DType::F64 => to.iter_mut().zip(bytes.as_chunks::<8>().0).for_each(|(x, b)| *x = C::of(f64::from_ne_bytes(*b))),
        _ => to.iter_mut().zip(bytes.as_chunks::<4>().0).for_each(|(x, b)| *x = C::of(f32::from_ne_bytes(*b).into())),
    }
}

/// The mean of what lies at a place of each rank's message: of neighbours, of pairs of neighbours, and so on. Returns how many
/// bytes of each message that was.
fn mean<C: Real>(parts: &[&[u8]], at: usize, to: Option<&mut [C]>, place: Range<usize>) -> usize {
    let (bytes, count) = (size_of::<C>(), C::of(parts.len() as f64));
    let mut sums: Vec<(usize, [C; TILE])> = Vec::with_capacity(8);
    let Some(to) = to else { return 0 };
    for (tile, to) in to[place.clone()].chunks_mut(TILE).enumerate() {
        let from = at + tile * TILE * bytes;
        for part in parts {
            let mut values = [C::zero(); TILE];
            read(&part[from..][..to.len() * bytes], &mut values);
            sums.push((1, values));
            merge_equal(&mut sums, &mut add);
        }
        merge_all(&mut sums, &mut add);
        if let Some((_, sum)) = sums.pop() {
            to.iter_mut().zip(sum).for_each(|(to, sum)| *to = sum / count);
        }
    }
    place.len() * bytes
}

fn add<C: Real>(before: &mut [C; TILE], last: &[C; TILE]) {
    before.iter_mut().zip(last).for_each(|(before, last)| *before += *last);
}
