//! Parameters to evaluate with, as states describe them.

use super::Moments;

/// Parameters to evaluate with, as a linear combination of the training parameters and an array of the state.
///
/// For each leaf with an array they are `of_params·p + of_moments·m` of the training parameter `p` and the array's
/// element `m`.
///
/// A state shows it in its walk; see [`eval_params`](crate::OptState::eval_params).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Evaluation<'a> {
    /// The averaged parameters, or those kept beside the training parameters.
    pub moments: &'a Moments,
    /// Weight of the training parameters; if 0 they are not read.
    pub of_params: f64,
    /// Weight of the arrays; if 0 they are not read.
    pub of_moments: f64,
}

impl<'a> Evaluation<'a> {
    /// Returns `of_params·p + of_moments·m` of the elements of `moments`.
    pub fn new(moments: &'a Moments, of_params: f64, of_moments: f64) -> Evaluation<'a> {
        Evaluation { moments, of_params, of_moments }
    }
}

/// Parameters to evaluate with, from one state array of a part.
///
/// They are `of_params·p + of_array·a` of the training parameter `p` and the element `a` of the array.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct EvaluateAs {
    /// The index of the state array in the part's `SLOTS`.
    pub slot: usize,
    /// Weight of the training parameter; if 0 it is not read.
    pub of_params: f64,
    /// Weight of the array's element; if 0 it is not read.
    pub of_array: f64,
}

impl EvaluateAs {
    /// Returns `of_params·p + of_array·a` of the array with index `slot`.
    pub fn new(slot: usize, of_params: f64, of_array: f64) -> EvaluateAs {
        EvaluateAs { slot, of_params, of_array }
    }
}
