//! Programs of the catalogue's transformations, on an executor that fails and on several threads.

use gradchain::Result;
use gradchain::prelude::*;
use gradchain::program::{Executor, Pass};
use gradchain::transform::{Preconditioning, scale_by_muon};

#[test]
fn products_of_matrices_are_programs() {
    let matrix = ndarray::Array2::<f32>::zeros((3, 2));
    let optimizer = scale_by_muon().ns_steps(1).nesterov(false);
    let programs = optimizer.programs(&matrix).unwrap();
    let shown = programs.to_string();
    let whole = [
        "barrier 0, from stored updates, leaves 0",
        "f32: u, mu; s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10",
        "t1 = s0 * mu",
        "t2 = s1 * u",
        "mu' = t1 + t2",
        "t3 = s2 * mu'",
        "t4 = s3 * u",
        "t5 = t3 + t4",
        "t6 = transpose(t5, [1, 3, 2, 1])",
        "t7 = dots(t6, t6, 6)",
        "t8 = sqrt(t7)",
        "t9 = s7 * t8",
        "t10 = max(t9, s4)",
        "t11 = s5 * t10",
        "t12 = t8 + t11",
        "t13 = max(t12, s6)",
        "t14 = repeat(t13, 6)",
        "t15 = t6 / t14",
        "t16 = s10 * t15",
        "t17 = product(t15, transposed t15, 1·[2, 3]·[3, 2])",
        "t18 = s8 * t17",
        "t19 = product(t17, t17, 1·[2, 2]·[2, 2])",
        "t20 = s9 * t19",
        "t21 = t18 + t20",
        "t22 = product(t21, t15, 1·[2, 2]·[2, 3])",
        "t23 = t16 + t22",
        "u' = transpose(t23, [1, 2, 3, 1])",
    ];
    let from = shown.lines().position(|line| line == whole[0]).unwrap_or_else(|| panic!("{shown}"));
    assert_eq!(shown.lines().skip(from).take(whole.len()).collect::<Vec<_>>(), whole, "{shown}");
    let leaf = &programs.passes()[1].leaves[0];
    let error = leaf.require_elementwise().unwrap_err().to_string();
    assert_eq!(error, "scale_by_muon cannot be recorded as a program: it works on whole leaves, between passes");
    assert!(leaf.program.run(&leaf.scalars, &mut [0.0_f32], 1.0, 1.0).unwrap_err().is_argument());

    let spectral = scale_by_muon().preconditioning(Preconditioning::Spectral);
    let error = spectral.programs(&matrix).unwrap_err().to_string();
    assert!(error.starts_with("scale_by_muon cannot be recorded") && error.contains("preconditioning"), "{error}");
}

#[test]
fn a_failing_device_aborts_the_step() {
    struct Says(Vec<Vec<f64>>);
    impl Executor for Says {
        fn pass(&mut self, _: &Pass) -> Result<Vec<Vec<f64>>> {
            Ok(self.0.clone())
        }
    }
    let (optimizer, params) = (clip_by_global_norm(1.0), (vec![0.0_f32; 3],));
    let mut state = optimizer.init(&params).unwrap();
    let error = optimizer.step_on(&mut Says(vec![vec![1.0, 2.0]]), (), &mut state).unwrap_err();
    assert!(error.is_argument() && error.to_string().contains("1 sums of `0`"), "{error}");
    let error = optimizer.step_on(&mut Says(vec![vec![1.0]]), (), &mut state).unwrap_err();
    assert!(error.is_poisoned(), "{error}");
}

#[test]
fn a_boxed_transformation_has_the_programs_of_the_unboxed() {
    let inside = || chain((zero_nans(), clip_by_global_norm(1.0), masked(adamw(0.1), Mask::path("1"))));
    let params = (vec![0.0_f32; 3], vec![0.0_f32; 20_000]);
    let expected = inside().programs(&params).unwrap();
    assert_eq!(boxed(inside()).programs(&params).unwrap(), expected);
    assert_eq!(boxed(boxed(inside())).programs(&params).unwrap(), expected);
    let doubles = vec![0.0_f64; 3];
    assert_eq!(boxed(adam(0.1)).programs(&doubles).unwrap(), adam(0.1).programs(&doubles).unwrap());
    let error = chain(vec![boxed(clip(1.0)), boxed(adafactor(0.1))]).programs(&ndarray::Array2::<f32>::zeros((2, 2)));
    assert!(error.unwrap_err().to_string().starts_with("scale_by_factored_rms cannot be recorded"));
}

#[test]
fn unrecordable_optimizers_name_the_part_and_the_reason() {
    let matrix = ndarray::Array2::<f32>::zeros((2, 2));
    let error = chain((clip(1.0), adafactor(0.1))).programs(&matrix).unwrap_err();
    assert_eq!(
        error.to_string(),
        "scale_by_factored_rms cannot be recorded as a program: it works on whole leaves, between passes"
    );
    // Found before the step, so the state is unchanged.
    let optimizer = lookahead(adam(0.1), 2, 0.5).reset_state(true);
    let (mut state, mut executor) = (optimizer.init(&matrix).unwrap(), optimizer.programs(&matrix).unwrap());
    optimizer.step_on(&mut executor, (), &mut state).unwrap();
    for _ in 0..2 {
        let error = optimizer.step_on(&mut executor, (), &mut state).unwrap_err();
        assert!(error.is_unrecordable() && error.to_string().contains("restarts"), "{error}");
    }
}

/// Leaves of two types, some masked: more than one thread records.
#[cfg(feature = "rayon")]
#[test]
fn programs_and_steps_are_the_same_by_any_number_of_threads() {
    let in_pool = |threads: usize, work: &(dyn Fn() + Sync)| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work);
    };
    let params: (Vec<Vec<f32>>, Vec<Vec<f64>>) =
        ((1..200).map(|n| vec![0.5; n % 9]).collect(), (1..100).map(|n| vec![-0.25; n]).collect());
    let optimizer = chain((clip_by_global_norm(0.5), masked(adamw(0.1), Mask::path("0/*"))));
    let programs = optimizer.programs(&params).unwrap();
    let step = || {
        let (mut state, mut params) = (optimizer.init(&params).unwrap(), params.clone());
        let mut executor = gradchain::program::Interpreter::new(&params, &*state).unwrap();
        executor.set_gradients(&params).unwrap();
        optimizer.step_on(&mut executor, (), &mut state).unwrap();
        let (mut state, gradients) = (optimizer.init(&params).unwrap(), params.clone());
        optimizer.step(&mut params, &gradients, &mut state).unwrap();
        for (leaf, param) in params.0.iter().enumerate() {
            assert_eq!(executor.params().get::<f32>(leaf), Some(&param[..]));
        }
        for (leaf, param) in params.1.iter().enumerate() {
            assert_eq!(executor.params().get::<f64>(params.0.len() + leaf), Some(&param[..]));
        }
        assert_eq!(optimizer.programs(&params).unwrap(), programs);
    };
    for threads in [1, 2, 5] {
        in_pool(threads, &step);
    }
}
