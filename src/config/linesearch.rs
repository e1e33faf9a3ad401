//! The line searches.

use super::registry::family;
use super::values::Unused;
use crate::transform::*;

family! { |a|
    // What a search did is in its state, so there is nothing to be verbose about, and gradients are kept by what evaluates.
    "scale_by_backtracking_linesearch" => {
        a.or("store_grad", Unused)?;
        a.or("verbose", Unused)?;
        scale_by_backtracking_linesearch(a.required("max_backtracking_steps")?)
    },
    "scale_by_zoom_linesearch" => {
        a.or("verbose", Unused)?;
        let search = scale_by_zoom_linesearch(a.required("max_linesearch_steps")?);
        search
            .max_learning_rate(a.or::<Option<f64>>("max_learning_rate", None)?)
            .approx_dec_rtol(a.or("approx_dec_rtol", Some(1e-6))?)
            .initial_guess_strategy(a.or("initial_guess_strategy", InitialGuess::default())?)
            .interpolation(a.or("interpolation", Interpolation::default())?)
    },
}
