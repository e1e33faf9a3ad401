//! A variance is not negative.

use std::collections::BTreeMap;

use gradchain::DType;
use serde_json::Value;

use super::super::tree::{self, Leaves};
use super::{Naive, number};

/// Gradients over the root of a mean of squares less the square of a mean.
pub(crate) struct Stddev {
    decay: f64,
    /// The initial mean of squares.
    start: f64,
    /// Terms under the root, and added to it.
    eps: [f64; 2],
    unbias: bool,
    steps: i32,
    /// Mean and mean of squares.
    memory: BTreeMap<String, Vec<[f64; 2]>>,
    lean: f64,
}

impl Stddev {
    pub(crate) fn build(args: &Value) -> Option<Stddev> {
        let eps = number(args, "eps", 1e-8)?;
        Some(Stddev {
            decay: number(args, "decay", 0.9)?,
            start: number(args, "initial_scale", 0.0)?,
            eps: if args["eps_in_sqrt"] == false { [0.0, eps] } else { [eps, 0.0] },
            unbias: args["bias_correction"] == true,
            steps: 0,
            memory: BTreeMap::new(),
            lean: 0.0,
        })
    }
}

impl Naive for Stddev {
    fn update(&mut self, grads: &Leaves) -> Leaves {
        self.steps += 1;
        let weight = if self.unbias { 1.0 - self.decay.powi(self.steps) } else { 1.0 };
        let mut updates = grads.clone();
        for (path, leaf) in &mut updates {
            let memory = self.memory.entry(path.clone()).or_insert_with(|| vec![[0.0, self.start]; leaf.data.len()]);
            // Eight steps of the dtype exceed a few roundings.
            let epsilon = if leaf.dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
            for (x, [mean, squares]) in leaf.data.iter_mut().zip(memory) {
                let g = *x;
                *mean = self.decay * *mean + (1.0 - self.decay) * g;
                *squares = self.decay * *squares + (1.0 - self.decay) * g * g;
                let (m, n) = (*mean / weight, *squares / weight);
                let variance = (n - m * m + self.lean * 8.0 * epsilon * n).max(0.0);
                *x = tree::round(leaf.dtype, g / ((variance + self.eps[0]).sqrt() + self.eps[1]));
            }
        }
        updates
    }

    fn lean(&mut self, lean: f64) {
        self.lean = lean;
    }
}
