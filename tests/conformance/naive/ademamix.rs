//! State keeps the requested dtype.

use std::collections::BTreeMap;

use gradchain::DType;
use serde_json::Value;

use super::super::tree::{self, Leaves};
use super::{Naive, number};

/// Two means of gradients over the root of a mean of squares, all rounded to a dtype.
pub(crate) struct Ademamix {
    b: [f64; 3],
    alpha: f64,
    /// Terms added to the root, and under it.
    eps: [f64; 2],
    dtype: DType,
    steps: i32,
    /// Fast mean, slow mean, mean of squares.
    memory: BTreeMap<String, Vec<[f64; 3]>>,
}

impl Ademamix {
    pub(crate) fn build(name: &str, args: &Value) -> Option<Ademamix> {
        Some(Ademamix {
            b: [number(args, "b1", 0.9)?, number(args, "b2", 0.999)?, number(args, "b3", 0.9999)?],
            alpha: number(args, "alpha", if name == "ademamix" { 5.0 } else { 6.0 })?,
            eps: [number(args, "eps", 1e-8)?, number(args, "eps_root", 0.0)?],
            dtype: DType::from_name(args["mu_dtype"].as_str()?)?,
            steps: 0,
            memory: BTreeMap::new(),
        })
    }
}

impl Naive for Ademamix {
    fn update(&mut self, grads: &Leaves) -> Leaves {
        self.steps += 1;
        let [b1, b2, b3] = self.b;
        let unbias = |decay: f64| 1.0 - decay.powi(self.steps);
        let mut updates = grads.clone();
        for (path, leaf) in &mut updates {
            let memory = self.memory.entry(path.clone()).or_insert_with(|| vec![[0.0; 3]; leaf.data.len()]);
            for (x, kept) in leaf.data.iter_mut().zip(memory) {
                let (g, [fast, slow, squares]) = (*x, *kept);
                let fast = b1 * fast + (1.0 - b1) * g;
                let slow = b3 * slow + (1.0 - b3) * g;
                let squares = b2 * squares + (1.0 - b2) * g * g;
                *kept = [fast, slow, squares].map(|x| tree::round(self.dtype, x));
                let root = (squares / unbias(b2) + self.eps[1]).sqrt() + self.eps[0];
                *x = tree::round(leaf.dtype, (fast / unbias(b1) + self.alpha * slow) / root);
            }
        }
        updates
    }
}
