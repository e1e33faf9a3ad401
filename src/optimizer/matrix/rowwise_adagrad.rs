use crate::schedule::IntoHyperparam;
use crate::transform::{ScaleByLearningRate, ScaleByRowwiseRss, scale_by_learning_rate, scale_by_rowwise_rss};

/// Row-wise Adagrad: Adagrad with one accumulator per row, for embeddings.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_rowwise_rss(initial_accumulator_value, eps), scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `initial_accumulator_value` 0, `eps` 1e-8.
///
/// # Cost
///
/// One float of state per row; two passes. [Row-sparse gradients](crate::tree::SparseRows) touch only their rows.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_rowwise_rss`] gives.
///
/// # Example
///
/// The mean square of the row is 25, so that its gradients are divided by 5:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::rowwise_adagrad;
/// use gradchain::tree::SparseRows;
/// use ndarray::array;
///
/// let optimizer = rowwise_adagrad(1.0).eps(0.0);
/// let mut embedding = array![[1.0_f64, 1.0], [1.0, 1.0], [1.0, 1.0]];
/// let mut state = optimizer.init(&embedding)?;
/// let gradient = SparseRows::new([1], array![[5.0, -5.0]]);
/// optimizer.step(&mut embedding, &gradient, &mut state)?;
/// assert_eq!(embedding, array![[1.0, 1.0], [0.0, 2.0], [1.0, 1.0]]);
/// assert_eq!(state.0.sum_of_squares.get::<f64>(0), Some(&[0.0, 25.0, 0.0][..]));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Those of [`scale_by_rowwise_rss`]. Optax has none. Differs: FBGEMM's weight decay is
/// [`add_decayed_weights`](crate::add_decayed_weights()) in front; DLRM's `lr_decay` is a schedule.
pub fn rowwise_adagrad(learning_rate: impl IntoHyperparam) -> RowwiseAdagrad {
    RowwiseAdagrad { chain: (scale_by_rowwise_rss(), scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`rowwise_adagrad`](rowwise_adagrad()).
    #[derive(PartialEq)]
    RowwiseAdagrad as "rowwise_adagrad" = (ScaleByRowwiseRss, ScaleByLearningRate) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.",
            initial_accumulator_value [0.initial_accumulator_value] "Sets the initial sums of squares.",
            eps [0.eps] "Sets the epsilon added to the root.";
    }
}
