//! State arrays as parts declare them.

use crate::element::DType;
use crate::tree::LeafSpec;

/// A state array as declared: name, initial value, dtype, treatment by [`quantized`].
///
/// Arrays start at zero. The argument `mu_dtype` of the part, if it has one, sets the dtype of the array `mu`; an
/// argument `accumulator_dtype` sets that of every array. The default is the leaf's compute type.
///
/// ```
/// use gradchain::part::Slot;
///
/// const SLOTS: [Slot; 2] = [Slot::signed("mean"), Slot::exact("anchor").starts_as_params()];
/// assert_eq!(SLOTS.map(Slot::name), ["mean", "anchor"]);
/// ```
///
/// [`quantized`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.quantized.html
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slot {
    name: &'static str,
    kind: ValueKind,
    pub(super) dtype: Option<DType>,
    pub(super) of_leaf: bool,
    pub(super) start: f64,
    pub(super) as_params: bool,
    all_rows: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueKind {
    Exact,
    Signed,
    NotNegative,
}

impl Slot {
    const fn new(name: &'static str, kind: ValueKind) -> Slot {
        Slot { name, kind, dtype: None, of_leaf: false, start: 0.0, as_params: false, all_rows: false }
    }

    /// Declares state that must not be quantized: parameter copies, the sources of parameters, accumulators that are
    /// emitted later.
    pub const fn exact(name: &'static str) -> Slot {
        Slot::new(name, ValueKind::Exact)
    }

    /// Declares numbers of any sign that may be rounded, such as a running mean of gradients. Small ones may become
    /// zero.
    pub const fn signed(name: &'static str) -> Slot {
        Slot::new(name, ValueKind::Signed)
    }

    /// Declares non-negative numbers that may be rounded, such as a running mean of squares. Only zeros become zero,
    /// because updates are divided by them.
    pub const fn not_negative(name: &'static str) -> Slot {
        Slot::new(name, ValueKind::NotNegative)
    }

    /// Returns this array with an initial value.
    #[must_use]
    pub const fn starts_at(self, start: f64) -> Slot {
        Slot { start, ..self }
    }

    /// Returns this array with a copy of the parameters as its initial value.
    #[must_use]
    pub const fn starts_as_params(self) -> Slot {
        Slot { as_params: true, ..self }
    }

    /// Returns this array with a dtype; `None` keeps the dtype.
    #[must_use]
    pub const fn of_dtype(self, dtype: Option<DType>) -> Slot {
        Slot { dtype: if dtype.is_some() { dtype } else { self.dtype }, ..self }
    }

    /// Returns this array with the leaf's own dtype: 16-bit floats for 16-bit leaves.
    #[must_use]
    pub const fn of_leaf_dtype(self) -> Slot {
        Slot { of_leaf: true, ..self }
    }

    /// Returns this array as one that also changes where a gradient is absent. A step with gradients of some
    /// [rows](crate::tree::SparseRows) is then refused.
    #[must_use]
    pub const fn of_all_rows(self) -> Slot {
        Slot { all_rows: true, ..self }
    }

    pub(super) const fn needs_all_rows(self) -> bool {
        self.all_rows
    }

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        self.name
    }
}

/// The quantization of state arrays by [`quantized`]: a format and the leaves that it applies to.
///
/// [`quantized`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.quantized.html
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantization<'a> {
    format: QuantizationFormat,
    min_elements: usize,
    /// Exempt leaves; empty if none.
    except: &'a [bool],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuantizationFormat {
    /// Square roots; fourth roots of non-negative arrays.
    Roots,
    Logarithms,
}

impl<'a> Quantization<'a> {
    /// Quantizes square roots, and fourth roots of non-negative arrays; all leaves.
    pub const fn roots() -> Quantization<'a> {
        Quantization { format: QuantizationFormat::Roots, min_elements: 0, except: &[] }
    }

    /// Quantizes logarithms; all leaves.
    pub const fn logarithms() -> Quantization<'a> {
        Quantization { format: QuantizationFormat::Logarithms, ..Quantization::roots() }
    }

    /// Exempts leaves with fewer than `min_elements` elements.
    #[must_use]
    pub const fn min_elements(self, min_elements: usize) -> Quantization<'a> {
        Quantization { min_elements, ..self }
    }

    /// Exempts leaves, by an entry for each leaf.
    #[must_use]
    pub const fn except(self, except: &'a [bool]) -> Quantization<'a> {
        Quantization { except, ..self }
    }

    /// Returns the 8-bit dtype of a leaf's array; `None` if exempt.
    pub(crate) fn dtype(self, slot: Slot, (number, leaf): (usize, &LeafSpec)) -> Option<DType> {
        let except = self.except.get(number).is_some_and(|except| *except);
        if leaf.dtype().compute() != DType::F32 || leaf.len() < self.min_elements || except {
            return None;
        }
        match (slot.kind, self.format) {
            (ValueKind::Exact, _) => None,
            (ValueKind::Signed, QuantizationFormat::Roots) => Some(DType::Root8),
            (ValueKind::Signed, QuantizationFormat::Logarithms) => Some(DType::Log8),
            (ValueKind::NotNegative, QuantizationFormat::Roots) => Some(DType::FourthRoot8),
            (ValueKind::NotNegative, QuantizationFormat::Logarithms) => Some(DType::UnsignedLog8),
        }
    }

    /// Returns this format for a tree of `leaves` leaves; exemptions for another number of leaves are dropped.
    pub(crate) fn of_leaves(self, leaves: usize) -> Self {
        Quantization { except: if self.except.len() == leaves { self.except } else { &[] }, ..self }
    }
}

/// The access of a pass to a state array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// No access.
    None,
    /// The pass reads the array.
    Read,
    /// The pass reads and writes the array.
    Write,
}

impl Access {
    /// Returns the access to array `slot`; none if unlisted.
    pub(crate) const fn of(all: &[Access], slot: usize) -> Access {
        if slot < all.len() { all[slot] } else { Access::None }
    }

    pub(crate) const fn reads(self) -> bool {
        !matches!(self, Access::None)
    }

    /// Returns how often the array's bytes cross memory.
    pub(crate) const fn times(self) -> usize {
        self as usize
    }

    pub(crate) const fn writes(self) -> bool {
        matches!(self, Access::Write)
    }
}
