//! Trees of raw numbers, of constrained values, of raw gradients.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use std::sync::Arc;

use super::numbers::RawLeaf;
use super::plan::Plan;
use crate::internal::state::{leaves, leaves_mut};
use crate::tree::{LeafRef, Structure, Tree, TreeMut, Walk, WalkMut};
use crate::{Error, Result};

/// Parameters as the optimizer steps them: constrained leaves are replaced by unconstrained raw numbers.
///
/// It is an ordinary tree, with the raw leaves in the places of the constrained ones, below their paths: `scale/raw`
/// for `scale`. Hence optimizer state, checkpoints and masks of raw and of constrained parameters cannot be confused.
/// [`Constraints::unconstrain`](super::Constraints::unconstrain) builds it.
///
/// A model cannot be called with it, nor can a field be read:
///
/// ```compile_fail,E0609
/// use gradchain::constraint::{Constraints, positive};
/// use gradchain::prelude::*;
///
/// #[derive(Clone, Tree)]
/// struct Noise { scale: f64 }
///
/// let raw = Constraints::new().at("scale", positive()).unconstrain(&Noise { scale: 1.0 }).unwrap();
/// let scale = raw.scale; // raw or constrained? `raw.constrain()?.scale` says which
/// ```
///
/// A gradient that was not pulled back has other paths, and is refused:
///
/// ```
/// use gradchain::constraint::{Constraints, positive};
/// use gradchain::prelude::*;
///
/// let mut raw = Constraints::new().at("0", positive()).unconstrain(&(1.0_f64, 2.0_f64))?;
/// let optimizer = sgd(0.1);
/// let mut state = optimizer.init(&raw)?;
/// let error = optimizer.step(&mut raw, &(1.0_f64, 1.0_f64), &mut state).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "the gradients do not fit the parameters that the state was made for: 2 differences\
///      \n  missing leaf 0/raw: f64 []\n  unexpected leaf 0: f64 []",
/// );
/// # Ok::<(), gradchain::Error>(())
/// ```
#[derive(Clone)]
pub struct Raw<P> {
    /// Holds the unconstrained leaves and carried values. The others are zero here and never read.
    params: P,
    leaves: Vec<RawLeaf>,
    plan: Arc<Plan>,
}

impl<P: TreeMut + Clone> Raw<P> {
    pub(super) fn new(plan: Arc<Plan>, params: &P) -> Result<Raw<P>> {
        let raw = plan.unconstrain(&leaves(params))?;
        let mut raw = Raw { params: params.clone(), leaves: raw, plan };
        let zeros = raw.plan.bound.iter().map(|bound| vec![0.0; raw.plan.spec(bound).len()]).collect();
        fill(&mut raw.params, &raw.plan, zeros)?;
        Ok(raw)
    }

    /// Computes the parameters of the model.
    ///
    /// They borrow the raw numbers, so that a step before their last use does not compile: they are never stale.
    ///
    /// ```compile_fail,E0502
    /// use gradchain::constraint::{Constraints, positive};
    /// use gradchain::prelude::*;
    ///
    /// let mut raw = Constraints::new().at("", positive()).unconstrain(&1.0_f64).unwrap();
    /// let optimizer = sgd(0.1);
    /// let mut state = optimizer.init(&raw).unwrap();
    /// let scale = raw.constrain().unwrap();
    /// let gradient = raw.pull_back(2.0 * *scale).unwrap();
    /// optimizer.step(&mut raw, &gradient, &mut state).unwrap();
    /// println!("{}", *scale); // that of before the step
    /// ```
    ///
    /// # Cost
    ///
    /// A copy of the parameters, one pass over constrained leaves, and the cost of their constraints.
    ///
    /// # Errors
    ///
    /// Fails if raw numbers are not finite, or map to no point of their set (a zero vector has no direction). The
    /// message names leaf, element and value.
    pub fn constrain(&self) -> Result<Constrained<'_, P>> {
        let values = self.plan.constrain(&self.leaves)?;
        let mut params = self.params.clone();
        fill(&mut params, &self.plan, values)?;
        Ok(Constrained { params, raw: PhantomData })
    }

    /// Replaces the values of all leaves by those of constrained parameters; keeps the optimizer's state.
    ///
    /// # Errors
    ///
    /// Fails, with nothing changed, if the parameters have another structure, or a value is not in its set.
    ///
    /// # Example
    ///
    /// ```
    /// use gradchain::constraint::{Constraints, interval};
    ///
    /// let mut raw = Constraints::new().at("0", interval(-1.0, 1.0)).unconstrain(&(0.0_f64, 5.0_f32))?;
    /// raw.assign(&(0.5, 6.0))?;
    /// let params = raw.constrain()?.into_inner();
    /// approx::assert_relative_eq!(params.0, 0.5, max_relative = 1e-15);
    /// assert_eq!(params.1, 6.0);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn assign(&mut self, params: &P) -> Result<()> {
        let differences = self.plan.structure.differences(params);
        if !differences.is_empty() {
            return Err(Error::structure("assign: the parameters do not fit the raw ones", differences));
        }
        *self = Raw::new(self.plan.clone(), params)?;
        Ok(())
    }
}

impl<P> Raw<P> {
    /// Converts a gradient with respect to the parameters to one with respect to the current raw numbers.
    ///
    /// The gradient may be a tree of any type, with leaves of any float dtype, passed by value or by reference. Finite
    /// values stay finite: an infinite raw gradient becomes the largest number.
    ///
    /// # Cost
    ///
    /// A copy of the raw numbers; unconstrained leaves are those of the given gradient.
    ///
    /// # Errors
    ///
    /// If the gradient's leaves are not those of the parameters, lists all that differ; otherwise fails as
    /// [`constrain`](Raw::constrain).
    ///
    /// # Example
    ///
    /// ```
    /// use gradchain::constraint::{Constraints, interval};
    /// use gradchain::tree::for_each_leaf;
    ///
    /// let raw = Constraints::new().at("0", interval(0.0, 1.0)).unconstrain(&(0.5_f64, 0.5_f64))?;
    /// // The sigmoid's slope in the middle is a quarter.
    /// let gradient = raw.pull_back((8.0_f64, 8.0_f64))?;
    /// let mut seen = Vec::new();
    /// for_each_leaf(&gradient, |path, leaf| seen.push((path.to_string(), leaf.to_f64())));
    /// assert_eq!(seen, [("0/raw".into(), vec![2.0]), ("1".into(), vec![8.0])]);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn pull_back<G: Tree>(&self, gradient: G) -> Result<RawGradient<G>> {
        if !self.plan.fits(&gradient) {
            let differences = self.plan.structure.compare(&Structure::of(&gradient)?, |_, _| true);
            return Err(Error::structure("pull_back: the gradient does not fit the parameters", differences));
        }
        let leaves = self.plan.pull_back(&self.leaves, &leaves(&gradient))?;
        Ok(RawGradient { gradient, leaves })
    }
}

fn fill<P: TreeMut>(params: &mut P, plan: &Plan, values: Vec<Vec<f64>>) -> Result<()> {
    let mut leaves = leaves_mut(params);
    if !leaves.iter().map(|leaf| leaf.shape()).eq(plan.structure.leaves().iter().map(|leaf| leaf.shape())) {
        drop(leaves);
        return Err(Error::structure("each walk must visit the same leaves", plan.structure.differences(params)));
    }
    for (bound, values) in plan.bound.iter().zip(values) {
        leaves[bound.leaf].assign_f64(&values);
    }
    Ok(())
}

impl<P: Tree> Tree for Raw<P> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        walk.instead(&self.params, &mut parts(&self.leaves));
    }
}

impl<P: TreeMut> TreeMut for Raw<P> {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        let mut parts = self.leaves.iter_mut().peekable();
        walk.instead(&mut self.params, &mut |leaf| {
            let part = parts.next_if(|part| part.leaf == leaf)?;
            let path = part.path.clone();
            Some((path, part.show_mut()))
        });
    }
}

/// Returns a function that yields the raw leaves of a leaf, in turn.
fn parts<'a>(leaves: &'a [RawLeaf]) -> impl FnMut(usize) -> Option<(Arc<str>, LeafRef<'a>)> {
    let mut parts = leaves.iter().peekable();
    move |leaf| parts.next_if(|part| part.leaf == leaf).map(|part| (part.path.clone(), part.show()))
}

impl<P: Tree> fmt::Debug for Raw<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        crate::tree::for_each_leaf(self, |path, leaf| {
            map.entry(&path, &leaf.to_f64());
        });
        map.finish()
    }
}

/// Parameters of the model, in their sets; returned by [`constrain`](Raw::constrain).
///
/// It dereferences to the parameters' own type, so that a model can be called, saved and inspected. It is a read-only
/// tree; passing it to `step` does not compile:
///
/// ```compile_fail,E0277
/// use gradchain::constraint::{Constraints, positive};
/// use gradchain::prelude::*;
///
/// let raw = Constraints::new().at("", positive()).unconstrain(&1.0_f64).unwrap();
/// let optimizer = sgd(0.1);
/// let mut state = optimizer.init(&raw).unwrap();
/// let mut scale = raw.constrain().unwrap();
/// optimizer.step(&mut scale, &1.0, &mut state).unwrap(); // `raw` is what is stepped
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "the raw parameters are unchanged"]
pub struct Constrained<'a, P> {
    params: P,
    raw: PhantomData<&'a Raw<P>>,
}

impl<P> Constrained<'_, P> {
    /// Returns an owned copy of the parameters.
    pub fn into_inner(self) -> P {
        self.params
    }
}

impl<P> Deref for Constrained<'_, P> {
    type Target = P;
    fn deref(&self) -> &P {
        &self.params
    }
}

impl<P: Tree> Tree for Constrained<'_, P> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        self.params.walk(walk);
    }
}

/// A gradient with respect to raw numbers, returned by [`pull_back`](Raw::pull_back) and taken by `step`.
#[derive(Clone)]
#[must_use = "a gradient does nothing until it is given to a step"]
pub struct RawGradient<G> {
    /// Holds the unconstrained leaves.
    gradient: G,
    leaves: Vec<RawLeaf>,
}

impl<G: Tree> Tree for RawGradient<G> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        walk.instead(&self.gradient, &mut parts(&self.leaves));
    }
}

impl<G: Tree> fmt::Debug for RawGradient<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        crate::tree::for_each_leaf(self, |path, leaf| {
            map.entry(&path, &leaf.to_f64());
        });
        map.finish()
    }
}
