//! Curvature: differences of gradients, or an estimate of the Hessian's diagonal.

mod hutchinson_estimator_diag_hessian;
#[cfg(feature = "minimize")]
pub(super) mod scale_by_lbfgs;
mod scale_by_sophia;

pub use hutchinson_estimator_diag_hessian::{
    HutchinsonEstimatorDiagHessian, HutchinsonState, hutchinson_estimator_diag_hessian,
};
pub use scale_by_sophia::{ScaleBySophia, ScaleBySophiaState, SophiaMemory, scale_by_sophia};
