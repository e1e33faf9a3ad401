//! Complex numbers are no leaves.

use gradchain::Tree;
use gradchain::tree::DynTree;
use ndarray::{Array1, Array2};
use num_complex::{Complex32, Complex64};

#[derive(Tree)]
struct Model {
    spectrum: Array1<Complex32>,
    phases: Vec<Complex64>,
    offset: Complex64,
}

fn main() {
    let mut tree = DynTree::new();
    tree.insert("spectrum", Array2::<Complex64>::default((2, 2)));
}
