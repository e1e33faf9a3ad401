use core::hint::select_unpredictable;

use super::operand::{TreeValues, Values};
use super::set::{ElementSet, LeafBounds, bounds};
use crate::arguments::{Argument, Arguments};
use crate::element::Real;
use crate::engine::{InitContext, Job, Place, Shape, Span, Stage, StepContext, Tile, dispatch, fused_tile};
use crate::error::Result;
use crate::recipe::Recipe;
use crate::state::Count;
use crate::state::state_fields;
use crate::tree::stretch::STRETCH;

/// See [`project`](crate::project): the projection of each element on its own.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
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

    fn arguments(&mut self, visit: &mut dyn FnMut(&'static str, Argument<'_>)) {
        visit("projection", Argument::Static(&S::NAME));
        self.projection.arguments(visit);
    }
}

/// What [`project`](crate::project) remembers where it works on single elements.
#[derive(Clone, Debug)]
pub struct ProjectElementsState {
    /// Steps done: what schedules are evaluated at.
    pub count: Count,
    /// Bounds that are trees, in the leaves' memory order; no part of what is saved.
    bounds: Vec<LeafBounds>,
}

state_fields!(ProjectElementsState<> { count });

impl<S: ElementSet> Stage for ProjectElements<S> {
    type Needs = crate::needs::Nothing;
    type State = ProjectElementsState;
    type Run = [f64; 2];
    type Kernel<C: Real> = [C; 2];

    const SHAPE: Shape = Shape::elementwise(false, true);
    const FUSES: bool = true;

    fn validate(&self) -> Result<()> {
        self.projection.check()
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<ProjectElementsState> {
        let bounds = bounds(&self.projection, at.structure(), at.active(), TreeValues::in_memory_order)?;
        Ok(ProjectElementsState { count: Count::default(), bounds })
    }

    fn begin(&self, state: &mut ProjectElementsState, _: &StepContext<'_>) -> [f64; 2] {
        let numbers = self.projection.numbers(state.count.get());
        state.count.increment();
        numbers
    }

    fn tile<C: Real>(
        &self,
        state: &ProjectElementsState,
        run: &[f64; 2],
        place: Place,
        span: Span,
        tile: &mut Tile<'_, C>,
    ) {
        if self.fuses_now(state, run, tile.leaf()) {
            return fused_tile(self, state, run, place, span, tile);
        }
        // Without state for elements, it is worked out again in a pass that repeats an earlier one.
        if !span.has(place.at) {
            return;
        }
        let (isa, start, bounds) = (tile.isa(), tile.start(), &state.bounds[tile.leaf()]);
        let (u, p) = tile.parts();
        for (k, (u, p)) in u.chunks_mut(STRETCH).zip(p.chunks(STRETCH)).enumerate() {
            let mut rooms = [[0.0; STRETCH]; 2];
            let [low, high] = &mut rooms;
            let of = |side: usize, room| match &bounds[side] {
                Some(values) => values.stretch(start + k * STRETCH, room),
                None => Values::fill(run[side], room),
            };
            let (lower, upper) = (of(0, &mut low[..u.len()]), of(1, &mut high[..u.len()]));
            dispatch(isa, Hold { u, p, lower, upper });
        }
    }

    fn fuses_now(&self, state: &ProjectElementsState, _: &[f64; 2], leaf: usize) -> bool {
        !state.bounds[leaf].iter().any(|side| matches!(side, Some(Values::Each(_))))
    }

    #[inline]
    fn kernel<C: Real>(&self, state: &ProjectElementsState, run: &[f64; 2], leaf: usize) -> [C; 2] {
        [0, 1].map(|side| match &state.bounds[leaf][side] {
            Some(Values::One(number)) => C::of(*number),
            _ => C::of(run[side]),
        })
    }

    #[inline(always)]
    fn apply<C: Real>(k: &[C; 2], at: usize, span: Span, _: &mut [C], u: C, p: C, _: &mut [u32]) -> C {
        if span.has(at) { hold(*k, u, p) } else { u }
    }

    fn state_bytes(&self, state: &ProjectElementsState, leaf: usize, at: usize, span: Span) -> usize {
        let arrays = state.bounds[leaf].iter().filter(|side| matches!(side, Some(Values::Each(_)))).count();
        if span.has(at) { arrays * size_of::<f64>() } else { 0 }
    }

    fn recipe(&self) -> Recipe {
        crate::arguments::recipe_of(self)
    }

    fn describe(&self) -> String {
        S::NAME.into()
    }
}

/// The update that leads to where `p + u` is between the bounds: `u` itself where it is there already.
///
/// `bound − p` is rounded, and `p` plus that may be beyond the bound by as much. Then it is shortened by an epsilon of
/// itself, which is at least one unit in its last place, so that the exact sum is on the right side; and rounding does not
/// carry a sum across a number of its own type.
#[inline(always)]
fn hold<C: Real>([lower, upper]: [C; 2], u: C, p: C) -> C {
    let (above, below) = (p + u > upper, p + u < lower);
    let u = select_unpredictable(above, upper - p, select_unpredictable(below, lower - p, u));
    let little = C::epsilon() * u.abs();
    let u = select_unpredictable(above & (p + u > upper), u - little, u);
    select_unpredictable(below & (p + u < lower), u + little, u)
}

/// As [`hold`], with bounds for each element.
struct Hold<'a, C> {
    u: &'a mut [C],
    p: &'a [C],
    lower: &'a [f64],
    upper: &'a [f64],
}

impl<C: Real> Job for Hold<'_, C> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let n = self.u.len();
        let (p, lower, upper) = (&self.p[..n], &self.lower[..n], &self.upper[..n]);
        for i in 0..n {
            self.u[i] = hold([C::of(lower[i]), C::of(upper[i])], self.u[i], p[i]);
        }
    }
}
