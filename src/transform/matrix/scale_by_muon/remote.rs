//! Muon on leaves that a device holds.

use super::dimensions::MatrixOffsets;
use super::newton_schulz::{EPS_FROM, MIN_SQUARED_NORM, Matrices, Preconditioning, iterate};
use super::{Momentum, Orthogonalize, ScaleByMuonState};
use crate::part::{Line, RemoteLeaf};
use crate::state::Moments;

impl Orthogonalize<'_> {
    pub(super) fn remote(&mut self, leaf: usize, on: &mut dyn RemoteLeaf) -> Line {
        let ScaleByMuonState { updates, mu, places, .. } = &mut *self.state;
        let rule = self.rule;
        let momentum = Momentum::of(self.beta, rule.nesterov, self.clock.of_leaf(updates, leaf));
        let Some(places) = &places[leaf] else { return on.update() };
        let Some(u) = moved(momentum, on, mu, leaf) else { return on.update() };
        let MatrixOffsets { matrices, down, along, transpositions } = places;
        let [batch, n, m] = [matrices, down, along].map(Vec::len);
        let x = transpositions.iter().fold(u, |x, shape| on.transpose(x, *shape));
        let mut there = RemoteSteps { on, x, gram: x, squared: x, shape: [batch, n, m], eps: self.eps };
        iterate(&mut there, rule.ns_coeffs.rows(rule.ns_steps), rule.preconditioning);
        let RemoteSteps { on, x: mut original, .. } = there;
        if rule.adaptive {
            let len = batch * n * m;
            let dual_norm = on.dots(x, original, len, len);
            original = on.mul(original, dual_norm);
        }
        transpositions.iter().rev().fold(original, |x, [outer, a, b, inner]| on.transpose(x, [*outer, *b, *a, *inner]))
    }
}

/// Advances a leaf's mean, and returns the corrected mean.
fn moved(momentum: Momentum, on: &mut dyn RemoteLeaf, mu: &Moments, leaf: usize) -> Option<Line> {
    let Momentum { decay, weight, mean_weight, update_weight } = momentum;
    let (mean, u) = (on.array(mu, leaf)?, on.update());
    let mean = on.axpby(decay, mean, weight, u);
    on.write(mu, leaf, mean);
    Some(on.axpby(mean_weight, mean, update_weight, u))
}

struct RemoteSteps<'a> {
    on: &'a mut dyn RemoteLeaf,
    x: Line,
    gram: Line,
    squared: Line,
    /// Number of matrices, rows, columns.
    shape: [usize; 3],
    eps: f64,
}

impl RemoteSteps<'_> {
    fn scale(&mut self, x: Line, factors: Line, len: usize) -> Line {
        let factors = self.on.repeat(factors, self.shape[0], len);
        self.on.mul(x, factors)
    }

    /// Returns the inverse root of numbers with a lower bound.
    fn factor(&mut self, squared: Line) -> Line {
        let [least, one] = [MIN_SQUARED_NORM, 1.0].map(|x| self.on.number(x));
        let squared = self.on.max(squared, least);
        let root = self.on.sqrt(squared);
        self.on.div(one, root)
    }
}

impl Matrices for RemoteSteps<'_> {
    fn begin(&mut self, preconditioning: Preconditioning) {
        if preconditioning == Preconditioning::Spectral {
            return self.on.refuse("its preconditioning is not a product of matrices");
        }
        let [batch, n, m] = self.shape;
        let squares = self.on.dots(self.x, self.x, batch * n * m, n * m);
        let norm = self.on.sqrt(squares);
        // As `divisor` in `newton_schulz`, by a maximum of negative numbers.
        let [minus, eps, least] = [-1.0, -self.eps, f64::from(f32::MIN_POSITIVE)].map(|x| self.on.number(x));
        let unit = if preconditioning == Preconditioning::Frobenius { EPS_FROM } else { 1.0 };
        let unit = self.on.number(-1.0 / unit);
        let small = self.on.mul(unit, norm);
        let small = self.on.max(small, minus);
        let divisor = match preconditioning {
            Preconditioning::Frobenius => {
                let more = self.on.mul(eps, small);
                self.on.add(norm, more)
            }
            _ => self.on.mul(minus, small),
        };
        let divisor = self.on.max(divisor, least);
        let divisor = self.on.repeat(divisor, batch, n * m);
        self.x = self.on.div(self.x, divisor);
    }

    fn gram(&mut self) {
        let [batch, n, m] = self.shape;
        self.gram = self.on.product(self.x, self.x, [batch, n, m, n], true);
    }

    fn precondition(&mut self, preconditioning: Preconditioning) {
        let [batch, n, m] = self.shape;
        match preconditioning {
            Preconditioning::Frobenius | Preconditioning::Spectral => {}
            Preconditioning::Aol => {
                let (sizes, one) = (self.on.abs(self.gram), self.on.number(1.0));
                let sums = self.on.dots(sizes, one, batch * n * n, n);
                let factors = self.factor(sums);
                let of_rows = self.on.repeat(factors, batch * n, m);
                self.x = self.on.mul(self.x, of_rows);
                let of_rows = self.on.repeat(factors, batch * n, n);
                let of_columns = self.on.transpose(of_rows, [batch, n, n, 1]);
                let both = self.on.mul(of_rows, of_columns);
                self.gram = self.on.mul(self.gram, both);
            }
            Preconditioning::Schatten => {
                let squares = self.on.dots(self.gram, self.gram, batch * n * n, n * n);
                let norm = self.on.sqrt(squares);
                let factors = self.factor(norm);
                let twice = self.on.mul(factors, factors);
                self.x = self.scale(self.x, factors, n * m);
                self.gram = self.scale(self.gram, twice, n * n);
            }
        }
    }

    fn polynomial(&mut self, gram_weight: f64, square_weight: f64) {
        let [batch, n, _] = self.shape;
        let square = self.on.product(self.gram, self.gram, [batch, n, n, n], false);
        self.squared = self.on.axpby(gram_weight, self.gram, square_weight, square);
    }

    fn multiply(&mut self, x_weight: f64) {
        let [batch, n, m] = self.shape;
        let product = self.on.product(self.squared, self.x, [batch, n, n, m], false);
        let x_weight = self.on.number(x_weight);
        let x = self.on.mul(x_weight, self.x);
        self.x = self.on.add(x, product);
    }
}
