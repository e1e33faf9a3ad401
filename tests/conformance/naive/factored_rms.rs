//! Adafactor's second moment: the last gradient's alone until the step at which counting starts.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::tree::{self, Leaves};
use super::{Naive, number};

/// Gradients over the root of a mean of squares with increasing decay, for leaves without factors.
pub(crate) struct FactoredRms {
    decay_rate: f64,
    offset: f64,
    eps: f64,
    step: f64,
    memory: BTreeMap<String, Vec<f64>>,
}

impl FactoredRms {
    pub(crate) fn build(args: &Value) -> Option<FactoredRms> {
        Some(FactoredRms {
            decay_rate: number(args, "decay_rate", 0.8)?,
            offset: number(args, "step_offset", 0.0)?,
            eps: number(args, "epsilon", 1e-30)?,
            step: 0.0,
            memory: BTreeMap::new(),
        })
        .filter(|_| args["factored"] == false)
    }
}

impl Naive for FactoredRms {
    fn update(&mut self, grads: &Leaves) -> Leaves {
        let since = self.step - self.offset;
        let decay = if since < 0.0 { 0.0 } else { 1.0 - (since + 1.0).powf(-self.decay_rate) };
        self.step += 1.0;
        let mut updates = grads.clone();
        for (path, leaf) in &mut updates {
            let memory = self.memory.entry(path.clone()).or_insert_with(|| vec![0.0; leaf.data.len()]);
            for (x, mean) in leaf.data.iter_mut().zip(memory) {
                *mean = decay * *mean + (1.0 - decay) * (*x * *x + self.eps);
                *x = tree::round(leaf.dtype, *x / mean.sqrt());
            }
        }
        updates
    }
}
