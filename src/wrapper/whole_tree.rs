use core::fmt;

use crate::element::Real;
use crate::engine::{InitContext, Place, Shape, Span, Stage, StepContext, Sums, Tile, WholeTree};
use crate::error::Result;
use crate::state::State;

/// A transformation that must see whole leaves or the whole tree: matrix methods, histories, anything that is not
/// arithmetic on single elements. Becomes part of a chain through [`whole_tree`].
///
/// # Example
///
/// Subtract each leaf's mean from its updates:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::{InitContext, LeafVisitor, Real, StepContext, WholeLeaf, WholeTree};
///
/// #[derive(Clone, Debug)]
/// struct SubtractMean;
///
/// impl WholeTreeTransformation for SubtractMean {
///     const NAME: &'static str = "subtract_mean";
///     type State = ();
///
///     fn init(&self, _: &InitContext<'_>) -> gradchain::Result<()> {
///         Ok(())
///     }
///
///     fn transform(&self, _: &mut (), _: &StepContext<'_>, tree: &mut WholeTree<'_>) {
///         tree.visit(&mut Subtract);
///     }
/// }
///
/// struct Subtract;
///
/// impl LeafVisitor for Subtract {
///     fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
///         let mean = leaf.u.iter().map(|u| u.as_f64()).sum::<f64>() / leaf.u.len() as f64;
///         leaf.u.iter_mut().for_each(|u| *u -= C::of(mean));
///     }
/// }
///
/// let optimizer = chain((whole_tree(SubtractMean), sgd(1.0)));
/// let mut params = vec![0.0_f32; 3];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![1.0_f32, 2.0, 3.0], &mut state)?;
/// assert_eq!(params, [1.0, 0.0, -1.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
pub trait WholeTreeTransformation: fmt::Debug + Send + Sync + 'static {
    /// The name, as in messages and configs.
    const NAME: &'static str;
    /// What is remembered between steps.
    type State: State;

    /// Checks the arguments.
    ///
    /// # Errors
    ///
    /// If one is out of its range.
    fn validate(&self) -> Result<()> {
        Ok(())
    }

    /// The state before the first step.
    ///
    /// # Errors
    ///
    /// If the parameters are not of a kind that the transformation can work on.
    fn init(&self, at: &InitContext<'_>) -> Result<Self::State>;

    /// The last chance to refuse a step: nothing has been changed yet, in this or any other transformation.
    ///
    /// # Errors
    ///
    /// If the step cannot be done.
    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        let _ = (state, at);
        Ok(())
    }

    /// Rewrites the updates in `tree`.
    fn transform(&self, state: &mut Self::State, at: &StepContext<'_>, tree: &mut WholeTree<'_>);
}

/// Makes a transformation of a [`WholeTreeTransformation`].
///
/// # Cost
///
/// One more pass: the updates are stored in memory for it, once.
pub fn whole_tree<W: WholeTreeTransformation>(transformation: W) -> WholeTreeStage<W> {
    WholeTreeStage(transformation)
}

/// See [`whole_tree`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct WholeTreeStage<W>(pub W);

impl<W: WholeTreeTransformation> Stage for WholeTreeStage<W> {
    type State = W::State;
    type Run = ();
    type Kernel<C: Real> = ();

    const SHAPE: Shape = Shape { barriers: 1, stateful: 0, reads_params: 0, materializes: 1, sums: 0 };
    const FUSES: bool = false;

    fn validate(&self) -> Result<()> {
        self.0.validate()
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<W::State> {
        self.0.init(at)
    }

    fn check(&self, state: &W::State, at: &StepContext<'_>) -> Result<()> {
        self.0.check(state, at)
    }

    fn begin(&self, _: &mut W::State, _: &StepContext<'_>) {}

    fn barrier(
        &self,
        state: &mut W::State,
        (): &mut (),
        at: &StepContext<'_>,
        _: usize,
        _: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        self.0.transform(state, at, tree);
    }

    fn tile<C: Real>(&self, _: &W::State, (): &(), _: Place, _: Span, _: &mut Tile<'_, C>) {}

    fn kernel<C: Real>(&self, _: &W::State, (): &(), _: usize) {}

    fn state_bytes(&self, _: &W::State, _: usize, _: usize, _: Span) -> usize {
        0
    }

    fn describe(&self) -> String {
        W::NAME.into()
    }
}
