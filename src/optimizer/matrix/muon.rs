use crate::element::DType;
use crate::optimizer::{Adamw, adamw};
use crate::recipe::Recipe;
use crate::schedule::Hyperparam;
use crate::select::{Labels, Mask};
use crate::transform::{
    AddDecayedWeights, NsCoeffs, Preconditioning, ScaleByLearningRate, ScaleByMuon, ScaleByShape,
    WeightDimensionNumbers, add_decayed_weights, scale_by_learning_rate, scale_by_muon, scale_by_shape,
};
use crate::wrapper::{Argument, Arguments, Masked, Partition, masked, partition};

/// Muon: orthogonalized momentum for matrices, [`adamw`](crate::adamw) for all other leaves.
///
/// # Arithmetic
///
/// ```text
/// partition(muon: chain(scale_by_muon(ns_coeffs, ns_steps, beta, eps, nesterov, adaptive, preconditioning),
///                       scale_by_shape(consistent_rms),
///                       masked(add_decayed_weights(weight_decay), weight_decay_mask),
///                       scale_by_learning_rate(learning_rate)),
///           adam: adamw(adam_learning_rate, adam_b1, adam_b2, eps, adam_eps_root, adam_weight_decay, nesterov))
/// ```
///
/// The leaves with two axes are for muon, unless
/// [`muon_weight_dimension_numbers`](Muon::muon_weight_dimension_numbers) say it for some leaves otherwise. Embeddings and
/// output layers are matrices too, but are usually better off with adam: give them `None`.
///
/// Defaults: `ns_coeffs` Jordan's, `ns_steps` 5, `beta` 0.95, `eps` 1e-8, `weight_decay` 0 on all matrices, nesterov, not
/// adaptive, Frobenius preconditioning; `adam_learning_rate` the same as `learning_rate`, `adam_b1` 0.9, `adam_b2` 0.999,
/// `adam_eps_root` 0, `adam_weight_decay` 0.
///
/// # Cost
///
/// One float of state for each element of a matrix, two for each other parameter; two passes, and between them the products
/// of [`scale_by_muon`](crate::scale_by_muon).
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
/// Jordan et al., [Muon: an optimizer for hidden layers in neural networks](https://kellerjordan.github.io/posts/muon/),
/// 2024. Optax, [`contrib.muon`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: dimension numbers need
/// not be given for every leaf, see [`WeightDimensionNumbers`].
pub fn muon(learning_rate: impl Into<Hyperparam>) -> Muon {
    let learning_rate = learning_rate.into();
    let decay = masked(add_decayed_weights(0.0), Mask::all());
    let matrices = (scale_by_muon(), scale_by_shape(), decay, scale_by_learning_rate(learning_rate.clone()));
    let others = adamw(learning_rate).weight_decay(0.0).nesterov(true);
    let chain = parted((matrices, others), WeightDimensionNumbers::default());
    Muon { chain, adam_learning_rate_given: false }
}

type Matrices = (ScaleByMuon, ScaleByShape, Masked<AddDecayedWeights>, ScaleByLearningRate);
type Chain = Partition<(Matrices, Adamw)>;

fn parted((matrices, others): (Matrices, Adamw), numbers: WeightDimensionNumbers) -> Chain {
    let labels = Labels::by(move |leaf| if numbers.of(leaf).is_some() { "muon" } else { "adam" });
    partition((("muon", matrices), ("adam", others)), labels)
}

/// See [`muon`](muon()).
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Muon {
    chain: Chain,
    /// If not, the other leaves have the learning rate of the matrices.
    adam_learning_rate_given: bool,
}

impl Muon {
    fn matrices(&mut self) -> &mut Matrices {
        &mut self.chain.members_mut().0
    }

    fn others(&mut self) -> &mut Adamw {
        &mut self.chain.members_mut().1
    }

    /// Gives the other leaves what they have in common with the matrices.
    fn share(&mut self) {
        let given = self.adam_learning_rate_given;
        let ((muon, .., rate), adamw) = self.chain.members_mut();
        let (adam, _, adam_rate) = &mut adamw.chain;
        if !given {
            adam_rate.learning_rate.clone_from(&rate.learning_rate);
        }
        adam.eps.clone_from(&muon.eps);
        adam.mu_dtype = muon.mu_dtype;
        adam.nesterov = muon.nesterov;
    }

    /// Sets the learning rate, of the other leaves too unless they have one of their own.
    pub fn learning_rate(mut self, learning_rate: impl Into<Hyperparam>) -> Self {
        self.matrices().3.learning_rate = learning_rate.into();
        self.share();
        self
    }

    /// Sets the coefficients of the Newton-Schulz iteration: three numbers, or a row of three for each step.
    pub fn ns_coeffs(mut self, ns_coeffs: impl Into<NsCoeffs>) -> Self {
        self.matrices().0.ns_coeffs = ns_coeffs.into();
        self
    }

    /// Sets the number of steps of the Newton-Schulz iteration.
    pub fn ns_steps(mut self, ns_steps: usize) -> Self {
        self.matrices().0.ns_steps = ns_steps;
        self
    }

    /// Sets the decay of the matrices' running mean, in `[0, 1)`.
    pub fn beta(mut self, beta: impl Into<Hyperparam>) -> Self {
        self.matrices().0.beta = beta.into();
        self
    }

    /// Sets what is added to norms, and to the root in adam.
    pub fn eps(mut self, eps: impl Into<Hyperparam>) -> Self {
        self.matrices().0.eps = eps.into();
        self.share();
        self
    }

    /// Sets the decay of the matrices for each unit of learning rate.
    pub fn weight_decay(mut self, weight_decay: impl Into<Hyperparam>) -> Self {
        self.matrices().2.inner.weight_decay = weight_decay.into();
        self
    }

    /// Sets which matrices decay.
    pub fn weight_decay_mask(mut self, weight_decay_mask: impl Into<Mask>) -> Self {
        self.matrices().2.mask = weight_decay_mask.into();
        self
    }

    /// Sets the type of the running means.
    pub fn mu_dtype(mut self, mu_dtype: impl Into<Option<DType>>) -> Self {
        self.matrices().0.mu_dtype = mu_dtype.into();
        self.share();
        self
    }

    /// Sets whether running means look one step ahead.
    pub fn nesterov(mut self, nesterov: bool) -> Self {
        self.matrices().0.nesterov = nesterov;
        self.share();
        self
    }

    /// Sets whether the update of a matrix is multiplied by the dual norm of its mean.
    pub fn adaptive(mut self, adaptive: bool) -> Self {
        self.matrices().0.adaptive = adaptive;
        self
    }

    /// Sets how singular values are brought to at most 1.
    pub fn preconditioning(mut self, preconditioning: Preconditioning) -> Self {
        self.matrices().0.preconditioning = preconditioning;
        self
    }

    /// Sets the decay of adam's first moment, in `[0, 1)`.
    pub fn adam_b1(mut self, adam_b1: impl Into<Hyperparam>) -> Self {
        self.others().chain.0.b1 = adam_b1.into();
        self
    }

    /// Sets the decay of adam's second moment, in `[0, 1)`.
    pub fn adam_b2(mut self, adam_b2: impl Into<Hyperparam>) -> Self {
        self.others().chain.0.b2 = adam_b2.into();
        self
    }

    /// Sets what adam adds under the root.
    pub fn adam_eps_root(mut self, adam_eps_root: impl Into<Hyperparam>) -> Self {
        self.others().chain.0.eps_root = adam_eps_root.into();
        self
    }

    /// Sets the decay of the other leaves for each unit of learning rate.
    pub fn adam_weight_decay(mut self, adam_weight_decay: impl Into<Hyperparam>) -> Self {
        self.others().chain.1.inner.weight_decay = adam_weight_decay.into();
        self
    }

    /// Sets the learning rate of the other leaves.
    pub fn adam_learning_rate(mut self, adam_learning_rate: impl Into<Hyperparam>) -> Self {
        self.others().chain.2.learning_rate = adam_learning_rate.into();
        self.adam_learning_rate_given = true;
        self
    }

    /// Sets which leaves are for muon, and which of their axes are rows and columns.
    pub fn muon_weight_dimension_numbers(mut self, numbers: WeightDimensionNumbers) -> Self {
        let mut members = self.chain.members_mut().clone();
        members.0.0.weight_dimension_numbers = numbers.clone();
        members.0.1.weight_dimension_numbers = numbers.clone();
        self.chain = parted(members, numbers);
        self
    }

    /// Sets the root mean square of a matrix's updates for a learning rate of 1, whatever its shape. 0.2 is about that of
    /// adam.
    pub fn consistent_rms(mut self, consistent_rms: impl Into<Option<f64>>) -> Self {
        self.matrices().1.consistent_rms = consistent_rms.into();
        self
    }
}

impl Arguments for Muon {
    const NAME: &'static str = "muon";

    fn arguments(&mut self, visit: &mut dyn FnMut(&'static str, Argument<'_>)) {
        let given = self.adam_learning_rate_given;
        let ((muon, shape, decay, rate), adamw) = self.chain.members_mut();
        let (adam, adam_decay, adam_rate) = &mut adamw.chain;
        visit("learning_rate", Argument::Hyperparam(&mut rate.learning_rate));
        visit("beta", Argument::Hyperparam(&mut muon.beta));
        visit("eps", Argument::Hyperparam(&mut muon.eps));
        visit("weight_decay", Argument::Hyperparam(&mut decay.inner.weight_decay));
        visit("adam_b1", Argument::Hyperparam(&mut adam.b1));
        visit("adam_b2", Argument::Hyperparam(&mut adam.b2));
        visit("adam_eps_root", Argument::Hyperparam(&mut adam.eps_root));
        visit("adam_weight_decay", Argument::Hyperparam(&mut adam_decay.inner.weight_decay));
        match given {
            true => visit("adam_learning_rate", Argument::Hyperparam(&mut adam_rate.learning_rate)),
            false => visit("adam_learning_rate", Argument::Static(&Recipe::Null)),
        }
        visit("ns_coeffs", Argument::Static(&muon.ns_coeffs));
        visit("ns_steps", Argument::Static(&muon.ns_steps));
        visit("weight_decay_mask", Argument::Static(&decay.mask));
        visit("mu_dtype", Argument::Static(&muon.mu_dtype));
        visit("nesterov", Argument::Static(&muon.nesterov));
        visit("adaptive", Argument::Static(&muon.adaptive));
        visit("preconditioning", Argument::Static(&muon.preconditioning));
        visit("muon_weight_dimension_numbers", Argument::Static(&muon.weight_dimension_numbers));
        visit("consistent_rms", Argument::Static(&shape.consistent_rms));
        // What was visited may have been set.
        self.share();
    }
}

crate::engine::delegate_stage!(Muon => chain: Chain);
