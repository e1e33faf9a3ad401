//! The assignment of constraints to leaves.

use std::sync::Arc;

use super::plan::Plan;
use super::raw::Raw;
use crate::internal::state::{Constraint, subtree};
use crate::select::Mask;
use crate::tree::{Structure, Tree, TreeMut, Walk};
use crate::{Error, Result};

/// The constraints of leaves: by path, by mask, or by attributes of the struct. Other leaves are unconstrained.
///
/// # Example: by path
///
/// ```
/// use gradchain::constraint::{Constraints, positive, simplex};
/// use gradchain::tree::DynTree;
/// use ndarray::{arr0, array};
///
/// let mut mixture = DynTree::new();
/// mixture.insert("mean", array![-1.0_f64, 1.0]);
/// mixture.insert("scale", arr0(1.0_f64));
/// mixture.insert("weight", array![0.5_f64, 0.5]);
///
/// let raw = Constraints::new().at("scale", positive()).at("weight", simplex()).unconstrain(&mixture)?;
/// let mut paths = Vec::new();
/// gradchain::tree::for_each_leaf(&raw, |path, _| paths.push(path.to_string()));
/// assert_eq!(paths, ["mean", "scale/raw", "weight/raw"]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # Example: by attribute
///
/// ```
/// use gradchain::constraint::{Constraints, positive, simplex};
/// use gradchain::prelude::*;
///
/// #[derive(Clone, Tree)]
/// struct Mixture {
///     mean: Vec<f64>,
///     #[tree(constraint = positive())]
///     scale: f64,
///     #[tree(constraint = simplex())]
///     weight: Vec<f64>,
/// }
///
/// let mixture = Mixture { mean: vec![-1.0, 1.0], scale: 1.0, weight: vec![0.5, 0.5] };
/// let raw = Constraints::of(&mixture).unconstrain(&mixture)?;
/// approx::assert_relative_eq!(raw.constrain()?.scale, 1.0);
/// # Ok::<(), gradchain::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "constraints do nothing until they make a raw tree of parameters"]
pub struct Constraints {
    entries: Vec<(Place, Arc<dyn Constraint>)>,
}

#[derive(Clone, Debug)]
enum Place {
    On(Mask),
    /// An attribute of a field: its path and all below it.
    Field(String),
}

impl Constraints {
    /// Returns constraints for no leaf.
    pub fn new() -> Constraints {
        Constraints::default()
    }

    /// Returns the constraints given by the attributes of a tree's structs.
    ///
    /// These are `#[tree(constraint = ...)]`, and [`Walk::constraint`](crate::tree::Walk::constraint) in hand-written
    /// trees. An attribute holds for all leaves below its field.
    pub fn of<P: Tree + ?Sized>(params: &P) -> Constraints {
        let mut entries = Vec::new();
        let mut told = |path: &str, constraint| entries.push((Place::Field(path.into()), constraint));
        params.walk(&mut Walk::of_constraints(&mut String::new(), &mut |_, _| {}, &mut told));
        Constraints { entries }
    }

    /// Adds a constraint for the leaves whose path matches a [pattern](crate::select#patterns).
    pub fn at(self, pattern: impl Into<Arc<str>>, constraint: impl Constraint) -> Constraints {
        self.on(Mask::path(pattern), constraint)
    }

    /// Adds a constraint for the leaves that a mask selects.
    pub fn on(mut self, mask: impl Into<Mask>, constraint: impl Constraint) -> Constraints {
        self.entries.push((Place::On(mask.into()), Arc::new(constraint)));
        self
    }

    /// Returns the raw tree whose constrained values are these parameters, up to rounding.
    ///
    /// # Cost
    ///
    /// The raw tree holds a copy of the parameters, and the raw numbers of constrained leaves.
    ///
    /// # Errors
    ///
    /// Fails if a value is not in its set, with leaf, element and value in the message; if a constraint does not fit
    /// the shape of its leaf; if two constraints are for the same leaf, or a pattern matches none.
    ///
    /// ```
    /// use gradchain::constraint::{Constraints, interval, positive};
    /// use gradchain::select::Mask;
    ///
    /// let constraints = Constraints::new().at("0", positive()).on(Mask::all(), interval(0.0, 1.0));
    /// let error = constraints.unconstrain(&(1.0_f32, 0.5_f32)).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "unconstrain: argument `0` must be under one constraint at most, \
    ///      found Softplus and Interval { lower: 0.0, upper: 1.0 }",
    /// );
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn unconstrain<P: TreeMut + Clone>(&self, params: &P) -> Result<Raw<P>> {
        Raw::new(Arc::new(self.plan(Structure::of(params)?)?), params)
    }

    fn plan(&self, structure: Structure) -> Result<Plan> {
        let mut found: Vec<Option<Arc<dyn Constraint>>> = vec![None; structure.len()];
        for (place, constraint) in &self.entries {
            let taken = match place {
                Place::On(mask) => mask.resolve(&structure, "constraints")?,
                // May be empty: an option, or an empty list.
                Place::Field(field) => structure.paths().map(|path| subtree::holds(field, path)).collect(),
            };
            for (leaf, found) in found.iter_mut().enumerate().filter(|(leaf, _)| taken[*leaf]) {
                if let Some(other) = found.replace(constraint.clone()) {
                    let path = crate::internal::state::shown(structure.leaves()[leaf].path());
                    let both = format!("{other:?} and {constraint:?}");
                    return Err(Error::argument("unconstrain", path, "under one constraint at most", both));
                }
            }
        }
        let found = found.into_iter().enumerate().filter_map(|(leaf, constraint)| Some((leaf, constraint?)));
        Plan::new(structure, found.collect())
    }
}
