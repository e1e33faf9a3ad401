//! A step whose work is shared out among machines: who has which pieces, and what all have added up.

use core::ops::Range;
use std::sync::Arc;

use super::Sums;
use super::pieces::Pieces;
use crate::collective::{Collective, arrived};
use crate::error::Result;
use crate::numeric::order::largest_first;
use crate::tree::Structure;

/// Who works on what.
#[derive(Clone, Debug)]
pub(crate) struct Ranks {
    pub(crate) collective: Arc<dyn Collective>,
    /// All pieces of all machines, in order: sums are added in this order, whoever has worked them out.
    pub(super) pieces: Pieces,
    /// For each rank the numbers of its pieces, ascending.
    of_rank: Vec<Vec<usize>>,
    /// The sums by piece, of all machines.
    values: Vec<f64>,
    send: Vec<u8>,
    received: Vec<u8>,
}

impl Ranks {
    /// Shares out the active leaves. `whole` says which of them are not cut, and how much work each of those is.
    ///
    /// Leaves that are not cut go to the rank that has least of their work so far, the largest first. The pieces of the
    /// others fill up the ranks in order, so that all get as many bytes.
    pub(crate) fn share(
        collective: Arc<dyn Collective>,
        structure: &Structure,
        active: &[bool],
        whole: &[Option<f64>],
    ) -> Ranks {
        let (size, pieces) = (collective.size(), Pieces::new(structure, active));
        let bytes = |leaf: usize, len: usize| (structure.leaves()[leaf].dtype().compute().size() * len) as u64;
        let (mut work, mut load, mut owner) = (vec![0.0_f64; size], vec![0_u64; size], vec![None; structure.len()]);
        let mut largest: Vec<(f64, usize)> =
            whole.iter().enumerate().filter_map(|(leaf, work)| Some((work.filter(|_| active[leaf])?, leaf))).collect();
        largest_first(&mut largest);
        for (of_leaf, leaf) in largest {
            let least = |a: &usize, b: &usize| work[*a].total_cmp(&work[*b]).then(load[*a].cmp(&load[*b]));
            let rank = (0..size).min_by(least).unwrap_or(0);
            (work[rank], owner[leaf]) = (work[rank] + of_leaf, Some(rank));
            load[rank] += bytes(leaf, structure.leaves()[leaf].len());
        }
        let quotas = quotas(&load, pieces.all.iter().filter(|p| owner[p.leaf].is_none()).map(|p| bytes(p.leaf, p.len)));
        let mut of_rank = vec![Vec::new(); size];
        let (mut rank, mut filled, mut bound) = (0, 0, quotas[0]);
        for (number, piece) in pieces.all.iter().enumerate() {
            if let Some(owner) = owner[piece.leaf] {
                of_rank[owner].push(number);
                continue;
            }
            // A piece goes to the rank in whose share its middle lies.
            let len = bytes(piece.leaf, piece.len);
            while rank + 1 < size && 2 * filled + len > 2 * bound {
                rank += 1;
                bound += quotas[rank];
            }
            of_rank[rank].push(number);
            filled += len;
        }
        Ranks { collective, pieces, of_rank, values: Vec::new(), send: Vec::new(), received: Vec::new() }
    }

    pub(crate) fn size(&self) -> usize {
        self.of_rank.len()
    }

    /// Pieces of each rank that travel together: 16 MiB of `f32` of all ranks, but no more than a MiB of one, and no
    /// less than a piece.
    fn together(&self) -> usize {
        (256 / self.size()).clamp(1, 16)
    }

    /// How many times so many pieces of each rank are all.
    pub(crate) fn rounds(&self) -> usize {
        self.of_rank.iter().map(|numbers| numbers.len().div_ceil(self.together())).max().unwrap_or(0)
    }

    /// The numbers of a rank's pieces that travel together.
    pub(super) fn in_round(&self, rank: usize, round: usize) -> &[usize] {
        self.of_rank[rank].chunks(self.together()).nth(round).unwrap_or_default()
    }

    /// Which elements of each leaf a rank works on, in memory order: pieces of a leaf that are one rank's follow each
    /// other.
    pub(crate) fn here(&self, structure: &Structure, rank: usize) -> Vec<Range<usize>> {
        let mut here = vec![0..0; structure.len()];
        for piece in self.of_rank[rank].iter().map(|number| &self.pieces.all[*number]) {
            let of_leaf = &mut here[piece.leaf];
            let first = of_leaf.start == of_leaf.end;
            *of_leaf = if first { piece.start } else { of_leaf.start }..piece.start + piece.len;
        }
        here
    }

    /// Nothing has been added up yet, of `width` sums for each piece.
    pub(crate) fn clear(&mut self, width: usize) {
        self.values.clear();
        self.values.resize(self.pieces.all.len() * width, 0.0);
    }

    /// Gathers the sums of all machines, `width` for each piece; `own` are those of the pieces here.
    pub(crate) fn complete(&mut self, own: &[f64], width: usize) -> Result<()> {
        let [mut send, received] = [&mut self.send, &mut self.received].map(core::mem::take);
        send.clear();
        send.extend(own.iter().flat_map(|sum| sum.to_le_bytes()));
        let from: Vec<usize> = self.of_rank.iter().map(|numbers| numbers.len() * width * size_of::<f64>()).collect();
        let travels = self.collective.begin_all_gather(send, received, &from);
        [self.send, self.received] = arrived(&*self.collective, travels, &from)?;
        let places = self.of_rank.iter().flatten().flat_map(|number| number * width..(number + 1) * width);
        for (place, sum) in places.zip(self.received.as_chunks::<8>().0) {
            self.values[place] = f64::from_le_bytes(*sum);
        }
        Ok(())
    }

    /// The sums of all machines, in the place of those of this one.
    pub(super) fn sums<'a>(&'a self, here: Sums<'a>) -> Sums<'a> {
        Sums { pieces: &self.pieces, values: &self.values, ..here }
    }
}

/// How much of what can be cut each rank gets, so that all have as much in the end as can be: as water fills vessels in
/// which there is some already.
fn quotas(load: &[u64], free: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut left: u64 = free.sum();
    let mut sorted = load.to_vec();
    sorted.sort_unstable();
    let mut level = sorted[0];
    for (below, next) in sorted.iter().enumerate().skip(1) {
        let room = (next - level) * below as u64;
        if room > left {
            let share = left / below as u64;
            return load.iter().map(|load| (level + share).saturating_sub(*load)).collect();
        }
        (level, left) = (*next, left - room);
    }
    // What does not divide is less than a piece.
    level += left.div_ceil(sorted.len() as u64);
    load.iter().map(|load| level.saturating_sub(*load)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::collective::threads;
    use crate::engine::PIECE;

    fn shared(sizes: &[usize], whole: &[Option<f64>], ranks: usize) -> Vec<Vec<Range<usize>>> {
        let leaves: Vec<_> = sizes.iter().map(|n| vec![0.0_f32; *n]).collect();
        let structure = Structure::of(&leaves).unwrap();
        let collective = Arc::new(threads(ranks, Duration::ZERO).remove(0));
        let ranks = Ranks::share(collective, &structure, &vec![true; sizes.len()], whole);
        (0..ranks.of_rank.len()).map(|rank| ranks.here(&structure, rank)).collect()
    }

    #[test]
    fn pieces_are_shared_evenly_and_in_order() {
        let here = shared(&[3 * PIECE + 5, 10, 2 * PIECE], &[None; 3], 2);
        assert_eq!(here, [[0..3 * PIECE, 0..0, 0..0], [3 * PIECE..3 * PIECE + 5, 0..10, 0..2 * PIECE]]);
        let here = shared(&[8 * PIECE], &[None], 4);
        let lens: Vec<usize> = here.iter().map(|here| here[0].len()).collect();
        assert_eq!(lens, [2 * PIECE; 4]);
    }

    #[test]
    fn more_ranks_than_pieces_leaves_some_without() {
        let here = shared(&[5, 0], &[None; 2], 4);
        assert_eq!(here.iter().filter(|here| here[0] == (0..5)).count(), 1);
        assert!(here.iter().all(|here| here[1].is_empty()));
        assert_eq!(shared(&[], &[], 3), vec![vec![]; 3] as Vec<Vec<Range<usize>>>);
    }

    #[test]
    fn whole_leaves_go_where_there_is_least_work_and_the_others_fill_up() {
        let whole = [Some(8.0), Some(5.0), Some(4.0), None];
        let here = shared(&[4 * PIECE, 2 * PIECE, 2 * PIECE, 4 * PIECE], &whole, 2);
        assert_eq!(here[0], [0..4 * PIECE, 0..0, 0..0, 0..2 * PIECE]);
        assert_eq!(here[1], [0..0, 0..2 * PIECE, 0..2 * PIECE, 2 * PIECE..4 * PIECE]);
        // The work is even, the bytes are not: the others make up for that.
        let here = shared(&[PIECE, 3 * PIECE, 4 * PIECE], &[Some(1.0), Some(1.0), None], 2);
        assert_eq!([here[0][2].len(), here[1][2].len()], [3 * PIECE, PIECE]);
    }
}
