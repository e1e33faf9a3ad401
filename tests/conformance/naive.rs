//! Rules that Optax has wrong, said naively: each as its paper has it, element by element in `f64`.
//!
//! Rprop: as Igel and Hüsken write it. Unit norm: zero has no direction. Simplified AdEMAMix: a mean of squares with an
//! infinite one in it is infinite. Standard deviation: a variance is not negative. ADOPT: the first step only looks. AdEMAMix: state stays of the type that is asked for.

use std::collections::BTreeMap;

use gradchain::DType;
use serde_json::Value;

use super::reference::map;
use super::tree::{self, Leaves};

/// What works on gradients alone.
pub(crate) trait Naive {
    fn update(&mut self, grads: &Leaves) -> Leaves;

    /// Rounds up or down, by as much as rounding can do, where that decides: 1 or −1.
    fn lean(&mut self, _: f64) {}
}

/// An argument that is a number.
fn number(args: &Value, argument: &str, default: f64) -> Option<f64> {
    args.get(argument).map_or(Some(default), Value::as_f64)
}

/// iRprop⁻: where the sign of the gradient has changed, it is taken to be zero.
pub(crate) struct Rprop {
    sign: f64,
    start: f64,
    /// `η⁻` and `η⁺`.
    eta: [f64; 2],
    limits: [f64; 2],
    /// Step size and last gradient of each element.
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

/// Of norm 1, or zero.
pub(crate) struct Unit;

impl Naive for Unit {
    fn update(&mut self, grads: &Leaves) -> Leaves {
        let norm = grads.values().flat_map(|leaf| &leaf.data).map(|g| g * g).sum::<f64>().sqrt();
        map(grads, |path, i| if norm == 0.0 { 0.0 } else { grads[path].data[i] / norm })
    }
}

/// A sum of gradients over the root of a mean of squares.
pub(crate) struct SimplifiedAdemamix {
    b1: f64,
    b2: f64,
    alpha: f64,
    /// Added to the root, and under it.
    eps: [f64; 2],
    steps: i32,
    /// Sum of gradients and mean of squares of each element.
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

/// Over the root of a variance that is not negative: a mean of squares less the square of a mean.
pub(crate) struct Stddev {
    decay: f64,
    /// What the mean of squares starts from.
    start: f64,
    /// Under the root, and added to it.
    eps: [f64; 2],
    unbias: bool,
    steps: i32,
    /// Mean and mean of squares of each element.
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
            // Arithmetic is in one of these; eight steps of its numbers are more than a few roundings.
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

/// A mean of gradients, each over the root of the mean of squares of those before it.
pub(crate) struct Adopt {
    b1: f64,
    b2: f64,
    eps: f64,
    /// To this power of the number of the step gradients are limited.
    power: Option<f64>,
    nesterov: bool,
    steps: f64,
    /// Mean and mean of squares of each element.
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

/// Two means of gradients over the root of a mean of squares, all rounded to a type.
pub(crate) struct Ademamix {
    b: [f64; 3],
    alpha: f64,
    /// Added to the root, and under it.
    eps: [f64; 2],
    dtype: DType,
    steps: i32,
    /// Fast mean, slow mean, and mean of squares of each element.
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
