//! Where a chain must stop and look at the whole tree, and which passes that makes.

use crate::element::DType;

/// The barriers of a stage: how many, and what lies between them. Bit `i` of a mask stands for what comes after the
/// stage's own barrier `i − 1` and before its barrier `i`; bit 0 for what comes before its first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape {
    /// How many times the stage must have seen the whole tree before it can go on.
    pub barriers: usize,
    /// Where it has state for each element, which must be written exactly once a step.
    pub stateful: u32,
    /// Where it reads parameters.
    pub reads_params: u32,
    /// Barriers at which it must have the updates themselves, in memory, not only sums over them.
    pub materializes: u32,
    /// Barriers at which it looks at the updates in memory and leaves them as they are: they are stored for it only if
    /// something before it has changed them.
    pub looks: u32,
    /// Where updates come out as they went in, surely.
    pub untouched: u32,
    /// Of the barriers that materialize those at which it keeps the updates itself, so that the engine need not store
    /// them, and from which on it gives out others, of all leaves.
    pub keeps: u32,
    /// How many sums over elements it adds up.
    pub sums: usize,
    /// Where it adds to them.
    pub adds: u32,
    /// Where what it adds to them follows from the updates.
    pub of_updates: u32,
    /// Where one part alone adds to them, and what it adds can be worked out later from what went into it: the update,
    /// the parameter, and its own state as it was.
    pub later: u32,
    /// Which of them are counts of elements: bit `i` of sum `i`.
    pub counts: u32,
    /// Whether it works on several leaves together, in memory, so that none of them may rest.
    pub joins: bool,
    /// Whether what it does to an element depends on the leaf's type, not only on the one that it calculates in.
    pub typed: bool,
}

/// The barriers whose work one pass does: more than one where an earlier pass only added up and stored nothing, so that
/// what came before the barrier is computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first barrier interval that this pass runs.
    pub from: usize,
    /// The interval that this pass is for.
    pub to: usize,
    /// The type of the leaf, in a loop that is compiled for one.
    pub dtype: Option<DType>,
    /// Whether all has been done to the element but that its sums are to be added to: they follow from what is given
    /// as [`Term::went_in`](crate::element::Term), and from the state as it was before.
    pub later: bool,
}

impl Span {
    /// A pass from one interval to another, on any leaf.
    #[inline(always)]
    pub const fn of(from: usize, to: usize) -> Span {
        Span { from, to, dtype: None, later: false }
    }

    /// Whether what lies in interval `at` runs in this pass.
    #[inline(always)]
    pub const fn has(self, at: usize) -> bool {
        self.from <= at && at <= self.to
    }

    /// Whether it has any interval of those that have a bit in `intervals`.
    #[inline(always)]
    pub const fn meets(self, intervals: u32) -> bool {
        self.intervals() & intervals != 0
    }

    /// Whether it has all of those.
    #[inline(always)]
    pub const fn covers(self, intervals: u32) -> bool {
        !self.intervals() & intervals == 0
    }

    #[inline(always)]
    const fn intervals(self) -> u32 {
        (u32::MAX >> (31 - self.to as u32)) & (u32::MAX << self.from as u32)
    }
}

impl Shape {
    /// The most barriers that the passes of a transformation can have: each mask has a bit for what comes before each
    /// of them, and one for what comes after the last.
    pub(super) const MOST_BARRIERS: usize = u32::BITS as usize - 1;

    /// The shape of what does nothing.
    pub const NOTHING: Shape = Shape {
        barriers: 0,
        stateful: 0,
        reads_params: 0,
        materializes: 0,
        looks: 0,
        untouched: 0,
        keeps: 0,
        sums: 0,
        adds: 0,
        of_updates: 0,
        later: 0,
        counts: 0,
        joins: false,
        typed: false,
    };

    /// The shape of a chain without members.
    pub const EMPTY: Shape = Shape { untouched: 1, ..Shape::NOTHING };

    /// The shape of an element-wise stage.
    pub const fn elementwise(stateful: bool, reads_params: bool) -> Shape {
        Shape { stateful: stateful as u32, reads_params: reads_params as u32, ..Shape::NOTHING }
    }

    /// The shape of this stage with sums, which it adds to before its first barrier.
    pub const fn adding(self, sums: usize) -> Shape {
        let adds = (sums > 0) as u32;
        Shape { sums, adds, of_updates: adds, ..self }
    }

    /// The same with sums that follow from the parameters alone.
    pub const fn of_params(self) -> Shape {
        Shape { of_updates: 0, ..self }
    }

    /// The same with sums that are counts of elements.
    pub const fn counting(self, counts: usize) -> Shape {
        Shape { counts: (1 << counts) - 1, ..self.adding(counts) }
    }

    /// The same with sums that can be added to later.
    pub const fn later(self) -> Shape {
        Shape { later: self.adds, ..self }
    }

    /// Whether a sum is a count of elements.
    #[inline(always)]
    pub const fn counts(self, sum: usize) -> bool {
        self.counts >> sum & 1 == 1
    }

    /// The shape of what does not always run this stage, or not on all leaves: the updates must be there without it.
    pub const fn sometimes(self) -> Shape {
        Shape { keeps: 0, ..self }
    }

    /// The shape of this stage followed by another. One with too many barriers says how many it has, and nothing else.
    pub const fn then(self, next: Shape) -> Shape {
        let barriers = self.barriers.saturating_add(next.barriers);
        if barriers > Shape::MOST_BARRIERS {
            return Shape { barriers, ..Shape::NOTHING };
        }
        Shape {
            barriers,
            stateful: self.stateful | next.stateful << self.barriers,
            reads_params: self.reads_params | next.reads_params << self.barriers,
            materializes: self.materializes | next.materializes << self.barriers,
            looks: self.looks | next.looks << self.barriers,
            // Where they meet, neither may touch them.
            untouched: self.untouched & !(1 << self.barriers)
                | (self.untouched >> self.barriers & next.untouched) << self.barriers
                | (next.untouched & !1) << self.barriers,
            keeps: self.keeps | next.keeps << self.barriers,
            sums: self.sums + next.sums,
            adds: self.adds | next.adds << self.barriers,
            of_updates: self.of_updates | next.of_updates << self.barriers,
            later: (self.later | next.later << self.barriers) & !(self.adds & next.adds << self.barriers),
            counts: self.counts | after(next.counts, self.sums),
            joins: self.joins | next.joins,
            typed: self.typed | next.typed,
        }
    }

    /// Whether anything is added to the sums in pass `pass`.
    pub const fn adds_in(self, pass: usize) -> bool {
        self.adds >> pass & 1 == 1
    }

    /// Whether what is added in pass `pass` can be worked out after all else.
    pub(crate) const fn adds_later_in(self, pass: usize) -> bool {
        self.later >> pass & 1 == 1
    }

    /// The shape of two stages side by side, of which each leaf or each step has one: they reach their barriers
    /// together.
    pub(crate) const fn beside(self, other: Shape) -> Shape {
        Shape {
            barriers: if self.barriers > other.barriers { self.barriers } else { other.barriers },
            stateful: self.stateful | other.stateful,
            reads_params: self.reads_params | other.reads_params,
            materializes: self.materializes | other.materializes,
            looks: self.looks | other.looks,
            untouched: self.untouched & other.untouched,
            keeps: 0,
            sums: self.sums + other.sums,
            adds: self.adds | other.adds,
            of_updates: self.of_updates | other.of_updates,
            later: 0,
            counts: self.counts | after(other.counts, self.sums),
            joins: self.joins | other.joins,
            typed: self.typed | other.typed,
        }
    }

    /// What pass `pass` runs.
    pub const fn span(self, pass: usize) -> Span {
        Span::of(if self.needs_updates(pass) { self.begins(pass) } else { pass }, pass)
    }

    /// The first interval that pass `pass` runs to have the updates.
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

    /// Whether pass `pass` needs the updates: not if it only adds up what follows from the parameters.
    pub const fn needs_updates(self, pass: usize) -> bool {
        self.of_updates >> pass & 1 == 1 || !self.adds_in(pass) || !self.drops(pass)
    }

    /// Whether any chain that this is part of has a pass with such a span of it: not one that goes over a barrier with
    /// state before it.
    pub(crate) const fn can_span(self, from: usize, to: usize) -> bool {
        to <= self.barriers && (from == to || !Span::of(from, to - 1).meets(self.stateful))
    }

    /// Whether the updates are in memory after pass `pass`, for the next pass to go on from.
    pub const fn cuts(self, pass: usize) -> bool {
        pass < self.barriers && self.cuts_from(self.begins(pass), pass)
    }

    /// Whether it is the engine that stores them there.
    pub const fn stores(self, pass: usize) -> bool {
        self.cuts(pass) && self.keeps >> pass & 1 == 0
    }

    /// Whether nobody reads the updates of a pass: it adds up, and the next one works them out again.
    pub const fn drops(self, pass: usize) -> bool {
        pass < self.barriers && !self.cuts(pass)
    }

    /// Whether a pass starts from what the engine has stored.
    pub const fn starts_from_stored(self, span: Span) -> bool {
        span.from > 0 && self.stores(span.from - 1)
    }

    const fn cuts_from(self, from: usize, to: usize) -> bool {
        let span = Span::of(from, to);
        self.materializes >> to & 1 == 1
            || span.meets(self.stateful)
            || self.looks_at(to) && span.meets(!self.untouched)
    }

    /// Whether something looks at the updates in memory, and leaves them as they are, at the barrier after pass `pass`.
    pub(crate) const fn looks_at(self, pass: usize) -> bool {
        self.looks >> pass & 1 == 1
    }

    /// Whether something needs the updates in memory at the barrier after pass `pass`.
    pub(crate) const fn needs_memory(self, pass: usize) -> bool {
        (self.materializes | self.looks) >> pass & 1 == 1
    }

    /// Whether there is nothing to do in pass `pass`: what it starts from is looked at where it is.
    pub(crate) const fn is_idle(self, pass: usize) -> bool {
        self.looks_at(pass) && self.drops(pass) && !self.adds_in(pass)
    }

    /// Whether the updates that the engine has stored are those that are looked at after pass `pass`, and not the
    /// gradients.
    pub(crate) const fn has_stored(self, pass: usize) -> bool {
        self.cuts(pass) || self.begins(pass) > 0
    }

    /// Whether the engine stores the updates after any pass.
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

    /// Whether pass `pass` reads parameters.
    pub const fn reads_params_in(self, pass: usize) -> bool {
        self.span(pass).meets(self.reads_params)
    }
}

/// A mask that begins after so many others; a chain with more than there are bits is not one loop, and has none.
const fn after(counts: u32, sums: usize) -> u32 {
    if sums < u32::BITS as usize { counts << sums } else { 0 }
}

/// How many barriers and sums come before a stage in its chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Barriers before the stage.
    pub at: usize,
    /// Sums before the stage's own.
    pub sum: usize,
}

impl Place {
    /// The place of what follows a stage of this shape.
    #[inline(always)]
    pub const fn after(self, shape: Shape) -> Place {
        Place { at: self.at + shape.barriers, sum: self.sum + shape.sums }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIP: Shape = Shape { barriers: 1, ..Shape::NOTHING }.adding(1);
    const KEEPS: Shape = Shape { barriers: 1, materializes: 1, keeps: 1, ..Shape::NOTHING };
    const LOOKS: Shape = Shape { barriers: 1, looks: 1, untouched: 1, ..Shape::NOTHING };
    const ADAM: Shape = Shape::elementwise(true, false);
    const DECAY: Shape = Shape::elementwise(false, true);

    #[test]
    fn what_has_no_state_is_computed_again() {
        let chain = DECAY.then(CLIP).then(ADAM);
        assert_eq!(chain.span(0), Span::of(0, 0));
        assert_eq!(chain.span(1), Span::of(0, 1));
        assert!(!chain.stores_any());
        assert!(chain.reads_params_in(0) && chain.reads_params_in(1));
    }

    #[test]
    fn what_has_state_is_stored_once() {
        let chain = ADAM.then(CLIP).then(DECAY);
        assert!(chain.stores(0));
        assert_eq!(chain.span(1), Span::of(1, 1));
        assert!(!chain.reads_params_in(0) && chain.reads_params_in(1));
        let twice = CLIP.then(ADAM).then(CLIP);
        assert!(!twice.stores(0) && twice.stores(1));
        assert_eq!(twice.span(1), Span::of(0, 1));
        assert_eq!(twice.span(2), Span::of(2, 2));
    }

    #[test]
    fn sums_are_added_to_later_where_one_part_has_them() {
        let norm = CLIP.later();
        let chain = ADAM.then(norm).then(norm).then(CLIP);
        assert!(chain.adds_later_in(0) && chain.adds_later_in(1) && !chain.adds_later_in(2));
        let ends_there = Shape { barriers: 0, ..norm };
        for beside in [Shape::NOTHING.adding(1), ends_there] {
            assert!(!beside.then(norm).adds_later_in(0) && beside.then(norm).adds_in(0));
        }
        assert!(!norm.beside(norm).adds_later_in(0));
    }

    #[test]
    fn a_sum_with_too_many_barriers_says_how_many_there_are() {
        let of = |clips: usize| (0..clips).fold(Shape::EMPTY, |shape, _| shape.then(CLIP));
        for clips in [32, 33, 40, 64, 100] {
            let many = Shape { barriers: clips, ..Shape::NOTHING };
            assert_eq!([of(clips), CLIP.then(of(clips - 1)), of(clips - 31).then(of(31))], [many; 3]);
            // As members of other shapes.
            assert_eq!(
                [ADAM.then(many), many.then(ADAM), many.then(many)].map(|shape| shape.barriers),
                [clips, clips, 2 * clips]
            );
            assert_eq!(
                [many.beside(CLIP), CLIP.beside(many), many.sometimes()].map(|shape| shape.barriers),
                [clips; 3]
            );
        }
        let most = Shape { barriers: usize::MAX, ..Shape::NOTHING };
        assert_eq!(most.then(CLIP).then(most), most);
        // At the limit all is as below it.
        let (all, last) = (of(31).then(ADAM), of(30));
        assert_eq!((all.barriers, all.sums, all.adds, all.stateful), (31, 31, u32::MAX >> 1, 1 << 31));
        assert_eq!(last.then(ADAM).then(CLIP).span(31), Span::of(31, 31));
        assert!(last.then(ADAM).then(CLIP).stores(30) && !all.stores_any() && all.span(31) == Span::of(0, 31));
    }

    #[test]
    fn what_is_kept_is_stored_where_it_may_not_be_kept() {
        let chain = ADAM.then(KEEPS).then(DECAY);
        assert!(chain.cuts(0) && !chain.stores(0) && !chain.starts_from_stored(chain.span(1)));
        assert_eq!(chain.span(1), Span::of(1, 1));
        for shape in [KEEPS.sometimes(), KEEPS.beside(ADAM)] {
            assert!(shape.stores(0) && shape.starts_from_stored(shape.span(1)));
        }
    }

    #[test]
    fn what_is_looked_at_is_stored_if_it_was_changed() {
        assert!(!LOOKS.then(CLIP).stores_any());
        assert_eq!(LOOKS.then(CLIP).span(2), Span::of(0, 2));
        assert!(LOOKS.is_idle(0) && !LOOKS.has_stored(0) && !CLIP.is_idle(0));
        for empty in [Shape::EMPTY.then(Shape::EMPTY), Shape::EMPTY.then(LOOKS)] {
            assert!(!empty.then(LOOKS).stores(0));
        }
        // Arithmetic on elements before it, with state and without; and what has been looked at and then changed.
        for (before, pass) in [(DECAY, 0), (ADAM, 0), (CLIP, 1), (LOOKS, 1)] {
            let chain = before.then(LOOKS).then(DECAY);
            assert!(chain.stores(pass) && chain.has_stored(pass) && !chain.is_idle(pass));
            assert_eq!(chain.span(pass + 1).from, pass + 1);
        }
        // Beside what changes those of other leaves, they are stored for all.
        assert!(LOOKS.beside(DECAY).stores(0) && !LOOKS.beside(LOOKS).stores(0));
        assert!(LOOKS.beside(KEEPS).stores(0));
    }

    #[test]
    fn what_adds_up_parameters_alone_needs_no_updates() {
        let size = Shape { reads_params: 1, ..CLIP }.of_params();
        let chain = DECAY.then(CLIP).then(size).then(ADAM);
        let spans = [0, 1, 2].map(|pass| chain.span(pass).from);
        assert_eq!((spans, chain.needs_updates(1), chain.needs_updates(2)), ([0, 1, 0], false, true));
        assert!(!chain.stores_any() && !chain.has_stored(1) && chain.reads_params_in(1));
        // What something else adds up beside it, or has stored for later.
        assert!(chain.then(CLIP).needs_updates(2) && DECAY.then(CLIP).then(CLIP.beside(size)).needs_updates(1));
        let stores = ADAM.then(size);
        assert!(stores.needs_updates(0) && stores.stores(0));
        let later = ADAM.then(CLIP).then(size).then(DECAY);
        assert_eq!([0, 1, 2].map(|pass| later.span(pass).from), [0, 1, 1]);
        assert!(later.starts_from_stored(later.span(2)) && later.has_stored(1));
    }

    #[test]
    fn what_a_pass_spans_is_what_it_can() {
        let size = CLIP.of_params();
        let members = [size, CLIP, KEEPS, ADAM, DECAY, CLIP.then(ADAM), ADAM.then(CLIP), ADAM.then(CLIP).then(CLIP)];
        let mut pairs = 0;
        for (before, member) in members.iter().flat_map(|before| members.map(|member| (*before, member))) {
            for after in [DECAY, ADAM.then(CLIP)] {
                let chain = before.then(member).then(after);
                for Span { from, to, .. } in (0..=chain.barriers).map(|pass| chain.span(pass)) {
                    // As the member sees it.
                    let Some(to) = to.checked_sub(before.barriers).map(|to| to.min(member.barriers)) else { continue };
                    let from = from.saturating_sub(before.barriers);
                    if from <= to {
                        assert!(member.can_span(from, to), "{member:?}: {from} to {to}");
                        pairs += 1;
                    }
                }
            }
        }
        assert!(pairs > 100);
        assert!(!ADAM.then(CLIP).can_span(0, 1) && CLIP.then(ADAM).can_span(0, 1) && !CLIP.can_span(1, 2));
    }

    #[test]
    fn sums_are_complete_after_the_passes_that_add_to_them() {
        let adds = |shape: Shape| (0..=shape.barriers).filter(|pass| shape.adds_in(*pass)).collect::<Vec<_>>();
        assert_eq!(adds(CLIP.then(ADAM)), [0]);
        assert_eq!(adds(CLIP.then(ADAM).then(ADAM.adding(1))), [0, 1]);
        assert_eq!(adds(ADAM.then(KEEPS).then(CLIP).beside(DECAY)), [1]);
    }
}
