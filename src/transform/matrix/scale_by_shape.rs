use super::scale_by_muon::{WeightDimensionNumbers, fans};
use crate::element::Real;
use crate::engine::{InitContext, Place, Shape, Span, Stage, StepContext, Tile, fused_tile};
use crate::error::{Error, Result};
use crate::macros::builder;
use crate::state::{State, StateWalk, StateWalkMut};
use crate::wrapper::Arguments;

/// Multiplies the updates of each leaf by a number that follows from its shape, so that one learning rate suits layers of
/// every width after [`scale_by_muon`](crate::scale_by_muon).
///
/// # Arithmetic
///
/// With `fan_in` rows and `fan_out` columns in each of the leaf's matrices:
///
/// ```text
/// u ← u·√(max(1, fan_out / fan_in))
/// u ← u·√(max(fan_in, fan_out))·consistent_rms       if consistent_rms is given
/// ```
///
/// # Cost
///
/// No state. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if a leaf is neither a matrix nor described as some, or `consistent_rms` is not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use ndarray::Array2;
///
/// let optimizer = scale_by_shape();
/// let params = Array2::<f32>::ones((1, 4));
/// let updates = optimizer.update(&params, &mut optimizer.init(&params)?, &params)?;
/// assert_eq!(updates.to_vec::<f32>("").unwrap(), [2.0; 4]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Jordan et al., [Muon](https://kellerjordan.github.io/posts/muon/), 2024; Liu et al., [Muon is scalable for LLM
/// training](https://arxiv.org/abs/2502.16982), 2025, for `consistent_rms`: 0.2 gives updates as large as AdamW's. Optax,
/// `contrib.scale_by_shape`. Differs: none.
pub fn scale_by_shape() -> ScaleByShape {
    ScaleByShape { weight_dimension_numbers: WeightDimensionNumbers::default(), consistent_rms: None }
}

/// See [`scale_by_shape`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct ScaleByShape {
    /// Which axes of a leaf are the rows and columns of its matrices; by default those of a leaf with two axes.
    pub weight_dimension_numbers: WeightDimensionNumbers,
    /// The root mean square that updates shall have, if given.
    pub consistent_rms: Option<f64>,
}

builder! {
    ScaleByShape as "scale_by_shape" {
        hyperparams: ;
        options: weight_dimension_numbers: WeightDimensionNumbers, consistent_rms: Option<f64>;
    }
}

/// The factors of [`scale_by_shape`], which follow from the leaves' shapes: nothing to remember.
#[derive(Clone, Debug)]
pub struct ScaleByShapeState {
    factors: Vec<f64>,
}

impl State for ScaleByShapeState {
    fn walk<'a>(&'a self, _: &mut StateWalk<'a, '_>) {}
    fn walk_mut<'a>(&'a mut self, _: &mut StateWalkMut<'a, '_>) {}
}

impl Stage for ScaleByShape {
    type Needs = crate::needs::Nothing;
    type State = ScaleByShapeState;
    type Run = ();
    type Kernel<C: Real> = C;

    const SHAPE: Shape = Shape::elementwise(false, false);
    const FUSES: bool = true;

    fn validate(&self) -> Result<()> {
        match self.consistent_rms {
            Some(rms) if !rms.is_finite() => Err(Error::argument(Self::NAME, "consistent_rms", "finite", rms)),
            _ => Ok(()),
        }
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<ScaleByShapeState> {
        let leaves = at.structure().leaves().iter().zip(at.active());
        let factors = leaves.map(|(leaf, on)| {
            if !on {
                return Ok(1.0);
            }
            let Some([rows, cols]) = fans(&self.weight_dimension_numbers, leaf) else {
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

    fn begin(&self, _: &mut ScaleByShapeState, _: &StepContext<'_>) {}

    fn tile<C: Real>(&self, state: &Self::State, run: &(), place: Place, span: Span, tile: &mut Tile<'_, C>) {
        fused_tile(self, state, run, place, span, tile);
    }

    #[inline]
    fn kernel<C: Real>(&self, state: &Self::State, (): &(), leaf: usize) -> C {
        C::of(state.factors[leaf])
    }

    #[inline(always)]
    fn apply<C: Real>(factor: &C, at: usize, span: Span, _: &mut [C], u: C, _: C, _: &mut [u32]) -> C {
        if span.has(at) { *factor * u } else { u }
    }

    fn state_bytes(&self, _: &Self::State, _: usize, _: usize, _: Span) -> usize {
        0
    }

    fn recipe(&self) -> crate::recipe::Recipe {
        crate::recipe::of_arguments(self)
    }

    fn describe(&self) -> String {
        Self::NAME.into()
    }
}
