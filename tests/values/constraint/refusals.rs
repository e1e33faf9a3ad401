//! Impossible sets and values outside a set are errors that name the place, and change nothing.

use super::*;
use gradchain::tree::DynTree;

fn named(values: ArrayD<f64>) -> DynTree {
    let mut tree = DynTree::new();
    tree.insert("w", values);
    tree
}

fn refused(constraint: impl Constraint, shape: &[usize], values: &[f64]) -> String {
    let params = named(array(shape, values.to_vec()));
    let error = Constraints::new().at("w", constraint).unconstrain(&params).unwrap_err();
    assert!(error.is_argument());
    error.to_string()
}

#[test]
fn values_outside_of_the_set_are_named() {
    let nan = f64::NAN;
    for (found, expected) in [
        (refused(interval(0.0, 1.0), &[2], &[0.5, 1.0]), "`w[1]` must be strictly between 0 and 1, found 1"),
        (refused(interval(0.0, 1.0), &[2], &[0.0, 0.5]), "`w[0]` must be strictly between 0 and 1, found 0"),
        (refused(interval(0.0, 1.0), &[1, 2], &[0.5, nan]), "`w[0, 1]` must be strictly between 0 and 1, found NaN"),
        (refused(positive(), &[1], &[0.0]), "`w[0]` must be positive and finite, found 0"),
        (refused(positive_exp(), &[1], &[f64::INFINITY]), "`w[0]` must be positive and finite, found inf"),
        (
            refused(simplex(), &[2, 2], &[0.5, 0.5, 0.0, 1.0]),
            "`w[1, 0]` must be positive (0 is only the limit of a softmax), found 0",
        ),
        (
            refused(simplex(), &[2, 2], &[0.5, 0.5, 0.5, 0.25]),
            "`w[1, 0]` must be the first element of a vector with sum 1, found 0.75",
        ),
        (refused(unit_norm(), &[2], &[0.0, 0.0]), "`w[0]` must be the first element of a vector with norm 1, found 0"),
        (
            refused(unit_norm().axis(0), &[2, 2], &[1.0, 3.0, 0.0, 4.0]),
            "`w[0, 1]` must be the first element of a vector with norm 1, found 5",
        ),
        (refused(unit_norm(), &[1], &[nan]), "`w[0]` must be finite, found NaN"),
        (
            refused(orthogonal(), &[1, 2, 2], &[1.0, 0.0, 0.0, 2.0]),
            "`w` must be an orthogonal matrix, found the dot product 4 of its columns 1 and 1",
        ),
        (
            refused(orthogonal(), &[1, 2], &[nan, 0.0]),
            "`w` must be an orthogonal matrix, found the dot product NaN of its rows 0 and 0",
        ),
        (
            refused(positive_definite(), &[2, 2], &[1.0, 0.5, 0.25, 1.0]),
            "`w[1, 0]` must be 0.5, the mirrored element, found 0.25",
        ),
        (
            refused(positive_definite(), &[2, 1, 1], &[1.0, 0.0]),
            "`w[1, 0, 0]` must be of a positive definite matrix, found a pivot of 0",
        ),
        (refused(positive_definite(), &[1, 1], &[nan]), "`w[0, 0]` must be finite, found NaN"),
        (
            refused(symmetric(), &[1, 2, 2], &[0.0, 1.0, -1.0, 0.0]),
            "`w[0, 1, 0]` must be 1, the mirrored element, found -1",
        ),
        (
            refused(weight_norm(), &[2, 2], &[1.0, 0.0, 0.0, 0.0]),
            "`w[1, 0]` must be the first element of a nonzero vector (zeros have no direction), found 0",
        ),
        (refused(weight_norm(), &[1, 2], &[1.0, nan]), "`w[0, 1]` must be finite, found NaN"),
    ] {
        assert_eq!(found, format!("unconstrain: argument {expected}"));
    }
}

#[test]
fn shapes_that_do_not_go_are_named() {
    for (found, expected) in [
        (refused(simplex(), &[], &[1.0]), "`w` must be an array with at least 1 axes, found the shape []"),
        (refused(unit_norm().axis(1), &[1], &[1.0]), "`w` must be an array with at least 2 axes, found the shape [1]"),
        (refused(weight_norm(), &[], &[1.0]), "`w` must be an array with at least 1 axes, found the shape []"),
        (refused(simplex(), &[2, 0], &[]), "`w` must be nonempty vectors, found the shape [2, 0]"),
        (refused(unit_norm(), &[0], &[]), "`w` must be nonempty vectors, found the shape [0]"),
        (refused(weight_norm(), &[2, 0], &[]), "`w` must be nonempty vectors, found the shape [2, 0]"),
        (
            refused(orthogonal(), &[2], &[1.0, 0.0]),
            "`w` must be a matrix, or matrices in the last two axes, found the shape [2]",
        ),
        (
            refused(positive_definite(), &[1, 2], &[1.0, 0.0]),
            "`w` must be a square matrix in the last two axes, found the shape [1, 2]",
        ),
        (
            refused(symmetric(), &[1, 2, 1], &[1.0, 0.0]),
            "`w` must be a square matrix in the last two axes, found the shape [1, 2, 1]",
        ),
    ] {
        assert_eq!(found, format!("unconstrain: argument {expected}"));
    }
}

#[test]
fn intervals_that_hold_nothing_are_refused() {
    for (lower, upper) in [(1.0, 1.0), (1.0, 0.0), (f64::NAN, 1.0), (0.0, f64::INFINITY)] {
        let error = refused(interval(lower, upper), &[1], &[0.5]);
        assert_eq!(
            error,
            format!("interval: argument `bounds` must be finite and in ascending order, found ({lower}, {upper})")
        );
    }
    let error = Constraints::new().at("", interval(1.0, 1.0 + 1e-9)).unconstrain(&1.0_f32).unwrap_err();
    assert_eq!(
        error.to_string(),
        "interval: argument `bounds` must be bounds with a number of type f32 between them, found (1, 1.000000001)"
    );
}

#[test]
fn raw_numbers_without_an_image_are_named() {
    let constrain = |constraints: Constraints, start: ArrayD<f64>, numbers: &[f64]| {
        let mut raw = constraints.unconstrain(&named(start)).unwrap();
        put(&mut raw, numbers);
        let error = raw.constrain().unwrap_err().to_string();
        let gradient = raw.constrain().map(|params| params.into_inner());
        assert!(gradient.is_err());
        (error, raw)
    };
    let at = |constraint: Positive| Constraints::new().at("w", constraint);
    let (error, raw) = constrain(at(positive()), array(&[2], vec![1.0; 2]), &[0.0, f64::NAN]);
    assert_eq!(error, "constrain: argument `w/raw[1]` must be finite, found NaN");
    let error = raw.pull_back(named(array(&[2], vec![1.0; 2]))).unwrap_err().to_string();
    assert_eq!(error, "pull_back: argument `w/raw[1]` must be finite, found NaN");

    let (error, raw) = constrain(Constraints::new().at("w", unit_norm()), array(&[2, 1], vec![1.0, 1.0]), &[1.0, 0.0]);
    let expected = "`w[1, 0]` must be the first element of a nonzero raw vector (zeros have no direction), found 0";
    assert_eq!(error, format!("constrain: argument {expected}"));
    let error = raw.pull_back(named(array(&[2, 1], vec![1.0; 2]))).unwrap_err().to_string();
    assert_eq!(error, format!("pull_back: argument {expected}"));

    let (error, _) = constrain(Constraints::new().at("w", weight_norm()), array(&[1, 1], vec![1.0]), &[1.0, 0.0]);
    assert_eq!(error, "constrain: argument `w[0, 0]` must be the first element of a nonzero raw direction, found 0");

    for numbers in [[1.0, 2.0, 2.0, 4.0], [1.0, 0.0, 1.0, 0.0], [1.0, 1.0 + 1e-16, 1.0, 1.0]] {
        let (error, _) = constrain(Constraints::new().at("w", orthogonal()), identities(&[2, 2]), &numbers);
        assert_eq!(
            error,
            "constrain: argument `w` must be made of a raw matrix with linearly independent columns, found column 1, \
             which depends linearly on earlier ones"
        );
    }

    let (error, _) = constrain(Constraints::new().at("w", positive_definite()), identities(&[1, 1]), &[400.0]);
    assert_eq!(error, "constrain: argument `w[0, 0]` must be within the range of f64, found inf");
}

/// Vectors nearly in the span of the previous ones make gradients grow.
#[test]
fn a_gradient_that_overflows_is_refused() {
    let n = 40;
    let matrix = |apart: f64| {
        let element = |i: usize, j: usize| match j.wrapping_sub(i) {
            0 if i > 0 => apart,
            0 | 1 => 1.0,
            _ => 0.0,
        };
        (0..n * n).map(|at| element(at / n, at % n)).collect::<Vec<f64>>()
    };
    let mut raw = Constraints::new().at("w", orthogonal()).unconstrain(&named(identities(&[n, n]))).unwrap();
    let pull_back = |raw: &Raw<DynTree>| raw.pull_back(named(array(&[n, n], wave(n * n, 0.3)))).map(|g| flat(&g));
    put(&mut raw, &matrix(1e-3));
    let largest = pull_back(&raw).unwrap().iter().fold(0.0_f64, |most, g| most.max(g.abs()));
    assert!(largest > 1e100 && largest.is_finite(), "{largest:e}");
    put(&mut raw, &matrix(1e-12));
    assert_eq!(
        pull_back(&raw).unwrap_err().to_string(),
        "pull_back: argument `w` must be at a point that has a gradient, found raw numbers so close to a singularity \
         that the gradient overflows"
    );
}

#[test]
fn gradients_and_values_of_another_structure_are_refused() {
    let mut raw = Constraints::new().at("0", positive()).unconstrain(&(1.0_f64, vec![2.0_f64])).unwrap();
    let error = raw.pull_back((1.0_f64, vec![1.0_f64, 2.0])).unwrap_err();
    assert!(error.is_structure());
    assert_eq!(
        error.to_string(),
        "pull_back: the gradient does not fit the parameters: 1 difference\n  1: expected shape [1], found [2]"
    );
    let before = listed(&raw);
    assert!(raw.assign(&(1.0, vec![1.0, 2.0])).unwrap_err().is_structure());
    assert!(raw.assign(&(-1.0, vec![1.0])).unwrap_err().is_argument());
    assert_eq!(listed(&raw), before, "nothing has changed");
}

#[test]
fn a_pattern_without_a_leaf_and_two_raw_leaves_of_one_path_are_refused() {
    let params = named(array(&[1], vec![1.0]));
    assert!(Constraints::new().at("v", positive()).unconstrain(&params).unwrap_err().is_no_match());

    let mut params = named(array(&[1], vec![1.0]));
    params.insert("w/raw", array(&[1], vec![1.0]));
    let error = Constraints::new().at("w", positive()).unconstrain(&params).unwrap_err();
    assert_eq!(
        error.to_string(),
        "unconstrain: argument `w/raw` must be the path of only one raw leaf, found another leaf of it"
    );
}

#[derive(Debug)]
struct Told(&'static [&'static str]);

impl Constraint for Told {
    fn parts(&self, leaf: &ConstrainedLeaf<'_>) -> gradchain::Result<Vec<Part>> {
        Ok(self.0.iter().map(|name| Part::new(name, leaf.shape())).collect())
    }
    fn constrain(&self, _: &ConstrainedLeaf<'_>, raw: &[f64], to: &mut [f64]) -> gradchain::Result<()> {
        to.iter_mut().enumerate().for_each(|(i, to)| *to = raw[i]);
        Ok(())
    }
    fn pull_back(&self, _: &ConstrainedLeaf<'_>, _: &[f64], _: &[f64], _: &mut [f64]) -> gradchain::Result<()> {
        Ok(())
    }
    fn unconstrain(&self, _: &ConstrainedLeaf<'_>, values: &[f64], to: &mut [f64]) -> gradchain::Result<()> {
        to[..values.len()].copy_from_slice(values);
        Ok(())
    }
}

/// Raw leaves of the leaf's own numbers and of these shapes.
#[derive(Debug)]
struct Beside(&'static [&'static [usize]]);

impl Constraint for Beside {
    fn parts(&self, leaf: &ConstrainedLeaf<'_>) -> gradchain::Result<Vec<Part>> {
        let names = ["a", "b"].into_iter().zip(self.0);
        Ok([Part::new("raw", leaf.shape())]
            .into_iter()
            .chain(names.map(|(name, shape)| Part::new(name, shape)))
            .collect())
    }
    fn constrain(&self, leaf: &ConstrainedLeaf<'_>, raw: &[f64], to: &mut [f64]) -> gradchain::Result<()> {
        Told(&["raw"]).constrain(leaf, raw, to)
    }
    fn pull_back(&self, _: &ConstrainedLeaf<'_>, _: &[f64], _: &[f64], _: &mut [f64]) -> gradchain::Result<()> {
        Ok(())
    }
    fn unconstrain(&self, leaf: &ConstrainedLeaf<'_>, values: &[f64], to: &mut [f64]) -> gradchain::Result<()> {
        Told(&["raw"]).unconstrain(leaf, values, to)
    }
}

#[test]
fn raw_leaves_that_no_memory_can_hold_are_refused() {
    let params = named(array(&[2], vec![1.0, 2.0]));
    let at = |shapes| Constraints::new().at("w", Beside(shapes)).unconstrain(&params);
    // A square that overflows, too many bytes, and a sum of bytes that is too large.
    const ROOT: usize = 1 << (usize::BITS / 2);
    const PART: usize = 1 << (usize::BITS - 5);
    let cases: [(&'static [&'static [usize]], &str, String); 3] = [
        (&[&[ROOT, ROOT]], "w/a", format!("shape [{ROOT}, {ROOT}]")),
        (&[&[isize::MAX as usize]], "w/a", format!("shape [{}]", isize::MAX)),
        (&[&[PART], &[PART]], "w/b", format!("shape [{PART}]")),
    ];
    for (shapes, path, found) in cases {
        let error = at(shapes).unwrap_err();
        assert!(error.is_argument());
        let expected = "of raw leaves of at most isize::MAX bytes";
        assert_eq!(error.to_string(), format!("unconstrain: argument `{path}` must be {expected}, found {found}"));
    }
    let empty = at(&[&[usize::MAX, 2, 0]]).expect("no numbers");
    assert_eq!(*empty.constrain().expect("values"), params);
}

#[test]
fn raw_leaves_of_constraints_by_hand_are_some_and_have_names_of_their_own() {
    let params = named(array(&[2], vec![1.0, 2.0]));
    let at = |names| Constraints::new().at("w", Told(names)).unconstrain(&params);
    assert_eq!(
        at(&[]).unwrap_err().to_string(),
        "unconstrain: argument `w` must be made of at least one raw leaf, found none for Told([])"
    );
    assert_eq!(
        at(&["a", "a"]).unwrap_err().to_string(),
        "unconstrain: argument `w/a` must be the path of only one raw leaf, found another leaf of it"
    );
    let raw = at(&["a", "b"]).unwrap();
    assert_eq!(listed(&raw), [("w/a".into(), vec![1.0, 2.0]), ("w/b".into(), vec![0.0, 0.0])]);
    assert_eq!(*raw.constrain().unwrap(), params);
}
