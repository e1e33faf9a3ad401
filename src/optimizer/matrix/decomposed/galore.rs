use crate::GradientTransformation;
use crate::part::prelude::*;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// GaLore: Adam, or another optimizer, on gradients projected to a low-rank subspace.
///
/// Needs the feature `faer`.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_galore(rank, update_proj_gap, scale, base_optimizer, weight_dimension_numbers),
///       masked(add_decayed_weights(weight_decay), mask),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `rank` 128, `update_proj_gap` 200, `scale` 1, `base_optimizer` [`scale_by_adam`](crate::scale_by_adam()),
/// `weight_decay` 0 on all leaves. The authors train with a `scale` of 0.25.
///
/// # Cost
///
/// As [`scale_by_galore`]; two passes.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that the parts give, or a pattern of the mask matches no leaf.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::galore;
/// use ndarray::Array2;
///
/// let optimizer = galore(0.5).rank(1);
/// let params = Array2::<f32>::zeros((6, 4));
/// let state = optimizer.init(&params)?;
/// // Adam's two moments for one row instead of six.
/// assert_eq!(state.0.base_optimizer_state.moment("mu").unwrap().shape(0), Some(&[1, 4][..]));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Zhao, Zhang, Chen, Wang, Anandkumar and Tian, [GaLore: memory-efficient LLM training by gradient low-rank
/// projection](https://arxiv.org/abs/2403.03507), 2024, algorithm 2. Optax,
/// [`contrib.galore`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: as [`scale_by_galore`]; a mask
/// is a [`Mask`].
pub fn galore(learning_rate: impl IntoHyperparam) -> Galore {
    let decay = masked(add_decayed_weights(0.0), Mask::all());
    Galore { chain: (scale_by_galore(), decay, scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`galore`](galore()).
    Galore<T: GradientTransformation<Needs = Nothing> = ScaleByAdam> as "galore"
        = (ScaleByGalore<T>, Masked<AddDecayedWeights>, ScaleByLearningRate)
    {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate.",
            scale [0.scale] "Sets the factor of the updates of matrices.",
            weight_decay [1.inner.weight_decay] "Sets the decoupled weight decay, multiplied by the learning rate.";
        options:
            weight_dimension_numbers: WeightDimensionNumbers [0.weight_dimension_numbers]
                "Sets which axes of a leaf are the rows and columns of a matrix.",
            mask: Mask [1.mask] "Sets which leaves decay.";
        integers:
            rank: usize [0.rank] "Sets the maximum rank of a projected matrix.",
            update_proj_gap: u64 [0.update_proj_gap] "Sets the number of steps from one projection to the next.";
        shown: base_optimizer |it| it.chain.0.base_optimizer.recipe();
    }
}

impl<T: GradientTransformation<Needs = Nothing>> Galore<T> {
    /// Sets the transformation run in the low-rank subspace.
    pub fn base_optimizer<B: GradientTransformation<Needs = Nothing>>(self, base_optimizer: B) -> Galore<B> {
        let (galore, decay, rate) = self.chain;
        Galore { chain: (galore.base_optimizer(base_optimizer), decay, rate) }
    }
}
