use crate::engine::{HoldsBack, Nested, Sink, dot};
use crate::needs::{Level, Needs};
use crate::part::prelude::*;
use crate::recipe::Recipe;
use crate::state::StateWalk;
use crate::tree::{LeafSpec, is_safe, length};

/// Combines the direction of one transformation's updates with the norm of another's, leaf by leaf.
///
/// Both run whole steps on the same gradients. The `direction` is a transformation whose learning rate is hard to find,
/// such as [`shampoo`]; its own rate then has no effect. The `magnitude` has a rate known to
/// be good, such as that of [`adam`].
///
/// # Arithmetic
///
/// For each leaf, with the Euclidean norm:
///
/// ```text
/// d = direction(u),   m = magnitude(u)
/// u ← d·‖m‖/‖d‖                                0 where d is 0
/// ```
///
/// Norms are in `f64`, in row-major order.
///
/// # Cost
///
/// The state of both, and buffers of two floats per parameter. One additional pass; the updates are stored before it.
/// Then all passes of both.
///
/// # Errors
///
/// `init` fails if `init` of either fails, or if either emits nothing in some steps, as
/// [`multi_steps`] and [`apply_if_finite`] do: put these around the graft.
///
/// # Example
///
/// The direction of the sign, with the step size of gradient descent:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::sign_sgd;
/// use gradchain::wrapper::graft;
///
/// let optimizer = graft(sign_sgd(1.0), sgd(0.5));
/// let mut params = vec![0.0_f64; 4];
/// let mut state = optimizer.init(&params)?;
/// // The gradient's norm is 10, that of its sign 2.
/// optimizer.step(&mut params, &vec![1.0, -5.0, 5.0, 7.0], &mut state)?;
/// assert_eq!(params, [-2.5, 2.5, -2.5, -2.5]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Agarwal, Anil, Hazan, Koren and Zhang, [Disentangling adaptive gradient methods from learning
/// rates](https://arxiv.org/abs/2002.11803), 2020, algorithm 1, with a norm for each layer. Optax has none; Meta's
/// distributed Shampoo for PyTorch has `grafting_config`. Differs: nothing is added to the divisor `‖d‖`.
///
/// [`shampoo`]: https://docs.rs/gradchain/latest/gradchain/optimizer/fn.shampoo.html
/// [`adam`]: https://docs.rs/gradchain/latest/gradchain/optimizer/fn.adam.html
/// [`multi_steps`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.multi_steps.html
/// [`apply_if_finite`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.apply_if_finite.html
pub fn graft<D: Stage, M: Stage>(direction: D, magnitude: M) -> Graft<D, M> {
    Graft { direction, magnitude }
}

/// See [`graft`].
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Graft<D, M> {
    direction: D,
    magnitude: M,
}

impl<D: Stage, M: Stage> Part for Graft<D, M> {
    const NAME: &'static str = "graft";
    type Form = Whole<<D::Needs as Needs>::Or<M::Needs>, Grafted>;

    fn validate(&self) -> Result<()> {
        let emits = |argument, holds: HoldsBack, described: String| match holds {
            HoldsBack::Never => Ok(()),
            _ => {
                let expected = "a transformation that emits updates in every step (put others around the graft)";
                Err(Error::argument(Self::NAME, argument, expected, described))
            }
        };
        Error::all([
            self.direction.validate(),
            self.magnitude.validate(),
            emits("direction", self.direction.holds_back(), self.direction.describe()),
            emits("magnitude", self.magnitude.holds_back(), self.magnitude.describe()),
        ])
    }

    fn changed_argument(&self, original: &Self) -> Option<&'static str> {
        let direction = self.direction.changed(&original.direction);
        direction.or_else(|| self.magnitude.changed(&original.magnitude))
    }

    fn recipe(&self) -> Recipe {
        let inside = [("direction", self.direction.recipe()), ("magnitude", self.magnitude.recipe())];
        Recipe::call(Self::NAME, inside)
    }

    fn describe(&self) -> String {
        format!("graft({}, {})", self.direction.describe(), self.magnitude.describe())
    }
}

/// The state of a [`graft`].
#[derive(Clone, Debug)]
pub struct GraftState<D, M> {
    direction: D,
    magnitude: M,
    nested: [Nested; 2],
    gradient: Moments,
    updates: Moments,
    /// Norms of each leaf's update: of the magnitude, of the direction.
    norms: [Vec<f64>; 2],
    outcome: Outcome,
}

impl<D, M> GraftState<D, M> {
    /// Returns the state of the transformation that determines the direction.
    pub fn direction(&self) -> &D {
        &self.direction
    }

    /// Returns the state of the transformation that determines the norm.
    pub fn magnitude(&self) -> &M {
        &self.magnitude
    }
}

impl<D: State, M: State> State for GraftState<D, M> {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.fact("nested", &self.nested);
        walk.child("direction", &self.direction);
        walk.child("magnitude", &self.magnitude);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut crate::state::StateWalkMut<'a, '_>) {
        walk.child("direction", &mut self.direction);
        walk.child("magnitude", &mut self.magnitude);
    }
}

impl<D: Stage, M: Stage> WholeTreeTransformation for Graft<D, M> {
    type State = GraftState<D::State, M::State>;
    const SCOPE: Scope = Scope::TREE.reads_params();

    fn start(&self, at: &InitContext<'_>) -> Result<Self::State> {
        let inside = InitContext { by_leaf: false, whole: None, ..*at };
        Ok(GraftState {
            direction: self.direction.init_state(&inside)?,
            magnitude: self.magnitude.init_state(&inside)?,
            nested: [
                Nested::new(at.structure(), at.active(), &self.direction)?,
                Nested::new(at.structure(), at.active(), &self.magnitude)?,
            ],
            gradient: at.moments()?,
            updates: at.moments()?,
            norms: [vec![0.0; at.structure().len()], vec![0.0; at.structure().len()]],
            outcome: Outcome::GRADIENTS,
        })
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        let [direction, magnitude] = &state.nested;
        direction.check(&self.direction, &state.direction, at, at.params)?;
        magnitude.check(&self.magnitude, &state.magnitude, at, at.params)
    }

    fn transform(&self, state: &mut Self::State, at: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        let GraftState { direction, magnitude, nested, gradient, updates, norms, outcome } = state;
        let [of_direction, of_magnitude] = nested;
        tree.visit(&mut Take(gradient));
        let params = tree.params;
        let sink = Sink::Arrays(updates);
        let size = of_magnitude.run_on(&self.magnitude, magnitude, at, params, gradient, sink, tree.objective());
        norms_of(tree.structure().leaves(), updates, &mut norms[0]);
        let sink = Sink::Arrays(updates);
        let way = of_direction.run_on(&self.direction, direction, at, params, gradient, sink, tree.objective());
        norms_of(tree.structure().leaves(), updates, &mut norms[1]);
        tree.visit(&mut Emit { updates, norms });
        *outcome = Outcome {
            emitted: size.emitted && way.emitted,
            skipped: size.skipped || way.skipped,
            ..Outcome::GRADIENTS
        };
    }
}

/// In [`Whole`]: the inner transformations of a [`graft`].
pub enum Grafted {}

impl<D: Stage, M: Stage> InnerRuns<Graft<D, M>> for Grafted {
    fn needs(graft: &Graft<D, M>, _: Level) -> Level {
        graft.direction.needs().max(graft.magnitude.needs())
    }

    fn outcome(_: &Graft<D, M>, state: &GraftState<D::State, M::State>) -> Outcome {
        state.outcome
    }

    fn read<'a>(
        graft: &Graft<D, M>,
        state: &'a GraftState<D::State, M::State>,
        walk: &mut StateWalk<'a, '_>,
    ) -> Result<()> {
        walk.within("direction", &mut |walk| graft.direction.read(&state.direction, walk))?;
        walk.within("magnitude", &mut |walk| graft.magnitude.read(&state.magnitude, walk))
    }

    fn unused(graft: &Graft<D, M>, state: &GraftState<D::State, M::State>, report: &mut dyn FnMut(&str, bool)) {
        graft.direction.unused(&state.direction, report);
        graft.magnitude.unused(&state.magnitude, report);
    }
}

struct Take<'a>(&'a mut Moments);

impl LeafVisitor for Take<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        self.0.get_mut(leaf.index).unwrap_or_default().copy_from_slice(leaf.u);
    }
}

fn norms_of(leaves: &[LeafSpec], updates: &Moments, norms: &mut [f64]) {
    fn norm<C: Real>(leaf: &LeafSpec, x: &[C]) -> f64 {
        let squares = dot(leaf, x, x);
        if is_safe(squares) { squares.sqrt() } else { length(&mut || x.iter().map(|x| x.as_f64().abs())) }
    }
    for (i, (leaf, to)) in leaves.iter().zip(norms).enumerate() {
        *to = match updates.dtype(i) {
            Some(DType::F64) => norm::<f64>(leaf, updates.get(i).unwrap_or_default()),
            Some(_) => norm::<f32>(leaf, updates.get(i).unwrap_or_default()),
            None => 0.0,
        };
    }
}

struct Emit<'a> {
    updates: &'a Moments,
    norms: &'a [Vec<f64>; 2],
}

impl LeafVisitor for Emit<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let [magnitude, direction] = [0, 1].map(|of| self.norms[of][leaf.index]);
        let from = self.updates.get::<C>(leaf.index).unwrap_or_default();
        // Divided first, because the quotient of the norms may exceed the dtype's range.
        let divisor = if direction == 0.0 { 1.0 } else { direction };
        for (u, x) in leaf.u.iter_mut().zip(from) {
            *u = C::of(x.as_f64() / divisor * magnitude);
        }
    }
}
