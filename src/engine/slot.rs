//! State arrays as parts declare them.

use super::StepContext;
use crate::element::DType;
use crate::tree::LeafSpec;

/// A state array as a part declares it: its name, and what [`quantized`](crate::quantized()) may do to its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    name: &'static str,
    holds: Numbers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    Exact,
    Signed,
    NotNegative,
}

impl Slot {
    /// Numbers of which every bit counts: copies of parameters, what parameters are worked out from, sums that are
    /// given out later. They are never rounded.
    pub const fn exact(name: &'static str) -> Slot {
        Slot { name, holds: Numbers::Exact }
    }

    /// Numbers of any sign that may be rounded, such as a running mean of gradients: small ones even to zero.
    pub const fn signed(name: &'static str) -> Slot {
        Slot { name, holds: Numbers::Signed }
    }

    /// Numbers that are never negative and may be rounded, such as a running mean of squares: to zero only if they are
    /// zero, since updates are divided by them.
    pub const fn not_negative(name: &'static str) -> Slot {
        Slot { name, holds: Numbers::NotNegative }
    }

    /// The name.
    pub const fn name(self) -> &'static str {
        self.name
    }
}

impl StepContext<'_> {
    /// The same step, for what has its state in these codes, if it is said here.
    pub(crate) fn in_codes(self, codes: Option<Codes>) -> Self {
        StepContext { codes: codes.or(self.codes), ..self }
    }
}

/// Which codes [`quantized`](crate::quantized()) state is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codes {
    /// Roots, of what is never negative fourth roots.
    Roots,
    /// Logarithms.
    Logarithms,
}

impl Codes {
    /// The type of an array, if it is not the one that it would have otherwise.
    pub(crate) fn dtype(self, slot: Slot, leaf: &LeafSpec) -> Option<DType> {
        if leaf.dtype().compute() != DType::F32 {
            return None;
        }
        match (slot.holds, self) {
            (Numbers::Exact, _) => None,
            (Numbers::Signed, Codes::Roots) => Some(DType::Root8),
            (Numbers::Signed, Codes::Logarithms) => Some(DType::Log8),
            (Numbers::NotNegative, Codes::Roots) => Some(DType::FourthRoot8),
            (Numbers::NotNegative, Codes::Logarithms) => Some(DType::UnsignedLog8),
        }
    }
}
