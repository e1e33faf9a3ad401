//! State arrays as parts declare them.

use crate::element::DType;
use crate::tree::LeafSpec;

/// A state array as a part declares it: its name, what [`quantized`](crate::quantized()) may do to its numbers, how
/// they start, and their type.
///
/// They start at zero. An argument of the part called `mu_dtype` says the type of the array `mu`, one called
/// `accumulator_dtype` that of any; otherwise it is the type that the leaf's arithmetic is done in.
///
/// ```
/// use gradchain::part::Slot;
///
/// const SLOTS: [Slot; 2] = [Slot::signed("mean"), Slot::exact("anchor").starts_as_params()];
/// assert_eq!(SLOTS.map(Slot::name), ["mean", "anchor"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slot {
    name: &'static str,
    holds: Numbers,
    pub(super) dtype: Option<DType>,
    pub(super) of_leaf: bool,
    pub(super) start: f64,
    pub(super) as_params: bool,
    all_rows: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    Exact,
    Signed,
    NotNegative,
}

impl Slot {
    const fn new(name: &'static str, holds: Numbers) -> Slot {
        Slot { name, holds, dtype: None, of_leaf: false, start: 0.0, as_params: false, all_rows: false }
    }

    /// Numbers of which every bit counts: copies of parameters, what parameters are worked out from, sums that are
    /// given out later. They are never rounded.
    pub const fn exact(name: &'static str) -> Slot {
        Slot::new(name, Numbers::Exact)
    }

    /// Numbers of any sign that may be rounded, such as a running mean of gradients: small ones even to zero.
    pub const fn signed(name: &'static str) -> Slot {
        Slot::new(name, Numbers::Signed)
    }

    /// Numbers that are never negative and may be rounded, such as a running mean of squares: to zero only if they are
    /// zero, since updates are divided by them.
    pub const fn not_negative(name: &'static str) -> Slot {
        Slot::new(name, Numbers::NotNegative)
    }

    /// The same array, with this value at the start.
    #[must_use]
    pub const fn starts_at(self, start: f64) -> Slot {
        Slot { start, ..self }
    }

    /// The same array, as a copy of the parameters at the start.
    #[must_use]
    pub const fn starts_as_params(self) -> Slot {
        Slot { as_params: true, ..self }
    }

    /// The same array, with numbers of this type; `None` leaves the type as it is.
    #[must_use]
    pub const fn of_dtype(self, dtype: Option<DType>) -> Slot {
        Slot { dtype: if dtype.is_some() { dtype } else { self.dtype }, ..self }
    }

    /// The same array, with numbers of the leaf's own type: 16 bits for leaves of 16 bits.
    #[must_use]
    pub const fn of_leaf_dtype(self) -> Slot {
        Slot { of_leaf: true, ..self }
    }

    /// The same array, whose numbers change also where there is no gradient: a step with gradients of some
    /// [rows](crate::tree::SparseRows) is refused.
    #[must_use]
    pub const fn of_all_rows(self) -> Slot {
        Slot { all_rows: true, ..self }
    }

    /// Whether its numbers change also where there is no gradient.
    pub(super) const fn needs_all_rows(self) -> bool {
        self.all_rows
    }

    /// The name.
    pub const fn name(self) -> &'static str {
        self.name
    }
}

/// Which state arrays [`quantized`](crate::quantized()) keeps in 8 bits, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codes<'a> {
    code: Code,
    /// The fewest elements of a leaf that has codes.
    min_elements: usize,
    /// The leaves that have none, by number; none where it is empty.
    except: &'a [bool],
}

/// How numbers become codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    /// Roots, of what is never negative fourth roots.
    Roots,
    /// Logarithms.
    Logarithms,
}

impl<'a> Codes<'a> {
    /// Roots, of what is never negative fourth roots; of all leaves.
    pub const fn roots() -> Codes<'a> {
        Codes { code: Code::Roots, min_elements: 0, except: &[] }
    }

    /// Logarithms, of all leaves.
    pub const fn logarithms() -> Codes<'a> {
        Codes { code: Code::Logarithms, ..Codes::roots() }
    }

    /// The same, of leaves with at least so many elements.
    #[must_use]
    pub const fn min_elements(self, min_elements: usize) -> Codes<'a> {
        Codes { min_elements, ..self }
    }

    /// The same, but for these leaves: an entry for each leaf.
    #[must_use]
    pub const fn except(self, except: &'a [bool]) -> Codes<'a> {
        Codes { except, ..self }
    }

    /// The type of the array of a leaf, if it is not the one that it would have otherwise.
    pub(crate) fn dtype(self, slot: Slot, (number, leaf): (usize, &LeafSpec)) -> Option<DType> {
        let except = self.except.get(number).is_some_and(|except| *except);
        if leaf.dtype().compute() != DType::F32 || leaf.len() < self.min_elements || except {
            return None;
        }
        match (slot.holds, self.code) {
            (Numbers::Exact, _) => None,
            (Numbers::Signed, Code::Roots) => Some(DType::Root8),
            (Numbers::Signed, Code::Logarithms) => Some(DType::Log8),
            (Numbers::NotNegative, Code::Roots) => Some(DType::FourthRoot8),
            (Numbers::NotNegative, Code::Logarithms) => Some(DType::UnsignedLog8),
        }
    }

    /// The same for a tree of so many leaves: leaves that are others have no exceptions.
    pub(crate) fn of_leaves(self, leaves: usize) -> Self {
        Codes { except: if self.except.len() == leaves { self.except } else { &[] }, ..self }
    }
}

/// What a pass does to a state array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// It does not look at it.
    None,
    /// It reads it.
    Read,
    /// It reads and writes it.
    Write,
}

impl Access {
    /// What is done to the array of this number; to those not listed nothing.
    pub(crate) const fn of(all: &[Access], slot: usize) -> Access {
        if slot < all.len() { all[slot] } else { Access::None }
    }

    pub(crate) const fn reads(self) -> bool {
        !matches!(self, Access::None)
    }

    /// How many times the array's bytes go through memory.
    pub(crate) const fn times(self) -> usize {
        self as usize
    }

    pub(crate) const fn writes(self) -> bool {
        matches!(self, Access::Write)
    }
}
