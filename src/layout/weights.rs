//! Which axes of a weight are its inputs and which its outputs.

/// How the weights of a layer are stored: inputs first or outputs first.
///
/// | stored as | matrix | kernel of a convolution | by |
/// |---|---|---|---|
/// | [`InOut`](Layout::InOut) | `[in, out]` | `[k.., in, out]` | Flax, Optax's examples; burn's `Linear`, not its
/// convolutions |
/// | [`OutIn`](Layout::OutIn) | `[out, in]` | `[out, in/groups, k..]` | PyTorch, candle; burn's convolutions |
///
/// Parts whose arithmetic depends on it, [`muon`](crate::muon()) and
/// [`scale_by_shape`](crate::transform::scale_by_shape), take it as an argument. Without the argument they take what
/// the parameters say by [`Walk::layout`](crate::tree::Walk::layout), as [`Slices`](crate::tree::Slices) and the
/// adapters of frameworks do; if these say nothing, `InOut`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Inputs first: a layer computes `x·W`.
    #[default]
    InOut,
    /// Outputs first: a layer computes `x·Wᵀ`.
    OutIn,
}
