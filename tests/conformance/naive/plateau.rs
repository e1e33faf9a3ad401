//! A plateau, detected in `f64`.

use serde_json::Value;

use super::super::reference::map;
use super::super::tree::Leaves;
use super::number;

/// Scales by a number that decreases when losses stop improving.
pub(crate) struct Plateau {
    factor: f64,
    patience: u64,
    tolerances: [f64; 2],
    cooldown: u64,
    window: usize,
    least: f64,
    losses: Vec<f64>,
    best: f64,
    scale: f64,
    /// Without improvement, and in the cooldown.
    bad: u64,
    cooling: u64,
}

impl Plateau {
    pub(crate) fn build(args: &Value) -> Option<Plateau> {
        let integer = |argument: &str, default: u64| args.get(argument).map_or(Some(default), Value::as_u64);
        Some(Plateau {
            factor: number(args, "factor", 0.1)?,
            patience: integer("patience", 10)?,
            tolerances: [number(args, "rtol", 1e-4)?, number(args, "atol", 0.0)?],
            cooldown: integer("cooldown", 0)?,
            window: integer("accumulation_size", 1)? as usize,
            least: number(args, "min_scale", 0.0)?,
            losses: Vec::new(),
            best: f64::INFINITY,
            scale: 1.0,
            bad: 0,
            cooling: 0,
        })
    }

    pub(crate) fn update(&mut self, grads: &Leaves, loss: f64) -> Leaves {
        self.losses.push(loss);
        if self.losses.len() == self.window {
            let mean = self.losses.drain(..).sum::<f64>() / self.window as f64;
            self.decide(mean);
        }
        map(grads, |path, i| self.scale * grads[path].data[i])
    }

    fn decide(&mut self, loss: f64) {
        let [rtol, atol] = self.tolerances;
        let better = self.best.is_infinite() || loss < self.best - rtol * self.best.abs() - atol;
        self.best = if better { loss } else { self.best };
        self.bad = if better { 0 } else { self.bad + 1 };
        if self.cooling > 0 {
            (self.cooling, self.bad) = (self.cooling - 1, 0);
            return;
        }
        if self.bad == self.patience {
            (self.scale, self.cooling, self.bad) = (self.scale * self.factor, self.cooldown, 0);
        }
        self.scale = self.scale.max(self.least);
    }

    pub(crate) fn flags(&self) -> [(&'static str, Value); 4] {
        let best = if self.best.is_finite() { self.best.into() } else { "inf".into() };
        [
            ("plateau_scale", self.scale.into()),
            ("plateau_count", self.bad.into()),
            ("cooldown_count", self.cooling.into()),
            ("best_value", best),
        ]
    }
}
