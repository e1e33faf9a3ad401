//! Parameters to evaluate with, as states describe them.

use super::Moments;

/// Parameters to evaluate with, as a linear combination of the training parameters and an array of the state.
///
/// For each leaf with an array they are `params_weight·p + moments_weight·m` of the training parameter `p` and the
/// array's element `m`.
///
/// A state shows it in its walk; see [`eval_params`](crate::OptState::eval_params).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Evaluation<'a> {
    /// The averaged parameters, or those kept beside the training parameters.
    pub moments: &'a Moments,
    /// Weight of the training parameters; if 0 they are not read.
    pub params_weight: f64,
    /// Weight of the arrays; if 0 they are not read.
    pub moments_weight: f64,
}

impl<'a> Evaluation<'a> {
    /// Returns `params_weight·p + moments_weight·m` of the elements of `moments`.
    pub fn new(moments: &'a Moments, params_weight: f64, moments_weight: f64) -> Evaluation<'a> {
        Evaluation { moments, params_weight, moments_weight }
    }
}

/// Parameters to evaluate with, from one state array of a part.
///
/// They are `params_weight·p + array_weight·a` of the training parameter `p` and the element `a` of the array.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct EvaluateAs {
    /// The index of the state array in the part's `SLOTS`.
    pub slot: usize,
    /// Weight of the training parameter; if 0 it is not read.
    pub params_weight: f64,
    /// Weight of the array's element; if 0 it is not read.
    pub array_weight: f64,
}

impl EvaluateAs {
    /// Returns `params_weight·p + array_weight·a` of the array with index `slot`.
    pub fn new(slot: usize, params_weight: f64, array_weight: f64) -> EvaluateAs {
        EvaluateAs { slot, params_weight, array_weight }
    }
}
