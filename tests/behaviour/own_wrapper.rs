//! Declarations of custom wrappers must not change their results.

use gradchain::Real;
use gradchain::part::{Arithmetic, Around, AroundWithArithmetic, Decision, Elements, Runs, Slot, StepContext, Wrapper};
use gradchain::prelude::*;
use gradchain::state::{Count, State};

#[derive(State, Clone, Debug, Default)]
pub(super) struct Steps {
    steps: Count,
}

gradchain::wrapper! {
    /// Always steps aside, and acts on the first leaf.
    pub(super) Aside<T> as "aside" around inner: Around {}
}

impl<T: GradientTransformation> Wrapper for Aside<T> {
    type Memory = Steps;
    const RUNS: Runs = Runs::DECIDED.masked().inner_only();

    fn decide(&self, _: &mut Steps, _: &StepContext<'_>, _: f64) -> Decision {
        Decision::InnerOnly
    }

    fn resting<'a>(&self, _: &'a Steps) -> &'a [bool] {
        &[false, true]
    }
}

gradchain::wrapper! {
    /// Shows its array, the initial parameters, to the inner transformation; acts in every third step.
    pub(super) Back<T> as "back" around inner: AroundWithArithmetic {}
}

impl<T: GradientTransformation> Wrapper for Back<T> {
    type Memory = Steps;
    const RUNS: Runs = Runs::DECIDED.inner_only();

    fn decide(&self, memory: &mut Steps, _: &StepContext<'_>, _: f64) -> Decision {
        memory.steps.increment();
        if memory.steps.get().is_multiple_of(3) { Decision::Run } else { Decision::InnerOnly }
    }
}

impl<T: GradientTransformation> Arithmetic for Back<T> {
    const SLOTS: &'static [Slot] = &[Slot::exact("first").starts_as_params()];
    const ELEMENTS: Elements = Elements::NONE.after(false).params_slot(0);
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = ();

    fn scalars<C: Real>(&self, _: &Steps, _: usize) {}
}

gradchain::wrapper! {
    /// Adds its array to the updates. Increments it in held steps, and, incorrectly, in others.
    pub(super) Adds<T> as "adds" around inner: AroundWithArithmetic {}
}

impl<T: GradientTransformation> Wrapper for Adds<T> {
    type Memory = Steps;

    fn decide(&self, memory: &mut Steps, _: &StepContext<'_>, _: f64) -> Decision {
        memory.steps.increment();
        if memory.steps.get() % 2 == 1 { Decision::Hold } else { Decision::Run }
    }
}

impl<T: GradientTransformation> Arithmetic for Adds<T> {
    const SLOTS: &'static [Slot] = &[Slot::exact("counted")];
    const ELEMENTS: Elements = Elements::NONE.before(true).before_reads();
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = ();

    fn scalars<C: Real>(&self, _: &Steps, _: usize) {}

    fn before<C: Real>((): (), [counted]: &mut [C; 1], u: C, _: C) -> C {
        let sum = u + *counted;
        *counted += C::one();
        sum
    }
}

#[test]
fn a_wrapper_that_steps_aside_still_chooses_its_leaves() {
    let optimizer = Aside::with(sgd(1.0));
    let mut p = (0.0_f64, 0.0_f64);
    let mut state = optimizer.init(&p).unwrap();
    optimizer.step(&mut p, &(1.0, 1.0), &mut state).unwrap();
    assert_eq!(p.0, -1.0);
    // The other leaf's update is its gradient or none.
    assert_ne!(p.1, -1.0);
    let boxed_inside = Aside::with(boxed(sgd(1.0)));
    let mut same = (0.0_f64, 0.0_f64);
    let mut state = boxed_inside.init(&same).unwrap();
    boxed_inside.step(&mut same, &(1.0, 1.0), &mut state).unwrap();
    assert_eq!(p, same);
}

#[test]
fn the_inner_transformation_sees_the_array_where_the_wrapper_is_inactive() {
    // Decays by half of the parameter shown, which is 8 in every step.
    let optimizer = Back::with(chain((add_decayed_weights(0.5), sgd(1.0))));
    let mut p = vec![8.0_f64; 3];
    let mut state = optimizer.init(&p).unwrap();
    for step in 1..7 {
        optimizer.step(&mut p, &vec![0.0; 3], &mut state).unwrap();
        assert_eq!(p, vec![8.0 - 4.0 * f64::from(step); 3]);
    }
}

#[test]
fn slots_written_by_a_reading_before_persist_in_held_steps_only() {
    fn steps<T: GradientTransformation<Needs = gradchain::needs::Nothing>>(optimizer: &T) -> Vec<f64> {
        let mut p = vec![0.0_f64; 3];
        let mut state = optimizer.init(&p).unwrap();
        let step = |_| {
            optimizer.step(&mut p, &vec![10.0; 3], &mut state).unwrap();
            p[2]
        };
        (0..6).map(step).collect()
    }
    // Incremented in held steps.
    let expected = [0.0, -11.0, -11.0, -23.0, -23.0, -36.0];
    assert_eq!(steps(&Adds::with(sgd(1.0))), expected);
    assert_eq!(steps(&Adds::with(boxed(sgd(1.0)))), expected);
    // A barrier without effect makes two passes.
    let clipped = || chain((clip_by_global_norm(1e9), sgd(1.0)));
    assert_eq!(steps(&Adds::with(clipped())), expected);
    assert_eq!(steps(&Adds::with(boxed(clipped()))), expected);
}
