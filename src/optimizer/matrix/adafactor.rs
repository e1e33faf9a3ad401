use crate::part::prelude::*;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// Adafactor: steps relative to the size of the parameters, with a factored second moment.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_factored_rms(factored, decay_rate, decay_offset, min_dim_size_to_factor, eps),
///       clip_by_block_rms(clipping_threshold),
///       scale_by_learning_rate(learning_rate) without the sign,
///       scale_by_param_block_rms(),                               if multiply_by_parameter_scale
///       ema(momentum) without debias,                             if momentum is given
///       masked(add_decayed_weights(weight_decay_rate), weight_decay_mask), if a rate is given
///       scale(-1))
/// ```
///
/// Defaults: `min_dim_size_to_factor` 128, `decay_rate` 0.8, `decay_offset` 0, `multiply_by_parameter_scale` true,
/// `clipping_threshold` 1, no momentum, no weight decay, `eps` 1e-30, `factored` true.
///
/// Weight decay is not multiplied by the learning rate. The running mean of `momentum` comes after the learning rate,
/// as in Optax, so it holds scaled updates. Hence parameters keep moving for about `1 / (1 − momentum)` steps after a
/// schedule has reached 0, and a newly set rate takes as long to show.
///
/// # Cost
///
/// For a factored leaf of `n × m`, `n + m` floats of state; for others one per parameter; one more per parameter with
/// momentum. Four passes; three without clipping or without the parameters' scale, two without both.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that the parts give.
///
/// # Example
///
/// The first update of a leaf has the root mean square `learning_rate` times that of its parameters:
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = adafactor(0.1);
/// let mut params = vec![3.0_f64, -3.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![100.0_f64, 100.0], &mut state)?;
/// approx::assert_relative_eq!(&params[..], &[2.7, -3.3][..], max_relative = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Shazeer and Stern, [Adafactor: adaptive learning rates with sublinear memory
/// cost](https://arxiv.org/abs/1804.04235), 2018. Optax,
/// [`adafactor`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: the learning rate is mandatory
/// (1 there by default); until step `decay_offset` is past the decay of the second moment is 0, where Optax gives NaN;
/// the momentum of `f64` leaves is `f64` unless `dtype_momentum` is set. PyTorch's `Adafactor` takes no rate above
/// `1 / √t`, factors every matrix, and multiplies its decay by the rate.
pub fn adafactor(learning_rate: impl IntoHyperparam) -> Adafactor {
    Adafactor {
        weight_decay_mask: Mask::all(),
        dtype_momentum: None,
        chain: (
            scale_by_factored_rms(),
            Some(clip_by_block_rms(1.0)),
            scale_by_learning_rate(learning_rate).flip_sign(false),
            Some(scale_by_param_block_rms()),
            None,
            None,
            scale(-1.0),
        ),
    }
}

optimizer! {
    /// See [`adafactor`](adafactor()).
    Adafactor as "adafactor" = (
        ScaleByFactoredRms,
        Option<ClipByBlockRms>,
        ScaleByLearningRate,
        Option<ScaleByParamBlockRms>,
        Option<Ema>,
        Option<Masked<AddDecayedWeights>>,
        Scale,
    ), beside {
        weight_decay_mask: Mask,
        dtype_momentum: Option<DType>
    } {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate.",
            decay_rate [0.decay_rate] "Sets the exponent of the decay schedule of the mean of squares.",
            eps [0.epsilon] "Sets the epsilon added to squares.";
        options:
            dtype_momentum: Option<DType> [.dtype_momentum]
                "Sets the dtype of the running mean; by default the compute type.",
            weight_decay_mask: Mask [.weight_decay_mask] "Sets which leaves decay.";
        integers:
            min_dim_size_to_factor: usize [0.min_dim_size_to_factor]
                "Sets the minimum length of the second longest axis of a factored leaf.",
            decay_offset: i64 [0.step_offset] "Sets the step at which fine-tuning begins.",
            factored: bool [0.factored] "Sets whether any leaf is factored.";
        optional:
            clipping_threshold |it| it.chain.1.as_mut().map(|clip| &mut clip.threshold),
            momentum |it| it.chain.4.as_mut().map(|ema| &mut ema.decay),
            weight_decay_rate |it| it.chain.5.as_mut().map(|decay| &mut decay.inner.weight_decay);
        shown: multiply_by_parameter_scale |it| it.chain.3.is_some();
        then share;
    }
}

impl Adafactor {
    /// Sets whether steps are relative to the size of the parameters.
    pub fn multiply_by_parameter_scale(mut self, multiply_by_parameter_scale: bool) -> Self {
        self.chain.3 = multiply_by_parameter_scale.then(scale_by_param_block_rms);
        self
    }

    /// Sets the largest root mean square of a leaf's updates before the learning rate; `None` for no limit.
    pub fn clipping_threshold(mut self, clipping_threshold: impl Into<Option<f64>>) -> Self {
        self.chain.1 = clipping_threshold.into().map(clip_by_block_rms);
        self
    }

    /// Sets the decay of a running mean of the updates, in `[0, 1)`; `None` for no momentum.
    pub fn momentum(mut self, momentum: impl Into<Option<f64>>) -> Self {
        self.chain.4 = momentum.into().map(|decay| ema(decay).debias(false));
        self.settled()
    }

    /// Sets the fraction of the weights that each step subtracts; `None` for no decay.
    pub fn weight_decay_rate(mut self, weight_decay_rate: impl Into<Option<f64>>) -> Self {
        self.chain.5 = weight_decay_rate.into().map(|rate| masked(add_decayed_weights(rate), Mask::all()));
        self.settled()
    }

    /// Passes dtype and mask to momentum and decay, if present.
    fn share(&mut self) {
        if let Some(ema) = &mut self.chain.4 {
            ema.accumulator_dtype = self.dtype_momentum;
        }
        if let Some(decay) = &mut self.chain.5 {
            decay.mask.clone_from(&self.weight_decay_mask);
        }
    }
}
