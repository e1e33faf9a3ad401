//! Properties of every device.
#![allow(dead_code, unreachable_pub, reason = "each kind of device has its part")]

use std::collections::{BTreeMap, HashSet};
use std::io::Cursor;

use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::prelude::*;
use gradchain::program::{LeafProgram, Op, Pass};
use gradchain::schedule::linear;
use gradchain::transform::scale_by_belief;
use gradchain::tree::{DynTree, Slices};
use gradchain_gpu::{Backend, Device};

use crate::common::registry::registry;
use crate::common::trees::{LeafPlan, Number, Order, noise, tree};
use crate::common::{same_values, values};

/// 16-bit floats are converted.
pub const COMPUTED: [Number; 2] = [Number::F32, Number::F64];
pub const HALVES: [Number; 2] = [Number::F16, Number::Bf16];

fn plan(numbers: &[Number]) -> Vec<LeafPlan> {
    let shapes: [(&[usize], Order); 4] =
        [(&[700], Order::C), (&[3, 5], Order::Fortran), (&[], Order::C), (&[2, 0], Order::C)];
    let number = |i: usize| numbers[i % numbers.len()];
    shapes
        .iter()
        .enumerate()
        .map(|(i, (shape, order))| LeafPlan { number: number(i), shape: shape.to_vec(), order: *order })
        .collect()
}

/// Returns the number of programs.
pub fn each_program(mut show: impl FnMut(&str, &Pass, &LeafProgram)) -> usize {
    let mut seen = HashSet::new();
    let all = [[Number::F32, Number::F32], [Number::F64, Number::F64], HALVES];
    for numbers in &all[..if cfg!(feature = "half") { 3 } else { 2 }] {
        let params = tree(&plan(numbers), |leaf, i| noise(1, leaf, i));
        for entry in registry() {
            let Ok(programs) = entry.programs(&params) else { continue };
            for (pass, leaf) in
                programs.passes().iter().flat_map(|pass| pass.leaves.iter().map(move |leaf| (pass, leaf)))
            {
                if leaf.require_elementwise().is_err() {
                    continue;
                }
                let types: Vec<_> = leaf.arrays.iter().map(|array| array.dtype).collect();
                if seen.insert((leaf.program.clone(), pass.from_stored, leaf.dtype, types)) {
                    show(entry.name(), pass, leaf);
                }
            }
        }
    }
    seen.len()
}

/// Catalogue entries with programs step as on the CPU.
///
/// Results are bitwise identical, or differ by at most 1/100,000 if a program calls functions that devices round
/// differently.
pub fn catalogue<B: Backend>(device: &Device<B>, numbers: &[Number]) {
    let problem = plan(numbers);
    let params = tree(&problem, |leaf, i| noise(1, leaf, i));
    let (mut same, mut near, mut refused, mut wrong) = (Vec::new(), Vec::new(), BTreeMap::new(), Vec::new());
    for entry in registry() {
        let Ok(programs) = entry.programs(&params) else { continue };
        let (mut here, mut there) = (entry.init(&params).unwrap(), entry.init(&params).unwrap());
        let structure = gradchain::tree::Structure::of(&params).unwrap();
        let mut arrays = device.arrays(&params, &there.state(), &structure).unwrap();
        let (mut ours, mut theirs) = (params.clone(), params.clone());
        let (mut exact, rough) = (true, programs.passes().iter().flat_map(|pass| &pass.leaves).any(calls_functions));
        for t in 0..4 {
            let grads = tree(&problem, |leaf, i| noise(2 + t, leaf, i));
            arrays.set_gradients(&grads).unwrap();
            match there.step_on(&mut arrays) {
                Ok(outcome) => assert_eq!(here.step(&mut ours, &grads).unwrap(), outcome, "{}", entry.name()),
                Err(error) => {
                    let said = error.is_unrecordable() || error.to_string().contains("have no such function");
                    assert!(said, "{}: {error}", entry.name());
                    refused.insert(entry.name().to_owned(), error.to_string());
                    break;
                }
            }
            arrays.params_into(&mut theirs).unwrap();
            let mut state = there.state();
            arrays.state_into(&mut state).unwrap();
            let (params, states) = (same_values(&ours, &theirs), gradchain::state::same_bits(&state, &here.state()));
            exact &= params.is_ok() && states;
            let close = crate::common::close(&ours, &theirs, if rough { 1e-5 } else { 0.0 });
            if !(exact || rough && close.is_ok()) {
                wrong.push(format!("{}, step {t}: {params:?}, the same state: {states}, {close:?}", entry.name()));
                break;
            }
        }
        if !refused.contains_key(entry.name()) {
            if exact { &mut same } else { &mut near }.push(entry.name().to_owned());
        }
    }
    println!("{}: {} entries with the bits of the CPU", device.backend().name(), same.len());
    println!("near: {near:?}\nrefused: {refused:#?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(same.len() > 100, "{same:?}");
}

fn calls_functions(leaf: &LeafProgram) -> bool {
    let plain = ["-", "abs", "signum", "sqrt", "cube_root", "recip", "floor", "ceil", "round", "trunc", "fract"];
    let of_two = ["+", "-", "*", "/", "max", "min", "copysign"];
    leaf.program.lines().iter().any(|(op, _)| match op {
        Op::Unary(op, _) => !plain.contains(&op.name()),
        Op::Binary(op, ..) => !of_two.contains(&op.name()),
        _ => false,
    })
}

/// Returns leaves of several chunks; one ends within a chunk.
fn large() -> (DynTree, Vec<DynTree>) {
    let leaf = |shape: &[usize]| LeafPlan { number: Number::F32, shape: shape.into(), order: Order::C };
    let plan = [leaf(&[40_001]), leaf(&[3]), leaf(&[128, 128])];
    let some = |seed| tree(&plan, |leaf, i| noise(seed, leaf, i));
    (some(1), (2..5).map(some).collect())
}

fn summing() -> impl gradchain::GradientTransformation<Needs = gradchain::needs::Nothing> {
    chain((zero_nans(), clip_by_global_norm(0.5), lamb(linear(0.1, 0.0, 4)).weight_decay(0.01)))
}

/// Norms of tree and leaves match the CPU's bitwise.
pub fn sums<B: Backend>(device: &Device<B>) {
    let ((mut params, gradients), optimizer) = (large(), summing());
    let mut run = device.init(&optimizer, &params).unwrap();
    let (mut state, mut copy) = (optimizer.init(&params).unwrap(), params.clone());
    for gradients in &gradients {
        run.set_gradients(gradients).unwrap();
        device.step(&optimizer, &mut run).unwrap();
        optimizer.step(&mut params, gradients, &mut state).unwrap();
        run.params_into(&mut copy).unwrap();
        assert_eq!(values(&params), values(&copy));
    }
}

/// Steps more leaves than one launch holds, some of one element.
pub fn many_leaves<B: Backend>(device: &Device<B>) {
    let leaf = |i: usize| LeafPlan { number: COMPUTED[i % 2], shape: vec![1 + i * 37 % 2500], order: Order::C };
    let plan: Vec<_> = (0..300).map(leaf).collect();
    let some = |seed| tree(&plan, |leaf, i| noise(seed, leaf, i));
    let (mut params, optimizer) = (some(1), summing());
    let mut run = device.init(&optimizer, &params).unwrap();
    let (mut state, mut copy) = (optimizer.init(&params).unwrap(), params.clone());
    for seed in 2..5 {
        run.set_gradients(&some(seed)).unwrap();
        device.step(&optimizer, &mut run).unwrap();
        optimizer.step(&mut params, &some(seed), &mut state).unwrap();
    }
    run.params_into(&mut copy).unwrap();
    assert_eq!(values(&params), values(&copy));
}

/// Without 64-bit floats, a reduction's error is at most 2⁻⁴⁰ of the sum of magnitudes.
///
/// A norm, and a quotient by it, differs by at most one unit in the last place of `f32`.
pub fn sums_in_pairs<B: Backend>(device: &Device<B>) {
    let ((params, gradients), optimizer) = (large(), chain((clip_by_global_norm(0.5), sgd(1.0))));
    let mut run = device.init(&optimizer, &params).unwrap();
    let mut state = optimizer.init(&params).unwrap();
    run.set_gradients(&gradients[0]).unwrap();
    device.step(&optimizer, &mut run).unwrap();
    let mut here = params.clone();
    optimizer.step(&mut here, &gradients[0], &mut state).unwrap();
    let norm = |readings: gradchain::watch::Readings| readings.get("clip_by_global_norm.norm").unwrap();
    let exact = norm(optimizer.readings(&state).unwrap());
    let found = norm(optimizer.readings(run.state().unwrap()).unwrap());
    assert!((exact - found).abs() <= exact * 2.0_f64.powi(-40), "{exact} and {found}");
    let mut there = params.clone();
    run.params_into(&mut there).unwrap();
    crate::common::close(&here, &there, f64::from(f32::EPSILON)).unwrap();
}

/// Checks that sums keep their order, `(a + b) + c`, down to one unit in the last place.
pub fn sums_of_three<B: Backend>(device: &Device<B>) {
    for number in COMPUTED {
        for root in [1e-16, 1e-8, 1e-3, 1.0, 1e3] {
            let plan = [LeafPlan { number, shape: vec![700], order: Order::C }];
            let optimizer = scale_by_belief().eps_root(root);
            let mut params = tree(&plan, |leaf, i| noise(1, leaf, i));
            let (mut state, mut there) = (optimizer.init(&params).unwrap(), params.clone());
            let mut run = device.init(&optimizer, &params).unwrap();
            for t in 0..4 {
                let gradients = tree(&plan, |leaf, i| noise(2 + t, leaf, i) * 10_f64.powi(i as i32 % 7 - 3));
                run.set_gradients(&gradients).unwrap();
                device.step(&optimizer, &mut run).unwrap();
                optimizer.step(&mut params, &gradients, &mut state).unwrap();
                run.params_into(&mut there).unwrap();
                assert_eq!(values(&params), values(&there), "eps_root {root:e}, step {t}");
            }
        }
    }
}

/// Checks that a step sends only chunks' sums and scalars.
pub fn traffic<B: Backend>(device: &Device<B>) {
    let ((params, gradients), optimizer) = (large(), chain((clip_by_global_norm(0.5), adamw(cosine_decay(0.1, 100)))));
    let mut run = device.init(&optimizer, &params).unwrap();
    run.set_gradients(&gradients[0]).unwrap();
    device.step(&optimizer, &mut run).unwrap();
    let (kernels, before) = (device.kernels(), device.traffic());
    device.step(&optimizer, &mut run).unwrap();
    let after = device.traffic();
    // 8 bytes for each chunk's sum: three chunks of the first leaf, one of each other.
    assert_eq!(after.to_host - before.to_host, 8 * (3 + 1 + 1));
    assert!(after.to_device - before.to_device < 3 * 2 * 100, "numbers of the step: {before:?}, {after:?}");
    assert_eq!(device.kernels(), kernels, "a schedule compiles nothing anew");
}

/// Steps on the CPU, through a file to the device, and back.
pub fn back_and_forth<B: Backend>(device: &Device<B>) {
    let ((mut params, gradients), optimizer) = (large(), summing());
    let (mut straight, mut state) = (params.clone(), optimizer.init(&params).unwrap());
    for gradients in gradients.iter().cycle().take(6) {
        optimizer.step(&mut straight, gradients, &mut state).unwrap();
    }

    let mut gradients = gradients.iter().cycle();
    let mut state = optimizer.init(&params).unwrap();
    let mut next = || gradients.next().unwrap();
    optimizer.step(&mut params, next(), &mut state).unwrap();
    optimizer.step(&mut params, next(), &mut state).unwrap();
    let mut file = Cursor::new(Vec::new());
    Save::new(&optimizer, &state).params(&params).to_writer(&mut file).unwrap();

    let mut loaded = params.clone();
    let state = Checkpoint::from_bytes(file.into_inner()).unwrap().load(&optimizer, &mut loaded).unwrap();
    let mut run = device.resume(&optimizer, &loaded, state).unwrap();
    for _ in 0..2 {
        run.set_gradients(next()).unwrap();
        device.step(&optimizer, &mut run).unwrap();
    }
    run.params_into(&mut params).unwrap();
    let mut file = Cursor::new(Vec::new());
    Save::new(&optimizer, run.state().unwrap()).params(&params).to_writer(&mut file).unwrap();

    let mut state = Checkpoint::from_bytes(file.into_inner()).unwrap().load(&optimizer, &mut loaded).unwrap();
    for _ in 0..2 {
        optimizer.step(&mut loaded, next(), &mut state).unwrap();
    }
    assert_eq!(values(&straight), values(&loaded));
}

/// Checks that errors name the leaf or the unsupported part.
pub fn misfits<B: Backend>(device: &Device<B>) {
    let (params, optimizer) = (vec![1.0_f32, 2.0], adam(0.1));
    let mut run = device.init(&optimizer, &params).unwrap();
    let said = run.set_gradients(&vec![1.0_f32]).unwrap_err().to_string();
    assert!(said.contains('$') || said.contains("[1]"), "{said}");
    assert!(run.set_gradients(&vec![1.0_f64, 2.0]).is_err());
    let said = device.init(&muon(0.1), &ndarray::Array2::<f32>::zeros((2, 2))).unwrap_err();
    assert!(said.is_unrecordable() && said.to_string().contains("scale_by_muon"), "{said}");
    // More elements than kernels can count.
    let number = ndarray::arr0(1.0_f32);
    let large = Slices::new().with_view("large", number.broadcast((1_usize << 32) + 1).unwrap());
    let said = device.init(&sgd(0.1), &large).unwrap_err().to_string();
    assert!(said.contains("`large` must be of fewer than 2³² elements, found 4294967297"), "{said}");
    assert!(run.gradient("nowhere").is_none() && run.param("nowhere").is_none());
}
