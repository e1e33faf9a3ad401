//! Rprop, as in Igel and Hüsken.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::tree::{self, Leaves};
use super::{Naive, number};

/// iRprop⁻: a gradient that has changed sign counts as zero.
pub(crate) struct Rprop {
    sign: f64,
    start: f64,
    /// `η⁻` and `η⁺`.
    eta: [f64; 2],
    limits: [f64; 2],
    /// Step size and last gradient.
    memory: BTreeMap<String, Vec<[f64; 2]>>,
}

impl Rprop {
    pub(crate) fn build(name: &str, args: &Value) -> Option<Rprop> {
        Some(Rprop {
            sign: if name == "rprop" { -1.0 } else { 1.0 },
            start: args["learning_rate"].as_f64()?,
            eta: [number(args, "eta_minus", 0.5)?, number(args, "eta_plus", 1.2)?],
            limits: [number(args, "min_step_size", 1e-6)?, number(args, "max_step_size", 50.0)?],
            memory: BTreeMap::new(),
        })
    }
}

impl Naive for Rprop {
    fn update(&mut self, grads: &Leaves) -> Leaves {
        let Rprop { sign, start, eta, limits: [least, most], memory } = self;
        let mut updates = grads.clone();
        for (path, leaf) in &mut updates {
            let memory = memory.entry(path.clone()).or_insert_with(|| vec![[*start, 0.0]; leaf.data.len()]);
            for (x, [step, last]) in leaf.data.iter_mut().zip(memory) {
                let mut gradient = *x;
                let agreement = gradient * *last;
                if agreement > 0.0 {
                    *step = (*step * eta[1]).clamp(*least, *most);
                } else if agreement != 0.0 {
                    // After NaN too, as in Optax.
                    *step = (*step * eta[0]).clamp(*least, *most);
                    gradient = if agreement < 0.0 { 0.0 } else { gradient };
                }
                *last = gradient;
                let direction = if gradient == 0.0 { 0.0 } else { gradient.signum() };
                *x = tree::round(leaf.dtype, *sign * direction * *step);
            }
        }
        updates
    }
}
