//! The transformations that chains are made of, a file each.
//!
//! They come in families, and so do the named [optimizers](crate::optimizer) that are made of them. The guide has a
//! page for each:
//!
//! | family | guide |
//! |---|---|
//! | what is done to each element by itself | [One element at a time][elementwise] |
//! | what scales each element by what its gradients have been | [Adaptive optimizers][adaptive] |
//! | what goes by norms and means of leaves, or of the whole tree | [By norms and means][norms] |
//! | what goes by the sign of each element | [Steps by sign][sign] |
//! | what goes by rows and columns | [By rows and columns][matrix] |
//! | what finds its step size by itself | [Without a learning rate][parameter_free] |
//! | what is given the loss | [From the loss][loss] |
//! | what goes by curvature | [By curvature][curvature] |
//! | what adds noise | [Noise and privacy][noise] |
//! | what keeps parameters in a set | [Projections][projection] |
//! | what watches the steps go by | [Watching][watching] |
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
mod leaf_types;
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
pub use leaf_types::LeafTypes;
pub use loss::*;
pub use matrix::*;
pub use noise::*;
pub use norms::*;
pub use parameter_free::*;
pub use projection::*;
pub use rescale::RescaleState;
pub use sign::*;
pub use watching::*;

// By name, as in `optimizer`.
#[cfg(feature = "faer")]
#[cfg_attr(docsrs, doc(cfg(feature = "faer")))]
pub use matrix::decomposed::{
    ScaleByGalore, ScaleByGaloreState, ScaleByShampoo, ScaleByShampooState, ScaleBySoap, ScaleBySoapState,
    scale_by_galore, scale_by_shampoo, scale_by_soap,
};
