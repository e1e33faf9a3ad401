use crate::engine::{Stage, delegate_stage};
use crate::needs::Nothing;
use crate::recipe::{Recipe, ToRecipe};
use crate::schedule::Hyperparam;
use crate::select::Mask;
use crate::transform::{
    AddDecayedWeights, ScaleByAdam, ScaleByGalore, ScaleByLearningRate, WeightDimensionNumbers, add_decayed_weights,
    scale_by_galore, scale_by_learning_rate,
};
use crate::wrapper::{Argument, Arguments, Masked, masked};

/// GaLore: Adam, or another optimizer, on gradients that are projected to a space of low rank.
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
/// [`contrib.galore`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: as [`scale_by_galore`]; a mask is a
/// [`Mask`].
pub fn galore(learning_rate: impl Into<Hyperparam>) -> Galore {
    let decay = masked(add_decayed_weights(0.0), Mask::all());
    Galore { chain: (scale_by_galore(), decay, scale_by_learning_rate(learning_rate)) }
}

type Chain<T> = (ScaleByGalore<T>, Masked<AddDecayedWeights>, ScaleByLearningRate);

/// See [`galore`](galore()).
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Galore<T = ScaleByAdam> {
    chain: Chain<T>,
}

impl<T> Galore<T> {
    /// Sets the learning rate.
    pub fn learning_rate(mut self, learning_rate: impl Into<Hyperparam>) -> Self {
        self.chain.2.learning_rate = learning_rate.into();
        self
    }

    /// Sets the most dimensions of the space that a matrix is projected to.
    pub fn rank(mut self, rank: usize) -> Self {
        self.chain.0.rank = rank;
        self
    }

    /// Sets how many steps a projection is kept.
    pub fn update_proj_gap(mut self, update_proj_gap: u64) -> Self {
        self.chain.0.update_proj_gap = update_proj_gap;
        self
    }

    /// Sets what the updates of matrices are multiplied by.
    pub fn scale(mut self, scale: impl Into<Hyperparam>) -> Self {
        self.chain.0.scale = scale.into();
        self
    }

    /// Sets which axes of a leaf are the rows and columns of a matrix.
    pub fn weight_dimension_numbers(mut self, weight_dimension_numbers: impl Into<WeightDimensionNumbers>) -> Self {
        self.chain.0.weight_dimension_numbers = weight_dimension_numbers.into();
        self
    }

    /// Sets the decay of the weights for each unit of learning rate.
    pub fn weight_decay(mut self, weight_decay: impl Into<Hyperparam>) -> Self {
        self.chain.1.inner.weight_decay = weight_decay.into();
        self
    }

    /// Sets which leaves decay.
    pub fn mask(mut self, mask: impl Into<Mask>) -> Self {
        self.chain.1.mask = mask.into();
        self
    }

    /// Sets what is run in the space of low rank.
    pub fn base_optimizer<B: Stage<Needs = Nothing>>(self, base_optimizer: B) -> Galore<B> {
        let (galore, decay, rate) = self.chain;
        Galore { chain: (galore.base_optimizer(base_optimizer), decay, rate) }
    }
}

impl<T: Stage<Needs = Nothing>> Arguments for Galore<T> {
    const NAME: &'static str = "galore";

    fn arguments(&mut self, visit: &mut dyn FnMut(&'static str, Argument<'_>)) {
        let (galore, decay, rate) = &mut self.chain;
        visit("learning_rate", Argument::Hyperparam(&mut rate.learning_rate));
        galore.arguments(visit);
        visit("weight_decay", Argument::Hyperparam(&mut decay.inner.weight_decay));
        visit("mask", Argument::Static(&decay.mask));
    }
}

delegate_stage! {
    Galore<T> where T: Stage<Needs = Nothing> => chain: Chain<T>;
    needs Nothing;
    recipe |this: &Galore<T>| {
        let (galore, decay, rate) = &this.chain;
        let own = [
            ("learning_rate", rate.learning_rate.to_recipe()),
            ("weight_decay", decay.inner.weight_decay.to_recipe()),
            ("mask", decay.mask.to_recipe()),
        ];
        Recipe::call("galore", own.into_iter().chain(galore.entries()))
    };
    describe |this: &Galore<T>| format!("galore[{}]", this.chain.describe())
}
