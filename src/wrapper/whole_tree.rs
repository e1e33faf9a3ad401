use core::fmt;

use crate::engine::{InitContext, StepContext, WholeTree};
use crate::error::Result;
use crate::needs::Needs;
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
///     type Needs = Nothing;
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
    /// What a step must be given besides gradients; usually [`Nothing`](crate::needs::Nothing).
    type Needs: Needs;
    /// Whether it looks at parameters; for [`plan`](crate::GradientTransformation::plan).
    const READS_PARAMS: bool = false;

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

/// As [`WholeTreeTransformation`], for what is a stage itself, with a builder's methods on it: with that trait it would
/// have two methods `init` in scope.
pub(crate) trait WholeTreeRule {
    /// The name, as in messages and configs.
    const NAME: &'static str;
    /// What is remembered between steps.
    type State: State;
    /// Whether it looks at parameters.
    const READS_PARAMS: bool = false;

    /// Checks the arguments.
    fn validate(&self) -> Result<()>;

    /// The state before the first step.
    fn init(&self, at: &InitContext<'_>) -> Result<Self::State>;

    /// The last chance to refuse a step.
    fn check(&self, _: &Self::State, _: &StepContext<'_>) -> Result<()> {
        Ok(())
    }

    /// Rewrites the updates in `tree`.
    fn transform(&self, state: &mut Self::State, at: &StepContext<'_>, tree: &mut WholeTree<'_>);
}

/// Makes a stage of something that holds a [`WholeTreeTransformation`] in a field, or is a [`WholeTreeRule`].
macro_rules! whole_tree_stage {
    ($T:ty $(where $G:ident: $B:path)? => $W:ty $(, $field:tt)?; by $Trait:path; state $S:ty) => {
        $crate::wrapper::whole_tree_stage! {
            $T $(where $G: $B)? => $W $(, $field)?; by $Trait; state $S; needs $crate::needs::Nothing
        }
    };
    ($T:ty $(where $G:ident: $B:path)? => $W:ty $(, $field:tt)?; by $Trait:path; state $S:ty; needs $N:ty) => {
        $crate::wrapper::whole_tree_stage! {
            $T $(where $G: $B)? => $W $(, $field)?; by $Trait; state $S; needs $N; recipe $crate::arguments::recipe_of
        }
    };
    ($T:ty $(where $G:ident: $B:path)? => $W:ty $(, $field:tt)?; by $Trait:path; state $S:ty; needs $N:ty; recipe $recipe:expr) => {
        impl<$($G: $B)?> $crate::Stage for $T {
            type Needs = $N;
            type State = $S;
            type Run = ();
            type Kernel<C: $crate::Real> = ();

            const SHAPE: $crate::Shape = $crate::Shape {
                barriers: 1,
                stateful: 0,
                reads_params: <$W as $Trait>::READS_PARAMS as u32,
                materializes: 1,
                sums: 0,
            };
            const FUSES: bool = false;

            fn validate(&self) -> $crate::Result<()> {
                <$W as $Trait>::validate(&self$(.$field)?)
            }

            fn init_state(&self, at: &$crate::InitContext<'_>) -> $crate::Result<Self::State> {
                <$W as $Trait>::init(&self$(.$field)?, at)
            }

            fn check(&self, state: &Self::State, at: &$crate::StepContext<'_>) -> $crate::Result<()> {
                <$W as $Trait>::check(&self$(.$field)?, state, at)
            }

            fn begin(&self, _: &mut Self::State, _: &$crate::StepContext<'_>) {}

            fn barrier(
                &self,
                state: &mut Self::State,
                (): &mut (),
                at: &$crate::StepContext<'_>,
                _: usize,
                _: $crate::Sums<'_>,
                tree: &mut $crate::WholeTree<'_>,
            ) {
                <$W as $Trait>::transform(&self$(.$field)?, state, at, tree);
            }

            fn tile<C: $crate::Real>(
                &self,
                _: &Self::State,
                (): &(),
                _: $crate::Place,
                _: $crate::Span,
                _: &mut $crate::Tile<'_, C>,
            ) {
            }

            fn kernel<C: $crate::Real>(&self, _: &Self::State, (): &(), _: usize) {}

            fn state_bytes(&self, _: &Self::State, _: usize, _: usize, _: $crate::Span) -> usize {
                0
            }

            fn recipe(&self) -> $crate::recipe::Recipe {
                ($recipe)(self)
            }

            fn describe(&self) -> String {
                <$W as $Trait>::NAME.into()
            }
        }
    };
}
pub(crate) use whole_tree_stage;

whole_tree_stage! {
    WholeTreeStage<W> where W: WholeTreeTransformation => W, 0; by WholeTreeTransformation; state W::State;
    needs W::Needs; recipe |this: &WholeTreeStage<W>| crate::recipe::Recipe::Opaque(this.describe())
}
