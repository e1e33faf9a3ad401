//! Trains alone for a round, then steps toward the workers' mean.

use gradchain::collective::{Collective, average};
use gradchain::optimizer::{Adamw, Sgd};
use gradchain::prelude::*;
use gradchain::transform::Trace;
use gradchain::tree::{for_each_leaf, tree_add_scaled};

use crate::data::{Digits, Random};
use crate::model::Mlp;

/// Steps between messages.
pub(crate) const H: usize = 30;
const BATCH: usize = 16;
pub(crate) const TRAIN: usize = 1200;

pub(crate) struct Worker {
    images: Digits,
    pub(crate) test: Digits,
    random: Random,
    /// The round's start, identical on all workers.
    pub(crate) global: Mlp,
    inner: Adamw,
    inner_state: OptState<Adamw>,
    pub(crate) outer: Sgd<Trace>,
    pub(crate) outer_state: OptState<Sgd<Trace>>,
}

impl Worker {
    /// Returns a rank's worker, with its share of the images.
    pub(crate) fn new(ranks: &dyn Collective) -> Result<Worker, Box<dyn std::error::Error>> {
        let mut random = Random(0);
        let (train, test) = Digits::load()?.shuffle_and_split(TRAIN, &mut random);
        let global = Mlp::new(64, 64, 10, &mut random);
        let share = TRAIN / ranks.size();
        let rows: Vec<usize> = (ranks.rank() * share..(ranks.rank() + 1) * share).collect();
        let (inner, outer) = (adamw(2e-3), sgd(0.7).momentum(0.9).nesterov(true));
        let (inner_state, outer_state) = (inner.init(&global)?, outer.init(&global)?);
        let random = Random(ranks.rank() as u64 + 1);
        Ok(Worker { images: train.rows(&rows), test, random, global, inner, inner_state, outer, outer_state })
    }

    /// Trains alone, then steps toward the workers' mean; returns this worker's mean loss.
    pub(crate) fn round(&mut self, ranks: &dyn Collective) -> gradchain::Result<f64> {
        let mut local = self.global.clone();
        let mut gradient = local.zeros_like();
        let mut total = 0.0;
        for _ in 0..H {
            let rows: Vec<usize> = (0..BATCH).map(|_| self.pick()).collect();
            total += local.loss(&self.images.rows(&rows), &mut gradient);
            self.inner.step(&mut local, &gradient, &mut self.inner_state)?;
        }
        average(ranks, &mut local)?;
        // The gradient points against the mean displacement.
        let mut gradient = self.global.clone();
        tree_add_scaled(&mut gradient, -1.0, &local)?;
        self.outer.step(&mut self.global, &gradient, &mut self.outer_state)?;
        Ok(total / H as f64)
    }

    fn pick(&mut self) -> usize {
        (self.random.uniform() * self.images.labels.len() as f64) as usize
    }

    pub(crate) fn bits(&self) -> Vec<u64> {
        let mut bits = Vec::new();
        for_each_leaf(&self.global, |_, leaf| bits.extend(leaf.to_f64().into_iter().map(f64::to_bits)));
        bits
    }
}
