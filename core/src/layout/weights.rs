//! The input and output axes of weights.

/// The storage order of a layer's weights: inputs first or outputs first.
///
/// | stored as | matrix | kernel of a convolution | by |
/// |---|---|---|---|
/// | [`InOut`](Layout::InOut) | `[in, out]` | `[k.., in, out]` | Flax, Optax's examples; burn's `Linear` |
/// | [`OutIn`](Layout::OutIn) | `[out, in]` | `[out, in/groups, k..]` | PyTorch, candle; burn's convolutions |
///
/// Parts whose arithmetic depends on it, [`muon`] and
/// [`scale_by_shape`], take it as an argument. The default is the layout that the
/// parameters set by [`Walk::layout`](crate::tree::Walk::layout), as [`Slices`](crate::tree::Slices) and the adapters
/// of frameworks do, or else `InOut`.
///
/// [`muon`]: https://docs.rs/gradchain/latest/gradchain/optimizer/fn.muon.html
/// [`scale_by_shape`]: https://docs.rs/gradchain/latest/gradchain/transform/fn.scale_by_shape.html
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Inputs first: a layer computes `x·W`.
    #[default]
    InOut,
    /// Outputs first: a layer computes `x·Wᵀ`.
    OutIn,
}
