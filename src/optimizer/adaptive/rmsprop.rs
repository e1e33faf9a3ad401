use crate::schedule::IntoHyperparam;
use crate::transform::*;

/// RMSProp: the gradient divided by its running root mean square, with or without momentum.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_rms(decay, eps, initial_scale, eps_in_sqrt, bias_correction),     scale_by_stddev(..) if centered
///       scale_by_learning_rate(learning_rate),
///       trace(momentum, nesterov))                                                 () without momentum
/// ```
///
/// Defaults: `decay` 0.9, `eps` 1e-8 under the root, `initial_scale` 0, no bias correction, not centered, no momentum.
///
/// # Cost
///
/// One float of state per parameter, one more if [centered](Rmsprop::centered), one more with
/// [momentum](Rmsprop::momentum). One pass.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_rms`] or [`trace`](crate::transform::trace()) gives.
///
/// # Example
///
/// A first gradient `g` is divided by `√(0.25·g²)`, whatever its size:
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = rmsprop(0.1).decay(0.75).momentum(0.9);
/// let mut params = vec![1.0_f64, 1.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![10.0_f64, -10.0], &mut state)?;
/// approx::assert_relative_eq!(&params[..], &[0.8, 1.2][..], max_relative = 1e-9);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Tieleman and Hinton, [Lecture 6.5 of Neural networks for machine
/// learning](https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf), 2012; centered: Graves,
/// [Generating sequences with recurrent neural networks](https://arxiv.org/abs/1308.0850), 2013. Optax,
/// [`rmsprop`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: centering and momentum are part of
/// the type; only a type with momentum has `nesterov`. PyTorch's `RMSprop` has `eps` outside the root, a decay
/// (`alpha`) of 0.99, and the learning rate after the momentum, which differs if the rate changes.
pub fn rmsprop(learning_rate: impl IntoHyperparam) -> Rmsprop {
    Rmsprop { chain: (scale_by_rms(), scale_by_learning_rate(learning_rate), ()) }
}

/// See [`rmsprop`]. `S` scales: [`ScaleByRms`], or [`ScaleByStddev`] if centered. `M` is the momentum: `()`, or
/// [`Trace`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Rmsprop<S = ScaleByRms, M = ()> {
    pub(crate) chain: (S, ScaleByLearningRate, M),
}

impl<M> Rmsprop<ScaleByRms, M> {
    /// Divides by the running standard deviation instead of the root of the mean of squares.
    pub fn centered(self) -> Rmsprop<ScaleByStddev, M> {
        let (ScaleByRms { decay, eps, initial_scale, eps_in_sqrt, bias_correction }, rate, momentum) = self.chain;
        Rmsprop { chain: (ScaleByStddev { decay, eps, initial_scale, eps_in_sqrt, bias_correction }, rate, momentum) }
    }
}

impl<S> Rmsprop<S, ()> {
    /// Adds momentum: a decaying sum of the scaled gradients, of which each step keeps the fraction `momentum`.
    pub fn momentum(self, momentum: impl IntoHyperparam) -> Rmsprop<S, Trace> {
        Rmsprop { chain: (self.chain.0, self.chain.1, trace(momentum)) }
    }
}

type Plain = Rmsprop<ScaleByRms, ()>;
type Centered = Rmsprop<ScaleByStddev, ()>;
type WithMomentum = Rmsprop<ScaleByRms, Trace>;
type HeavyCentered = Rmsprop<ScaleByStddev, Trace>;

/// Implements the optimizer for each of the four types.
macro_rules! variants {
    ($($T:ident = ($Scale:ty, $Momentum:ty) {$($hyperparams:tt)*} {$($options:tt)*} $centered:literal)*) => {$(
        optimizer! {
            for $T as "rmsprop" = ($Scale, ScaleByLearningRate, $Momentum) {
                hyperparams:
                    learning_rate [1.learning_rate] "Sets the learning rate.",
                    decay [0.decay] "Sets the decay of the mean of squares, in `[0, 1)`.",
                    eps [0.eps] "Sets the epsilon added under the root or to it.",
                    initial_scale [0.initial_scale] "Sets the initial mean of squares."
                    $($hyperparams)*;
                options:
                    eps_in_sqrt: bool [0.eps_in_sqrt] "Sets whether `eps` is under the root.",
                    bias_correction: bool [0.bias_correction] "Sets whether the mean is bias-corrected."
                    $($options)*;
                shown: centered |_| $centered;
            }
        }
    )*};
}
variants! {
    Plain = (ScaleByRms, ()) {} {} false
    Centered = (ScaleByStddev, ()) {} {} true
    WithMomentum = (ScaleByRms, Trace)
        {, momentum [2.decay] "Sets the decay of the sum."}
        {, nesterov: bool [2.nesterov] "Sets whether the sum is Nesterov momentum."}
        false
    HeavyCentered = (ScaleByStddev, Trace)
        {, momentum [2.decay] "Sets the decay of the sum."}
        {, nesterov: bool [2.nesterov] "Sets whether the sum is Nesterov momentum."}
        true
}
