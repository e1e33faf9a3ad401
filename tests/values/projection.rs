//! Projections against naive oracles: as functions, and as the last stage of a chain.

use gradchain::Error;
use gradchain::prelude::*;
use gradchain::projection::*;
use gradchain::schedule::linear;
use gradchain::transform::{project, scale, trace};
use gradchain::tree::{Difference, DynTree, Norm, tree_norm, tree_sum, tree_vdot};
use ndarray::{Array2, ArrayD, IxDyn, ShapeBuilder, array};

/// Returns different numbers between −1 and 1.
fn wave(n: usize, seed: f64) -> Vec<f64> {
    (0..n).map(|i| (seed + 1.7 * i as f64 + 0.3 * (i * i % 17) as f64).sin()).collect()
}

fn flat(tree: &impl Tree) -> Vec<f64> {
    let mut all = Vec::new();
    gradchain::tree::for_each_leaf(tree, |_, leaf| all.extend(leaf.to_f64()));
    all
}

type Several = (f64, Vec<f64>, Array2<f64>, Vec<f64>);

fn tree_of(values: &[f64]) -> Several {
    let (one, rest) = values.split_at(1);
    let rows = rest.len() / 4;
    let (matrix, vector) = rest.split_at(2 * rows);
    let mut fortran = Array2::zeros((rows, 2).f());
    fortran.iter_mut().zip(matrix).for_each(|(x, value)| *x = *value);
    (one[0], Vec::new(), fortran, vector.to_vec())
}

/// Returns points near and far, with ties, and with values of very different sizes.
fn points() -> Vec<Vec<f64>> {
    let mut points: Vec<Vec<f64>> =
        [1, 2, 7, 1300].iter().flat_map(|&n| [0.3, 2.0].map(|scale| times(&wave(n, 0.1 + n as f64), scale))).collect();
    points.push(vec![0.25; 9]);
    points.push((0..60).map(|i| (-1.0_f64).powi(i) * 1.5_f64.powi(-i)).collect());
    points.push(wave(40, 0.7).iter().map(|x| 1e6 + x).collect());
    points
}

fn times(x: &[f64], factor: f64) -> Vec<f64> {
    x.iter().map(|x| x * factor).collect()
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

fn close(found: &[f64], expected: &[f64], what: &str) {
    close_for(1e-3, found, expected, what);
}

fn close_for(size: f64, found: &[f64], expected: &[f64], what: &str) {
    let size = expected.iter().fold(size, |most, x| most.max(x.abs()));
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= 1e-13 * size, "{what}[{i}]: {found:e} is not {expected:e}");
    }
}

/// Sorts, and finds the last element with a positive rest: the textbook algorithm.
fn naive_simplex(x: &[f64], scale: f64) -> Vec<f64> {
    let mut sorted = x.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    // Relative to the largest, since the oracle needs precision too.
    let largest = sorted[0];
    let (mut sum, mut cut) = (0.0, 0.0);
    for (i, value) in sorted.iter().map(|x| x - largest).enumerate() {
        sum += value;
        let candidate = (sum - scale) / (i + 1) as f64;
        if value - candidate > 0.0 {
            cut = candidate;
        }
    }
    x.iter().map(|x| (x - largest - cut).max(0.0)).collect()
}

fn naive_l1_sphere(x: &[f64], scale: f64) -> Vec<f64> {
    let sizes: Vec<f64> = x.iter().map(|x| x.abs()).collect();
    naive_simplex(&sizes, scale).iter().zip(x).map(|(size, x)| if *x < 0.0 { -size } else { *size }).collect()
}

fn check(name: &str, set: &impl Projection, oracle: impl Fn(&[f64]) -> Vec<f64>) {
    for point in points() {
        let mut tree = tree_of(&point);
        set.project(&mut tree).unwrap();
        close(&flat(&tree), &oracle(&point), name);
    }
}

/// Checks sets that couple all numbers; much smaller numbers are less accurate.
fn check_sums(name: &str, set: &impl Projection, oracle: impl Fn(&[f64]) -> Vec<f64>) {
    for point in points() {
        let mut tree = tree_of(&point);
        set.project(&mut tree).unwrap();
        let size = point.iter().fold(1e-3_f64, |most, x| most.max(x.abs()));
        close_for(size, &flat(&tree), &oracle(&point), name);
    }
}

#[test]
fn each_projection_agrees_with_a_naive_one() {
    for scale in [1e-3, 0.05, 0.5, 1.0, 3.0, 30.0, 4e5] {
        check("simplex", &simplex(scale), |x| naive_simplex(x, scale));
        check("l1_sphere", &l1_sphere(scale), |x| naive_l1_sphere(x, scale));
        let inside = |x: &[f64]| x.iter().map(|x| x.abs()).sum::<f64>() <= scale;
        check("l1_ball", &l1_ball(scale), |x| if inside(x) { x.to_vec() } else { naive_l1_sphere(x, scale) });
        check("l2_sphere", &l2_sphere(scale), |x| times(x, scale / dot(x, x).sqrt()));
        check("l2_ball", &l2_ball(scale), |x| times(x, (scale / dot(x, x).sqrt()).min(1.0)));
        check("linf_ball", &linf_ball(scale), |x| x.iter().map(|x| x.max(-scale).min(scale)).collect());
        check("hypercube", &hypercube(scale), |x| x.iter().map(|x| x.clamp(0.0, scale)).collect());
        for (lower, upper) in [(-1.0, 0.3), (-0.5, -0.25), (0.25, 0.5), (0.0, 2.0), (-2.0, 0.0), (-1.0, -1.0)] {
            let (lower, upper) = (lower * scale, upper * scale);
            check("box", &box_set(lower, upper), |x| x.iter().map(|x| x.clamp(lower, upper)).collect());
        }
    }
    check("non_negative", &non_negative(), |x| x.iter().map(|x| x.max(0.0)).collect());
    for a in [-30.0, -2.0, -0.5, 0.25, 1.0, 3.0, 1e3] {
        // The multiple does not matter.
        check_sums("vector", &vector(a), |x| vec![x.iter().sum::<f64>() / x.len() as f64; x.len()]);
        for b in [-1e3, -3.0, -0.5, 0.0, 0.25, 5.0, 1e4] {
            let off = |x: &[f64]| (b - a * x.iter().sum::<f64>()) / (a * x.len() as f64);
            check_sums("hyperplane", &hyperplane(a, b), |x| x.iter().map(|y| y + off(x)).collect());
            let is_inside = |x: &[f64]| a * x.iter().sum::<f64>() <= b;
            check_sums("halfspace", &halfspace(a, b), |x| {
                if is_inside(x) { x.to_vec() } else { x.iter().map(|y| y + off(x)).collect() }
            });
        }
    }
}

#[test]
fn trees_describe_sets() {
    let x = wave(1300, 0.4);
    let (a, b): (Vec<f64>, Vec<f64>) = (wave(1300, 2.0), wave(1300, 3.0));
    let (lower, upper): (Vec<f64>, Vec<f64>) = a.iter().zip(&b).map(|(a, b)| (a.min(*b), a.max(*b))).unzip();
    let project = |set: &dyn Fn(&mut Several) -> Result<(), Error>| {
        let mut tree = tree_of(&x);
        set(&mut tree).unwrap();
        flat(&tree)
    };
    let found = project(&|tree| projection_box(tree, &tree_of(&lower), &tree_of(&upper)));
    let expected: Vec<f64> = (0..1300).map(|i| x[i].clamp(lower[i], upper[i])).collect();
    assert_eq!(found, expected);
    let found = project(&|tree| projection_hypercube(tree, &(0.5_f32, Vec::<f64>::new(), 0.25_f64, 0.125_f64)));
    let scale = |i: usize| {
        if i == 0 {
            0.5
        } else if i < 649 {
            0.25
        } else {
            0.125
        }
    };
    assert_eq!(found, (0..1300).map(|i| x[i].clamp(0.0, scale(i))).collect::<Vec<_>>(), "one number for a leaf");
    let along = dot(&a, &x) / dot(&a, &a);
    close(&project(&|tree| projection_vector(tree, &tree_of(&a))), &times(&a, along), "vector");
    for b in [-7.0, 7.0] {
        let off = (b - dot(&a, &x)) / dot(&a, &a);
        let moved = |off: f64| (0..1300).map(|i| x[i] + off * a[i]).collect::<Vec<_>>();
        close(&project(&|tree| projection_hyperplane(tree, &tree_of(&a), b)), &moved(off), "hyperplane");
        close(&project(&|tree| projection_halfspace(tree, &tree_of(&a), b)), &moved(off.min(0.0)), "halfspace");
    }
}

#[test]
fn points_inside_the_set_keep_their_bits() {
    let tree = (0.1_f32, vec![0.2_f64, -0.0, 1e-300]);
    type Two = (f32, Vec<f64>);
    let same = |project: &dyn Fn(&mut Two) -> Result<(), Error>| {
        let mut found = tree.clone();
        project(&mut found).unwrap();
        assert_eq!(found.0.to_bits(), tree.0.to_bits());
        assert!(found.1.iter().zip(&tree.1).all(|(a, b)| a.to_bits() == b.to_bits()), "{found:?}");
    };
    same(&|tree| projection_l1_ball(tree, 1.0));
    same(&|tree| projection_l2_ball(tree, 1.0));
    same(&|tree| projection_linf_ball(tree, 1.0));
    same(&|tree| projection_halfspace(tree, 1.0, 1.0));
    same(&|tree| projection_box(tree, -1.0, f64::INFINITY));
    same(&|tree| projection_non_negative(tree));
}

#[test]
fn odd_points() {
    let of = |set: &dyn Fn(&mut Vec<f64>) -> gradchain::Result<()>, x: &[f64]| {
        let mut x = x.to_vec();
        set(&mut x).unwrap();
        x
    };
    // From the origin every point of a sphere is equally near.
    assert_eq!(of(&|x| projection_l2_sphere(x, 2.0), &[0.0; 4]), [1.0; 4]);
    assert_eq!(of(&|x| projection_l1_sphere(x, 2.0), &[0.0, -0.0]), [1.0, -1.0]);
    close(&of(&|x| projection_l1_sphere(x, 1.0), &[0.0, 0.1]), &[0.45, 0.55], "l1_sphere");
    for x in [[3.0, -4.0], [0.0, 0.0]] {
        assert_eq!(of(&|x| projection_l2_ball(x, 0.0), &x), [0.0; 2]);
        assert_eq!(of(&|x| projection_l1_ball(x, 0.0), &x), [0.0; 2]);
        assert_eq!(of(&|x| projection_simplex(x, 0.0), &x), [0.0; 2]);
        assert_eq!(of(&|x| projection_l2_sphere(x, 0.0), &x), [0.0; 2]);
    }
    // A large mean, and squares that overflow or vanish, lose no digits.
    assert_eq!(of(&|x| projection_simplex(x, 1e-20), &[1.0, 0.5]), [1e-20, 0.0]);
    close(&of(&|x| projection_l2_ball(x, 5.0), &[3e200, 4e200]), &[3.0, 4.0], "l2_ball");
    close(&of(&|x| projection_l2_sphere(x, 5.0), &[3e-200, 4e-200]), &[3.0, 4.0], "l2_sphere");
    // NaN is propagated; bounds on elements leave the others alone.
    assert!(of(&|x| projection_simplex(x, 1.0), &[f64::NAN, 1.0]).iter().all(|x| x.is_nan()));
    assert!(of(&|x| projection_l1_ball(x, 1.0), &[1.0, f64::NAN]).iter().all(|x| x.is_nan()));
    assert!(of(&|x| projection_l2_ball(x, 1.0), &[f64::NAN, 1.0]).iter().all(|x| x.is_nan()));
    assert!(of(&|x| projection_halfspace(x, 1.0, 1.0), &[f64::NAN, 1.0]).iter().all(|x| x.is_nan()));
    let found = of(&|x| projection_hypercube(x, 1.0), &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
    assert!(found[0].is_nan() && found[1..] == [1.0, 0.0]);
    for set in [projection_simplex::<Vec<f64>>, projection_l1_sphere, projection_l2_sphere, projection_l2_ball] {
        assert!(of(&|x| set(x, 1.0), &[]).is_empty());
    }
    let along: Vec<f64> = Vec::new();
    assert!(of(&|x| projection_vector(x, &along), &[]).is_empty());
    assert!(of(&|x| projection_hyperplane(x, &along, 1.0), &[]).is_empty());
}

#[test]
#[cfg(feature = "half")]
fn leaves_of_all_types_are_rounded_once() {
    use half::{bf16, f16};
    let values = wave(5, 0.2);
    let mut tree = (
        values.iter().map(|x| f16::from_f64(*x)).collect::<Vec<_>>(),
        values.iter().map(|x| bf16::from_f64(*x)).collect::<Vec<_>>(),
        values.iter().map(|x| *x as f32).collect::<Vec<_>>(),
        values.clone(),
    );
    let wide = flat(&tree);
    projection_simplex(&mut tree, 1.0).unwrap();
    let expected = naive_simplex(&wide, 1.0);
    assert!((0..5).all(|i| (tree.0[i].to_f64() - f16::from_f64(expected[i]).to_f64()).abs() < 1e-12));
    assert!((0..5).all(|i| (tree.1[i].to_f64() - bf16::from_f64(expected[5 + i]).to_f64()).abs() < 1e-12));
    assert!((0..5).all(|i| tree.2[i] == expected[10 + i] as f32));
}

fn refused(result: gradchain::Result<()>, message: &str) -> Error {
    let error = result.unwrap_err();
    assert!(error.to_string().contains(message), "{error}");
    error
}

#[test]
fn bad_arguments_change_nothing() {
    let tree = (vec![1.0_f32, 2.0], 3.0_f64);
    let mut x = tree.clone();
    for set in [projection_l1_ball::<(Vec<f32>, f64)>, projection_l1_sphere, projection_l2_ball, projection_l2_sphere] {
        refused(set(&mut x, -1.0), "argument `scale` must be finite and not negative, found -1");
        refused(set(&mut x, f64::NAN), "argument `scale`");
        refused(set(&mut x, f64::INFINITY), "argument `scale`");
    }
    refused(projection_simplex(&mut x, -1.0), "projection_simplex: argument `scale`");
    refused(projection_linf_ball(&mut x, -1.0), "projection_linf_ball: argument `scale`");
    refused(projection_hypercube(&mut x, -1.0), "projection_hypercube: argument `scale`");
    refused(projection_hypercube(&mut x, &(vec![1.0, -1.0], 1.0)), "not negative, found -1 at 0[1]");
    refused(projection_box(&mut x, 1.0, 0.5), "argument `upper` must be at least the lower bound of 1, found 0.5");
    refused(projection_box(&mut x, 1.0, f64::NAN), "argument `upper` must be a number");
    let error = projection_box(&mut x, 1.0, &(vec![1.0, 0.0], 1.0));
    refused(error, "nowhere less than the lower bound, found 0 with a lower bound of 1 in `0`");
    refused(projection_hyperplane(&mut x, 0.0, 1.0), "argument `a` must be not zero everywhere");
    refused(projection_halfspace(&mut x, &(vec![0.0, 0.0], 0.0), 1.0), "argument `a` must be not zero everywhere");
    refused(projection_vector(&mut x, 0.0), "argument `a` must be not zero everywhere");
    refused(projection_hyperplane(&mut x, f64::INFINITY, 1.0), "argument `a` must be finite");
    refused(projection_hyperplane(&mut x, 1.0, f64::NAN), "argument `b` must be finite");
    let error = refused(projection_vector(&mut x, &(vec![1.0_f64; 3], vec![1.0_f64], 0.0)), "does not fit the tree");
    assert!(error.is_structure());
    assert!(
        matches!(
            error.differences(),
            [Difference::Shape { .. }, Difference::Shape { .. }, Difference::Unexpected { .. }]
        ),
        "{error}"
    );
    let error = refused(projection_box(&mut x, 0.0, &(vec![1.0_f64; 2],)), "argument `upper` does not fit the tree");
    assert!(matches!(error.differences(), [Difference::Missing { .. }]));
    assert_eq!(x, tree);
}

/// Compares a chain with a step followed by a projection.
fn same_as_by_hand(set: impl Projection) {
    let optimizer = chain((trace(0.9), scale(-0.1), project(set.clone())));
    let (mut params, mut naive) = (tree_of(&wave(600, 0.9)), wave(600, 0.9));
    let mut state = optimizer.init(&params).unwrap();
    let mut momentum = vec![0.0; 600];
    for step in 0..5 {
        let gradient = wave(600, 5.0 + f64::from(step));
        optimizer.step(&mut params, &tree_of(&gradient), &mut state).unwrap();
        for i in 0..600 {
            momentum[i] = gradient[i] + 0.9 * momentum[i];
            naive[i] -= 0.1 * momentum[i];
        }
        let mut projected = tree_of(&naive);
        set.project(&mut projected).unwrap();
        naive = flat(&projected);
        close(&flat(&params), &naive, "step");
    }
    let trace = state.0.moment("trace").unwrap().to_array(3).unwrap();
    close(&trace.into_iter().collect::<Vec<_>>(), &momentum[299..], "momentum");
}

#[test]
fn the_stage_is_the_function_after_the_step() {
    same_as_by_hand(non_negative());
    same_as_by_hand(box_set(-0.2, 0.5));
    same_as_by_hand(box_set(&tree_of(&times(&wave(600, 1.0), 1e-2)), 0.5));
    same_as_by_hand(hypercube(&(1.0, Vec::<f64>::new(), 0.1, 0.2)));
    same_as_by_hand(linf_ball(0.3));
    same_as_by_hand(simplex(1.0));
    same_as_by_hand(l1_ball(3.0));
    same_as_by_hand(l1_sphere(3.0));
    same_as_by_hand(l2_ball(1.0));
    same_as_by_hand(l2_sphere(1.0));
    same_as_by_hand(hyperplane(&tree_of(&wave(600, 1.0)), 1.0));
    same_as_by_hand(halfspace(&tree_of(&wave(600, 1.0)), -1.0));
    same_as_by_hand(vector(&tree_of(&wave(600, 1.0))));
}

#[test]
fn bounds_hold_exactly_after_a_step() {
    // Of sizes from 1e-9 to 1e9, where `p + (bound − p)` is often not `bound`.
    let sizes = |n: usize, seed: f64| -> Vec<f64> {
        let (x, exponent) = (wave(n, seed), wave(n, seed + 0.5));
        x.iter().zip(&exponent).map(|(x, e)| x * 10.0_f64.powf(9.0 * e)).collect()
    };
    let mut missed = 0;
    for (lower, upper) in [(-0.1, 0.3), (0.1, 1e7 / 3.0), (-1e-5 / 7.0, 1e-5 / 3.0)] {
        let optimizer = chain((scale(1.0), project(box_set(lower, upper))));
        for seed in 0..20 {
            let (p, u) = (sizes(1000, f64::from(seed)), sizes(1000, 0.3 + f64::from(seed)));
            let single = |x: &[f64]| x.iter().map(|x| *x as f32).collect::<Vec<f32>>();
            let mut params = (p.clone(), single(&p));
            let mut state = optimizer.init(&params).unwrap();
            optimizer.step(&mut params, &(u.clone(), single(&u)), &mut state).unwrap();
            for i in 0..1000 {
                let (x, y) = (params.0[i], params.1[i]);
                let room = |width: f64, at: f64, epsilon: f64| width > 4.0 * epsilon * at.abs();
                if room(upper - lower, p[i], f64::EPSILON) {
                    assert!(lower <= x && x <= upper, "{} + {}: {x:e}", p[i], u[i]);
                }
                if room(upper - lower, p[i], f64::from(f32::EPSILON)) {
                    assert!(lower as f32 <= y && y <= upper as f32, "{} + {}: {y:e}", p[i], u[i]);
                }
                let bounded = p[i] + u[i] > upper;
                missed += usize::from(bounded && p[i] + (upper - p[i]) > upper);
            }
        }
    }
    assert!(missed > 100, "the test would see a bound that is missed by rounding: {missed}");
}

#[test]
fn sets_hold_up_to_rounding_after_a_step() {
    let optimizer = chain((adam(0.1), project(l2_ball(0.7))));
    let mut params = (wave(500, 0.1).iter().map(|x| *x as f32).collect::<Vec<f32>>(), wave(500, 0.2));
    let mut state = optimizer.init(&params).unwrap();
    for step in 0..10 {
        let grads = (wave(500, f64::from(step)), wave(500, 0.5 + f64::from(step)));
        let grads = (grads.0.iter().map(|x| *x as f32).collect::<Vec<f32>>(), grads.1);
        optimizer.step(&mut params, &grads, &mut state).unwrap();
        assert!(tree_norm(&params) <= 0.7 * (1.0 + 1e-7), "{}", tree_norm(&params));
    }
    let optimizer = chain((sgd(0.1), project(simplex(1.0))));
    let mut params = wave(500, 0.1).iter().map(|x| *x as f32).collect::<Vec<f32>>();
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &vec![0.5_f32; 500], &mut state).unwrap();
    assert!(params.iter().all(|x| *x >= 0.0), "zeros are exact");
    // Each update is off by at most half a unit in the last place of a parameter below 1.
    assert!((tree_sum(&params) - 1.0).abs() < 500.0 * 0.5_f64.powi(25));
    // A step that stays in the set is bitwise unchanged.
    let (plain, projected) = (sgd(0.1), chain((sgd(0.1), project(l1_ball(1e3)))));
    let (mut a, mut b) = (params.clone(), params);
    let (mut of_a, mut of_b) = (plain.init(&a).unwrap(), projected.init(&b).unwrap());
    let grads: Vec<f32> = wave(500, 0.3).iter().map(|x| *x as f32).collect();
    plain.step(&mut a, &grads, &mut of_a).unwrap();
    projected.step(&mut b, &grads, &mut of_b).unwrap();
    assert_eq!(a, b);
}

#[test]
#[cfg(feature = "half")]
fn sixteen_bit_leaves_are_held_up_to_rounding() {
    let optimizer = chain((sgd(1.0), project(box_set(0.0, 0.7))));
    let p: Vec<half::bf16> = wave(300, 0.1).iter().map(|x| half::bf16::from_f64(3.0 * x)).collect();
    let mut params = p.clone();
    let mut state = optimizer.init(&params).unwrap();
    let zero = vec![half::bf16::ZERO; 300];
    optimizer.step(&mut params, &zero, &mut state).unwrap();
    for (p, x) in p.iter().zip(&params) {
        let expected = p.to_f64().clamp(0.0, 0.7);
        assert!((x.to_f64() - expected).abs() <= 0.5 * (p.to_f64().abs() + 0.7) / 128.0, "{p} became {x}");
        assert!(*x >= half::bf16::ZERO);
    }
}

#[test]
fn radii_and_bounds_follow_schedules_and_injected_values() {
    let optimizer = chain((sgd(1.0), project(l2_ball(linear(4.0, 1.0, 3)))));
    let mut params = vec![6.0_f64, 8.0];
    let mut state = optimizer.init(&params).unwrap();
    for radius in [4.0, 3.0, 2.0, 1.0, 1.0] {
        optimizer.step(&mut params, &vec![-3.0, -4.0], &mut state).unwrap();
        assert!((tree_norm(&params) - radius).abs() < 1e-12);
    }
    let optimizer = project(box_set(linear(-4.0, 0.0, 4), 9.0));
    let mut params = -5.0_f64;
    let mut state = optimizer.init(&params).unwrap();
    for lower in [-4.0, -3.0, -2.0] {
        optimizer.step(&mut params, &0.0_f64, &mut state).unwrap();
        assert_eq!(params, lower);
    }
    let optimizer = inject_hyperparams(project(l2_ball(5.0)));
    let mut params = vec![6.0_f64, 8.0];
    let mut state = optimizer.init(&params).unwrap();
    state.hyperparams_mut().set("scale", 1.0).unwrap();
    optimizer.step(&mut params, &vec![0.0_f64; 2], &mut state).unwrap();
    assert!((tree_norm(&params) - 1.0).abs() < 1e-12);
}

#[test]
fn a_mask_makes_the_chosen_leaves_the_vector() {
    let params = (vec![3.0_f64, 4.0], vec![3.0_f64, 4.0], 1.0_f64);
    let a = (vec![0.0_f64, 0.0], vec![1.0_f64, 1.0], 0.0_f64);
    let zero = (vec![0.0_f64; 2], vec![0.0_f64; 2], 0.0_f64);
    let run = |optimizer: Boxed| {
        let mut params = params.clone();
        let mut state = optimizer.init(&params)?;
        optimizer.step(&mut params, &zero, &mut state)?;
        Ok::<_, Error>(params)
    };
    let second = || Mask::path("1");
    let found = run(boxed(masked(project(l2_ball(1.0)), second()))).unwrap();
    assert_eq!((&found.0, found.2), (&params.0, 1.0));
    close(&found.1, &[0.6, 0.8], "l2_ball");
    let found = run(boxed(masked(project(hyperplane(&a, 1.0)), second()))).unwrap();
    assert_eq!(found, (vec![3.0, 4.0], vec![0.0, 1.0], 1.0));
    let error = run(boxed(masked(project(hyperplane(&a, 1.0)), Mask::path("0")))).unwrap_err();
    assert!(error.to_string().contains("not zero everywhere"), "{error}");
    let error = run(boxed(project(vector(&(vec![1.0_f64; 2], 1.0_f64))))).unwrap_err();
    assert_eq!(error.differences().len(), 1, "{error}");
    let found = run(boxed(masked(project(box_set(&zero, 2.0)), second()))).unwrap();
    assert_eq!(found, (vec![3.0, 4.0], vec![2.0, 2.0], 1.0));
}

#[test]
fn element_bounds_add_no_pass() {
    let params = vec![0.5_f32; 100];
    let plain = adam(0.1).plan(&params).unwrap();
    let bounded = chain((adam(0.1), project(hypercube(1.0)))).plan(&params).unwrap();
    assert_eq!(bounded.passes.len(), 1);
    assert_eq!(bounded.bytes_per_element(), plain.bytes_per_element());
    assert_eq!(chain((adam(0.1), project(simplex(1.0)))).plan(&params).unwrap().passes.len(), 2);
}

#[test]
fn states_are_bare_counts() {
    let optimizer = project(box_set(&vec![0.0_f64; 3], 1.0));
    let state = optimizer.init(&vec![0.0_f64; 3]).unwrap();
    assert_eq!(state.schema().entries.len(), 1);
    assert_eq!(state.count.get(), 0);
}

#[test]
#[cfg(feature = "config")]
fn a_config_builds_the_same_and_is_written_out() {
    use gradchain::config::{self, Config};
    let tree = serde_json::json!({"tree": {"": {"dtype": "f32", "shape": [3], "data": [1.0, "inf", 0.5]}}});
    for (config, expected) in [
        (serde_json::json!({"projection": "projection_l2_ball", "scale": 3.0}), [1.0, 2.0, -2.0]),
        (serde_json::json!({"projection": "projection_simplex"}), [0.0, 1.0, 0.0]),
        (serde_json::json!({"projection": "projection_non_negative"}), [1.0, 2.0, 0.0]),
        (serde_json::json!({"projection": "projection_box", "lower": -1, "upper": tree}), [1.0, 2.0, -1.0]),
        (serde_json::json!({"projection": "projection_hypercube", "scale": tree}), [1.0, 2.0, 0.0]),
        (
            serde_json::json!({"projection": "projection_linf_ball",
                               "scale": {"schedule": {"constant": {"value": 1.5}}}}),
            [1.0, 1.5, -1.5],
        ),
        (
            serde_json::json!({"projection": "projection_hyperplane", "b": 0.0,
                               "a": {"tree": {"": {"shape": [3], "data": [0.0, 0.0, 1.0]}}}}),
            [1.0, 2.0, 0.0],
        ),
    ] {
        let optimizer = config::build(&serde_json::json!({"project": config})).unwrap();
        let written = Config::of(&optimizer).unwrap();
        for optimizer in [optimizer, written.build().unwrap()] {
            let mut params = array![1.0_f64, 2.0, -2.0];
            let mut state = optimizer.init(&params).unwrap();
            optimizer.step(&mut params, &array![0.0_f64, 0.0, 0.0], &mut state).unwrap();
            assert_eq!(params, ndarray::Array1::from(expected.to_vec()), "{config}");
        }
    }
    for (config, message) in [
        (serde_json::json!({"projection": "projection_l2_bal"}), "did you mean `projection_l2_ball`?"),
        (serde_json::json!({"projection": "projection_l2_ball", "scale": -1}), "argument `scale`"),
        (serde_json::json!({"projection": "projection_l2_ball", "lower": 1}), "unknown argument `lower`"),
        (serde_json::json!({"projection": "projection_box", "lower": 1}), "an argument `upper`"),
        (serde_json::json!({"scale": 1}), "an argument `projection`"),
        (
            serde_json::json!({"projection": "projection_vector", "a": {"tree": {"w": {"shape": [2], "data": [1.0]}}}}),
            "argument `data`",
        ),
    ] {
        let error = config::build(&serde_json::json!({"project": config})).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    let schema: serde_json::Value = serde_json::from_str(&config::json_schema()).unwrap();
    let asked = &schema["$defs"]["arguments"]["project"];
    for name in ["projection", "lower", "upper", "scale", "a", "b"] {
        assert!(!asked["properties"][name].is_null(), "{name} is in the schema: {asked}");
    }
    assert_eq!(asked["required"], serde_json::json!(["projection"]));
}

#[test]
fn dynamic_trees_and_strided_views_are_trees_too() {
    let mut tree = DynTree::new();
    tree.insert("w", ArrayD::from_shape_vec(IxDyn(&[2, 2]), vec![3.0_f32, 0.0, 0.0, 4.0]).unwrap());
    projection_l2_ball(&mut tree, 1.0).unwrap();
    assert_eq!(tree.get::<f32>("w").unwrap(), array![[0.6_f32, 0.0], [0.0, 0.8]].into_dyn());
    let mut all = Array2::from_shape_fn((40, 60), |(i, j)| (i * 60 + j) as f64);
    let before = all.clone();
    let mut part = all.slice_mut(ndarray::s![..;3, ..;-2]);
    let expected = times(&flat(&part.view()), 1.0 / Norm::L2.of(&part.view()));
    projection_l2_sphere(&mut part, 1.0).unwrap();
    close(&flat(&part.view()), &expected, "view");
    assert_eq!(all[[1, 1]], before[[1, 1]], "what is not in the view is not touched");
    assert_eq!(tree_vdot(&all.slice(ndarray::s![1, ..]), &before.slice(ndarray::s![1, ..])).unwrap(), {
        let row: Vec<f64> = before.row(1).to_vec();
        dot(&row, &row)
    });
}
