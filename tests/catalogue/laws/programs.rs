//! Every entry equals its programs, or is not recordable for a known reason.

use std::collections::BTreeMap;

use gradchain::program::{Executor, Interpreter, Op, Pass, Programs, Value};
use gradchain::state::{Entry, State, StateWalk};
use gradchain::{Error, GradientTransformation, Result};

use super::holds;
use crate::common::registry::{all_selected, registry};
use crate::common::same_values;
use crate::common::subject::{AnyState, Subject};
use crate::common::trees::{LeafPlan, Number, Order, Problem, noise, tree};

const REASONS: [&str; 7] = [
    "it works on whole leaves, between passes",
    "its preconditioning is not a product of matrices",
    "it evaluates the loss at other points",
    "its arithmetic depends on the index of the element",
    "it reads chunks of updates, not single elements",
    "its state restarts from the parameters",
    "its state is 8-bit, which devices do not support",
];

/// Returns the reason; any other fails.
fn reason(entry: &dyn Subject, error: &Error) -> &'static str {
    let said = error.to_string();
    let reason = REASONS.into_iter().find(|reason| error.is_unrecordable() && said.contains(reason));
    reason.unwrap_or_else(|| panic!("{}: {said}", entry.name()))
}

/// Numbers of each leaf with an array, by field.
type Arrays = BTreeMap<String, Vec<Option<Vec<f64>>>>;

/// Returns the state's text without arrays, and the arrays.
fn remembered(state: &AnyState) -> (Vec<String>, Arrays) {
    let (mut values, mut arrays) = (Vec::new(), BTreeMap::new());
    let mut show = |path: &str, entry: Entry<'_>| match entry {
        Entry::Moments(moments) => {
            let leaves = (0..moments.len()).map(|leaf| moments.to_array(leaf).map(|array| array.into_iter().collect()));
            arrays.insert(path.to_owned(), leaves.collect());
        }
        other => values.push(format!("{path}: {other:?}")),
    };
    state.walk(&mut StateWalk::new(&mut show));
    (values, arrays)
}

/// Takes a limited number of leaves at a time.
struct InParts(Interpreter, usize);

impl Executor for InParts {
    fn pass(&mut self, pass: &Pass) -> Result<Vec<Vec<f64>>> {
        let adds = pass.leaves.iter().any(|leaf| !leaf.program.sums().is_empty());
        assert!(adds || pass.leaves.len() <= self.1 || !pass.leaves[0].program.is_elementwise());
        self.0.pass(pass)
    }
    fn batch_size(&self) -> usize {
        self.1
    }
}

fn interpreted(entry: &dyn Subject, problem: &Problem) -> Result<()> {
    entry.programs(&problem.params)?;
    [usize::MAX, 1, 2].into_iter().try_for_each(|leaves| interpreted_by(entry, problem, leaves))
}

fn interpreted_by(entry: &dyn Subject, problem: &Problem, leaves: usize) -> Result<()> {
    let (mut here, mut there) = (entry.init(&problem.params)?, entry.init(&problem.params)?);
    let mut machine = InParts(Interpreter::new(&problem.params, &there.state())?, leaves);
    let (mut params, mut made) = (problem.params.clone(), problem.params.clone());
    for (t, grads) in problem.grads.iter().enumerate() {
        machine.0.set_gradients(grads)?;
        let outcome = there.step_on(&mut machine)?;
        assert_eq!(here.step(&mut params, grads)?, outcome, "{}, step {t}", entry.name());
        machine.0.params_into(&mut made)?;
        let same = same_values(&params, &made);
        same.unwrap_or_else(|problem| panic!("{}, step {t}: {problem}", entry.name()));
        let ((ours, arrays), (theirs, _)) = (remembered(&here.state()), remembered(&there.state()));
        assert_eq!(ours, theirs, "{}, step {t}", entry.name());
        for (name, leaves) in arrays {
            let found = machine.0.array(&name).expect("an array of the state");
            for (leaf, expected) in leaves.into_iter().enumerate() {
                let found = found.to_array(leaf).map(|array| array.into_iter().collect::<Vec<f64>>());
                assert_eq!(expected, found, "{}, step {t}, {name} of leaf {leaf}", entry.name());
            }
        }
    }
    Ok(())
}

fn is_its_programs(entry: &dyn Subject, problem: &Problem) {
    if let Err(error) = interpreted(entry, problem) {
        reason(entry, &error);
    }
}

#[test]
fn every_entry_is_its_programs_or_has_a_reason() {
    holds(is_its_programs, 4);
}

fn boxes_have_the_programs_of_their_entry(entry: &dyn Subject, problem: &Problem) {
    let shown = |programs: Result<Programs>| programs.map_err(|error| error.to_string());
    let (inside, boxed) = (entry.programs(&problem.params), entry.boxed().programs(&problem.params));
    assert_eq!(shown(boxed), shown(inside), "{}", entry.name());
}

#[test]
fn every_box_has_the_programs_of_its_entry() {
    holds(boxes_have_the_programs_of_their_entry, 2);
}

/// A previous recording may be reused.
#[test]
fn programs_do_not_depend_on_earlier_recordings() {
    let leaf = |number, shape: &[usize]| LeafPlan { number, shape: shape.to_vec(), order: Order::C };
    let plan = [leaf(Number::F32, &[3]), leaf(Number::F64, &[2]), leaf(Number::F32, &[2, 3]), leaf(Number::Bf16, &[4])];
    let recorded = |entry: &dyn Subject| {
        let params = tree(&plan, |leaf, i| noise(3, leaf, i));
        entry.programs(&params).map_err(|error| error.to_string())
    };
    let entries = registry();
    let alone = |i: usize| std::thread::scope(|scope| scope.spawn(|| recorded(&*registry()[i])).join().unwrap());
    let first: Vec<_> = (0..entries.len()).map(alone).collect();
    let there_and_back = (0..entries.len()).chain((0..entries.len()).rev());
    for i in there_and_back {
        for again in 0..2 {
            assert_eq!(recorded(&*entries[i]), first[i], "{}, {again}", entries[i].name());
        }
    }
}

/// Some devices flush subnormals to zero.
#[test]
fn no_program_has_a_subnormal_constant() {
    for number in [Number::F32, Number::F64] {
        let params = tree(&[LeafPlan { number, shape: vec![3], order: Order::C }], |_, i| i as f64);
        let entries = registry();
        let recorded: Vec<_> =
            entries.iter().filter_map(|entry| Some((entry.name(), entry.programs(&params).ok()?))).collect();
        assert!(!all_selected() || recorded.len() > 100);
        for (name, programs) in &recorded {
            for leaf in programs.passes().iter().flat_map(|pass| &pass.leaves) {
                for (op, _) in leaf.program.lines() {
                    let subnormal = match op {
                        Op::Constant(Value::F32(x)) => x.is_subnormal(),
                        Op::Constant(Value::F64(x)) => x.is_subnormal(),
                        _ => false,
                    };
                    assert!(!subnormal, "{name}: {op:?} in\n{}", leaf.program);
                }
            }
        }
    }
}

/// Over several chunks.
#[test]
fn sums_of_programs_are_those_of_the_engine() {
    let plan = vec![LeafPlan { number: Number::F32, shape: vec![17_000], order: Order::C }];
    let params = tree(&plan, |leaf, i| noise(1, leaf, i));
    let grads = (0..2).map(|t| tree(&plan, |leaf, i| noise(2 + t, leaf, i))).collect();
    let problem = Problem { plan, params, grads };
    let summing = ["clip_by_global_norm", "scale_by_trust_ratio", "dog", "apply_if_finite", "mechanize", "zero_nans"];
    for entry in registry().iter().filter(|entry| summing.contains(&entry.name())) {
        interpreted(&**entry, &problem).unwrap_or_else(|error| panic!("{}: {error}", entry.name()));
    }
}

#[test]
fn most_entries_are_programs() {
    let params = tree(&[LeafPlan { number: Number::F32, shape: vec![3], order: Order::C }], |_, i| i as f64);
    let (mut refused, entries) = (BTreeMap::<_, Vec<_>>::new(), registry());
    for entry in &entries {
        if let Err(error) = entry.programs(&params) {
            refused.entry(reason(&**entry, &error)).or_default().push(entry.name());
        }
    }
    let refused_in_all: usize = refused.values().map(Vec::len).sum();
    println!("{} of {} entries are programs; the others: {refused:#?}", entries.len() - refused_in_all, entries.len());
    assert!(!all_selected() || refused_in_all * 3 < entries.len(), "{refused:#?}");
}
