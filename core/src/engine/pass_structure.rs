//! The barriers of a chain and the passes that follow from them.

use crate::element::DType;

/// The barriers of a stage and its work in the intervals between them.
///
/// Bit `i` of a mask is interval `i`: after the stage's own barrier `i − 1` and before its barrier `i`. Interval 0
/// comes before its first barrier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PassStructure {
    /// Barriers: the times that the stage must see the whole tree before it continues.
    pub barriers: usize,
    /// Intervals with per-element state, which a step must write exactly once.
    pub stateful: u32,
    /// Intervals that read parameters.
    pub reads_params: u32,
    /// Barriers that need the updates in memory, besides sums over them.
    pub materializes: u32,
    /// Barriers that read the updates in memory unmodified. The engine stores updates for them only after a stage that
    /// changes them.
    pub reads_updates: u32,
    /// Intervals certain to emit updates unmodified.
    pub unmodified: u32,
    /// Materializing barriers at which the stage keeps the updates itself: the engine stores none. From then on it
    /// emits other updates, for all leaves.
    pub keeps: u32,
    /// The number of reductions.
    pub sums: usize,
    /// Intervals that contribute to the reductions.
    pub reduces: u32,
    /// Intervals whose contributions follow from the updates.
    pub of_updates: u32,
    /// Intervals whose contributions come from one part and follow from its inputs: the update, the parameter and its
    /// old state. They can then be computed afterwards.
    pub deferrable: u32,
    /// Reductions that are counts of elements: bit `i` for reduction `i`.
    pub counts: u32,
    /// True if the stage joins leaves in memory, so that none may rest.
    pub joins: bool,
    /// True if element arithmetic depends on the leaf's dtype besides its compute type.
    pub typed: bool,
}

/// The pass range: the barrier intervals of one pass.
///
/// A pass with several intervals repeats the work before a barrier up to which earlier passes only reduced and stored
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassRange {
    /// The first barrier interval that this pass runs.
    pub from: usize,
    /// The interval that this pass completes.
    pub to: usize,
    /// The dtype of the leaf, in a loop compiled for one.
    pub dtype: Option<DType>,
    /// True if only an element's contributions remain to be computed, from
    /// [`Contribution::inputs`](crate::element::Contribution) and the old state.
    pub deferred: bool,
}

impl PassRange {
    /// Returns the range `from..=to`, for leaves of any dtype.
    #[inline(always)]
    pub const fn of(from: usize, to: usize) -> PassRange {
        PassRange { from, to, dtype: None, deferred: false }
    }

    /// Returns true if this pass runs interval `at`.
    #[inline(always)]
    pub const fn has(self, at: usize) -> bool {
        self.from <= at && at <= self.to
    }

    /// Returns true if the pass runs an interval of this mask.
    #[inline(always)]
    pub const fn intersects(self, intervals: u32) -> bool {
        self.intervals() & intervals != 0
    }

    /// Returns true if the pass runs all intervals of this mask.
    #[inline(always)]
    pub const fn covers(self, intervals: u32) -> bool {
        !self.intervals() & intervals == 0
    }

    #[inline(always)]
    const fn intervals(self) -> u32 {
        (u32::MAX >> (31 - self.to as u32)) & (u32::MAX << self.from as u32)
    }
}

impl PassStructure {
    /// The most barriers of a transformation; its intervals, one more, have a bit each in a mask.
    pub(super) const MAX_BARRIERS: usize = u32::BITS as usize - 1;

    /// A shape without barriers, state and reductions.
    pub const NONE: PassStructure = PassStructure {
        barriers: 0,
        stateful: 0,
        reads_params: 0,
        materializes: 0,
        reads_updates: 0,
        unmodified: 0,
        keeps: 0,
        sums: 0,
        reduces: 0,
        of_updates: 0,
        deferrable: 0,
        counts: 0,
        joins: false,
        typed: false,
    };

    /// The shape of a chain without members.
    pub const EMPTY: PassStructure = PassStructure { unmodified: 1, ..PassStructure::NONE };

    /// The shape of an element-wise stage.
    pub const fn elementwise(stateful: bool, reads_params: bool) -> PassStructure {
        PassStructure { stateful: stateful as u32, reads_params: reads_params as u32, ..PassStructure::NONE }
    }

    /// Returns this shape with reductions before its first barrier.
    pub const fn adding(self, sums: usize) -> PassStructure {
        let reduces = (sums > 0) as u32;
        PassStructure { sums, reduces, of_updates: reduces, ..self }
    }

    /// Returns this shape with contributions that follow from the parameters alone.
    pub const fn of_params(self) -> PassStructure {
        PassStructure { of_updates: 0, ..self }
    }

    /// Returns this shape with reductions that are counts of elements.
    pub const fn counting(self, counts: usize) -> PassStructure {
        PassStructure { counts: (1 << counts) - 1, ..self.adding(counts) }
    }

    /// Returns this shape with contributions that can be computed afterwards.
    pub const fn deferrable(self) -> PassStructure {
        PassStructure { deferrable: self.reduces, ..self }
    }

    /// Returns true if a reduction is a count of elements.
    #[inline(always)]
    pub const fn counts(self, sum: usize) -> bool {
        self.counts >> sum & 1 == 1
    }

    /// Returns the shape of a wrapper that runs this stage in some steps or on some leaves only, so that updates exist
    /// without it.
    pub const fn sometimes(self) -> PassStructure {
        PassStructure { keeps: 0, ..self }
    }

    /// Returns the shape of this stage followed by another. Of a chain with too many barriers, only `barriers` is set.
    pub const fn then(self, next: PassStructure) -> PassStructure {
        let barriers = self.barriers.saturating_add(next.barriers);
        if barriers > PassStructure::MAX_BARRIERS {
            return PassStructure { barriers, ..PassStructure::NONE };
        }
        PassStructure {
            barriers,
            stateful: self.stateful | next.stateful << self.barriers,
            reads_params: self.reads_params | next.reads_params << self.barriers,
            materializes: self.materializes | next.materializes << self.barriers,
            reads_updates: self.reads_updates | next.reads_updates << self.barriers,
            // Both must leave updates unmodified in the shared interval.
            unmodified: self.unmodified & !(1 << self.barriers)
                | (self.unmodified >> self.barriers & next.unmodified) << self.barriers
                | (next.unmodified & !1) << self.barriers,
            keeps: self.keeps | next.keeps << self.barriers,
            sums: self.sums + next.sums,
            reduces: self.reduces | next.reduces << self.barriers,
            of_updates: self.of_updates | next.of_updates << self.barriers,
            deferrable: (self.deferrable | next.deferrable << self.barriers)
                & !(self.reduces & next.reduces << self.barriers),
            counts: self.counts | after(next.counts, self.sums),
            joins: self.joins | next.joins,
            typed: self.typed | next.typed,
        }
    }

    /// Returns true if pass `pass` contributes to reductions.
    pub const fn reduces_in(self, pass: usize) -> bool {
        self.reduces >> pass & 1 == 1
    }

    /// Returns true if contributions of pass `pass` can be computed after all else.
    pub(crate) const fn deferrable_in(self, pass: usize) -> bool {
        self.deferrable >> pass & 1 == 1
    }

    /// Returns the shape of two stages side by side: each leaf or step runs one; they share barriers.
    pub(crate) const fn union(self, other: PassStructure) -> PassStructure {
        PassStructure {
            barriers: if self.barriers > other.barriers { self.barriers } else { other.barriers },
            stateful: self.stateful | other.stateful,
            reads_params: self.reads_params | other.reads_params,
            materializes: self.materializes | other.materializes,
            reads_updates: self.reads_updates | other.reads_updates,
            unmodified: self.unmodified & other.unmodified,
            keeps: 0,
            sums: self.sums + other.sums,
            reduces: self.reduces | other.reduces,
            of_updates: self.of_updates | other.of_updates,
            deferrable: 0,
            counts: self.counts | after(other.counts, self.sums),
            joins: self.joins | other.joins,
            typed: self.typed | other.typed,
        }
    }

    /// Returns the range of pass `pass`.
    pub const fn range(self, pass: usize) -> PassRange {
        PassRange::of(if self.needs_updates(pass) { self.begins(pass) } else { pass }, pass)
    }

    /// Returns the first interval that pass `pass` runs to obtain the updates.
    const fn begins(self, pass: usize) -> usize {
        let (mut from, mut at) = (0, 0);
        while at < pass {
            if self.cuts_from(from, at) {
                from = at + 1;
            }
            at += 1;
        }
        from
    }

    /// Returns true if pass `pass` needs the updates; false if it only reduces the parameters.
    pub const fn needs_updates(self, pass: usize) -> bool {
        self.of_updates >> pass & 1 == 1 || !self.reduces_in(pass) || !self.drops(pass)
    }

    /// Returns true if one pass may run intervals `from..=to`; false if that would rerun a stateful one.
    pub(crate) const fn can_range(self, from: usize, to: usize) -> bool {
        to <= self.barriers && (from == to || !PassRange::of(from, to - 1).intersects(self.stateful))
    }

    /// Returns true if the updates are in memory after pass `pass`, where the next pass starts.
    pub const fn cuts(self, pass: usize) -> bool {
        pass < self.barriers && self.cuts_from(self.begins(pass), pass)
    }

    /// Returns true if the engine stores the updates after pass `pass`.
    pub const fn stores(self, pass: usize) -> bool {
        self.cuts(pass) && self.keeps >> pass & 1 == 0
    }

    /// Returns true if pass `pass` only reduces: the next pass computes the updates again.
    pub const fn drops(self, pass: usize) -> bool {
        pass < self.barriers && !self.cuts(pass)
    }

    /// Returns true if a pass starts from updates that the engine stored.
    pub const fn starts_from_stored(self, range: PassRange) -> bool {
        range.from > 0 && self.stores(range.from - 1)
    }

    const fn cuts_from(self, from: usize, to: usize) -> bool {
        let range = PassRange::of(from, to);
        self.materializes >> to & 1 == 1
            || range.intersects(self.stateful)
            || self.reads_updates_at(to) && range.intersects(!self.unmodified)
    }

    /// Returns true if the barrier after pass `pass` only reads the updates.
    pub(crate) const fn reads_updates_at(self, pass: usize) -> bool {
        self.reads_updates >> pass & 1 == 1
    }

    /// Returns true if the barrier after pass `pass` needs the updates in memory.
    pub(crate) const fn needs_memory(self, pass: usize) -> bool {
        (self.materializes | self.reads_updates) >> pass & 1 == 1
    }

    /// Returns true if pass `pass` does nothing: its input is read in place.
    pub(crate) const fn is_idle(self, pass: usize) -> bool {
        self.reads_updates_at(pass) && self.drops(pass) && !self.reduces_in(pass)
    }

    /// Returns true if the barrier after pass `pass` reads stored updates, not the gradients.
    pub(crate) const fn has_stored(self, pass: usize) -> bool {
        self.cuts(pass) || self.begins(pass) > 0
    }

    /// Returns true if the engine stores the updates after any pass.
    pub const fn stores_any(self) -> bool {
        let mut pass = 0;
        while pass < self.barriers {
            if self.stores(pass) {
                return true;
            }
            pass += 1;
        }
        false
    }

    /// Returns true if pass `pass` reads parameters.
    pub const fn reads_params_in(self, pass: usize) -> bool {
        self.range(pass).intersects(self.reads_params)
    }
}

/// Shifts a mask behind `sums` reductions. A chain with more reductions than bits does not fuse and needs no mask.
const fn after(counts: u32, sums: usize) -> u32 {
    if sums < u32::BITS as usize { counts << sums } else { 0 }
}

/// The number of barriers and reductions before a stage in its chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageOffset {
    /// Barriers before the stage.
    pub at: usize,
    /// Reductions before the stage's own.
    pub sum: usize,
}

impl StageOffset {
    /// Returns the place behind a stage of this shape.
    #[inline(always)]
    pub const fn after(self, shape: PassStructure) -> StageOffset {
        StageOffset { at: self.at + shape.barriers, sum: self.sum + shape.sums }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIP: PassStructure = PassStructure { barriers: 1, ..PassStructure::NONE }.adding(1);
    const KEEPS: PassStructure = PassStructure { barriers: 1, materializes: 1, keeps: 1, ..PassStructure::NONE };
    const READS_UPDATES: PassStructure =
        PassStructure { barriers: 1, reads_updates: 1, unmodified: 1, ..PassStructure::NONE };
    const ADAM: PassStructure = PassStructure::elementwise(true, false);
    const DECAY: PassStructure = PassStructure::elementwise(false, true);

    #[test]
    fn stateless_stages_are_recomputed() {
        let chain = DECAY.then(CLIP).then(ADAM);
        assert_eq!(chain.range(0), PassRange::of(0, 0));
        assert_eq!(chain.range(1), PassRange::of(0, 1));
        assert!(!chain.stores_any());
        assert!(chain.reads_params_in(0) && chain.reads_params_in(1));
    }

    #[test]
    fn stateful_stages_are_stored_once() {
        let chain = ADAM.then(CLIP).then(DECAY);
        assert!(chain.stores(0));
        assert_eq!(chain.range(1), PassRange::of(1, 1));
        assert!(!chain.reads_params_in(0) && chain.reads_params_in(1));
        let twice = CLIP.then(ADAM).then(CLIP);
        assert!(!twice.stores(0) && twice.stores(1));
        assert_eq!(twice.range(1), PassRange::of(0, 1));
        assert_eq!(twice.range(2), PassRange::of(2, 2));
    }

    #[test]
    fn sums_are_added_to_later_where_one_part_has_them() {
        let norm = CLIP.deferrable();
        let chain = ADAM.then(norm).then(norm).then(CLIP);
        assert!(chain.deferrable_in(0) && chain.deferrable_in(1) && !chain.deferrable_in(2));
        let ends_there = PassStructure { barriers: 0, ..norm };
        for beside in [PassStructure::NONE.adding(1), ends_there] {
            assert!(!beside.then(norm).deferrable_in(0) && beside.then(norm).reduces_in(0));
        }
        assert!(!norm.union(norm).deferrable_in(0));
    }

    #[test]
    fn structures_with_too_many_barriers_keep_their_count() {
        let of = |clips: usize| (0..clips).fold(PassStructure::EMPTY, |shape, _| shape.then(CLIP));
        for clips in [32, 33, 40, 64, 100] {
            let many = PassStructure { barriers: clips, ..PassStructure::NONE };
            assert_eq!([of(clips), CLIP.then(of(clips - 1)), of(clips - 31).then(of(31))], [many; 3]);
            assert_eq!(
                [ADAM.then(many), many.then(ADAM), many.then(many)].map(|shape| shape.barriers),
                [clips, clips, 2 * clips]
            );
            assert_eq!([many.union(CLIP), CLIP.union(many), many.sometimes()].map(|shape| shape.barriers), [clips; 3]);
        }
        let most = PassStructure { barriers: usize::MAX, ..PassStructure::NONE };
        assert_eq!(most.then(CLIP).then(most), most);
        let (all, last) = (of(31).then(ADAM), of(30));
        assert_eq!((all.barriers, all.sums, all.reduces, all.stateful), (31, 31, u32::MAX >> 1, 1 << 31));
        assert_eq!(last.then(ADAM).then(CLIP).range(31), PassRange::of(31, 31));
        assert!(last.then(ADAM).then(CLIP).stores(30) && !all.stores_any() && all.range(31) == PassRange::of(0, 31));
    }

    #[test]
    fn kept_updates_are_stored_where_the_stage_may_not_run() {
        let chain = ADAM.then(KEEPS).then(DECAY);
        assert!(chain.cuts(0) && !chain.stores(0) && !chain.starts_from_stored(chain.range(1)));
        assert_eq!(chain.range(1), PassRange::of(1, 1));
        for shape in [KEEPS.sometimes(), KEEPS.union(ADAM)] {
            assert!(shape.stores(0) && shape.starts_from_stored(shape.range(1)));
        }
    }

    #[test]
    fn changed_updates_are_stored_before_leaf_statistics() {
        assert!(!READS_UPDATES.then(CLIP).stores_any());
        assert_eq!(READS_UPDATES.then(CLIP).range(2), PassRange::of(0, 2));
        assert!(READS_UPDATES.is_idle(0) && !READS_UPDATES.has_stored(0) && !CLIP.is_idle(0));
        for empty in [PassStructure::EMPTY.then(PassStructure::EMPTY), PassStructure::EMPTY.then(READS_UPDATES)] {
            assert!(!empty.then(READS_UPDATES).stores(0));
        }
        // Arithmetic before it, and updates that were read and then changed.
        for (before, pass) in [(DECAY, 0), (ADAM, 0), (CLIP, 1), (READS_UPDATES, 1)] {
            let chain = before.then(READS_UPDATES).then(DECAY);
            assert!(chain.stores(pass) && chain.has_stored(pass) && !chain.is_idle(pass));
            assert_eq!(chain.range(pass + 1).from, pass + 1);
        }
        // A stage beside it that changes updates of other leaves makes the engine store all.
        assert!(READS_UPDATES.union(DECAY).stores(0) && !READS_UPDATES.union(READS_UPDATES).stores(0));
        assert!(READS_UPDATES.union(KEEPS).stores(0));
    }

    #[test]
    fn reductions_of_parameters_alone_need_no_updates() {
        let size = PassStructure { reads_params: 1, ..CLIP }.of_params();
        let chain = DECAY.then(CLIP).then(size).then(ADAM);
        let spans = [0, 1, 2].map(|pass| chain.range(pass).from);
        assert_eq!((spans, chain.needs_updates(1), chain.needs_updates(2)), ([0, 1, 0], false, true));
        assert!(!chain.stores_any() && !chain.has_stored(1) && chain.reads_params_in(1));
        // A stage beside it reduces updates, or updates were stored for a later pass.
        assert!(chain.then(CLIP).needs_updates(2) && DECAY.then(CLIP).then(CLIP.union(size)).needs_updates(1));
        let stores = ADAM.then(size);
        assert!(stores.needs_updates(0) && stores.stores(0));
        let later = ADAM.then(CLIP).then(size).then(DECAY);
        assert_eq!([0, 1, 2].map(|pass| later.range(pass).from), [0, 1, 1]);
        assert!(later.starts_from_stored(later.range(2)) && later.has_stored(1));
    }

    #[test]
    fn stages_can_run_every_pass_range_of_their_chains() {
        let size = CLIP.of_params();
        let members = [size, CLIP, KEEPS, ADAM, DECAY, CLIP.then(ADAM), ADAM.then(CLIP), ADAM.then(CLIP).then(CLIP)];
        let mut pairs = 0;
        for (before, member) in members.iter().flat_map(|before| members.map(|member| (*before, member))) {
            for after in [DECAY, ADAM.then(CLIP)] {
                let chain = before.then(member).then(after);
                for PassRange { from, to, .. } in (0..=chain.barriers).map(|pass| chain.range(pass)) {
                    let Some(to) = to.checked_sub(before.barriers).map(|to| to.min(member.barriers)) else { continue };
                    let from = from.saturating_sub(before.barriers);
                    if from <= to {
                        assert!(member.can_range(from, to), "{member:?}: {from} to {to}");
                        pairs += 1;
                    }
                }
            }
        }
        assert!(pairs > 100);
        assert!(!ADAM.then(CLIP).can_range(0, 1) && CLIP.then(ADAM).can_range(0, 1) && !CLIP.can_range(1, 2));
    }

    #[test]
    fn sums_are_complete_after_the_passes_that_add_to_them() {
        let reduces =
            |shape: PassStructure| (0..=shape.barriers).filter(|pass| shape.reduces_in(*pass)).collect::<Vec<_>>();
        assert_eq!(reduces(CLIP.then(ADAM)), [0]);
        assert_eq!(reduces(CLIP.then(ADAM).then(ADAM.adding(1))), [0, 1]);
        assert_eq!(reduces(ADAM.then(KEEPS).then(CLIP).union(DECAY)), [1]);
    }
}
