//! How a `sam` runs that does a whole round in each step.

use super::check_period;
use crate::element::{DType, Real};
use crate::engine::{
    Arrays, InitContext, LeafVisitor, Nested, Outcome, Place, Shape, Span, Stage, StepContext, Sums, Tile, WholeLeaf,
    WholeTree, delegate_stage,
};
use crate::error::Result;
use crate::needs::{Level, ValueAndGradFn};
use crate::recipe::{Recipe, ToRecipe};
use crate::state::{Moments, State, StateWalk, StateWalkMut};

/// A [`sam`](crate::sam) in [opaque mode](crate::Sam::opaque_mode): each step asks for the gradients at adversarial points.
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct OpaqueSam<O, A> {
    pub(super) chain: (AdversarialGradient<A>, O),
}

delegate_stage! {
    OpaqueSam<O, A> where O: Stage, A: Stage => chain: (AdversarialGradient<A>, O);
    needs ValueAndGradFn;
    recipe |this: &OpaqueSam<O, A>| {
        let AdversarialGradient { adv_optimizer, sync_period, reset_state } = &this.chain.0;
        Recipe::call(
            "sam",
            [
                ("optimizer", this.chain.1.recipe()),
                ("adv_optimizer", adv_optimizer.recipe()),
                ("sync_period", sync_period.to_recipe()),
                ("reset_state", reset_state.to_recipe()),
                ("opaque_mode", Recipe::Bool(true)),
            ],
        )
    };
    describe |this: &OpaqueSam<O, A>| {
        format!("sam({}, {}, opaque)", this.chain.1.describe(), this.chain.0.adv_optimizer.describe())
    }
}

/// Puts in the place of the gradient the one at the point to which an adversarial optimizer climbs: the first half of an
/// [`OpaqueSam`].
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct AdversarialGradient<A> {
    pub(super) adv_optimizer: A,
    pub(super) sync_period: u64,
    pub(super) reset_state: bool,
}

/// The state of the adversarial optimizer of an [`OpaqueSam`].
#[derive(Clone, Debug)]
pub struct AdversarialGradientState<A> {
    adv_state: A,
    first: Option<Box<A>>,
    nested: Nested,
    /// The adversarial point, the gradient there, and the way to the next one.
    point: Moments,
    gradient: Moments,
    updates: Moments,
}

impl<A> AdversarialGradientState<A> {
    /// The adversarial optimizer's state.
    pub fn adv_state(&self) -> &A {
        &self.adv_state
    }
}

impl<A: State> State for AdversarialGradientState<A> {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.child("adv_state", &self.adv_state);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        walk.child("adv_state", &mut self.adv_state);
    }
}

/// Copies parameters and gradients.
struct Depart<'a> {
    point: &'a mut Moments,
    gradient: &'a mut Moments,
}

impl LeafVisitor for Depart<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        for (to, from) in [(&mut *self.point, leaf.p), (&mut *self.gradient, &*leaf.u)] {
            to.get_mut(leaf.index).unwrap_or_default().copy_from_slice(from);
        }
    }
}

/// Copies the gradient back.
struct Arrive<'a>(&'a Moments);

impl LeafVisitor for Arrive<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        leaf.u.copy_from_slice(self.0.get(leaf.index).unwrap_or_default());
    }
}

/// Goes against the updates.
fn climb(point: &mut Moments, updates: &Moments) {
    fn one<C: Real>(point: &mut [C], updates: &[C]) {
        point.iter_mut().zip(updates).for_each(|(p, u)| *p -= *u);
    }
    for leaf in 0..point.len() {
        match point.dtype(leaf) {
            Some(DType::F64) => {
                one::<f64>(point.get_mut(leaf).unwrap_or_default(), updates.get(leaf).unwrap_or_default());
            }
            Some(_) => one::<f32>(point.get_mut(leaf).unwrap_or_default(), updates.get(leaf).unwrap_or_default()),
            None => {}
        }
    }
}

impl<A: Stage> Stage for AdversarialGradient<A> {
    type Needs = ValueAndGradFn;
    type State = AdversarialGradientState<A::State>;
    type Run = ();
    type Kernel<C: Real> = ();

    const SHAPE: Shape = Shape { barriers: 1, stateful: 0, reads_params: 1, materializes: 1, sums: 0 };
    const FUSES: bool = false;

    /// In rounds of one step nothing is asked for.
    fn needs(&self) -> Level {
        if self.sync_period > 1 { Level::ValueAndGradFn } else { self.adv_optimizer.needs() }
    }

    fn validate(&self) -> Result<()> {
        check_period(self.sync_period)?;
        self.adv_optimizer.validate()
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        let mut nested = Nested::new(at.structure(), at.active(), self.adv_optimizer.shape());
        let point = at.params_as_moments()?;
        let adv_state = nested.init(&self.adv_optimizer, &point)?;
        let first = self.reset_state.then(|| Box::new(adv_state.clone()));
        Ok(AdversarialGradientState {
            adv_state,
            first,
            nested,
            point,
            gradient: at.moments()?,
            updates: at.moments()?,
        })
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        state.nested.check(&self.adv_optimizer, &state.adv_state, at)
    }

    fn begin(&self, _: &mut Self::State, _: &StepContext<'_>) {}

    fn barrier(
        &self,
        state: &mut Self::State,
        (): &mut (),
        at: &StepContext<'_>,
        _: usize,
        _: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        // A step without gradients has no adversarial one either.
        if at.flush {
            return;
        }
        let AdversarialGradientState { adv_state, first, nested, point, gradient, updates } = state;
        tree.visit(&mut Depart { point, gradient });
        let mut value = at.value();
        for _ in 1..self.sync_period {
            let here = StepContext { value, ..*at };
            let arrays = Arrays { grads: gradient, params: point, updates };
            nested.run(&self.adv_optimizer, adv_state, &here, arrays, tree.objective());
            climb(point, updates);
            value = Some(tree.value_and_grad_at(point, gradient));
        }
        tree.visit(&mut Arrive(gradient));
        if let Some(first) = first {
            *adv_state = (**first).clone();
        }
    }

    fn finish(&self, _: &mut Self::State, (): (), _: Sums<'_>, _: &mut Outcome) {}

    fn tile<C: Real>(&self, _: &Self::State, (): &(), _: Place, _: Span, _: &mut Tile<'_, C>) {}

    fn kernel<C: Real>(&self, _: &Self::State, (): &(), _: usize) {}

    fn state_bytes(&self, _: &Self::State, _: usize, _: usize, _: Span) -> usize {
        0
    }

    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str)) {
        self.adv_optimizer.unused(&state.adv_state, report);
    }

    fn describe(&self) -> String {
        format!("adversarial_gradient({})", self.adv_optimizer.describe())
    }
}
