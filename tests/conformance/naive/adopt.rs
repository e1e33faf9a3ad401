//! The first step only records the gradient.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::tree::{self, Leaves};
use super::{Naive, number};

/// A mean of gradients, each over the root of the previous mean of squares.
pub(crate) struct Adopt {
    b1: f64,
    b2: f64,
    eps: f64,
    /// The step's exponent in the limit.
    power: Option<f64>,
    nesterov: bool,
    steps: f64,
    /// Mean and mean of squares.
    memory: BTreeMap<String, Vec<[f64; 2]>>,
}

impl Adopt {
    pub(crate) fn build(args: &Value) -> Option<Adopt> {
        let power = args.get("clip_value_fn").map_or(Some(0.25), |limit| limit["power"].as_f64())?;
        Some(Adopt {
            b1: number(args, "b1", 0.9)?,
            b2: number(args, "b2", 0.9999)?,
            eps: number(args, "eps", 1e-6)?,
            power: (args["use_clipping"] != false).then_some(power),
            nesterov: args["nesterov"] == true,
            steps: 0.0,
            memory: BTreeMap::new(),
        })
    }
}

impl Naive for Adopt {
    fn update(&mut self, grads: &Leaves) -> Leaves {
        let limit = self.power.map_or(f64::INFINITY, |power| self.steps.powf(power));
        let first = self.steps == 0.0;
        self.steps += 1.0;
        let mut updates = grads.clone();
        for (path, leaf) in &mut updates {
            let memory = self.memory.entry(path.clone()).or_insert_with(|| vec![[0.0; 2]; leaf.data.len()]);
            for (x, [mean, squares]) in leaf.data.iter_mut().zip(memory) {
                let g = *x;
                let square = tree::round(leaf.dtype, g * g);
                if first {
                    (*squares, *x) = (square, 0.0);
                    continue;
                }
                let direction = (g / squares.sqrt().max(self.eps)).clamp(-limit, limit);
                *mean = self.b1 * *mean + (1.0 - self.b1) * direction;
                *squares = self.b2 * *squares + (1.0 - self.b2) * square;
                let ahead = self.b1 * *mean + (1.0 - self.b1) * direction;
                *x = tree::round(leaf.dtype, if self.nesterov { ahead } else { *mean });
            }
        }
        updates
    }
}
