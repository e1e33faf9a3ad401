use super::operand::{TreeValues, Values};
use super::set::{TreeSet, check_sum, injected, own, vector_values};
use super::vector::{SumVector, Vector};
use crate::arguments::{Arguments, Visit, recipe_of};
use crate::internal::state::state_fields;
use crate::part::prelude::*;
use crate::recipe::Recipe;

/// See [`project`](crate::transform::project): the projection of the whole tree as one vector.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
#[non_exhaustive]
pub struct ProjectTree<S> {
    /// The set.
    pub projection: S,
}

impl<S> ProjectTree<S> {
    pub(super) fn new(projection: S) -> ProjectTree<S> {
        ProjectTree { projection }
    }
}

impl<S: TreeSet> Arguments for ProjectTree<S> {
    const NAME: &'static str = "project";

    fn arguments(&mut self, visit: &mut Visit<'_>) {
        injected(&mut self.projection, visit);
    }
}

/// The state of [`project`](crate::transform::project) for sets of the whole tree.
#[derive(Clone, Debug)]
pub struct ProjectTreeState {
    /// Steps done, the count for schedules.
    pub count: Count,
    /// The set's vector, in the leaves' memory order; not saved.
    vector_values: Vec<Values>,
    /// A hash of the vector's tree, if any.
    tree: u64,
}

state_fields!(ProjectTreeState { count } means { tree });

fn tree<S: TreeSet>(set: &S) -> Option<&TreeValues> {
    set.along().and_then(|(_, operand)| operand.tree())
}

impl<S: TreeSet> crate::part::Part for ProjectTree<S> {
    const NAME: &'static str = S::NAME;
    type Form = crate::part::Whole;

    fn validate(&self) -> Result<()> {
        self.projection.check()
    }

    fn own_arguments(&mut self, visit: &mut Visit<'_>) {
        own(&mut self.projection, visit);
    }

    fn changed_argument(&self, original: &Self) -> Option<&'static str> {
        let name = self.projection.along().map(|(name, _)| name);
        name.filter(|_| tree(&self.projection) != tree(&original.projection))
    }

    fn recipe(&self) -> Recipe {
        recipe_of("project", &mut |visit| own(&mut self.projection.clone(), visit))
    }
}

impl<S: TreeSet> crate::part::WholeTreeTransformation for ProjectTree<S> {
    const SCOPE: Scope = Scope::TREE.reads_params();
    type State = ProjectTreeState;

    fn start(&self, at: &InitContext<'_>) -> Result<ProjectTreeState> {
        let vector_values = vector_values(&self.projection, at.structure(), at.active(), TreeValues::in_memory_order)?;
        let tree = check_sum(&tree(&self.projection));
        Ok(ProjectTreeState { count: Count::default(), vector_values, tree })
    }

    fn transform(&self, state: &mut ProjectTreeState, _: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        let count = state.count.get();
        state.count.increment();
        if let Some(number) = self.projection.along().and_then(|(_, operand)| operand.number(count)) {
            state.vector_values.iter_mut().for_each(|values| *values = Values::One(number));
        }
        let x = &mut SumVector { tree, vector_values: &state.vector_values };
        if x.elements() > 0 {
            self.projection.move_to(count, x);
        }
    }
}
