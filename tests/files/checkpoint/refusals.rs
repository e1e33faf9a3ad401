use gradchain::Migration;
use gradchain::checkpoint::Load;
use gradchain::state::same_bits;
use gradchain::transform::scale_by_schedule;

use super::*;

/// Asserts that nothing changes.
fn refused<T: GradientTransformation<Needs = Nothing>>(
    file: &Checkpoint,
    transformation: &T,
    params: &DynTree,
) -> String {
    let mut into = params.clone();
    let error = file.load(transformation, &mut into).unwrap_err();
    assert!(error.is_mismatch(), "{error}");
    assert_eq!(&into, params, "nothing is changed");
    error.to_string()
}

fn saved<T: GradientTransformation<Needs = Nothing>>(transformation: &T, params: &DynTree) -> Checkpoint {
    let mut params = params.clone();
    let mut state = transformation.init(&params).unwrap();
    let grads = params.clone();
    transformation.step(&mut params, &grads, &mut state).unwrap();
    file(transformation, &state, &params)
}

#[test]
fn every_difference_is_named() {
    let params = dyn_tree(&[("a", &[1.0, 2.0]), ("b", &[3.0, 4.0])]);
    let adam = adam(0.1);
    let file = saved(&adam, &params);
    for (what, said) in [
        (refused(&file, &gradchain::adam(0.2), &params), "optimizer: $.adam.learning_rate: expected 0.2, found 0.1"),
        (refused(&file, &adam.clone().b1(0.8), &params), "optimizer: $.adam.b1: expected 0.8, found 0.9"),
        (refused(&file, &sgd(0.1), &params), "optimizer: $: expected sgd, found adam"),
        (refused(&file, &sgd(0.1), &params), "state: `0.mu[a]`: unexpected moment f32 [2]"),
        (refused(&file, &chain((clip(1.0), adam.clone())), &params), "optimizer: $: expected chain, found adam"),
        (
            refused(&file, &adam.clone().mu_dtype(gradchain::DType::F64), &params),
            "state: `0.mu[a]`: expected moment f64 [2], found moment f32 [2]",
        ),
        (
            refused(&file, &adam, &dyn_tree(&[("a", &[1.0, 2.0]), ("b", &[3.0])])),
            "parameters: b: expected shape [1], found [2]",
        ),
        (
            refused(&file, &adam, &dyn_tree(&[("a", &[1.0, 2.0]), ("c", &[3.0, 4.0])])),
            "parameters: unexpected leaf b: f32 [2]\n  parameters: missing leaf c: f32 [2]",
        ),
    ] {
        assert!(what.contains(said), "{what}\n\nhas not\n\n{said}");
        assert!(what.starts_with("the checkpoint does not fit: "), "{what}");
    }
}

#[test]
fn a_type_is_never_narrowed() {
    let optimizer = adam(0.1);
    let wide = array![1.0_f64, 2.0];
    let state = optimizer.init(&wide).unwrap();
    let file = file(&optimizer, &state, &wide);
    let mut narrow = array![0.0_f32, 0.0];
    let error = file.load(&optimizer, &mut narrow).unwrap_err().to_string();
    assert!(error.contains("parameters: (root): expected type f32, found f64"), "{error}");
    assert_eq!(narrow, array![0.0_f32, 0.0]);
}

#[test]
fn leaves_of_one_shape_are_not_taken_for_one_another() {
    // Positions would swap these.
    let optimizer = adam(0.1);
    let file = saved(&optimizer, &dyn_tree(&[("first", &[1.0, 2.0]), ("second", &[30.0, 40.0])]));
    let mut other = dyn_tree(&[("second", &[0.0, 0.0]), ("third", &[0.0, 0.0])]);
    assert!(file.load(&optimizer, &mut other).is_err());
    let moved = Migration::new().rename("first", "third");
    let (state, report) = Load::strict().migrating(moved).load(&file, &optimizer, &mut other).unwrap();
    assert_eq!(report.loaded, ["second", "third"]);
    let index = |path| state.structure().index_of(path).unwrap();
    let mu = state.0.moment("mu").unwrap().to_array(index("third")).unwrap();
    assert!((mu[0] - 0.1).abs() < 1e-6, "{mu}");
    assert!(other.get::<f32>("second").unwrap()[0] > 29.0);
}

#[test]
fn unmatched_leaves_need_fresh_or_drop() {
    let optimizer = sgd(0.1).momentum(0.9);
    let file = saved(&optimizer, &dyn_tree(&[("body/w", &[1.0]), ("old/w", &[2.0])]));
    let here = dyn_tree(&[("body/w", &[0.0]), ("head/w", &[7.0, 7.0])]);
    let verbs = |migration| Load::strict().migrating(migration).load(&file, &optimizer, &mut here.clone());

    let error = verbs(Migration::new().fresh(Mask::path("head/*"))).unwrap_err().to_string();
    assert!(error.contains("unexpected leaf old/w"), "{error}");
    let error = verbs(Migration::new().drop(Mask::path("old/*"))).unwrap_err().to_string();
    assert!(error.contains("missing leaf head/w"), "{error}");
    let error = verbs(Migration::new().drop(Mask::path("odl/*"))).unwrap_err();
    assert!(error.is_no_match() && error.to_string().contains("odl/*"), "{error}");

    let mut params = here.clone();
    let migration = Migration::new().fresh(Mask::path("head/*")).drop(Mask::path("old/*"));
    let load = Load::strict().migrating(migration);
    let (_, report) = load.load(&file, &optimizer, &mut params).unwrap();
    assert_eq!(report.to_string(), "loaded: body/w\nfresh: head/w\ndropped: old/w\n");
    assert_eq!(params.get::<f32>("head/w").unwrap(), array![7.0_f32, 7.0].into_dyn());
    assert_eq!(params.get::<f32>("body/w").unwrap(), array![0.9_f32].into_dyn());
    let mut alone = here.clone();
    load.load_params(&file, &mut alone).unwrap();
    assert_eq!(alone, params);
}

#[test]
fn a_state_that_a_panic_went_through_is_not_saved() {
    let optimizer = scale_by_schedule(gradchain::schedule::from_fn("buggy", |count| {
        assert!(count < 1, "a bug of the user's");
        1.0
    }));
    let mut params = 1.0_f64;
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &1.0, &mut state).unwrap();
    let step = std::panic::AssertUnwindSafe(|| optimizer.step(&mut params, &1.0, &mut state));
    assert!(std::panic::catch_unwind(step).is_err());
    let error = Save::new(&optimizer, &state).to_writer(Cursor::new(Vec::new())).unwrap_err();
    assert!(error.is_poisoned(), "{error}");
}

#[test]
fn parameters_of_another_structure_are_not_saved_with_a_state() {
    let optimizer = adam(0.1);
    let state = optimizer.init(&vec![1.0_f32; 3]).unwrap();
    let error = Save::new(&optimizer, &state).params(&vec![1.0_f32; 4]).to_writer(Cursor::new(Vec::new())).unwrap_err();
    assert!(error.is_structure() && error.differences().len() == 1, "{error}");
}

#[test]
fn a_file_without_parameters_has_a_state() {
    let optimizer = adam(0.1);
    let (params, state) = trained(&optimizer, 2);
    let file = Checkpoint::from_bytes(bytes(&Save::new(&optimizer, &state))).unwrap();
    let error = file.load(&optimizer, &mut model()).unwrap_err();
    assert!(error.is_file() && error.to_string().contains("no parameters"), "{error}");
    assert!(same_bits(&*file.load_state(&optimizer, &params).unwrap(), &*state));
}

/// Only arguments of one of both optimizers, by name or path.
#[test]
fn may_differ_names_must_exist() {
    let params = dyn_tree(&[("a", &[1.0, 2.0])]);
    let (before, after) = (chain((clip(1.0), adam(0.1))), chain((clip(1.0), adam(0.2))));
    let file = saved(&before, &params);
    let load = |name: &str| Load::strict().may_differ(name).load(&file, &after, &mut params.clone()).map(drop);
    for name in ["learning_rate", "$.chain[1].adam.learning_rate", "$.chain[1]", "$"] {
        load(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert!(load("b1").unwrap_err().is_mismatch());
    for name in ["learning_rat", "adamw", "chain[1].adam.lr", "$.chain[2]", ""] {
        let error = load(name).unwrap_err().to_string();
        assert!(error.starts_with("may_differ: unknown argument"), "{name}: {error}");
    }
    assert!(load("learning_rat").unwrap_err().to_string().contains("learning_rate"));
    // The suggested call keeps earlier names.
    let after = chain((clip(1.0), adam(0.2).b1(0.8)));
    let load = |load: Load| load.load(&file, &after, &mut params.clone()).map(drop);
    let error = load(Load::strict().may_differ("learning_rate").may_differ("b2")).unwrap_err().to_string();
    assert!(error.contains(r#"`Load::strict().may_differ("learning_rate").may_differ("b1")` resumes with"#), "{error}");
    load(Load::strict().may_differ("learning_rate").may_differ("b1")).unwrap();
}

/// Differences in remaining stages are reported even if everything may differ.
#[test]
fn all_that_differs_is_reported_where_members_came_and_went() {
    let params = dyn_tree(&[("a", &[1.0, 2.0])]);
    let file = saved(&adam(0.1), &params);
    let after = chain((zero_nans(), adam(0.2).b1(0.8)));
    let error = file.load(&after, &mut params.clone()).unwrap_err().to_string();
    for line in [
        "optimizer: $: expected chain, found adam",
        "optimizer: $.chain[1].adam.b1: expected 0.8, found 0.9",
        "the fields of the whole state are now in `1`: `wrap_in_chain(\"\", 1)` moves them",
    ] {
        assert!(error.contains(line), "{error}");
    }
    let load = Load::strict().may_differ("$").migrating(Migration::new().wrap_in_chain("", 1));
    let (_, report) = load.load(&file, &after, &mut params.clone()).unwrap();
    let expected = [
        "$: expected chain, found adam",
        "$.chain[1].adam.b1: expected 0.8, found 0.9",
        "$.chain[1].adam.learning_rate: expected 0.2, found 0.1",
    ];
    assert_eq!(report.differed, expected);
}

/// One error lists the stage, the leaf and sufficient verbs.
#[test]
fn new_members_and_new_leaves_are_told_together() {
    let (old, new) = (dyn_tree(&[("a", &[1.0, 2.0])]), dyn_tree(&[("a", &[0.0, 0.0]), ("b", &[3.0])]));
    let after = chain((zero_nans(), clip(1.0), adam(0.1)));
    let file = saved(&chain((clip(1.0), adam(0.1))), &old);
    let error = refused(&file, &after, &new);
    for line in [
        "optimizer: $.chain: expected 3 members, found 2: [0] zero_nans is new",
        "parameters: missing leaf b: f32 [1]",
        "state: `2.0.mu[a]`: expected moment f32 [2], found nothing",
        "changes of leaves need a `Migration`: `fresh`, `drop`, `rename`",
        "the fields of `1` are now in `2`: if a member was inserted, use `insert_part(\"0\")`",
    ] {
        assert!(error.contains(&format!("\n  {line}")), "{error}\n\nhas not\n\n{line}");
    }
    assert!(!error.contains("[b]"), "{error}");

    let said = || Migration::new().insert_part("0").fresh("b");
    let load = |migration, after: &_| Load::strict().migrating(migration).load(&file, after, &mut new.clone());
    let (_, report) = load(said(), &after).unwrap();
    let expected = "fresh: b\ndiffered: $.chain: expected 3 members, found 2: [0] zero_nans is new\n\
                    started: 0.found_nan\nstarted: 0.zeroed\n";
    assert_eq!(report.to_string(), format!("loaded: a\n{expected}"));
    // Other parts do not excuse differing arguments.
    let error = load(said(), &chain((zero_nans(), clip(1.0), adam(0.1).b1(0.8)))).unwrap_err().to_string();
    assert!(error.contains("1 difference\n  optimizer: $.chain[2].adam.b1: expected 0.8, found 0.9\n"), "{error}");
    let error = refused(&file, &chain((zero_nans(), clip(1.0), radam(0.1))), &old);
    assert!(error.contains("found 2: [0] zero_nans is new, [2] radam is new, [1] adam is gone"), "{error}");
    // A replaced rule is no insertion.
    let inserting = Load::strict().migrating(Migration::new().insert_part("0"));
    let error = inserting.load(&file, &chain((zero_nans(), clip(1.0), radam(0.1))), &mut old.clone()).unwrap_err();
    assert!(error.to_string().ends_with("adam is gone"), "{error}");
    let without_effect =
        Load::strict().may_differ("clip").load(&file, &after, &mut new.clone()).unwrap_err().to_string();
    assert!(without_effect.contains("\n  `may_differ(\"clip\")` matches no difference"), "{without_effect}");
    let error = load(Migration::new().insert_part("7").fresh("b"), &after).unwrap_err().to_string();
    assert!(error.contains("`insert_part(\"7\")` does nothing"), "{error}");
}

/// Another name is another part, which needs a migration.
#[test]
fn named_members_are_told_by_name() {
    let params = dyn_tree(&[("a", &[1.0, 2.0])]);
    let file = saved(&named_chain(["clip", "adam"], (clip(1.0), adam(0.1))), &params);
    let after = named_chain(["clip", "descend"], (clip(1.0), adam(0.1)));
    let error = refused(&file, &after, &params);
    assert!(error.contains("optimizer: $.named_chain[1][0]: expected \"descend\", found \"adam\""), "{error}");
    let load = Load::strict().migrating(Migration::new().rename_part("adam", "descend"));
    load.load(&file, &after, &mut params.clone()).unwrap();
    let longer = named_chain(["clip", "zero", "adam"], (clip(1.0), zero_nans(), adam(0.1)));
    let error = refused(&file, &longer, &params);
    assert!(error.contains("$.named_chain: expected 3 members, found 2: [1] zero is new"), "{error}");
}
