//! One hidden layer, with its gradient written by hand.

use gradchain::Tree;
use ndarray::{Array1, Array2, ArrayView2, Axis, Zip};

use super::data::{Digits, Random};

/// The parameters, and their gradient, which has the same structure.
///
/// The optimizer only needs `derive(Tree)`: the tree has four leaves, `w1`, `b1`, `w2`, `b2`.
#[derive(Clone, Debug, Tree)]
pub(crate) struct Mlp {
    pub(crate) w1: Array2<f32>,
    pub(crate) b1: Array1<f32>,
    pub(crate) w2: Array2<f32>,
    pub(crate) b2: Array1<f32>,
}

impl Mlp {
    /// Returns random weights, scaled to keep the variance of the activations (He et al., 2015).
    pub(crate) fn new(inputs: usize, hidden: usize, outputs: usize, random: &mut Random) -> Mlp {
        let mut weights = |rows: usize, columns: usize| {
            let limit = (6.0 / rows as f64).sqrt();
            Array2::from_shape_simple_fn((rows, columns), || ((2.0 * random.uniform() - 1.0) * limit) as f32)
        };
        Mlp {
            w1: weights(inputs, hidden),
            b1: Array1::zeros(hidden),
            w2: weights(hidden, outputs),
            b2: Array1::zeros(outputs),
        }
    }

    pub(crate) fn zeros_like(&self) -> Mlp {
        Mlp {
            w1: Array2::zeros(self.w1.raw_dim()),
            b1: Array1::zeros(self.b1.raw_dim()),
            w2: Array2::zeros(self.w2.raw_dim()),
            b2: Array1::zeros(self.b2.raw_dim()),
        }
    }

    /// Returns hidden activations and scores.
    fn forward(&self, images: ArrayView2<'_, f32>) -> (Array2<f32>, Array2<f32>) {
        let hidden = (images.dot(&self.w1) + &self.b1).mapv_into(|z| z.max(0.0));
        let scores = hidden.dot(&self.w2) + &self.b2;
        (hidden, scores)
    }

    /// Returns the mean cross-entropy; writes its gradient.
    pub(crate) fn loss(&self, batch: &Digits, gradient: &mut Mlp) -> f64 {
        let (hidden, mut scores) = self.forward(batch.images.view());
        let n = batch.labels.len() as f32;

        // Turns scores into probabilities, then into the loss's derivative: (probability - truth) / n.
        let mut loss = 0.0;
        for (mut row, &label) in scores.outer_iter_mut().zip(&batch.labels) {
            let largest = row.fold(f32::NEG_INFINITY, |a, &b| a.max(b));
            row.mapv_inplace(|score| (score - largest).exp());
            let total = row.sum();
            row.mapv_inplace(|e| e / total);
            loss -= f64::from(row[label].ln());
            row[label] -= 1.0;
            row.mapv_inplace(|d| d / n);
        }
        let d_scores = scores;

        // Backpropagates through the last layer, the rectifier and the first layer.
        gradient.w2 = hidden.t().dot(&d_scores);
        gradient.b2 = d_scores.sum_axis(Axis(0));
        let mut d_hidden = d_scores.dot(&self.w2.t());
        Zip::from(&mut d_hidden).and(&hidden).for_each(|d, &h| {
            if h <= 0.0 {
                *d = 0.0;
            }
        });
        gradient.w1 = batch.images.t().dot(&d_hidden);
        gradient.b1 = d_hidden.sum_axis(Axis(0));
        loss / f64::from(n)
    }

    /// Returns the share of images whose digit scores highest.
    pub(crate) fn accuracy(&self, digits: &Digits) -> f64 {
        let (_, scores) = self.forward(digits.images.view());
        let right = scores.outer_iter().zip(&digits.labels).filter(|(row, label)| {
            let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
            best.is_some_and(|(digit, _)| digit == **label)
        });
        right.count() as f64 / digits.labels.len() as f64
    }
}
