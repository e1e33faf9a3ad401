//! What is given the loss: its value, or the loss as a function to search along.

use serde_json::{Value, json};

use crate::config::error::{ConfigError, Result};
use crate::config::member::family;
use crate::config::node::{Node, Read};
use crate::config::values::Unused;
use crate::optimizer::*;
use crate::transform::*;

family! { |a|
    "momo" => momo().adapt_lower_bound(a.or("adapt_lower_bound", false)?),
    "momo_adam" => momo_adam().adapt_lower_bound(a.or("adapt_lower_bound", false)?),
    "polyak_sgd" => polyak_sgd().variant(a.or("variant", PolyakVariant::default())?),
    // What a search did is in its state, so there is nothing to be verbose about, and gradients are kept by what evaluates.
    "scale_by_backtracking_linesearch" => {
        a.or("store_grad", Unused)?;
        a.or("verbose", Unused)?;
        scale_by_backtracking_linesearch(a.required("max_backtracking_steps")?)
    },
    "scale_by_polyak" => scale_by_polyak().variant(a.or("variant", PolyakVariant::default())?),
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

impl Read for InitialGuess {
    fn read(node: &Node<'_>) -> Result<InitialGuess> {
        node.choice(&[("one", InitialGuess::One), ("keep", InitialGuess::Keep)])
    }

    fn schema() -> Value {
        json!({"enum": ["one", "keep"]})
    }

    fn example() -> Value {
        json!("keep")
    }
}

impl Read for Interpolation {
    fn read(node: &Node<'_>) -> Result<Interpolation> {
        node.choice(&[("values", Interpolation::Values), ("slopes", Interpolation::Slopes)])
    }

    fn schema() -> Value {
        json!({"enum": ["values", "slopes"]})
    }

    fn example() -> Value {
        json!("values")
    }
}

impl Read for PolyakVariant {
    fn read(node: &Node<'_>) -> Result<PolyakVariant> {
        PolyakVariant::from_name(node.text("a string")?).map_err(|error| ConfigError::refused(&node.place, error))
    }
}
