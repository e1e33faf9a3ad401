//! Masks and labels on random trees, and their errors.

use std::collections::BTreeSet;

use gradchain::select::{Labels, Mask};
use gradchain::tree::{DynTree, Structure};
use gradchain::{GradientTransformation, adamw};
use ndarray::ArrayD;
use proptest::prelude::*;

const WHAT: &str = "here";

fn tree(paths: impl IntoIterator<Item = impl Into<String>>) -> Structure {
    let mut tree = DynTree::new();
    for path in paths {
        let path = path.into();
        // The number of axes is the path's depth.
        tree.insert(path.clone(), ArrayD::<f32>::zeros(vec![1; path.matches('/').count()]));
    }
    Structure::of(&tree).unwrap()
}

fn mask(mask: &Mask, structure: &Structure) -> Vec<bool> {
    mask.resolve(structure, WHAT).unwrap()
}

prop_compose! {
    fn trees()(paths in prop::collection::btree_set("[abw][12]?(/[abw][12]?){0,3}", 1..12)) -> BTreeSet<String> {
        paths
    }
}

/// Generates masks that match something.
fn masks(paths: &BTreeSet<String>) -> impl Strategy<Value = Mask> + use<> {
    let names = prop::sample::select(paths.iter().cloned().collect::<Vec<_>>());
    let leaf = prop_oneof![
        Just(Mask::all()),
        Just(Mask::none()),
        (0_usize..4).prop_map(Mask::min_ndim),
        Just(Mask::by(|leaf| leaf.path().contains('w'))),
        names.clone().prop_map(Mask::path),
        names.prop_map(|path| Mask::paths([format!("{}*{{,/**}}", &path[..1]), "**".into()])),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|a| !a),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| a.and(b)),
            (inner.clone(), inner).prop_map(|(a, b)| a.or(b)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn masks_are_a_boolean_algebra(
        (paths, a, b) in trees().prop_flat_map(|paths| (Just(paths.clone()), masks(&paths), masks(&paths)))
    ) {
        let t = tree(&paths);
        let resolve = |m: Mask| mask(&m, &t);
        let (x, y) = (resolve(a.clone()), resolve(b.clone()));
        prop_assert_eq!(x.len(), paths.len());
        prop_assert_eq!(resolve(a.clone().and(b.clone())), x.iter().zip(&y).map(|(x, y)| x & y).collect::<Vec<_>>());
        prop_assert_eq!(resolve(a.clone().or(b.clone())), x.iter().zip(&y).map(|(x, y)| x | y).collect::<Vec<_>>());
        prop_assert_eq!(resolve(!a.clone().and(b.clone())), resolve((!a.clone()).or(!b)));
        prop_assert_eq!(resolve(!!a), x);
    }

    #[test]
    fn a_path_is_a_pattern_for_itself_and_a_tree_of_all_paths_is_a_predicate(paths in trees()) {
        let t = tree(&paths);
        for path in &paths {
            let expected: Vec<bool> = paths.iter().map(|p| p == path).collect();
            prop_assert_eq!(mask(&Mask::path(path.as_str()), &t), expected);
        }
        // No path may prefix another, or a leaf would match both.
        let flat: Vec<String> = paths.iter().map(|p| p.replace('/', "_")).collect();
        let t = tree(&flat);
        let listed = Mask::tree(flat.iter().map(|p| (p.clone(), p.contains('w'))));
        prop_assert_eq!(mask(&listed, &t), mask(&Mask::by(|leaf| leaf.path().contains('w')), &t));
    }

    #[test]
    fn a_subtree_is_its_own_pattern(paths in trees()) {
        let t = tree(&paths);
        let tops: BTreeSet<&str> = paths.iter().map(|p| p.split('/').next().unwrap()).collect();
        for top in &tops {
            let subtree = Mask::tree(tops.iter().map(|other| (*other, other == top)));
            let pattern = Mask::path(format!("{{{top},{top}/**}}"));
            prop_assert_eq!(mask(&subtree, &t), mask(&pattern, &t));
        }
        let known: Vec<&str> = tops.iter().copied().collect();
        let by_tree = Labels::tree(tops.iter().map(|top| (*top, top.to_string())));
        let by_function = Labels::by(|leaf| leaf.path().split('/').next().unwrap().to_owned());
        prop_assert_eq!(by_tree.resolve(&t, &known, WHAT), by_function.resolve(&t, &known, WHAT));
    }

    #[test]
    fn the_first_pattern_wins(
        (paths, chosen) in trees().prop_flat_map(|paths| {
            let names = prop::sample::subsequence(paths.iter().cloned().collect::<Vec<_>>(), 1..=paths.len());
            (Just(paths), names)
        })
    ) {
        let t = tree(&paths);
        let rules = chosen.iter().map(|path| (path.as_str(), "chosen")).chain([("**", "rest")]);
        let found = Labels::paths(rules).resolve(&t, &["rest", "chosen"], WHAT).unwrap();
        let expected: Vec<usize> = paths.iter().map(|path| usize::from(chosen.contains(path))).collect();
        prop_assert_eq!(&found, &expected);
        let otherwise = Labels::paths(chosen.iter().map(|path| (path.as_str(), "chosen"))).otherwise("rest");
        prop_assert_eq!(otherwise.resolve(&t, &["rest", "chosen"], WHAT).unwrap(), expected);
    }

    #[test]
    fn any_pattern_resolves_or_is_refused(pattern in "[ab12/*?{},!\\[\\]\\\\]{0,8}", paths in trees()) {
        let t = tree(&paths);
        if let Err(error) = Mask::path(pattern).resolve(&t, WHAT) {
            prop_assert!(error.is_argument() || error.is_no_match());
        }
    }
}

#[test]
fn patterns() {
    let t = tree(["embedding", "layers/0/b", "layers/0/w1", "layers/1/b", "layers/1/w1", "w1"]);
    let matched = |pattern: &str| {
        let taken = mask(&Mask::path(pattern), &t);
        t.paths().zip(taken).filter(|(_, taken)| *taken).map(|(path, _)| path.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(matched("**").len(), 6);
    assert_eq!(matched("**/w*"), ["layers/0/w1", "layers/1/w1", "w1"]);
    assert_eq!(matched("*"), ["embedding", "w1"]);
    assert_eq!(matched("layers/*/b"), ["layers/0/b", "layers/1/b"]);
    assert_eq!(matched("layers/[!0]/?"), ["layers/1/b"]);
    assert_eq!(matched("{embedding,**/1/*}"), ["embedding", "layers/1/b", "layers/1/w1"]);
}

#[test]
fn a_bare_array_has_the_empty_path() {
    let t = Structure::of(&[1.0_f32, 2.0]).unwrap();
    for all in [Mask::path("**"), Mask::path("*"), Mask::path(""), Mask::tree([("", true)])] {
        assert_eq!(mask(&all, &t), [true], "{all:?}");
    }
    assert_eq!(Labels::tree([("", "x")]).resolve(&t, &["x"], WHAT).unwrap(), [0]);
}

#[test]
fn a_subtree_ends_at_a_slash() {
    let t = tree(["layer1/w", "layer10/w"]);
    assert_eq!(mask(&Mask::tree([("layer1", true), ("layer10", false)]), &t), [true, false]);
}

#[test]
fn misspelt_patterns_are_found_wherever_they_are() {
    let t = tree(["a/b", "a/w"]);
    let nearest_pattern = || Mask::path("**/bias");
    for m in [
        nearest_pattern(),
        !nearest_pattern(),
        Mask::all().or(nearest_pattern()),
        Mask::none().and(nearest_pattern()),
        Mask::paths(["**/w", "**/bias"]),
    ] {
        let error = m.resolve(&t, WHAT).unwrap_err();
        assert!(error.is_no_match());
        assert_eq!(error.to_string(), "here: pattern `**/bias` matches none of the 2 leaves: `a/b`, `a/w`");
    }
    let labels = Labels::paths([("**/bias", "x")]).otherwise("x");
    assert!(labels.resolve(&t, &["x"], WHAT).unwrap_err().is_no_match());
    assert!(Mask::path("**").resolve(&tree([""; 0]), WHAT).unwrap_err().is_no_match());
    assert_eq!(mask(&Mask::paths([""; 0]), &t), [false, false], "no pattern, no leaf");
}

/// The error suggests the leaves below a layer, or a leaf's layer.
#[test]
fn a_pattern_of_a_layer_proposes_that_of_its_leaves() {
    let t = tree(["body/0/w", "head"]);
    let said = |pattern: &str| Mask::path(pattern).resolve(&t, WHAT).unwrap_err().to_string();
    for (pattern, meant) in [("body", "body/**"), ("body/*", "body/*/**"), ("*/0", "*/0/**"), ("head/**", "head")] {
        assert!(said(pattern).ends_with(&format!("; did you mean `{meant}`?")), "{}", said(pattern));
    }
    assert!(said("tail").ends_with("`head`"), "{}", said("tail"));
    let params = std::collections::BTreeMap::from([(String::from("body"), [1.0_f32, 2.0].map(|x| vec![x]))]);
    let error = adamw(0.1).mask("body").init(&params).unwrap_err();
    assert!(error.is_no_match() && error.to_string().ends_with("; did you mean `body/**`?"), "{error}");
    adamw(0.1).mask("body/**").init(&params).unwrap();
}

#[test]
fn malformed_patterns_are_arguments_out_of_range() {
    let t = tree(["a/b"]);
    for (pattern, why) in [
        ("a/[b", "unclosed character class"),
        ("{a,b", "unclosed brace"),
        ("a\\", "trailing backslash"),
        ("!a/b", "negate the mask instead"),
    ] {
        for error in [
            Mask::path(pattern).resolve(&t, WHAT).unwrap_err(),
            Labels::paths([(pattern, "x")]).resolve(&t, &["x"], WHAT).unwrap_err(),
        ] {
            assert!(error.is_argument());
            assert!(error.to_string().starts_with("here: argument `pattern` must be"), "{error}");
            assert!(error.to_string().contains(pattern) && error.to_string().contains(why), "{error}");
        }
    }
    assert_eq!(mask(&Mask::path("\\!a"), &tree(["!a"])), [true]);
}

#[test]
fn trees_list_every_offender() {
    let t = tree(["a/b", "a/w", "c", "d"]);
    let error = Mask::tree([("a", true), ("a/w", false), ("x", true), ("a/", true)]).resolve(&t, WHAT).unwrap_err();
    let message = error.to_string();
    assert!(error.is_argument());
    for offender in [
        "leaf `a/w` is under `a` and `a/w`",
        "leaf `c` is under no entry",
        "leaf `d` is under no entry",
        "entry `x` has no leaf",
        "entry `a/` has no leaf",
    ] {
        assert!(message.contains(offender), "{message}");
    }
    assert_eq!(message.lines().count(), 6, "{message}");

    let partial = || Labels::tree([("a", "x")]);
    assert!(partial().resolve(&t, &["x"], WHAT).unwrap_err().to_string().contains("leaf `c`"));
    assert_eq!(partial().otherwise("y").resolve(&t, &["x", "y"], WHAT).unwrap(), [0, 0, 1, 1]);
    assert!(Labels::tree([("", "x"), ("a", "x")]).otherwise("x").resolve(&t, &["x"], WHAT).is_err());
}

#[test]
fn unknown_labels_are_named_even_if_unused() {
    let t = tree(["a", "b"]);
    let known = ["adam", "sgd"];
    for labels in [
        Labels::tree([("a", "adam"), ("b", "sdg")]),
        Labels::paths([("**", "adam"), ("b", "sdg")]),
        Labels::tree([("", "adam")]).otherwise("sdg"),
        Labels::paths([("**", "adam")]).otherwise("sdg"),
    ] {
        let error = labels.resolve(&t, &known, WHAT).unwrap_err();
        assert!(error.is_unknown_name());
        assert_eq!(error.to_string(), "here: unknown label `sdg`; did you mean `sgd`? (known: adam, sgd)");
    }
    let error = Labels::by(|leaf| format!("group {}", leaf.path())).resolve(&t, &known, WHAT).unwrap_err();
    assert!(error.to_string().starts_with("here: leaf `a`: unknown label `group a`"), "{error}");
}

#[test]
fn may_be_shared_between_threads() {
    fn check<T: Send + Sync + Clone + std::fmt::Debug>() {}
    check::<Mask>();
    check::<Labels>();
    assert_eq!(format!("{:?}", !Mask::by(|_| true)), "Mask(Not(By(..)))");
}

/// The nearest path for a missing level, dots as separators, or a typo.
#[test]
fn patterns_that_nearly_match_are_proposed() {
    use gradchain::prelude::*;

    let mut params = gradchain::tree::DynTree::new();
    for path in ["layers/0/weight", "layers/0/bias", "layers/1/weight", "head/weight"] {
        params.insert(path, ndarray::arr1(&[1.0_f32]));
    }
    let said = |pattern: &str| masked(sgd(0.1), pattern).init(&params).unwrap_err().to_string();
    for (pattern, meant) in [
        ("weight", "**/weight"),
        ("0/weight", "**/0/weight"),
        ("layers.*.weight", "layers/*/weight"),
        ("layers.0", "layers/0/**"),
        ("**/wieght", "**/weight"),
        ("layer/*/weight", "layers/*/weight"),
        ("heads/**", "head/**"),
    ] {
        let said = said(pattern);
        assert!(said.ends_with(&format!("; did you mean `{meant}`?")), "{pattern}: {said}");
    }
    for pattern in ["nothing", "**/nothing/else", "layers/9/weight", "layers/[7-9]/*"] {
        assert!(!said(pattern).contains("did you mean"), "{}", said(pattern));
    }
    masked(sgd(0.1), format!("layers/{}/**", 1)).init(&params).unwrap();
}
