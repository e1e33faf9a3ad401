//! The outcome of a step, and the emissions of stages in it.

/// The outcome of a step. Each group of a partition has [its own](crate::wrapper::PartitionState::outcome).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub(crate) emitted: bool,
    /// Some gradients were thrown away, perhaps not all.
    pub(crate) skipped: bool,
    /// As [`Emission::Nothing`].
    pub(crate) held: bool,
}

impl Outcome {
    /// What there is before a transformation has done anything: gradients.
    pub(crate) const GRADIENTS: Outcome = Outcome { emitted: true, skipped: false, held: false };

    /// The outcome of a step that emitted nothing.
    pub(crate) const NOTHING: Outcome = Outcome { emitted: false, skipped: false, held: true };

    /// Whether an update was emitted, so that a parameter may have moved: false while a
    /// [`multi_steps`](crate::multi_steps) accumulates, and where it or an
    /// [`apply_if_finite`](crate::apply_if_finite) threw the gradients away, unless another group of a partition emits.
    pub fn emitted(self) -> bool {
        self.emitted
    }

    /// True if all gradients were thrown away, by a skip function or because they were not finite. Never true together
    /// with [`emitted`](Outcome::emitted): where one group of a partition skips and another emits, the
    /// [outcome of the group](crate::wrapper::PartitionState::outcome) says so.
    pub fn skipped(self) -> bool {
        self.skipped && !self.emitted
    }
}

/// The emission of a stage in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emission {
    /// It depends on a barrier that the step has not reached.
    Undecided,
    /// Updates.
    Updates,
    /// Updates of some leaves, and nothing for those in [`Stage::resting`](super::Stage::resting).
    Partly,
    /// Updates of zero; nothing is left to do after this many of the stage's barriers.
    Zeros(usize),
    /// Nothing: the gradients were accumulated or thrown away, so that stages after and around this one do not run.
    /// Nothing is left to do after this many of the stage's barriers.
    Nothing(usize),
}

impl Emission {
    /// Returns whether the next stage of the chain runs.
    #[inline(always)]
    pub(crate) const fn reaches_next(self) -> bool {
        matches!(self, Emission::Updates | Emission::Partly | Emission::Zeros(_))
    }

    /// Returns whether nothing is emitted on the whole tree.
    #[inline(always)]
    pub(crate) const fn is_nothing(self) -> bool {
        matches!(self, Emission::Nothing(_))
    }

    /// Returns after how many barriers nothing is left to do, if the output is zero on the whole tree.
    pub(crate) const fn end(self) -> Option<usize> {
        match self {
            Emission::Zeros(end) | Emission::Nothing(end) => Some(end),
            _ => None,
        }
    }

    /// The emission of a chain in which this many barriers come before the stage.
    pub(crate) const fn after(self, barriers: usize) -> Emission {
        match self {
            Emission::Zeros(end) => Emission::Zeros(barriers + end),
            Emission::Nothing(end) => Emission::Nothing(barriers + end),
            other => other,
        }
    }
}

/// On which leaves a stage may emit nothing in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HoldsBack {
    /// On none.
    Never,
    /// On all leaves together.
    All,
    /// On some leaves, while others have updates.
    Some,
}
