use super::lanes::normalize;
use super::matrices::size;
use super::range::slack;
use crate::Result;
use crate::internal::numeric::sum_pairs;
use crate::internal::state::{ConstrainedLeaf, Constraint, Part};

/// Keeps matrices orthogonal: orthonormal columns, or rows if these are fewer.
///
/// # Arithmetic
///
/// For each matrix `Q` in the last two axes, or its transpose if it has more columns than rows; the raw numbers are a
/// matrix `V` of the same shape:
///
/// ```text
/// V = Q·R                      R upper triangular with a positive diagonal: Gram and Schmidt
/// V̄ = (Q̄ + Q·C)·R⁻ᵀ            C symmetric, with the lower triangle of −Q̄ᵀ·Q
/// V = Q
/// ```
///
/// The exponential or Cayley map of a skew-symmetric matrix reaches only rotations, and Cayley's not all of them,
/// unless it starts from a base; that base would be state outside of all leaves and files.
///
/// # Cost
///
/// For `n` vectors with `m` elements: `2·m·n²` multiplications to constrain, `4·m·n²` to pull back.
///
/// # Errors
///
/// Fails if the leaf has fewer than two axes; if the vectors of the raw matrix are linearly dependent; for given
/// values, if two vectors are not orthonormal up to rounding.
///
/// # Example
///
/// ```
/// use gradchain::constraint::{Constraints, orthogonal};
/// use ndarray::array;
///
/// let constraints = Constraints::new().at("", orthogonal());
/// let raw = constraints.unconstrain(&array![[0.0_f64, 1.0], [1.0, 0.0]])?;
/// assert_eq!(*raw.constrain()?, array![[0.0, 1.0], [1.0, 0.0]]);
///
/// let error = constraints.unconstrain(&array![[1.0_f64, 0.5], [0.0, 1.0]]).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "unconstrain: argument `(root)` must be an orthogonal matrix, found the dot product 0.5 of its columns 0 and 1"
/// );
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Walter and Lehmann, [Algorithmic differentiation of linear algebra functions](https://arxiv.org/abs/1001.1654),
/// 2010, for the derivative. PyTorch, `torch.nn.utils.parametrizations.orthogonal`, has Householder, Cayley and
/// exponential maps. Differs: the map, see above.
pub fn orthogonal() -> Orthogonal {
    Orthogonal
}

/// See [`orthogonal`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a constraint does nothing until `Constraints` assigns it to leaves"]
pub struct Orthogonal;

/// A matrix's columns, or its rows if fewer.
#[derive(Clone, Copy)]
struct Frame {
    rows: usize,
    cols: usize,
    /// Number of vectors, and elements of each.
    count: usize,
    len: usize,
}

impl Frame {
    fn of(leaf: &ConstrainedLeaf<'_>) -> Result<Frame> {
        let [rows, cols] = size(leaf)?;
        Ok(Frame { rows, cols, count: rows.min(cols), len: rows.max(cols) })
    }

    fn name(self) -> &'static str {
        if self.rows >= self.cols { "column" } else { "row" }
    }

    fn place(self, vector: usize, element: usize) -> usize {
        if self.rows >= self.cols { element * self.cols + vector } else { vector * self.cols + element }
    }

    fn read(self, matrix: &[f64]) -> Vec<f64> {
        let places = (0..self.count).flat_map(|k| (0..self.len).map(move |i| self.place(k, i)));
        places.map(|place| matrix[place]).collect()
    }

    fn write(self, vectors: &[f64], matrix: &mut [f64]) {
        for (k, vector) in vectors.chunks_exact(self.len).enumerate() {
            vector.iter().enumerate().for_each(|(i, x)| matrix[self.place(k, i)] = *x);
        }
    }
}

/// An orthonormal basis and the triangle that yields the vectors, each divided by its largest element.
struct Factors {
    q: Vec<f64>,
    /// `count × count`; the products of basis vector `i` with vector `k` at `i·count + k`.
    r: Vec<f64>,
    scales: Vec<f64>,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    sum_pairs(a, b, |a: f64, b| a * b)
}

fn add(to: &mut [f64], factor: f64, from: &[f64]) {
    to.iter_mut().zip(from).for_each(|(to, x)| *to += factor * x);
}

/// Factorizes by Gram-Schmidt with reorthogonalization, as exact as Householder reflections.
fn factors(leaf: &ConstrainedLeaf<'_>, frame: Frame, matrix: &[f64]) -> Result<Factors> {
    let Frame { count, len, .. } = frame;
    let mut q = frame.read(matrix);
    let (mut r, mut scales) = (vec![0.0; count * count], Vec::with_capacity(count));
    for k in 0..count {
        let (before, rest) = q.split_at_mut(k * len);
        let vector = &mut rest[..len];
        let scale = vector.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        vector.iter_mut().for_each(|x| *x /= scale);
        scales.push(scale);
        for _ in 0..2 {
            for (i, other) in before.chunks_exact(len).enumerate() {
                let product = dot(other, vector);
                add(vector, -product, other);
                r[i * count + k] += product;
            }
        }
        let length = normalize(vector).map_or(0.0, |length| length.value());
        // The remainder of a dependent vector is rounding, of a zero vector NaN.
        let independent = length > 4.0 * len as f64 * f64::EPSILON;
        if !independent {
            let found = format!("{} {k}, which depends linearly on earlier ones", frame.name());
            return Err(
                leaf.refuse(&format!("made of a raw matrix with linearly independent {}s", frame.name()), found)
            );
        }
        r[k * count + k] = length;
    }
    Ok(Factors { q, r, scales })
}

fn pull_back(frame: Frame, factors: &Factors, gradient: &[f64]) -> Vec<f64> {
    let (Frame { count, len, .. }, Factors { q, r, scales }) = (frame, factors);
    let mut to = gradient.to_vec();
    for k in 0..count {
        for j in 0..=k {
            let product = -dot(&gradient[k * len..][..len], &q[j * len..][..len]);
            add(&mut to[j * len..][..len], product, &q[k * len..][..len]);
            if j < k {
                add(&mut to[k * len..][..len], product, &q[j * len..][..len]);
            }
        }
    }
    for k in (0..count).rev() {
        let (head, later) = to.split_at_mut((k + 1) * len);
        let vector = &mut head[k * len..];
        for (later, product) in later.chunks_exact(len).zip(&r[k * count + k + 1..]) {
            add(vector, -product, later);
        }
        vector.iter_mut().for_each(|x| *x /= r[k * count + k]);
    }
    // The basis does not depend on the divisors of the vectors.
    for (vector, scale) in to.chunks_exact_mut(len).zip(scales) {
        vector.iter_mut().for_each(|x| *x /= scale);
    }
    to
}

impl Constraint for Orthogonal {
    fn parts(&self, leaf: &ConstrainedLeaf<'_>) -> Result<Vec<Part>> {
        size(leaf)?;
        Ok(vec![Part::new("raw", leaf.shape())])
    }

    fn constrain(&self, leaf: &ConstrainedLeaf<'_>, raw: &[f64], to: &mut [f64]) -> Result<()> {
        let frame = Frame::of(leaf)?;
        let each = frame.rows * frame.cols;
        for (raw, to) in raw.chunks_exact(each).zip(to.chunks_exact_mut(each)) {
            frame.write(&factors(leaf, frame, raw)?.q, to);
        }
        Ok(())
    }

    fn pull_back(&self, leaf: &ConstrainedLeaf<'_>, raw: &[f64], gradient: &[f64], to: &mut [f64]) -> Result<()> {
        let frame = Frame::of(leaf)?;
        let each = frame.rows * frame.cols;
        for ((raw, g), to) in raw.chunks_exact(each).zip(gradient.chunks_exact(each)).zip(to.chunks_exact_mut(each)) {
            let factors = factors(leaf, frame, raw)?;
            frame.write(&pull_back(frame, &factors, &frame.read(g)), to);
        }
        Ok(())
    }

    fn unconstrain(&self, leaf: &ConstrainedLeaf<'_>, values: &[f64], to: &mut [f64]) -> Result<()> {
        let frame = Frame::of(leaf)?;
        for matrix in values.chunks_exact(frame.rows * frame.cols) {
            let vectors = frame.read(matrix);
            let vector = |k: usize| &vectors[k * frame.len..][..frame.len];
            for (i, j) in (0..frame.count).flat_map(|j| (0..=j).map(move |i| (i, j))) {
                let product = dot(vector(i), vector(j));
                let expected = if i == j { 1.0 } else { 0.0 };
                // NaN fails the comparison.
                let orthonormal = (product - expected).abs() <= slack(leaf.dtype(), frame.len);
                if !orthonormal {
                    let found = format!("the dot product {product} of its {}s {i} and {j}", frame.name());
                    return Err(leaf.refuse("an orthogonal matrix", found));
                }
            }
        }
        to.copy_from_slice(values);
        Ok(())
    }
}
