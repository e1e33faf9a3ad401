use crate::optimizer::adaptive::{Adamw, adamw};
use crate::part::prelude::*;
use crate::select::{Labels, Mask};
use crate::transform::*;
use crate::tree::LeafSpec;
use crate::wrapper::{Masked, Partition, masked, partition};

/// Muon: orthogonalized momentum for matrices, [`adamw`](crate::adamw) for all other leaves.
///
/// # Arithmetic
///
/// ```text
/// partition(muon: chain(scale_by_muon(ns_coeffs, ns_steps, beta, eps, nesterov, adaptive, preconditioning),
///                       scale_by_shape(layout, consistent_rms),
///                       masked(add_decayed_weights(weight_decay), weight_decay_mask),
///                       scale_by_learning_rate(learning_rate)),
///           adam: adamw(adam_learning_rate, adam_b1, adam_b2, eps, adam_eps_root, adam_weight_decay, nesterov))
/// ```
///
/// Muon takes the leaves with two axes, unless [`muon_weight_dimension_numbers`](Muon::muon_weight_dimension_numbers)
/// says otherwise. Embeddings and output layers are matrices too, but usually do better with Adam: give them `None`.
/// [`plan`](crate::GradientTransformation::plan) names the leaves that are left to Adam: those with more axes, and
/// those that do not fit an entry.
///
/// **The storage order of weights determines the size of updates**: those of a matrix with more outputs than inputs are
/// `√(fan_out / fan_in)` times as large. PyTorch and candle store `[out, in]`: set that by [`layout`](Muon::layout),
/// unless the parameters carry it, as candle's variables do. By default weights are `[in, out]`, as in Flax and burn.
///
/// Defaults: `ns_coeffs` Jordan's, `ns_steps` 5, `beta` 0.95, `eps` 1e-8, `weight_decay` 0 on all matrices, nesterov,
/// not adaptive, Frobenius preconditioning; `adam_learning_rate` the same as `learning_rate`, `adam_b1` 0.9, `adam_b2`
/// 0.999, `adam_eps_root` 0, `adam_weight_decay` 0.
///
/// # Cost
///
/// One float of state for each element of a matrix, two for each other parameter; two passes, and between them the
/// products of [`scale_by_muon`](crate::transform::scale_by_muon).
///
/// # Errors
///
/// `init` fails if an argument is out of the range that the parts give, or a path names no leaf.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::tree::DynTree;
/// use ndarray::{array, Array1, Array2};
///
/// let mut params = DynTree::new();
/// params.insert("weight", Array2::<f64>::zeros((2, 2)));
/// params.insert("bias", Array1::<f64>::zeros(2));
/// let mut grads = DynTree::new();
/// grads.insert("weight", array![[2.0, 0.0], [0.0, -2.0]]);
/// grads.insert("bias", array![5.0, -5.0]);
///
/// let optimizer = muon(0.5).ns_coeffs([1.875, -1.25, 0.375]).ns_steps(20).nesterov(false).adam_learning_rate(0.1);
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &grads, &mut state)?;
/// // The orthogonal matrix nearest to the gradient, and the signs of the gradient.
/// let weight = params.get::<f64>("weight").unwrap();
/// approx::assert_abs_diff_eq!(weight[[0, 0]], -0.5, epsilon = 1e-6);
/// approx::assert_abs_diff_eq!(weight[[1, 1]], 0.5, epsilon = 1e-6);
/// approx::assert_abs_diff_eq!(params.get::<f64>("bias").unwrap()[0], -0.1, epsilon = 1e-6);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Jordan et al., [Muon: an optimizer for hidden layers in neural
/// networks](https://kellerjordan.github.io/posts/muon/), 2024. Optax,
/// [`contrib.muon`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: dimension numbers are optional
/// for each leaf, see [`WeightDimensionNumbers`]. PyTorch, `optim.Muon`, with [`Layout::OutIn`]: it takes matrices
/// only, multiplies in `bf16`, has `weight_decay` 0.1 by default, and has no bias correction, so that with nesterov the
/// first steps weigh the newest gradient differently. Its `adjust_lr_fn="match_rms_adamw"` is `consistent_rms(0.2)`.
/// Jordan's code scales a kernel by its height and width instead.
pub fn muon(learning_rate: impl IntoHyperparam) -> Muon {
    let learning_rate = learning_rate.into();
    let decay = masked(add_decayed_weights(0.0), Mask::all());
    let matrices = (scale_by_muon(), scale_by_shape(), decay, scale_by_learning_rate(learning_rate.clone()));
    let others = adamw(learning_rate).weight_decay(0.0).nesterov(true);
    let chain = build_partition((matrices, others), WeightDimensionNumbers::default());
    Muon { chain, adam_learning_rate: None }
}

type Matrices = (ScaleByMuon, ScaleByShape, Masked<AddDecayedWeights>, ScaleByLearningRate);

fn build_partition(
    (matrices, others): (Matrices, Adamw),
    numbers: WeightDimensionNumbers,
) -> Partition<(Matrices, Adamw)> {
    let left_out = numbers.clone();
    let labels = Labels::by(move |leaf| if takes(&numbers, leaf) { "muon" } else { "adam" });
    let labels = labels.noting(
        "adam updates leaves that may be matrices, since they have more than two axes or do not fit their entry: name \
         the axes of rows and columns by `muon_weight_dimension_numbers`, or set `None`",
        move |leaf| left_out.leaves_out(leaf),
    );
    partition((("muon", matrices), ("adam", others)), labels)
}

fn takes(numbers: &WeightDimensionNumbers, leaf: &LeafSpec) -> bool {
    numbers.of(leaf, leaf.layout()).is_some()
}

optimizer! {
    /// See [`muon`](muon()).
    Muon as "muon" = Partition<(Matrices, Adamw)>, beside {
        /// The learning rate of the other leaves; by default that of the matrices.
        adam_learning_rate: Option<Hyperparam>
    } {
        hyperparams:
            learning_rate [members_mut().0.3.learning_rate]
                "Sets the learning rate, also of the other leaves unless they have their own.",
            beta [members_mut().0.0.beta] "Sets the decay of the matrices' running mean, in `[0, 1)`.",
            eps [members_mut().0.0.eps] "Sets the epsilon added to norms, and to the root in adam.",
            weight_decay [members_mut().0.2.inner.weight_decay]
                "Sets the decoupled weight decay of the matrices, multiplied by the learning rate.",
            adam_b1 [members_mut().1.chain.0.b1] "Sets the decay of adam's first moment, in `[0, 1)`.",
            adam_b2 [members_mut().1.chain.0.b2] "Sets the decay of adam's second moment, in `[0, 1)`.",
            adam_eps_root [members_mut().1.chain.0.eps_root] "Sets the epsilon that adam adds under the root.",
            adam_weight_decay [members_mut().1.chain.1.inner.weight_decay]
                "Sets the decoupled weight decay of the other leaves, multiplied by the learning rate.";
        options:
            ns_coeffs: NsCoeffs [members_mut().0.0.ns_coeffs]
                "Sets the coefficients of the Newton-Schulz iteration: three numbers, or a row of three for each step.",
            weight_decay_mask: Mask [members_mut().0.2.mask] "Sets which matrices decay.",
            mu_dtype: Option<DType> [members_mut().0.0.mu_dtype] "Sets the dtype of the running means.",
            nesterov: bool [members_mut().0.0.nesterov] "Sets whether running means are Nesterov momentum.",
            adaptive: bool [members_mut().0.0.adaptive]
                "Sets whether the update of a matrix is multiplied by the dual norm of its mean.",
            preconditioning: Preconditioning [members_mut().0.0.preconditioning]
                "Sets the normalization that bounds singular values by 1.",
            layout: Option<Layout> [members_mut().0.1.layout]
                "Sets the layout of weights; by default that of the parameters.",
            consistent_rms: Option<f64> [members_mut().0.1.consistent_rms]
                "Sets the root mean square of a matrix's updates for a learning rate of 1, whatever its shape. 0.2 is about \
                 that of adam.";
        integers:
            ns_steps: usize [members_mut().0.0.ns_steps]
                "Sets the number of steps of the Newton-Schulz iteration, at most 1000.";
        optional: adam_learning_rate |it| it.adam_learning_rate.as_mut();
        shown: muon_weight_dimension_numbers |it| it.chain.members_mut().0.0.weight_dimension_numbers.clone();
        then share;
    }
}

impl Muon {
    /// Sets the learning rate of the other leaves.
    pub fn adam_learning_rate(mut self, adam_learning_rate: impl IntoHyperparam) -> Self {
        self.adam_learning_rate = Some(adam_learning_rate.into());
        self.settled()
    }

    /// Sets the leaves for muon, and their axes of rows and columns.
    pub fn muon_weight_dimension_numbers(mut self, numbers: WeightDimensionNumbers) -> Self {
        let mut members = self.chain.members_mut().clone();
        members.0.0.weight_dimension_numbers = numbers.clone();
        members.0.1.weight_dimension_numbers = numbers.clone();
        self.chain = build_partition(members, numbers);
        self
    }

    /// Passes the options of the matrices that the other leaves share.
    fn share(&mut self) {
        let ((muon, .., rate), adamw) = self.chain.members_mut();
        let (adam, _, adam_rate) = &mut adamw.chain;
        adam_rate.learning_rate.clone_from(self.adam_learning_rate.as_ref().unwrap_or(&rate.learning_rate));
        adam.eps.clone_from(&muon.eps);
        adam.mu_dtype = muon.mu_dtype;
        adam.nesterov = muon.nesterov;
    }
}
