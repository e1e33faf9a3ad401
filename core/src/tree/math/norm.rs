use super::row_major::{leaves, read};
use crate::numeric::sums::sum_tile;
use crate::tree::Tree;

/// A norm of a tree, all leaves together as one vector.
///
/// # Arithmetic
///
/// ```text
/// L1 = Σ |x|      L2 = √(Σ x²)      Linf = max |x|
/// ```
///
/// Sums are in `f64`. If squares overflow or vanish in `f64`, they are computed of `x / max |x|`. A NaN anywhere gives
/// NaN; the norm of a tree without elements is 0.
///
/// # Example
///
/// ```
/// use gradchain::tree::Norm;
///
/// let tree = (3.0_f32, vec![-4.0_f64]);
/// assert_eq!([Norm::L1, Norm::L2, Norm::Linf].map(|norm| norm.of(&tree)), [7.0, 5.0, 4.0]);
/// assert_eq!(Norm::L2.squared(&tree), 25.0);
/// ```
///
/// # References
///
/// Optax, [`optax.tree.norm`](https://optax.readthedocs.io/en/latest/api/utilities.html) with `ord` 1, 2 and `inf`, and
/// `squared`. Differs: `f64`, whatever the type of the leaves, and no overflow of squares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Norm {
    /// The sum of the absolute values.
    L1,
    /// The Euclidean length.
    L2,
    /// The largest absolute value.
    Linf,
}

impl Norm {
    /// Returns the norm of a tree.
    pub fn of<T: Tree + ?Sized>(self, tree: &T) -> f64 {
        match self {
            Norm::L1 => sum_of(tree, f64::abs),
            Norm::L2 => {
                let squares = sum_of(tree, |x| x * x);
                if is_safe(squares) { squares.sqrt() } else { scaled(tree) }
            }
            Norm::Linf => largest(tree),
        }
    }

    /// Returns the square of the norm.
    pub fn squared<T: Tree + ?Sized>(self, tree: &T) -> f64 {
        match self {
            Norm::L2 => sum_of(tree, |x| x * x),
            Norm::L1 | Norm::Linf => self.of(tree).powi(2),
        }
    }
}

/// Returns the Euclidean norm of all leaves together, summed in `f64`: [`Norm::L2`], Optax's `global_norm`.
///
/// # Example
///
/// ```
/// use gradchain::tree::tree_norm;
/// assert_eq!(tree_norm(&(3.0_f32, vec![4.0_f64])), 5.0);
/// ```
pub fn tree_norm<T: Tree + ?Sized>(tree: &T) -> f64 {
    Norm::L2.of(tree)
}

/// Returns the sum of all elements, in `f64`.
///
/// ```
/// use gradchain::tree::tree_sum;
/// assert_eq!(tree_sum(&(1.0_f32, vec![2.0_f64, -4.0])), -1.0);
/// ```
pub fn tree_sum<T: Tree + ?Sized>(tree: &T) -> f64 {
    sum_of(tree, |x| x)
}

/// Returns the Euclidean length of non-negative numbers, read twice.
pub fn length<I: Iterator<Item = f64>>(numbers: &mut dyn FnMut() -> I) -> f64 {
    let most = numbers().fold(0.0, |most: f64, x| if x.is_nan() || x > most { x } else { most });
    match most {
        _ if most == 0.0 || !most.is_finite() => most,
        _ => most * numbers().map(|x| (x / most) * (x / most)).sum::<f64>().sqrt(),
    }
}

/// Factor of numbers whose squares overflow; divisor of those whose squares vanish.
pub const SMALL: f64 = f64::from_bits((1023 - 600) << 52);

/// Returns whether a sum of squares has neither overflowed nor vanished; zero may be exact or a complete loss.
pub fn is_safe(squares: f64) -> bool {
    (1e-280..1e300).contains(&squares) || squares.is_nan()
}

fn sum_of<T: Tree + ?Sized>(tree: &T, f: impl Fn(f64) -> f64) -> f64 {
    let mut sum = 0.0;
    leaves(tree).iter().for_each(|leaf| read(leaf, |_, x| sum += sum_tile(x, &f)));
    sum
}

fn largest<T: Tree + ?Sized>(tree: &T) -> f64 {
    let mut most = 0.0_f64;
    // Unlike `max`, keeps NaN.
    let mut show = |x: f64| most = if x.is_nan() || x.abs() > most { x.abs() } else { most };
    leaves(tree).iter().for_each(|leaf| read(leaf, |_, x| x.iter().for_each(|x| show(*x))));
    most
}

fn scaled<T: Tree + ?Sized>(tree: &T) -> f64 {
    let most = largest(tree);
    match most {
        _ if most == 0.0 || !most.is_finite() => most,
        _ => most * sum_of(tree, |x| (x / most) * (x / most)).sqrt(),
    }
}
