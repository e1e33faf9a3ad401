//! Muon on leaves that a device holds.

use super::dimensions::Places;
use super::newton_schulz::{EPS_FROM, LEAST, Matrices, Preconditioning, iterate};
use super::{Momentum, Orthogonalize, ScaleByMuonState};
use crate::engine::{Line, RemoteLeaf};
use crate::state::Moments;

impl Orthogonalize<'_> {
    pub(super) fn remote(&mut self, leaf: usize, on: &mut dyn RemoteLeaf) -> Line {
        let ScaleByMuonState { updates, mu, places, .. } = &mut *self.state;
        let rule = self.rule;
        let momentum = Momentum::of(self.beta, rule.nesterov, self.clock.of_leaf(updates, leaf));
        let Some(places) = &places[leaf] else { return on.update() };
        let Some(u) = moved(momentum, on, mu, leaf) else { return on.update() };
        let Places { matrices, down, along, turns } = places;
        let [batch, n, m] = [matrices, down, along].map(Vec::len);
        let x = turns.iter().fold(u, |x, shape| on.turn(x, *shape));
        let mut there = There { on, x, gram: x, squared: x, shape: [batch, n, m], eps: self.eps };
        iterate(&mut there, rule.ns_coeffs.rows(rule.ns_steps), rule.preconditioning);
        let There { on, x: mut made, .. } = there;
        if rule.adaptive {
            let len = batch * n * m;
            let dual_norm = on.dots(x, made, len, len);
            made = on.mul(made, dual_norm);
        }
        turns.iter().rev().fold(made, |x, [outer, a, b, inner]| on.turn(x, [*outer, *b, *a, *inner]))
    }
}

/// Advances a leaf's mean, and returns the corrected mean.
fn moved(momentum: Momentum, on: &mut dyn RemoteLeaf, mu: &Moments, leaf: usize) -> Option<Line> {
    let Momentum { keep, take, of_mean, of_update } = momentum;
    let (mean, u) = (on.array(mu, leaf)?, on.update());
    let mean = on.mix(keep, mean, take, u);
    on.write(mu, leaf, mean);
    Some(on.mix(of_mean, mean, of_update, u))
}

struct There<'a> {
    on: &'a mut dyn RemoteLeaf,
    x: Line,
    gram: Line,
    squared: Line,
    /// Number of matrices, rows, columns.
    shape: [usize; 3],
    eps: f64,
}

impl There<'_> {
    fn scale(&mut self, x: Line, factors: Line, len: usize) -> Line {
        let factors = self.on.spread(factors, self.shape[0], len);
        self.on.mul(x, factors)
    }

    /// Returns the inverse root of numbers with a lower bound.
    fn factor(&mut self, squared: Line) -> Line {
        let [least, one] = [LEAST, 1.0].map(|x| self.on.number(x));
        let squared = self.on.max(squared, least);
        let root = self.on.sqrt(squared);
        self.on.div(one, root)
    }
}

impl Matrices for There<'_> {
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
        let divisor = self.on.spread(divisor, batch, n * m);
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
                let of_rows = self.on.spread(factors, batch * n, m);
                self.x = self.on.mul(self.x, of_rows);
                let of_rows = self.on.spread(factors, batch * n, n);
                let of_columns = self.on.turn(of_rows, [batch, n, n, 1]);
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

    fn polynomial(&mut self, of_gram: f64, of_square: f64) {
        let [batch, n, _] = self.shape;
        let square = self.on.product(self.gram, self.gram, [batch, n, n, n], false);
        self.squared = self.on.mix(of_gram, self.gram, of_square, square);
    }

    fn multiply(&mut self, of_x: f64) {
        let [batch, n, m] = self.shape;
        let product = self.on.product(self.squared, self.x, [batch, n, n, m], false);
        let of_x = self.on.number(of_x);
        let x = self.on.mul(of_x, self.x);
        self.x = self.on.add(x, product);
    }
}
