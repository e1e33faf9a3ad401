//! The outcome of a step, and the output modes of stages in it.

/// The outcome of a step. Each group of a partition has [its own].
///
/// [its own]: https://docs.rs/gradchain/latest/gradchain/wrapper/struct.PartitionState.html#method.outcome
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub(crate) emitted: bool,
    /// True if gradients were discarded, perhaps not all.
    pub(crate) skipped: bool,
    /// As [`Emission::Nothing`].
    pub(crate) held: bool,
}

impl Outcome {
    /// The outcome before the first transformation.
    pub(crate) const GRADIENTS: Outcome = Outcome { emitted: true, skipped: false, held: false };

    pub(crate) const NOTHING: Outcome = Outcome { emitted: false, skipped: false, held: true };

    /// Returns true if an update was emitted, so that a parameter may have changed.
    ///
    /// It is false while a [`multi_steps`] accumulates, and if it or an
    /// [`apply_if_finite`] discarded the gradients, unless another group of a partition emits.
    ///
    /// [`multi_steps`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.multi_steps.html
    /// [`apply_if_finite`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.apply_if_finite.html
    pub fn emitted(self) -> bool {
        self.emitted
    }

    /// Returns true if all gradients were discarded, by a skip function or because they were not finite.
    ///
    /// Never true together with [`emitted`](Outcome::emitted): if one group of a partition skips and another emits, the
    /// [outcome of the group] reports it.
    ///
    /// [outcome of the group]: https://docs.rs/gradchain/latest/gradchain/wrapper/struct.PartitionState.html#method.outcome
    pub fn skipped(self) -> bool {
        self.skipped && !self.emitted
    }
}

/// The output mode of a stage in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emission {
    /// Depends on a barrier that the step has not reached.
    Undecided,
    /// Updates.
    Updates,
    /// Updates of some leaves; the leaves in [`Stage::resting`](super::Stage::resting) rest.
    Partly,
    /// Zero updates. The stage ends after this many of its barriers.
    Zeros(usize),
    /// Nothing: the gradients were accumulated or discarded, so that later stages and wrappers do not run. The stage
    /// ends after this many of its barriers.
    Nothing(usize),
}

impl Emission {
    #[inline(always)]
    pub(crate) const fn reaches_next(self) -> bool {
        matches!(self, Emission::Updates | Emission::Partly | Emission::Zeros(_))
    }

    #[inline(always)]
    pub(crate) const fn is_nothing(self) -> bool {
        matches!(self, Emission::Nothing(_))
    }

    /// Returns the number of barriers after which the stage ends, if it emits zeros or nothing.
    pub(crate) const fn end(self) -> Option<usize> {
        match self {
            Emission::Zeros(end) | Emission::Nothing(end) => Some(end),
            _ => None,
        }
    }

    /// Returns this output mode in a chain with `barriers` barriers before the stage.
    pub(crate) const fn after(self, barriers: usize) -> Emission {
        match self {
            Emission::Zeros(end) => Emission::Zeros(barriers + end),
            Emission::Nothing(end) => Emission::Nothing(barriers + end),
            other => other,
        }
    }
}

/// The leaves for which a stage may emit nothing in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HoldsBack {
    /// None.
    Never,
    /// All leaves together.
    All,
    /// Some leaves, while others have updates.
    Some,
}
