use super::scale_by_muon::{WeightDimensionNumbers, matrix_shape};
use crate::internal::engine::{OneElementWithMemory, RuleWithMemory};
use crate::part::prelude::*;
use crate::state::{StateWalk, StateWalkMut};
use crate::tree::Layout;

/// Multiplies the updates of each leaf by a factor that depends on its shape.
///
/// After [`scale_by_muon`](crate::transform::scale_by_muon) one learning rate then suits layers of every width.
///
/// # Arithmetic
///
/// With `fan_in` inputs and `fan_out` outputs of each of the leaf's matrices:
///
/// ```text
/// u ← u·√(max(1, fan_out / fan_in))
/// u ← u·√(max(fan_in, fan_out))·consistent_rms       if consistent_rms is given
/// ```
///
/// The rows named by [`weight_dimension_numbers`](ScaleByShape::weight_dimension_numbers) are the inputs, the columns
/// the outputs. For a leaf without an entry, [`layout`](ScaleByShape::layout) gives the axes.
///
/// # Cost
///
/// No state. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if a leaf has other than two axes and no entry in `weight_dimension_numbers`, or if `consistent_rms` is
/// not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_shape;
/// use ndarray::Array2;
///
/// let optimizer = scale_by_shape();
/// let params = Array2::<f32>::ones((1, 4));
/// let updates = optimizer.update(&params, &mut optimizer.init(&params)?, &params)?;
/// assert_eq!(updates.to_vec::<f32>("").unwrap(), [2.0; 4]);
///
/// // As PyTorch stores it, the same weight has four inputs and one output.
/// let optimizer = scale_by_shape().layout(gradchain::transform::Layout::OutIn);
/// let updates = optimizer.update(&params, &mut optimizer.init(&params)?, &params)?;
/// assert_eq!(updates.to_vec::<f32>("").unwrap(), [1.0; 4]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Jordan et al., [Muon](https://kellerjordan.github.io/posts/muon/), 2024; Liu et al., [Muon is scalable for LLM
/// training](https://arxiv.org/abs/2502.16982), 2025, for `consistent_rms`: 0.2 gives updates as large as AdamW's.
/// Optax, `contrib.scale_by_shape`; PyTorch, `optim.Muon`: `adjust_lr_fn="original"` is the default here and
/// `"match_rms_adamw"` is `consistent_rms(0.2)`, with [`Layout::OutIn`]. Differs: none from Optax. For a convolution
/// kernel `[out, in, h, w]` Jordan's code takes `h / w` as `fan_out / fan_in`; PyTorch refuses kernels.
pub fn scale_by_shape() -> ScaleByShape {
    ScaleByShape::with()
}

part! {
    /// See [`scale_by_shape`].
    pub ScaleByShape as "scale_by_shape": OneElementWithMemory, SAME_DIRECTION;
    options {
        /// Axes of a leaf that form the rows and columns of its matrices; by default, a leaf with two axes is one.
        weight_dimension_numbers: WeightDimensionNumbers = WeightDimensionNumbers::default();
        /// The layout of weights; by default that of the parameters.
        layout: Option<Layout> = None;
        /// The root mean square of the updates, if given; finite.
        consistent_rms: Option<f64> = None;
    }
    check Self::check_rms;
}

/// The factors of [`scale_by_shape`], which follow from the shapes of the leaves; not saved.
#[derive(Clone, Debug)]
pub struct ScaleByShapeState {
    factors: Vec<f64>,
}

impl State for ScaleByShapeState {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.fact("factors", &self.factors.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
    }
    fn walk_mut<'a>(&'a mut self, _: &mut StateWalkMut<'a, '_>) {}
}

impl ScaleByShape {
    fn check_rms(&self) -> Result<()> {
        match self.consistent_rms {
            Some(rms) if !rms.is_finite() => Err(Error::argument(Self::NAME, "consistent_rms", "finite", rms)),
            _ => Ok(()),
        }
    }
}

impl RuleWithMemory for ScaleByShape {
    type Memory = ScaleByShapeState;
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = C;

    fn start(&self, at: &InitContext<'_>) -> Result<ScaleByShapeState> {
        let leaves = at.structure().leaves().iter().zip(at.active());
        let factors = leaves.map(|(leaf, on)| {
            if !on {
                return Ok(1.0);
            }
            let Some([rows, cols]) =
                matrix_shape(&self.weight_dimension_numbers, leaf, self.layout.unwrap_or(leaf.layout()))
            else {
                let expected = "such that each leaf has axes for rows and others for columns";
                let found = format!("the leaf `{leaf}`");
                return Err(Error::argument(Self::NAME, "weight_dimension_numbers", expected, found));
            };
            let [fan_in, fan_out] = [rows as f64, cols as f64];
            Ok(match self.consistent_rms {
                Some(rms) => fan_in.max(fan_out).sqrt() * rms,
                None => (fan_out / fan_in).max(1.0).sqrt(),
            })
        });
        Ok(ScaleByShapeState { factors: factors.collect::<Result<_>>()? })
    }

    fn scalars<C: Real>(&self, memory: &ScaleByShapeState, leaf: usize) -> C {
        C::of(memory.factors[leaf])
    }

    #[inline(always)]
    fn apply<C: Real>(factor: C, _: &mut [C; 0], u: C, _: C, _: &mut [u32]) -> C {
        factor * u
    }
}
