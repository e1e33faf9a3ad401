//! The opaque mode of `sam`, in which each step is a whole round.

use super::check_period;
use crate::engine::{Arrays, Nested};
use crate::needs::{Level, ValueAndGradFn};
use crate::part::prelude::*;
use crate::recipe::{Recipe, ToRecipe};
use crate::state::{StateWalk, restart};

/// A [`sam`] in [opaque mode], which evaluates gradients itself.
///
/// [`sam`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.sam.html
/// [opaque mode]: https://docs.rs/gradchain/latest/gradchain/wrapper/struct.Sam.html#method.opaque_mode
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct OpaqueSam<O, A> {
    pub(super) chain: (AdversarialGradient<A>, O),
}

impl<O: Stage, A: Stage> Part for OpaqueSam<O, A> {
    const NAME: &'static str = "sam";
    type Form = Named;

    fn recipe(&self) -> Recipe {
        let (AdversarialGradient { inner, sync_period, reset_state }, optimizer) = &self.chain;
        let arguments = [
            ("optimizer", optimizer.recipe()),
            ("adv_optimizer", inner.recipe()),
            ("sync_period", sync_period.to_recipe()),
            ("reset_state", reset_state.to_recipe()),
            ("opaque_mode", Recipe::Bool(true)),
        ];
        Recipe::call(Self::NAME, arguments)
    }

    fn describe(&self) -> String {
        format!("sam({}, {}, opaque)", self.chain.1.describe(), self.chain.0.inner.describe())
    }
}

impl<O: Stage, A: Stage> Optimizer for OpaqueSam<O, A> {
    type Chain = (AdversarialGradient<A>, O);
    fn chain(&self) -> &Self::Chain {
        &self.chain
    }
}

wrapper! {
    /// Replaces the gradient by that at the adversarial point: the first half of an [`OpaqueSam`].
    pub AdversarialGradient<A> as "adversarial_gradient"
        around adv_optimizer: Whole<ValueAndGradFn, AdversarialOptimizer> {
        sync_period: u64;
        reset_state: bool;
    }
    check Self::check_arguments;
}

impl<A: Stage> AdversarialGradient<A> {
    fn check_arguments(&self) -> Result<()> {
        check_period(self.sync_period)?;
        self.inner.validate()
    }
}

/// The state of the adversarial optimizer of an [`OpaqueSam`].
#[derive(Clone, Debug)]
pub struct AdversarialGradientState<A> {
    adv_state: A,
    nested: Nested,
    /// The adversarial point, its gradient, and the update to the next.
    point: Moments,
    gradient: Moments,
    updates: Moments,
}

impl<A> AdversarialGradientState<A> {
    /// Returns the adversarial optimizer's state.
    pub fn adv_state(&self) -> &A {
        &self.adv_state
    }
}

state_fields!(AdversarialGradientState<A: State> { adv_state } facts { nested });

struct CopyPoint<'a> {
    point: &'a mut Moments,
    gradient: &'a mut Moments,
}

impl LeafVisitor for CopyPoint<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        for (to, from) in [(&mut *self.point, leaf.p), (&mut *self.gradient, &*leaf.u)] {
            to.get_mut(leaf.index).unwrap_or_default().copy_from_slice(from);
        }
    }
}

struct EmitGradient<'a>(&'a Moments);

impl LeafVisitor for EmitGradient<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        leaf.u.copy_from_slice(self.0.get(leaf.index).unwrap_or_default());
    }
}

fn ascend(point: &mut Moments, updates: &Moments) {
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

impl<A: Stage> WholeTreeTransformation for AdversarialGradient<A> {
    type State = AdversarialGradientState<A::State>;
    const SCOPE: Scope = Scope::TREE.reads_params();

    fn start(&self, at: &InitContext<'_>) -> Result<Self::State> {
        let mut nested = Nested::new(at.structure(), at.active(), &self.inner)?;
        let point = at.params_as_moments()?;
        let adv_state = nested.init(&self.inner, at, &point)?;
        let [gradient, updates] = [at.moments()?, at.moments()?];
        Ok(AdversarialGradientState { adv_state, nested, point, gradient, updates })
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        if self.reset_state && !at.is_flush() {
            state.nested.can_reinitialize(&self.inner, at)?;
        }
        state.nested.check(&self.inner, &state.adv_state, at, at.params)
    }

    fn transform(&self, state: &mut Self::State, at: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        // A step without gradients has no adversarial one.
        if at.is_flush() {
            return;
        }
        let AdversarialGradientState { adv_state, nested, point, gradient, updates } = state;
        tree.visit(&mut CopyPoint { point, gradient });
        let mut value = at.value();
        for _ in 1..self.sync_period {
            let here = StepContext { value, ..*at };
            let arrays = Arrays { grads: gradient, params: point, others: tree.params, updates };
            nested.run(&self.inner, adv_state, &here, arrays, tree.objective());
            ascend(point, updates);
            value = Some(tree.value_and_grad_at(point, gradient));
        }
        tree.visit(&mut EmitGradient(gradient));
        if self.reset_state {
            restart(adv_state, nested.reinitialize(&self.inner, at), &[]);
        }
    }
}

/// In [`Whole`]: the adversarial optimizer.
pub enum AdversarialOptimizer {}

impl<A: Stage> InnerRuns<AdversarialGradient<A>> for AdversarialOptimizer {
    /// Rounds of one step evaluate no gradient.
    fn needs(gradient: &AdversarialGradient<A>, _: Level) -> Level {
        if gradient.sync_period > 1 { Level::ValueAndGradFn } else { gradient.inner.needs() }
    }

    fn read<'a>(
        gradient: &AdversarialGradient<A>,
        state: &'a AdversarialGradientState<A::State>,
        walk: &mut StateWalk<'a, '_>,
    ) -> Result<()> {
        walk.within("adv_state", &mut |walk| gradient.inner.read(&state.adv_state, walk))
    }

    fn unused(
        gradient: &AdversarialGradient<A>,
        state: &AdversarialGradientState<A::State>,
        report: &mut dyn FnMut(&str, bool),
    ) {
        gradient.inner.unused(&state.adv_state, report);
    }
}
