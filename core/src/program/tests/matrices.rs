//! Programs of whole matrices.

use crate::transform::{Preconditioning, scale_by_muon};
use crate::transformation::GradientTransformation;

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
