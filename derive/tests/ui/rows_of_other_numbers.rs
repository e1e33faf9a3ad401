use gradchain::Tree;
use gradchain::tree::SparseRows;
use ndarray::Array2;

fn is_tree<T: Tree>() {}

fn main() {
    is_tree::<SparseRows<Array2<f32>, Vec<usize>>>();
    is_tree::<SparseRows<Array2<f32>, Vec<u32>>>();
}
