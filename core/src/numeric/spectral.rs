//! The largest eigenvalue of a symmetric matrix.

/// Returns the largest eigenvalue of a positive semidefinite matrix of `n` rows; overwrites it.
///
/// Householder reflections to tridiagonal form, then bisection by Sturm counts: Golub and Van Loan, Matrix
/// computations, sections 8.3.1 and 8.4.1.
pub fn spectral_norm(a: &mut [f64], n: usize, work: &mut Vec<f64>) -> f64 {
    work.clear();
    work.resize(4 * n, 0.0);
    let (diagonal, rest) = work.split_at_mut(n);
    let (beside, rest) = rest.split_at_mut(n);
    let (v, w) = rest.split_at_mut(n);
    for k in 0..n {
        diagonal[k] = a[k * n + k];
        if k + 1 < n {
            beside[k] = reflect(a, n, k, v, w);
        }
    }
    bisect(diagonal, &beside[..n.saturating_sub(1)])
}

/// Zeroes row and column `k` beyond the off-diagonal element; returns that.
fn reflect(a: &mut [f64], n: usize, k: usize, v: &mut [f64], w: &mut [f64]) -> f64 {
    let first = k + 1;
    let (v, w) = (&mut v[first..n], &mut w[first..n]);
    v.copy_from_slice(&a[k * n + first..(k + 1) * n]);
    let norm = v.iter().map(|x| x * x).sum::<f64>().sqrt();
    if norm == 0.0 {
        return 0.0;
    }
    // Its sign opposes that of the first element, to avoid cancellation.
    let target = if v[0] > 0.0 { -norm } else { norm };
    v[0] -= target;
    let beta = 2.0 / v.iter().map(|x| x * x).sum::<f64>();
    for (i, w) in w.iter_mut().enumerate() {
        let row = &a[(first + i) * n + first..(first + i + 1) * n];
        *w = beta * row.iter().zip(&*v).map(|(a, v)| a * v).sum::<f64>();
    }
    let half = 0.5 * beta * w.iter().zip(&*v).map(|(w, v)| w * v).sum::<f64>();
    w.iter_mut().zip(&*v).for_each(|(w, v)| *w -= half * v);
    for i in 0..v.len() {
        let row = &mut a[(first + i) * n + first..(first + i + 1) * n];
        for (j, a) in row.iter_mut().enumerate() {
            *a -= v[i] * w[j] + w[i] * v[j];
        }
    }
    target
}

fn bisect(diagonal: &[f64], beside: &[f64]) -> f64 {
    let around = |i: usize| {
        let before = if i > 0 { beside[i - 1].abs() } else { 0.0 };
        before + beside.get(i).map_or(0.0, |b| b.abs())
    };
    // Gershgorin's bound.
    let mut high = diagonal.iter().enumerate().map(|(i, d)| d + around(i)).fold(0.0, f64::max);
    let mut low = diagonal.iter().copied().fold(0.0, f64::max);
    loop {
        let middle = 0.5 * (low + high);
        // The bounds are adjacent.
        if middle <= low || middle >= high {
            return high;
        }
        if all_below(diagonal, beside, middle) { high = middle } else { low = middle }
    }
}

/// Returns whether all eigenvalues are below `x`: all pivots of the matrix minus `x` are negative.
fn all_below(diagonal: &[f64], beside: &[f64], x: f64) -> bool {
    let mut pivot = 1.0;
    diagonal.iter().enumerate().all(|(i, d)| {
        let above = if i > 0 { beside[i - 1] * beside[i - 1] / pivot } else { 0.0 };
        pivot = d - x - above;
        pivot < 0.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_eigenvalue_of_known_matrices() {
        let check = |a: &[f64], n: usize, expected: f64| {
            let ours = spectral_norm(&mut a.to_vec(), n, &mut Vec::new());
            assert!((ours - expected).abs() <= 1e-14 * expected, "{ours} {expected}");
        };
        check(&[3.0], 1, 3.0);
        check(&[2.0, 1.0, 1.0, 2.0], 2, 3.0);
        check(&[1.0, 0.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0, 5.0], 3, 5.0);
        check(&[1.0; 49], 7, 7.0);
        // min(i, j): the inverse of a second difference, whose smallest eigenvalue is known.
        let n = 9;
        let a: Vec<f64> = (0..n * n).map(|k| (k / n).min(k % n) as f64 + 1.0).collect();
        let angle = core::f64::consts::PI / (2.0 * (2 * n + 1) as f64);
        check(&a, n, 0.25 / angle.sin().powi(2));
    }
}
