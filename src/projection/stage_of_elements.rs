use core::hint::select_unpredictable;

use super::operand::{TreeValues, Values};
use super::set::{ElementSet, LeafBounds, bounds, check_sum, injected, own};
use crate::arguments::{Arguments, Visit, recipe_of};
use crate::internal::engine::{LeafSlice, OneElementWithMemory, RuleWithMemory};
use crate::internal::state::{ROW_MAJOR_CHUNK, state_fields};
use crate::part::prelude::*;
use crate::recipe::Recipe;

/// See [`project`](crate::transform::project): the projection of each element separately.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
#[non_exhaustive]
pub struct ProjectElements<S> {
    /// The set.
    pub projection: S,
}

impl<S> ProjectElements<S> {
    pub(super) fn new(projection: S) -> ProjectElements<S> {
        ProjectElements { projection }
    }
}

impl<S: ElementSet> Arguments for ProjectElements<S> {
    const NAME: &'static str = "project";

    fn arguments(&mut self, visit: &mut Visit<'_>) {
        injected(&mut self.projection, visit);
    }
}

/// The state of [`project`](crate::transform::project) for sets of elements.
#[derive(Clone, Debug)]
pub struct ProjectElementsState {
    /// Steps done, the count for schedules.
    pub count: Count,
    /// Tree bounds, in the leaves' memory order; not saved.
    bounds: Vec<LeafBounds>,
    /// Numeric bounds in this step.
    numbers: [f64; 2],
    /// A hash of the trees.
    trees: u64,
}

state_fields!(ProjectElementsState { count } means { trees });

impl<S: ElementSet> Part for ProjectElements<S> {
    const NAME: &'static str = S::NAME;
    type Form = OneElementWithMemory;

    fn validate(&self) -> Result<()> {
        self.projection.check()
    }

    fn own_arguments(&mut self, visit: &mut Visit<'_>) {
        own(&mut self.projection, visit);
    }

    fn changed_argument(&self, original: &Self) -> Option<&'static str> {
        let [ours, theirs] = [self, original].map(|part| part.projection.trees());
        let name = |tree: Option<(&'static str, _)>| tree.map(|(name, _)| name);
        ours.into_iter().zip(theirs).find(|(ours, theirs)| ours != theirs).and_then(|(a, b)| name(a).or(name(b)))
    }

    fn recipe(&self) -> Recipe {
        recipe_of("project", &mut |visit| own(&mut self.projection.clone(), visit))
    }
}

impl<S: ElementSet> RuleWithMemory for ProjectElements<S> {
    const USES_SLICES: bool = true;
    const READS_PARAMS: bool = true;
    type Memory = ProjectElementsState;
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = [C; 2];

    fn start(&self, at: &InitContext<'_>) -> Result<ProjectElementsState> {
        let bounds = bounds(&self.projection, at.structure(), at.active(), TreeValues::in_memory_order)?;
        let trees = check_sum(&self.projection.trees());
        Ok(ProjectElementsState { count: Count::default(), bounds, numbers: [0.0; 2], trees })
    }

    fn begin(&self, memory: &mut ProjectElementsState, _: &StepContext<'_>) {
        memory.numbers = self.projection.numbers(memory.count.get());
        memory.count.increment();
    }

    fn scalars<C: Real>(&self, memory: &ProjectElementsState, leaf: usize) -> [C; 2] {
        [0, 1].map(|side| match &memory.bounds[leaf][side] {
            Some(Values::One(number)) => C::of(*number),
            _ => C::of(memory.numbers[side]),
        })
    }

    #[inline(always)]
    fn apply<C: Real>(k: [C; 2], _: &mut [C; 0], u: C, p: C, _: &mut [u32]) -> C {
        clamp_update(k, u, p)
    }

    fn uses_slices(&self, memory: &ProjectElementsState, leaf: usize) -> bool {
        arrays(memory, leaf) > 0
    }

    // With bounds for each element.
    #[inline(always)]
    fn apply_slice<C: Real>(&self, memory: &ProjectElementsState, _: [C; 2], []: [&mut [C]; 0], at: LeafSlice<'_, C>) {
        let bounds = &memory.bounds[at.leaf];
        for (k, u) in at.u.chunks_mut(ROW_MAJOR_CHUNK).enumerate() {
            let mut rooms = [[0.0; ROW_MAJOR_CHUNK]; 2];
            let [low, high] = &mut rooms;
            let n = u.len();
            let of = |side: usize, scratch| match &bounds[side] {
                Some(values) => values.row_major(at.start + k * ROW_MAJOR_CHUNK, scratch),
                None => Values::fill(memory.numbers[side], scratch),
            };
            let (lower, upper) = (&of(0, &mut low[..n])[..n], &of(1, &mut high[..n])[..n]);
            let p = &at.p[k * ROW_MAJOR_CHUNK..][..n];
            for i in 0..n {
                u[i] = clamp_update([C::of(lower[i]), C::of(upper[i])], u[i], p[i]);
            }
        }
    }

    fn memory_bytes(&self, memory: &ProjectElementsState, leaf: usize) -> usize {
        let arrays = memory.bounds[leaf].iter().flatten();
        arrays.map(|side| if let Values::Each(values) = side { size_of_val(&values[..]) } else { 0 }).sum()
    }
}

/// Returns how many of a leaf's bounds differ between elements.
fn arrays(memory: &ProjectElementsState, leaf: usize) -> usize {
    memory.bounds[leaf].iter().filter(|side| matches!(side, Some(Values::Each(_)))).count()
}

/// Returns the update after which `p + u` is between the bounds: `u` itself if it already is.
///
/// `bound − p` is rounded, and `p` plus that may exceed the bound by as much. An update shortened by an epsilon of
/// itself, at least one unit in the last place, puts the exact sum on the inner side. Rounding carries no sum across a
/// number of its own dtype.
#[inline(always)]
fn clamp_update<C: Real>([lower, upper]: [C; 2], u: C, p: C) -> C {
    let (above, below) = (p + u > upper, p + u < lower);
    let u = select_unpredictable(above, upper - p, select_unpredictable(below, lower - p, u));
    let little = C::epsilon() * u.abs();
    let u = select_unpredictable(above & (p + u > upper), u - little, u);
    select_unpredictable(below & (p + u < lower), u + little, u)
}
