//! The transformations that chains consist of, one per file.
//!
//! They come in families, as do the named [optimizers](crate::optimizer) built from them. The guide has a page for
//! each:
//!
//! | family | guide |
//! |---|---|
//! | element-wise operations | [Element-wise transformations][elementwise] |
//! | per-element scaling by past gradients | [Adaptive optimizers][adaptive] |
//! | norms and means of leaves or of the whole tree | [Norms and means][norms] |
//! | the sign of each element | [Sign-based optimizers][sign] |
//! | rows and columns of matrices | [Matrix optimizers][matrix] |
//! | step sizes without a learning rate | [Learning-rate-free optimizers][parameter_free] |
//! | the loss | [Step sizes from the loss][loss] |
//! | curvature | [Curvature][curvature] |
//! | noise | [Noise and privacy][noise] |
//! | constraint sets | [Projections][projection] |
//! | observers | [Watching a run][watching] |
//!
//! [elementwise]: https://docs.rs/gradchain/latest/gradchain/_guide/elementwise/index.html
//! [adaptive]: https://docs.rs/gradchain/latest/gradchain/_guide/adaptive/index.html
//! [norms]: https://docs.rs/gradchain/latest/gradchain/_guide/norms/index.html
//! [sign]: https://docs.rs/gradchain/latest/gradchain/_guide/sign/index.html
//! [matrix]: https://docs.rs/gradchain/latest/gradchain/_guide/matrix/index.html
//! [parameter_free]: https://docs.rs/gradchain/latest/gradchain/_guide/parameter_free/index.html
//! [loss]: https://docs.rs/gradchain/latest/gradchain/_guide/loss/index.html
//! [curvature]: https://docs.rs/gradchain/latest/gradchain/_guide/curvature/index.html
//! [noise]: https://docs.rs/gradchain/latest/gradchain/_guide/noise/index.html
//! [projection]: https://docs.rs/gradchain/latest/gradchain/_guide/projections/index.html
//! [watching]: https://docs.rs/gradchain/latest/gradchain/_guide/watching/index.html

mod adaptive;
mod curvature;
mod elementwise;
mod loss;
mod matrix;
mod moment;
mod noise;
mod norms;
mod parameter_free;
mod projection;
mod rescale;
mod sign;
mod watching;

pub use adaptive::*;
pub use curvature::*;
pub use elementwise::*;
pub use gradchain_core::wrappers::LeafTypes;
pub use loss::*;
pub use matrix::*;
pub use noise::*;
pub use norms::*;
pub use parameter_free::*;
pub use projection::*;
pub use rescale::RescaleState;
pub use sign::*;
pub use watching::*;

// In alphabetical order, as in `optimizer`.
#[cfg(feature = "contrib")]
#[cfg_attr(docsrs, doc(cfg(feature = "contrib")))]
pub use adaptive::{
    scale_by_acprop::{AcpropScalars, ScaleByAcprop, scale_by_acprop},
    scale_by_simplified_ademamix::{
        ScaleBySimplifiedAdemamix, SimplifiedAdemamixScalars, scale_by_simplified_ademamix,
    },
};
#[cfg(feature = "minimize")]
#[cfg_attr(docsrs, doc(cfg(feature = "minimize")))]
pub use curvature::scale_by_lbfgs::{ScaleByLbfgs, ScaleByLbfgsState, scale_by_lbfgs};
#[cfg(feature = "minimize")]
#[cfg_attr(docsrs, doc(cfg(feature = "minimize")))]
pub use loss::{
    scale_by_backtracking_linesearch::{
        BacktrackingLinesearchInfo, ScaleByBacktrackingLinesearch, ScaleByBacktrackingLinesearchState,
        scale_by_backtracking_linesearch,
    },
    scale_by_zoom_linesearch::{
        InitialGuess, Interpolation, ScaleByZoomLinesearch, ScaleByZoomLinesearchState, ZoomLinesearchInfo,
        scale_by_zoom_linesearch,
    },
};
#[cfg(feature = "faer")]
#[cfg_attr(docsrs, doc(cfg(feature = "faer")))]
pub use matrix::decomposed::{
    ScaleByGalore, ScaleByGaloreState, ScaleByShampoo, ScaleByShampooState, ScaleBySoap, ScaleBySoapState,
    scale_by_galore, scale_by_shampoo, scale_by_soap,
};
#[cfg(feature = "contrib")]
#[cfg_attr(docsrs, doc(cfg(feature = "contrib")))]
pub use parameter_free::scale_by_dowg::{ScaleByDowg, ScaleByDowgState, scale_by_dowg};
#[cfg(feature = "constraint")]
#[cfg_attr(docsrs, doc(cfg(feature = "constraint")))]
pub use projection::project::project;
