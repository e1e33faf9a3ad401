use super::lanes::{Lane, across, normalize};
use crate::Result;
use crate::internal::numeric::sum_pairs;
use crate::internal::state::{ConstrainedLeaf, Constraint, Part};

/// Weight normalization: separate raw parameters for the norm (`length`) and the direction of each row.
///
/// # Arithmetic
///
/// A row `w` is one index of the first axis (or of [another](WeightNorm::axis)): a row of a matrix, or the weights of
/// one output of a convolution. The leaf `weight` has two raw leaves, `weight/length` with a number `l` for each row,
/// and `weight/direction` of the leaf's shape, with the rows `d`:
///
/// ```text
/// w = l·d/‖d‖
/// l̄ = ⟨w̄, d/‖d‖⟩
/// d̄ = l/‖d‖·(w̄ − d·⟨d, w̄⟩/‖d‖²)
/// l = ‖w‖,  d = w
/// ```
///
/// Every nonzero row is reachable; a length may become negative.
///
/// # Errors
///
/// Fails if the leaf has no such axis, or rows without elements; if a direction is zero; for given values, if a row is
/// zero, which has no direction.
///
/// # Example
///
/// ```
/// use gradchain::constraint::{Constraints, weight_norm};
/// use gradchain::tree::for_each_leaf;
/// use ndarray::array;
///
/// let raw = Constraints::new().at("", weight_norm()).unconstrain(&array![[3.0_f64, 4.0], [0.0, 2.0]])?;
/// let mut seen = Vec::new();
/// for_each_leaf(&raw, |path, leaf| seen.push((path.to_string(), leaf.to_f64())));
/// assert_eq!(seen, [("length".into(), vec![5.0, 2.0]), ("direction".into(), vec![3.0, 4.0, 0.0, 2.0])]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Salimans and Kingma, [Weight normalization](https://arxiv.org/abs/1602.07868), 2016, equations 2 and 3. PyTorch,
/// `torch.nn.utils.parametrizations.weight_norm`, with `dim = 0` by default, as here. Differs: none.
pub fn weight_norm() -> WeightNorm {
    WeightNorm { axis: 0 }
}

/// See [`weight_norm`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a constraint does nothing until `Constraints` assigns it to leaves"]
pub struct WeightNorm {
    axis: usize,
}

impl WeightNorm {
    /// Sets the axis whose indices have a length each, instead of the first.
    pub fn axis(mut self, axis: usize) -> WeightNorm {
        self.axis = axis;
        self
    }

    /// Returns the rows, and the raw lengths and directions.
    fn split<'r>(
        &self,
        leaf: &ConstrainedLeaf<'_>,
        raw: &'r [f64],
    ) -> Result<(impl Iterator<Item = Lane>, &'r [f64], &'r [f64])> {
        let (lengths, directions) = raw.split_at(leaf.shape().get(self.axis).map_or(0, |len| *len));
        Ok((across(leaf, self.axis)?, lengths, directions))
    }
}

const DIRECTED: &str = "the first element of a nonzero raw direction";

impl Constraint for WeightNorm {
    fn parts(&self, leaf: &ConstrainedLeaf<'_>) -> Result<Vec<Part>> {
        let rows = across(leaf, self.axis)?.count();
        Ok(vec![Part::new("length", &[rows]), Part::new("direction", leaf.shape())])
    }

    fn constrain(&self, leaf: &ConstrainedLeaf<'_>, raw: &[f64], to: &mut [f64]) -> Result<()> {
        let (rows, lengths, directions) = self.split(leaf, raw)?;
        let mut x = Vec::new();
        for (row, length) in rows.zip(lengths) {
            row.read(directions, &mut x);
            normalize(&mut x).ok_or_else(|| leaf.refuse_element(row.start, DIRECTED, 0))?;
            x.iter_mut().for_each(|x| *x *= length);
            row.write(&x, to);
        }
        Ok(())
    }

    fn pull_back(&self, leaf: &ConstrainedLeaf<'_>, raw: &[f64], gradient: &[f64], to: &mut [f64]) -> Result<()> {
        let (rows, lengths, directions) = self.split(leaf, raw)?;
        let (to_lengths, to_directions) = to.split_at_mut(lengths.len());
        let (mut x, mut g) = (Vec::new(), Vec::new());
        for ((row, length), to_length) in rows.zip(lengths).zip(to_lengths) {
            row.read(directions, &mut x);
            row.read(gradient, &mut g);
            let norm = normalize(&mut x).ok_or_else(|| leaf.refuse_element(row.start, DIRECTED, 0))?;
            let along = sum_pairs(&x, &g, |x: f64, g| x * g);
            *to_length = along;
            g.iter_mut().zip(&x).for_each(|(g, x)| *g = norm.divide(length * (*g - x * along)));
            row.write(&g, to_directions);
        }
        Ok(())
    }

    fn unconstrain(&self, leaf: &ConstrainedLeaf<'_>, values: &[f64], to: &mut [f64]) -> Result<()> {
        if let Some(i) = values.iter().position(|x| !x.is_finite()) {
            return Err(leaf.refuse_element(i, "finite", values[i]));
        }
        let rows = across(leaf, self.axis)?;
        let (lengths, directions) = to.split_at_mut(leaf.shape()[self.axis]);
        let mut x = Vec::new();
        for (row, to) in rows.zip(lengths) {
            row.read(values, &mut x);
            let length = normalize(&mut x);
            let expected = "the first element of a nonzero vector (zeros have no direction)";
            *to = length.ok_or_else(|| leaf.refuse_element(row.start, expected, 0))?.value();
        }
        directions.copy_from_slice(values);
        Ok(())
    }
}
