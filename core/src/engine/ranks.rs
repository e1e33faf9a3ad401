//! A step shared by processes: the chunks of each rank, and the sums of all.

mod messages;

use core::ops::Range;
use std::sync::Arc;

pub(crate) use messages::Layout;

use super::Sums;
use super::chunks::Chunks;
use crate::collective::{Collective, wait_checked};
use crate::error::Result;
use crate::numeric::order::largest_first;
use crate::tree::Structure;

#[derive(Clone, Debug)]
pub(crate) struct Ranks {
    pub(crate) collective: Arc<dyn Collective>,
    /// All chunks, in the order in which sums are added.
    pub(super) chunks: Chunks,
    of_rank: Vec<Vec<usize>>,
    values: Vec<f64>,
    send: Vec<u8>,
    received: Vec<u8>,
}

impl Ranks {
    /// Divides the active leaves. `whole` has the cost of each leaf that must stay whole: the most expensive first,
    /// each goes to the rank with the least cost so far. Chunks of the other leaves then fill the ranks in order, to
    /// equal bytes.
    pub(crate) fn share(
        collective: Arc<dyn Collective>,
        structure: &Structure,
        active: &[bool],
        whole: &[Option<f64>],
    ) -> Ranks {
        let (size, chunks) = (collective.size(), Chunks::new(structure, active));
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
        let quotas = quotas(&load, chunks.all.iter().filter(|p| owner[p.leaf].is_none()).map(|p| bytes(p.leaf, p.len)));
        let mut of_rank = vec![Vec::new(); size];
        let (mut rank, mut filled, mut bound) = (0, 0, quotas[0]);
        for (number, chunk) in chunks.all.iter().enumerate() {
            if let Some(owner) = owner[chunk.leaf] {
                of_rank[owner].push(number);
                continue;
            }
            // A chunk belongs to the rank whose share contains its middle.
            let len = bytes(chunk.leaf, chunk.len);
            while rank + 1 < size && 2 * filled + len > 2 * bound {
                rank += 1;
                bound += quotas[rank];
            }
            of_rank[rank].push(number);
            filled += len;
        }
        Ranks { collective, chunks, of_rank, values: Vec::new(), send: Vec::new(), received: Vec::new() }
    }

    pub(crate) fn size(&self) -> usize {
        self.of_rank.len()
    }

    /// Returns the chunks per rank and message: 16 MiB of `f32` of all ranks, at most 1 MiB and at least one chunk of
    /// each.
    fn chunks_per_message(&self) -> usize {
        (256 / self.size()).clamp(1, 16)
    }

    pub(crate) fn rounds(&self) -> usize {
        self.of_rank.iter().map(|numbers| numbers.len().div_ceil(self.chunks_per_message())).max().unwrap_or(0)
    }

    pub(super) fn in_round(&self, rank: usize, round: usize) -> &[usize] {
        self.of_rank[rank].chunks(self.chunks_per_message()).nth(round).unwrap_or_default()
    }

    /// Returns a rank's elements of each leaf, in memory order: its chunks are adjacent.
    pub(crate) fn here(&self, structure: &Structure, rank: usize) -> Vec<Range<usize>> {
        let mut here = vec![0..0; structure.len()];
        for chunk in self.of_rank[rank].iter().map(|number| &self.chunks.all[*number]) {
            let of_leaf = &mut here[chunk.leaf];
            let first = of_leaf.start == of_leaf.end;
            *of_leaf = if first { chunk.start } else { of_leaf.start }..chunk.start + chunk.len;
        }
        here
    }

    pub(crate) fn clear(&mut self, width: usize) {
        self.values.clear();
        self.values.resize(self.chunks.all.len() * width, 0.0);
    }

    /// Gathers all ranks' sums, `width` per chunk; `own` are this rank's.
    pub(crate) fn complete(&mut self, own: &[f64], width: usize) -> Result<()> {
        let [mut send, received] = [&mut self.send, &mut self.received].map(core::mem::take);
        send.clear();
        send.extend(own.iter().flat_map(|sum| sum.to_le_bytes()));
        let from: Vec<usize> = self.of_rank.iter().map(|numbers| numbers.len() * width * size_of::<f64>()).collect();
        let message_dtype = self.collective.begin_all_gather(send, received, &from);
        [self.send, self.received] = wait_checked(&*self.collective, message_dtype, &from)?;
        let places = self.of_rank.iter().flatten().flat_map(|number| number * width..(number + 1) * width);
        for (place, sum) in places.zip(self.received.as_chunks::<8>().0) {
            self.values[place] = f64::from_le_bytes(*sum);
        }
        Ok(())
    }

    pub(super) fn sums<'a>(&'a self, here: Sums<'a>) -> Sums<'a> {
        Sums { chunks: &self.chunks, values: &self.values, ..here }
    }
}

/// Divides bytes to equalize the total loads, by water-filling.
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
    // The remainder is less than a chunk.
    level += left.div_ceil(sorted.len() as u64);
    load.iter().map(|load| level.saturating_sub(*load)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::collective::threads;
    use crate::engine::chunks::CHUNK;

    fn shared(sizes: &[usize], whole: &[Option<f64>], ranks: usize) -> Vec<Vec<Range<usize>>> {
        let leaves: Vec<_> = sizes.iter().map(|n| vec![0.0_f32; *n]).collect();
        let structure = Structure::of(&leaves).unwrap();
        let collective = Arc::new(threads(ranks, Duration::ZERO).remove(0));
        let ranks = Ranks::share(collective, &structure, &vec![true; sizes.len()], whole);
        (0..ranks.of_rank.len()).map(|rank| ranks.here(&structure, rank)).collect()
    }

    #[test]
    fn chunks_are_shared_evenly_and_in_order() {
        let here = shared(&[3 * CHUNK + 5, 10, 2 * CHUNK], &[None; 3], 2);
        assert_eq!(here, [[0..3 * CHUNK, 0..0, 0..0], [3 * CHUNK..3 * CHUNK + 5, 0..10, 0..2 * CHUNK]]);
        let here = shared(&[8 * CHUNK], &[None], 4);
        let lens: Vec<usize> = here.iter().map(|here| here[0].len()).collect();
        assert_eq!(lens, [2 * CHUNK; 4]);
    }

    #[test]
    fn more_ranks_than_chunks_leaves_some_without() {
        let here = shared(&[5, 0], &[None; 2], 4);
        assert_eq!(here.iter().filter(|here| here[0] == (0..5)).count(), 1);
        assert!(here.iter().all(|here| here[1].is_empty()));
        assert_eq!(shared(&[], &[], 3), vec![vec![]; 3] as Vec<Vec<Range<usize>>>);
    }

    #[test]
    fn whole_leaves_go_to_the_least_loaded_rank_and_chunks_fill_up() {
        let whole = [Some(8.0), Some(5.0), Some(4.0), None];
        let here = shared(&[4 * CHUNK, 2 * CHUNK, 2 * CHUNK, 4 * CHUNK], &whole, 2);
        assert_eq!(here[0], [0..4 * CHUNK, 0..0, 0..0, 0..2 * CHUNK]);
        assert_eq!(here[1], [0..0, 0..2 * CHUNK, 0..2 * CHUNK, 2 * CHUNK..4 * CHUNK]);
        // Equal costs, unequal bytes; chunks of other leaves compensate.
        let here = shared(&[CHUNK, 3 * CHUNK, 4 * CHUNK], &[Some(1.0), Some(1.0), None], 2);
        assert_eq!([here[0][2].len(), here[1][2].len()], [3 * CHUNK, CHUNK]);
    }
}
