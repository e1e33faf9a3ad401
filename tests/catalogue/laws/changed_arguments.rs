//! A state stepped with another argument fits, or is refused without any change.

use std::any::Any;

use gradchain::arguments::{Argument, Arguments};
use gradchain::needs::ValueAndGradFn;
use gradchain::part::{Around, Holds, Part, Wrapper};
use gradchain::prelude::*;
use gradchain::recipe::{Builder, ConfigError, Node, Recipe};
use gradchain::state::same_bits;
use gradchain::transform::{Monitor, measure_fn, monitor};
use gradchain::tree::DynTree;
use gradchain::wrapper;
use gradchain::wrapper::flatten;

use super::{LeafPlan, Number, Order, Problem, all_selected, noise, registry, tree};
use crate::common::extra_inputs::Registered;
use crate::common::same_values;

type Named = wrapper::Named<ValueAndGradFn>;
type State = OptState<Named>;

/// Inner transformations stay unchanged.
struct Nothing;

impl Builder for Nothing {
    fn build_into(&self, node: &Node<'_>, _: &mut dyn Any) -> Result<(), ConfigError> {
        Err(node.wrong("no transformation"))
    }
}

/// Returns values of all kinds; each argument takes those that fit, or whole numbers only.
fn values() -> Vec<Recipe> {
    let by_path = |values: &[Recipe]| {
        let paths = ["layer0/p0", "layer1/p1", "layer0/p2"];
        Recipe::map([("by_path", Recipe::map(paths.into_iter().zip(values.iter().cloned())))])
    };
    let numbers = |axes: [i128; 2]| {
        let [reduction, output] = axes.map(Recipe::Integer);
        Recipe::map([("reduction_axis", reduction), ("output_axis", output)])
    };
    let axis = |axis: i128| Recipe::map([("axis", Recipe::Integer(axis))]);
    let matrices =
        |of: &dyn Fn() -> Recipe| Recipe::map([("by_path", Recipe::map([("layer0/p0", of()), ("layer1/p1", of())]))]);
    let mut all = vec![Recipe::Null, Recipe::Bool(false), Recipe::Bool(true)];
    all.extend([0, 1, 2, 3, 4, 7, 10, 64].map(Recipe::Integer));
    all.extend([-1.0, 0.0, 0.25, 0.9, 3.0].map(Recipe::Number));
    let texts = [
        "f32",
        "f64",
        "bf16",
        "f16",
        "hard",
        "smooth",
        "refined",
        "sps",
        "sps_plus",
        "frobenius",
        "spectral",
        "schatten",
        "keep",
        "increase",
        "cubic",
        "values",
        "dion",
        "standard",
        "layer0/*",
        "**/p1",
    ];
    all.extend(texts.map(Recipe::text));
    all.push(Recipe::map([("min_ndim", Recipe::Integer(2))]));
    all.push(Recipe::map([("not", Recipe::map([("min_ndim", Recipe::Integer(2))]))]));
    all.extend([matrices(&|| numbers([0, 1])), matrices(&|| numbers([1, 0]))]);
    all.extend([matrices(&|| axis(0)), matrices(&|| axis(1)), by_path(&[axis(0), axis(1), Recipe::text("leaf")])]);
    all.extend([Recipe::List(vec![]), Recipe::List(vec![Recipe::Integer(0)]), Recipe::List(vec![Recipe::Integer(1)])]);
    all
}

/// Returns the transformation with another value, if accepted and different.
fn with(named: &Named, name: &str, value: &Recipe) -> Option<Named> {
    let (mut named, mut differs) = (named.clone(), false);
    named.arguments(&mut |of, argument| {
        if of != name || matches!((&argument, value), (Argument::Hyperparam(_), Recipe::Integer(_))) {
            return;
        }
        let setting = argument.setting();
        let before = setting.to_recipe();
        differs = setting.set(&Node::root(value, &Nothing)).is_ok() && setting.to_recipe() != before;
    });
    differs.then_some(named)
}

/// Returns square matrices, whose rows and columns only arguments tell apart, and other leaves.
fn problem() -> Problem {
    let leaf = |number, shape: &[usize], order| LeafPlan { number, shape: shape.into(), order };
    let plan = vec![
        leaf(Number::F32, &[4, 4], Order::C),
        leaf(Number::F64, &[3, 2], Order::Fortran),
        leaf(Number::F32, &[5], Order::C),
    ];
    let params = tree(&plan, |leaf, i| noise(1, leaf, i));
    let grads = (0..4).map(|t| tree(&plan, |leaf, i| noise(2 + t, leaf, i))).collect();
    Problem { plan, params, grads }
}

fn run(what: &str, named: &Named, params: &mut DynTree, state: &mut State, grads: &[DynTree]) {
    for grads in grads {
        named.step_with_inputs(params, grads, state).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

/// Returns true if it accepts another's state in place of its own.
fn takes(named: &Named, made: &State, params: &DynTree, grads: &DynTree) -> bool {
    let mut own = named.init(params).unwrap();
    *own = (**made).clone();
    named.step_with_inputs(&mut params.clone(), grads, &mut own).is_ok()
}

fn changed(what: &str, Problem { params, grads, .. }: &Problem, before: &Named, after: &Named) -> bool {
    let (first, rest) = grads.split_at(2);
    let (mut p, mut state) = (params.clone(), before.init(params).unwrap());
    run(what, before, &mut p, &mut state, first);
    let fits = takes(after, &state, &p, &rest[0]);
    let (mut stepped, mut carried) = (p.clone(), state.clone());
    match after.step_with_inputs(&mut stepped, &rest[0], &mut carried) {
        Ok(_) => {
            assert!(fits, "{what}: a state that does not fit was stepped");
            run(what, after, &mut stepped, &mut carried, &rest[1..]);
            // Copied into a state made with the new value, its values have the same effect.
            let mut own = after.init(params).unwrap();
            own.replace((*state).clone()).unwrap_or_else(|error| panic!("{what}: {error}"));
            let mut replaced = p.clone();
            run(what, after, &mut replaced, &mut own, rest);
            same_values(&stepped, &replaced).unwrap_or_else(|at| panic!("{what}, replaced: {at}"));
        }
        Err(error) => {
            let said = error.to_string();
            assert!(!fits, "{what}: a state that fits was refused: {said}");
            let known = ["was made with another `", "was made by another transformation"];
            assert!(known.iter().any(|known| said.contains(known)), "{what}: {said}");
            same_values(&p, &stepped).unwrap_or_else(|at| panic!("{what}, refused: {at}"));
            assert!(same_bits(&*state, &*carried), "{what}: the step was refused, and the state changed");
            after.readings(&carried).expect_err(what);
            // Its maker continues with it.
            run(what, before, &mut stepped, &mut carried, rest);
            run(what, before, &mut p, &mut state, rest);
            same_values(&p, &stepped).unwrap_or_else(|at| panic!("{what}, gone on: {at}"));
        }
    }
    fits
}

#[test]
fn a_changed_argument_fits_the_state_or_is_refused() {
    let problem = problem();
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for entry in registry() {
        let Some(named) = entry.named() else { continue };
        let mut names = Vec::new();
        named.clone().arguments(&mut |name, _| names.push(name));
        for name in names {
            let others = values().into_iter().filter_map(|value| Some((with(&named, name, &value)?, value)));
            for (other, value) in others.filter(|(other, _)| other.init(&problem.params).is_ok()) {
                for (before, after, sign) in [(&named, &other, "→"), (&other, &named, "←")] {
                    let what = format!("{}: `{name}` {sign} {value}", entry.name());
                    match changed(&what, &problem, before, after) {
                        true => taken.push(what),
                        false => refused.push(what),
                    }
                }
            }
        }
    }
    println!("{} taken, {} refused", taken.len(), refused.len());
    assert!(
        !all_selected() || taken.len() > 3000 && refused.len() > 1000,
        "{} taken, {} refused",
        taken.len(),
        refused.len()
    );
}

/// Sums powers of the updates; their number is no declared argument.
#[derive(Clone, Debug)]
struct Powers(Monitor);

impl Powers {
    fn new(powers: i32) -> Powers {
        let measure = |power: i32| measure_fn("power", move |u: f64| u.powi(power), |sum: f64, _: usize| sum);
        Powers((1..=powers).fold(monitor(), |all, power| all.measure(format!("power {power}"), measure(power))))
    }
}

impl Part for Powers {
    const NAME: &'static str = "powers";
    type Form = Around;
}

impl Holds for Powers {
    type Inner = Monitor;
    const KEY: &'static str = "monitor";

    fn inner(&self) -> &Monitor {
        &self.0
    }
}

impl Wrapper for Powers {
    type Memory = ();
}

/// Its space depends on the inner reductions and barriers, which are compared even if no declared argument has changed.
#[test]
fn a_nested_state_is_for_one_pass_structure() {
    let nested = |powers| flatten(chain((Powers::new(powers), sgd(0.1))));
    for (made, stepped) in [(1, 2), (2, 1)] {
        let mut params = vec![1.0, -2.0, 3.0_f64];
        let mut state = nested(made).init(&params).unwrap();
        nested(made).step(&mut params, &vec![1.0, 2.0, 3.0], &mut state).unwrap();
        let sums = nested(made).readings(&state).unwrap();
        assert!(format!("{sums:?}").contains(if made == 1 { "6.0" } else { "14.0" }), "{sums:?}");
        let (before, held) = (params.clone(), (*state).clone());
        let error = nested(stepped).step(&mut params, &vec![1.0, 2.0, 3.0], &mut state).unwrap_err();
        assert!(error.to_string().contains("made by another transformation"), "{error}");
        assert!(params == before && same_bits(&*state, &held));
        nested(made).step(&mut params, &vec![1.0, 2.0, 3.0], &mut state).unwrap();
    }
}
