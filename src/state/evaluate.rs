//! How a state says which parameters to evaluate with.

use super::Moments;

/// Parameters to evaluate with, as a state describes them: for each leaf that has an array,
/// `of_params·p + of_moments·m` of the training parameter `p` and the array's element `m`.
///
/// A state that has such shows it in its walk; see [`eval_params`](crate::OptState::eval_params).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Evaluation<'a> {
    /// The averaged parameters, or those kept beside the training parameters.
    pub moments: &'a Moments,
    /// How much of the training parameters there is in the result; where it is 0 they are not looked at.
    pub of_params: f64,
    /// How much of the arrays; where it is 0 they are not looked at.
    pub of_moments: f64,
}

impl<'a> Evaluation<'a> {
    /// `of_params·p + of_moments·m` of the elements of `moments`.
    pub fn new(moments: &'a Moments, of_params: f64, of_moments: f64) -> Evaluation<'a> {
        Evaluation { moments, of_params, of_moments }
    }
}

/// How parameters to evaluate with are made: `of_params·p + of_array·a` of the training parameter `p` and the element
/// `a` of the state array of this number.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct EvaluateAs {
    /// The number of the state array, in the order of the part's `SLOTS`.
    pub slot: usize,
    /// How much of the training parameter there is; where it is 0 it is not looked at.
    pub of_params: f64,
    /// How much of the array's element; where it is 0 it is not looked at.
    pub of_array: f64,
}

impl EvaluateAs {
    /// `of_params·p + of_array·a` of the array of the number `slot`.
    pub fn new(slot: usize, of_params: f64, of_array: f64) -> EvaluateAs {
        EvaluateAs { slot, of_params, of_array }
    }
}
