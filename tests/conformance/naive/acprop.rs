//! An element without a gradient so far is in its first step.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::tree::{self, Leaves};
use super::{Naive, number};

/// Gradients over the root of the previous mean squared deviation from their mean.
pub(crate) struct Acprop {
    b1: f64,
    b2: f64,
    eps: f64,
    eps_root: f64,
    steps: i32,
    /// Mean, mean squared deviation, and true if all gradients have been zero.
    memory: BTreeMap<String, Vec<(f64, f64, bool)>>,
}

impl Acprop {
    pub(crate) fn build(args: &Value) -> Option<Acprop> {
        Some(Acprop {
            b1: number(args, "b1", 0.9)?,
            b2: number(args, "b2", 0.999)?,
            eps: number(args, "eps", 1e-16)?,
            eps_root: number(args, "eps_root", 1e-16)?,
            steps: 0,
            memory: BTreeMap::new(),
        })
    }
}

impl Naive for Acprop {
    fn update(&mut self, grads: &Leaves) -> Leaves {
        let unbias = 1.0 - self.b2.powi(self.steps);
        self.steps += 1;
        let mut updates = grads.clone();
        for (path, leaf) in &mut updates {
            let memory = self.memory.entry(path.clone()).or_insert_with(|| vec![(0.0, 0.0, true); leaf.data.len()]);
            for (x, (mean, squares, unseen)) in leaf.data.iter_mut().zip(memory) {
                let g = *x;
                let before = if *unseen { 1.0 } else { *squares / unbias };
                let surprise = (g - *mean).powi(2);
                *squares = self.b2 * *squares + (1.0 - self.b2) * surprise + self.eps_root;
                *mean = self.b1 * *mean + (1.0 - self.b1) * g;
                *unseen &= g == 0.0;
                *x = tree::round(leaf.dtype, g / (before.sqrt() + self.eps));
            }
        }
        updates
    }
}
