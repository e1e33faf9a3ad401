//! Rules that Optax has wrong, by element in `f64`, as in their papers.

mod acprop;
mod ademamix;
mod adopt;
mod factored_rms;
mod plateau;
mod rprop;
mod simplified_ademamix;
mod stddev;

pub(crate) use acprop::Acprop;
pub(crate) use ademamix::Ademamix;
pub(crate) use adopt::Adopt;
pub(crate) use factored_rms::FactoredRms;
pub(crate) use plateau::Plateau;
pub(crate) use rprop::Rprop;
use serde_json::Value;
pub(crate) use simplified_ademamix::SimplifiedAdemamix;
pub(crate) use stddev::Stddev;

use super::reference::map;
use super::tree::Leaves;

pub(crate) trait Naive {
    fn update(&mut self, grads: &Leaves) -> Leaves;

    /// Rounds decisions by the maximal error, up (1) or down (−1).
    fn lean(&mut self, _: f64) {}
}

fn number(args: &Value, argument: &str, default: f64) -> Option<f64> {
    args.get(argument).map_or(Some(default), Value::as_f64)
}

/// Normalizes to norm 1, or zero.
pub(crate) struct Unit;

impl Naive for Unit {
    fn update(&mut self, grads: &Leaves) -> Leaves {
        let norm = grads.values().flat_map(|leaf| &leaf.data).map(|g| g * g).sum::<f64>().sqrt();
        map(grads, |path, i| if norm == 0.0 { 0.0 } else { grads[path].data[i] / norm })
    }
}
