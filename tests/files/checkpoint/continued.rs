//! Runs that continue with groups, in another dtype, or for evaluation only.

use gradchain::Migration;
use gradchain::checkpoint::Load;
use gradchain::state::same_bits;
use gradchain::wrapper::{master, params_swa, sam, schedule_free};

use super::*;

fn tree(values: [f32; 3]) -> DynTree {
    let [a, b, c] = values;
    let mut tree = DynTree::new();
    tree.insert("body/w", array![a, b]);
    tree.insert("head/w", array![c]);
    tree
}

fn gradient_of(step: u64) -> DynTree {
    let x = 1.0 + step as f32;
    tree([x, -0.5 * x, 1.0 / x])
}

fn steps<T: GradientTransformation<Needs = Nothing>>(
    optimizer: &T,
    params: &mut DynTree,
    state: &mut OptState<T>,
    steps: core::ops::Range<u64>,
) {
    for step in steps {
        optimizer.step(params, &gradient_of(step), state).unwrap();
    }
}

fn labels() -> Labels {
    Labels::tree([("body", "body"), ("head", "head")])
}

#[test]
fn split_groups_resume_and_join_again() {
    let one = chain((clip_by_global_norm(1.0), adamw(0.1)));
    let many = chain((clip_by_global_norm(1.0), partition((("body", adamw(0.1)), ("head", adamw(0.1))), labels())));
    let mut params = tree([1.0, -2.0, 0.5]);
    let mut state = one.init(&params).unwrap();
    steps(&one, &mut params, &mut state, 0..3);

    let error = state.migrate(&many, &params, &Migration::new()).unwrap_err().to_string();
    assert!(error.contains("`split_part(\"1\", [\"body\", \"head\"])`"), "{error}");
    let split = Migration::new().split_part("1", ["body", "head"]);
    let mut parted = state.migrate(&many, &params, &split).unwrap();
    let (file, loads) = (file(&one, &state, &params), Load::strict());
    let mut loaded = params.clone();
    let (from_file, report) = loads.clone().migrating(split).load(&file, &many, &mut loaded).unwrap();
    assert!(same_bits(&*from_file, &*parted) && loaded == params);
    assert_eq!(report.differed, ["$.chain[1]: expected partition, found adamw"]);

    let mut apart = params.clone();
    steps(&one, &mut params, &mut state, 3..5);
    steps(&many, &mut apart, &mut parted, 3..5);
    assert_eq!(params, apart);

    let error = parted.migrate(&one, &params, &Migration::new()).unwrap_err().to_string();
    assert!(error.contains("`join_parts(\"1\", [\"body\", \"head\"])`"), "{error}");
    let join = Migration::new().join_parts("1", ["body", "head"]);
    let joined = parted.migrate(&one, &apart, &join).unwrap();
    assert!(same_bits(&*joined, &*state));
    let file = super::file(&many, &parted, &apart);
    let (from_file, _) = loads.migrating(join).load(&file, &one, &mut loaded).unwrap();
    assert!(same_bits(&*from_file, &*state) && loaded == params);
}

#[test]
fn groups_that_have_other_arguments_or_counts_are_told() {
    let (one, params) = (adamw(0.1), tree([1.0, -2.0, 0.5]));
    let many = partition((("body", adamw(0.01)), ("head", adamw(0.1))), labels());
    let state = one.init(&params).unwrap();
    let split = Migration::new().split_part("", ["body", "head"]);
    let (file, mut loaded) = (file(&one, &state, &params), params.clone());
    let load = Load::strict().migrating(split.clone());
    let error = load.load(&file, &many, &mut loaded).unwrap_err().to_string();
    let said = "optimizer: $.partition.transforms.body.adamw.learning_rate: expected 0.01, found 0.1";
    assert!(error.contains(said) && error.contains("1 difference\n"), "{error}");
    load.may_differ("learning_rate").load(&file, &many, &mut loaded).unwrap();

    let mut parted = state.migrate(&many, &params, &split).unwrap();
    parted.1.0.count.increment();
    let join = || Migration::new().join_parts("", ["body", "head"]);
    let error = parted.migrate(&one, &params, &join()).unwrap_err().to_string();
    assert!(error.contains("`head.0.count`: expected 0, as `body.0.count` is, found 1"), "{error}");
    let joined =
        parted.migrate(&one, &params, &Migration::new().drop_part("body.0.count").join_parts("", ["body", "head"]));
    assert_eq!(joined.unwrap().0.count.get(), 1);
    // A group that is not named keeps its leaves.
    let error = parted.migrate(&one, &params, &Migration::new().join_parts("", ["head"])).unwrap_err().to_string();
    assert!(error.contains("`body.0.mu[body/w]`: unexpected"), "{error}");
    let error = state.migrate(&many, &params, &Migration::new().split_part("", ["body"])).unwrap_err().to_string();
    assert!(error.contains("`head.0.mu[head/w]`: expected moment f32 [1], found nothing"), "{error}");
    let error = state.migrate(&many, &params, &Migration::new().split_part("3", ["body"])).unwrap_err().to_string();
    assert!(error.contains("split_part: the state has no part `3`"), "{error}");
}

fn of_type<T: gradchain::tree::DynElement>(tree: &DynTree, with: impl Fn(f64) -> T) -> DynTree {
    let mut new = DynTree::new();
    for path in ["body/w", "head/w"] {
        new.insert(path, tree.get::<f32>(path).unwrap().mapv(|x| with(x.into())));
    }
    new
}

#[test]
fn a_run_resumes_in_another_dtype() {
    let optimizer = adamw(0.1);
    let mut params = tree([1.0, -2.0, 0.3]);
    let mut state = optimizer.init(&params).unwrap();
    steps(&optimizer, &mut params, &mut state, 0..3);
    let (file, mut wide) = (file(&optimizer, &state, &params), of_type(&params, |_| 0.0_f64));

    let error = file.load(&optimizer, &mut wide).unwrap_err().to_string();
    assert!(error.contains("parameters: body/w: expected type f64, found f32"), "{error}");
    assert!(
        error.ends_with("`Migration::new().cast(Mask::all())` rounds values and state to the dtypes of these leaves"),
        "{error}"
    );
    let load = Load::strict().migrating(Migration::new().cast(Mask::all()));
    let (of_wide, report) = load.load(&file, &optimizer, &mut wide).unwrap();
    assert_eq!((wide, report.cast), (of_type(&params, |x| x), vec!["body/w".to_owned(), "head/w".into()]));
    let values = |x: &[f32]| x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
    let (mu, of_wide) = (state.0.moment("mu").unwrap(), of_wide.0.moment("mu").unwrap().clone());
    assert_eq!(of_wide.get::<f64>(0).unwrap(), values(mu.get::<f32>(0).unwrap()));

    // In memory, for some leaves.
    let mut mixed = params.clone();
    mixed.insert("head/w", array![0.25_f64]);
    let error = state.migrate(&optimizer, &mixed, &Migration::new()).unwrap_err();
    assert!(error.to_string().contains("such as `cast` for another dtype") && error.is_structure(), "{error}");
    let moved = state.migrate(&optimizer, &mixed, &Migration::new().cast("head/*")).unwrap();
    assert_eq!(moved.0.moment("mu").unwrap().get::<f32>(0), mu.get::<f32>(0));
    assert_eq!(moved.0.moment("mu").unwrap().get::<f64>(1).unwrap(), values(mu.get::<f32>(1).unwrap()));
    assert!(state.migrate(&optimizer, &mixed, &Migration::new().cast("body/*")).is_err());
    assert!(state.migrate(&optimizer, &params, &Migration::new().cast("nowhere")).unwrap_err().is_no_match());

    // From disk, and in memory.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    Save::new(&optimizer, &state).params(&params).to_file(&path).unwrap();
    for file in [Checkpoint::open(&path).unwrap(), file] {
        let mut wide = of_type(&params, |_| 0.0_f64);
        load.load(&file, &optimizer, &mut wide).unwrap();
        assert_eq!(wide, of_type(&params, |x| x));
        let mut wide = of_type(&params, |_| 0.0_f64);
        load.load_params(&file, &mut wide).unwrap();
        assert_eq!(wide, of_type(&params, |x| x));
    }
}

#[cfg(feature = "half")]
#[test]
fn a_run_resumes_in_bf16_and_back_without_a_bit_lost() {
    use half::bf16;
    let (plain, held) = (adamw(0.1), master(adamw(0.1)));
    let mut params = tree([1.0, -2.0, 0.3]);
    let mut state = plain.init(&params).unwrap();
    steps(&plain, &mut params, &mut state, 0..3);
    let (from_plain, rounded) = (file(&plain, &state, &params), of_type(&params, bf16::from_f64));

    let kept = |state: &OptState<gradchain::wrapper::Master<gradchain::optimizer::Adamw>>| {
        tree(
            [state.master().get::<f32>(0).unwrap(), state.master().get::<f32>(1).unwrap()].concat().try_into().unwrap(),
        )
    };

    // The moments keep all bits; the parameters are rounded.
    let mut narrow = of_type(&params, |_| bf16::ZERO);
    let load = Load::strict().migrating(Migration::new().cast(Mask::all()));
    let (of_narrow, _) = load.load(&from_plain, &plain, &mut narrow).unwrap();
    assert!(narrow == rounded && same_bits(&*of_narrow, &*state));
    assert!(same_bits(&*state.migrate(&plain, &narrow, &Migration::new().cast(Mask::all())).unwrap(), &*state));

    // The message suggests a master; otherwise the report says that it was initialized.
    let cast = Migration::new().cast(Mask::all());
    let mut narrow = of_type(&params, |_| bf16::ZERO);
    let error = Load::strict().migrating(cast.clone()).load(&from_plain, &held, &mut narrow).unwrap_err().to_string();
    assert!(error.contains("`init` makes `master` from the loaded parameters"), "{error}");
    assert!(error.contains("`params_to_part(\"master\")` copies the unrounded ones of the file"), "{error}");
    let load = Load::strict().migrating(cast.wrap_part(""));
    let (of_rounded, report) = load.load(&from_plain, &held, &mut narrow).unwrap();
    assert_eq!(report.started, ["master"]);
    assert_ne!(kept(&of_rounded), params);

    // A master keeps all bits.
    let there = Migration::new().cast(Mask::all()).wrap_part("").params_to_part("master");
    let mut narrow = of_type(&params, |_| bf16::ZERO);
    let (mut of_held, report) = Load::strict().migrating(there.clone()).load(&from_plain, &held, &mut narrow).unwrap();
    assert_eq!((narrow == rounded, report.started), (true, vec![]));
    assert_eq!(kept(&of_held), params);

    // As without the 16-bit part.
    let from_held = file(&held, &of_held, &narrow);
    let back = Migration::new().cast(Mask::all()).params_from_part("master").unwrap_part("");
    let mut wide = tree([0.0; 3]);
    let (of_wide, _) = Load::strict().migrating(back.clone()).load(&from_held, &plain, &mut wide).unwrap();
    assert!(wide == params && same_bits(&*of_wide, &*state));
    let mut alone = tree([0.0; 3]);
    Load::strict().migrating(back.clone()).load_params(&from_held, &mut alone).unwrap();
    assert_eq!(alone, params);
    // A 16-bit step with the same gradients equals one in f32.
    let gradient = gradient_of(3);
    held.step(&mut narrow, &of_type(&gradient, bf16::from_f64), &mut of_held).unwrap();
    plain.step(&mut params, &of_type(&of_type_back(&gradient), f64_as_f32), &mut state).unwrap();
    assert_eq!(kept(&of_held), params);

    // Impossible migrations.
    let error = state.migrate(&held, &narrow, &there).unwrap_err().to_string();
    assert!(error.contains("`master[body/w]`: the earlier parameters are unknown here"), "{error}");
    let error = of_held.migrate(&plain, &params, &back).unwrap_err().to_string();
    assert!(error.contains("`params_from_part`: `migrate` writes no parameters"), "{error}");
    let mut wide = tree([0.0; 3]);
    let missing = Migration::new().cast(Mask::all()).params_from_part("masters").unwrap_part("");
    let error = Load::strict().migrating(missing).load(&from_held, &plain, &mut wide).unwrap_err().to_string();
    assert!(error.contains("params_from_part: the state has no part `masters`"), "{error}");
    let uncast = Migration::new().params_from_part("master").unwrap_part("");
    let mut narrow = of_type(&params, |_| bf16::ZERO);
    let error = Load::strict().migrating(uncast).load(&from_held, &plain, &mut narrow).unwrap_err().to_string();
    assert!(error.contains("parameters: expected body/w: bf16 [2], found f32 [2] in `master[body/w]`"), "{error}");
    assert_eq!(wide, tree([0.0; 3]));
}

#[cfg(feature = "half")]
fn of_type_back(tree: &DynTree) -> DynTree {
    of_type(tree, |x| half::bf16::from_f64(x).to_f32())
}

#[cfg(feature = "half")]
fn f64_as_f32(x: f64) -> f32 {
    x as f32
}

fn evaluates<T: GradientTransformation<Needs = Nothing>>(optimizer: &T) {
    let mut params = tree([1.0, -2.0, 0.3]);
    let mut state = optimizer.init(&params).unwrap();
    steps(optimizer, &mut params, &mut state, 0..4);
    let (file, expected) = (file(optimizer, &state, &params), state.eval_params(&params).unwrap().into_inner());
    assert_ne!(expected, params);
    let mut found = tree([0.0; 3]);
    file.load_eval_params(optimizer, &mut found).unwrap();
    assert_eq!(found, expected);
    file.load_params(&mut found).unwrap();
    assert_eq!(found, params);

    // They do not replace the trained ones.
    let eval = state.eval_params(&params).unwrap();
    let refused = |error: gradchain::Error| {
        assert!(error.to_string().contains("`Checkpoint::load_eval_params` computes the others"), "{error}");
    };
    let to = || Cursor::new(Vec::new());
    refused(Save::new(optimizer, &state).params(&*eval).to_writer(to()).unwrap_err());
    refused(Save::new(optimizer, &state).params(&eval).to_writer(to()).unwrap_err());
    steps(optimizer, &mut params, &mut state, 4..5);
    refused(Save::new(optimizer, &state.clone()).params(&*eval).to_writer(to()).unwrap_err());
    Save::new(optimizer, &state).params(&params).to_writer(to()).unwrap();
    Save::new(optimizer, &state).to_writer(to()).unwrap();
}

#[test]
fn evaluation_parameters_come_from_a_file() {
    evaluates(&params_ema(adamw(0.1), 0.9));
    evaluates(&chain((clip(1.0), params_swa(sgd(0.1)))));
    evaluates(&schedule_free(sgd(0.1), 0.1));
    evaluates(&lookahead(sgd(0.1), 3, 0.5));
    evaluates(&sam(sgd(0.1), sgd(0.05)).sync_period(3));

    // Without evaluation parameters nothing changes.
    let (optimizer, params) = (adamw(0.1), tree([1.0, -2.0, 0.3]));
    let file = file(&optimizer, &optimizer.init(&params).unwrap(), &params);
    let mut found = tree([0.0; 3]);
    let error = file.load_eval_params(&optimizer, &mut found).unwrap_err().to_string();
    assert!(error.contains("this optimizer keeps no evaluation parameters"), "{error}");
    assert_eq!(found, tree([0.0; 3]));
}

#[test]
fn parameters_that_equal_their_average_are_saved() {
    let optimizer = lookahead(sgd(0.1), 2, 0.5);
    let mut params = tree([1.0, -2.0, 0.3]);
    let mut state = optimizer.init(&params).unwrap();
    steps(&optimizer, &mut params, &mut state, 0..2);
    let eval = state.eval_params(&params).unwrap();
    assert_eq!(*eval, params, "they have just been set to the slow ones");
    let file = file(&optimizer, &state, &*eval);
    assert_eq!(file.structure().len(), 2);
}

/// It copies the loaded parameters.
#[test]
fn a_wrapper_begins_with_the_parameters_that_were_loaded() {
    let (before, after) = (adamw(0.1), params_ema(adamw(0.1), 0.9));
    let params = tree([1.0, -2.0, 0.3]);
    let file = file(&before, &before.init(&params).unwrap(), &params);
    let mut loaded = tree([7.0; 3]);
    let load = Load::strict().migrating(Migration::new().wrap_part(""));
    let (state, _) = load.load(&file, &after, &mut loaded).unwrap();
    assert!(same_bits(&*state, &*after.init(&params).unwrap()));
}

/// Nothing fits.
#[test]
fn a_group_of_another_optimizer_needs_a_fresh_state() {
    let (one, mut params) = (adamw(0.1), tree([1.0, -2.0, 0.5]));
    let many = partition((("body", adamw(0.1)), ("head", sgd(0.1).momentum(0.9))), labels());
    let mut state = one.init(&params).unwrap();
    steps(&one, &mut params, &mut state, 0..3);
    let split = || Migration::new().split_part("", ["body", "head"]);
    let error = state.migrate(&many, &params, &split()).unwrap_err().to_string();
    assert!(error.contains("`0.mu[head/w]`: unexpected moment f32 [1]"), "{error}");
    let by_part = state.migrate(&many, &params, &split().drop_part("head").fresh_part("head")).unwrap();
    let by_leaf = Migration::new().split_part("", ["body"]).fresh_part("head").fresh("head/*");
    let by_leaf = state.migrate(&many, &params, &by_leaf).unwrap();
    for moved in [&by_part, &by_leaf] {
        assert_eq!((moved.0.0.count.get(), moved.1.0.count.get()), (3, 0));
        assert_eq!(moved.0.0.moment("mu").unwrap().get::<f32>(0), state.0.moment("mu").unwrap().get::<f32>(0));
        assert_eq!(moved.1.0.moment("trace").unwrap().get::<f32>(1), Some(&[0.0][..]));
    }
    // An unnamed group's state is not dropped.
    let none = partition((("body", adamw(0.1)), ("head", sgd(0.1))), labels());
    let error = state.migrate(&none, &params, &Migration::new().split_part("", ["body"]).fresh_part("head"));
    assert!(error.unwrap_err().to_string().contains("`0.mu[head/w]`: unexpected"));
}

#[test]
fn renames_are_proposed_by_the_paths_of_the_file() {
    let (optimizer, params) = (adamw(0.1), tree([1.0, -2.0, 0.5]));
    let file = file(&optimizer, &optimizer.init(&params).unwrap(), &params);
    let mut other = DynTree::new();
    other.insert("net/body/w", array![0.0_f32, 0.0]);
    other.insert("net/head/w", array![0.0_f32]);
    let error = file.load(&optimizer, &mut other).unwrap_err().to_string();
    assert!(error.ends_with("`Migration::new().rename(\"\", \"net\")` renames leaves to their paths here"), "{error}");
    let load = |migration| Load::strict().migrating(migration);
    load(Migration::new().rename("", "net")).load(&file, &optimizer, &mut other).unwrap();
    // The message has renamed paths.
    let error = load(Migration::new().rename("body", "nets/body")).load(&file, &optimizer, &mut other).unwrap_err();
    assert!(!error.to_string().contains("rename(\"\""), "{error}");
    // Two renamed levels need a rename each.
    let mut other = DynTree::new();
    other.insert("stem/w", array![0.0_f32, 0.0]);
    other.insert("top/w", array![0.0_f32]);
    let error = file.load(&optimizer, &mut other).unwrap_err().to_string();
    let renames = Migration::new().rename("body", "stem").rename("head", "top");
    assert!(error.contains("`Migration::new().rename(\"body\", \"stem\").rename(\"head\", \"top\")`"), "{error}");
    load(renames).load(&file, &optimizer, &mut other).unwrap();
}
