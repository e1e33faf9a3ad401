//! A mean of squares that includes infinity is infinite.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::tree::{self, Leaves};
use super::{Naive, number};

/// A sum of gradients over the root of a mean of squares.
pub(crate) struct SimplifiedAdemamix {
    b1: f64,
    b2: f64,
    alpha: f64,
    /// Terms added to the root, and under it.
    eps: [f64; 2],
    steps: i32,
    /// Sum of gradients and mean of squares.
    memory: BTreeMap<String, Vec<[f64; 2]>>,
}

impl SimplifiedAdemamix {
    pub(crate) fn build(args: &Value) -> Option<SimplifiedAdemamix> {
        Some(SimplifiedAdemamix {
            b1: number(args, "b1", 0.99)?,
            b2: number(args, "b2", 0.95)?,
            alpha: number(args, "alpha", 0.0)?,
            eps: [number(args, "eps", 1e-8)?, number(args, "eps_root", 0.0)?],
            steps: 0,
            memory: BTreeMap::new(),
        })
    }
}

impl Naive for SimplifiedAdemamix {
    fn update(&mut self, grads: &Leaves) -> Leaves {
        self.steps += 1;
        let unbias = 1.0 - self.b2.powi(self.steps);
        let mut updates = grads.clone();
        for (path, leaf) in &mut updates {
            let memory = self.memory.entry(path.clone()).or_insert_with(|| vec![[0.0; 2]; leaf.data.len()]);
            for (x, [sum, mean]) in leaf.data.iter_mut().zip(memory) {
                let g = *x;
                *sum = self.b1 * *sum + g;
                *mean = self.b2 * *mean + (1.0 - self.b2) * tree::round(leaf.dtype, g * g);
                let root = (*mean / unbias + self.eps[1]).sqrt() + self.eps[0];
                *x = tree::round(leaf.dtype, (*sum + self.alpha * g) / root);
            }
        }
        updates
    }
}
