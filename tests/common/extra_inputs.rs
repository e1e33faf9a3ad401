//! The arguments of a step: gradients, and a loss with these gradients if needed.

use std::cell::Cell;
use std::collections::BTreeMap;

use gradchain::needs::{Includes, Level, Provides, ValueAndGradFn};
use gradchain::prelude::*;
use gradchain::program::Executor;
use gradchain::recipe::Recipe;
use gradchain::tree::{DynTree, for_each_leaf};
use gradchain::{GradientTransformation, Result, extra};
use ndarray::{ArrayD, IxDyn};

use super::values;

/// A boxed transformation with any needs.
pub type Member = Boxed<ValueAndGradFn>;

pub fn member<T: Registered>(transformation: T) -> Member {
    transformation.member()
}

pub trait Registered: GradientTransformation + Clone + 'static {
    fn member(self) -> Member;
    fn step_with_inputs(&self, params: &mut DynTree, grads: &dyn Tree, state: &mut OptState<Self>) -> Result<Outcome>;
    fn step_on_with_inputs(&self, executor: &mut dyn Executor, state: &mut OptState<Self>) -> Result<Outcome>;
    fn update_with_inputs(&self, grads: &DynTree, state: &mut OptState<Self>, params: &DynTree) -> Result<Updates>;
    fn update_into_with_inputs(
        &self,
        grads: &DynTree,
        state: &mut OptState<Self>,
        params: &DynTree,
        updates: &mut Updates,
    ) -> Result<Outcome>;
    fn update_owned_with_inputs(
        &self,
        grads: DynTree,
        state: &mut OptState<Self>,
        params: &DynTree,
    ) -> Result<(DynTree, Outcome)>;
}

type Loss<'a> = &'a mut dyn FnMut(&DynTree) -> (f64, DynTree);
type StepInputs<'a> = extra::ValueAndGradFn<DynTree, Loss<'a>>;

fn step_inputs(loss: Loss<'_>) -> StepInputs<'_> {
    extra::value_and_grad_fn(1.0, loss)
}

/// The extra arguments of a step on a device: the loss has only a value.
type DeviceInputs = extra::ValueAndGradFn<(), fn(&()) -> (f64, f64)>;

impl<T: GradientTransformation + Clone + 'static> Registered for T
where
    ValueAndGradFn: Includes<T::Needs>,
    DeviceInputs: Provides<T::Needs>,
    for<'a> StepInputs<'a>: Provides<T::Needs>,
{
    fn member(self) -> Member {
        Box::new(self)
    }

    fn step_with_inputs(&self, params: &mut DynTree, grads: &dyn Tree, state: &mut OptState<T>) -> Result<Outcome> {
        let mut quadratic = in_loss(|| Quadratic::of(self.needs(), params, grads));
        self.step_with(params, grads, step_inputs(&mut |p| in_loss(|| quadratic.loss(p))), state)
    }

    fn step_on_with_inputs(&self, executor: &mut dyn Executor, state: &mut OptState<T>) -> Result<Outcome> {
        let loss: fn(&()) -> (f64, f64) = |()| (1.0, 0.0);
        self.step_on(executor, extra::value_and_grad_fn(1.0, loss), state)
    }

    fn update_with_inputs(&self, grads: &DynTree, state: &mut OptState<T>, params: &DynTree) -> Result<Updates> {
        let mut quadratic = in_loss(|| Quadratic::of(self.needs(), params, grads));
        self.update_with(grads, step_inputs(&mut |p| in_loss(|| quadratic.loss(p))), state, params)
    }

    fn update_into_with_inputs(
        &self,
        grads: &DynTree,
        state: &mut OptState<T>,
        params: &DynTree,
        updates: &mut Updates,
    ) -> Result<Outcome> {
        let mut quadratic = in_loss(|| Quadratic::of(self.needs(), params, grads));
        self.update_into_with(grads, step_inputs(&mut |p| in_loss(|| quadratic.loss(p))), state, params, updates)
    }

    fn update_owned_with_inputs(
        &self,
        grads: DynTree,
        state: &mut OptState<T>,
        params: &DynTree,
    ) -> Result<(DynTree, Outcome)> {
        let mut quadratic = in_loss(|| Quadratic::of(self.needs(), params, &grads));
        self.update_owned_with(grads, step_inputs(&mut |p| in_loss(|| quadratic.loss(p))), state, params)
    }
}

thread_local! {
    /// True during an evaluation of the loss, whose allocations are not the transformation's.
    pub static IN_LOSS: Cell<bool> = const { Cell::new(false) };
}

fn in_loss<T>(work: impl FnOnce() -> T) -> T {
    let outer = IN_LOSS.replace(true);
    let result = work();
    IN_LOSS.set(outer);
    result
}

/// The loss `1 + g·(p − q) + ‖p − q‖²/2`, which at the step's parameters `q` is 1 and has the gradients `g`.
struct Quadratic {
    at: Vec<(String, Vec<f64>)>,
    grads: Vec<(String, Vec<f64>)>,
    /// `g − q`; the gradient at `p` adds `p`.
    shift: BTreeMap<String, ArrayD<f64>>,
}

impl Quadratic {
    /// Computes and allocates nothing if the loss is not needed.
    fn of(needs: Level, params: &DynTree, grads: &dyn Tree) -> Quadratic {
        let mut quadratic = Quadratic { at: Vec::new(), grads: Vec::new(), shift: BTreeMap::new() };
        if needs >= Level::ValueFn {
            (quadratic.at, quadratic.grads) = (values(params), values(grads));
            let mut shapes = BTreeMap::new();
            for_each_leaf(params, |path, leaf| drop(shapes.insert(path.to_owned(), IxDyn(leaf.shape()))));
            // If the trees differ the step is an error, and does not evaluate the loss.
            for ((path, q), (_, g)) in quadratic.at.iter().zip(&quadratic.grads) {
                let shift = g.iter().zip(q).map(|(g, q)| g - q).collect();
                if let Ok(shift) = ArrayD::from_shape_vec(shapes[path].clone(), shift) {
                    quadratic.shift.insert(path.clone(), shift);
                }
            }
        }
        quadratic
    }

    fn loss(&mut self, p: &DynTree) -> (f64, DynTree) {
        let mut gradient = p.clone();
        apply_updates(&mut gradient, &self.shift).expect("the parameters' structure");
        let mut loss = 1.0;
        for ((_, p), ((_, q), (_, g))) in values(p).iter().zip(self.at.iter().zip(&self.grads)) {
            loss += p.iter().zip(q).zip(g).map(|((p, q), g)| (p - q) * (g + 0.5 * (p - q))).sum::<f64>();
        }
        (loss, gradient)
    }
}

pub fn needs<T: GradientTransformation>(transformation: &T) -> Level {
    transformation.needs()
}

pub fn recipe<T: GradientTransformation>(transformation: &T) -> Recipe {
    transformation.recipe()
}

pub fn describe<T: GradientTransformation>(transformation: &T) -> String {
    transformation.describe()
}
