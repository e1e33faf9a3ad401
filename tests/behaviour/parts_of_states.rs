//! Parts of states are renamed, inserted, removed, wrapped, unwrapped and copied.

use gradchain::needs::Nothing;
use gradchain::prelude::*;
use gradchain::transform::{ema, scale, trace};
use gradchain::{GradientTransformation, Migration};
use ndarray::array;

type Params = (Vec<f32>, ndarray::Array2<f64>);

fn params() -> Params {
    (vec![1.0, -2.0, 3.0], array![[0.5, 0.25], [-1.0, 2.0]])
}

fn gradient(step: i32) -> Params {
    let x = (0.7 * f64::from(step)).sin() + 0.1;
    (vec![x as f32, 1.0, -x as f32], array![[x, -x], [1.0, 0.5 * x]])
}

fn steps<T: GradientTransformation<Needs = Nothing>>(
    t: &T,
    p: &mut Params,
    state: &mut OptState<T>,
    which: core::ops::Range<i32>,
) {
    for step in which {
        t.step(p, &gradient(step), state).unwrap();
    }
}

/// Checks a migration to the other optimizer and back.
///
/// Both take the same steps, so the numbers equal the first optimizer's.
fn goes_on<A, B>(before: &A, after: &B, there: Migration, back: Migration)
where
    A: GradientTransformation<Needs = Nothing>,
    B: GradientTransformation<Needs = Nothing>,
{
    let (mut straight, mut p) = (params(), params());
    let mut state = before.init(&straight).unwrap();
    steps(before, &mut straight, &mut state, 0..9);

    let mut state = before.init(&p).unwrap();
    steps(before, &mut p, &mut state, 0..3);
    let error = state.migrate(after, &p, &Migration::new()).unwrap_err();
    assert!(error.to_string().contains("found nothing"), "{error}");
    let mut moved = state.migrate(after, &p, &there).unwrap();
    steps(after, &mut p, &mut moved, 3..6);
    let mut state = moved.migrate(before, &p, &back).unwrap();
    steps(before, &mut p, &mut state, 6..9);
    assert_eq!(p, straight, "{before:?} and {after:?}");
}

#[test]
fn a_state_resumes_in_another_optimizer() {
    let m = Migration::new;
    goes_on(
        &chain((scale_by_adam(), scale(-0.1))),
        &chain((zero_nans(), scale_by_adam(), scale(-0.1))),
        m().insert_part("0"),
        m().remove_part("0"),
    );
    goes_on(
        &chain((ema(0.5), scale_by_adam(), scale(-0.1))),
        &chain((ema(0.5), zero_nans(), zero_nans(), scale_by_adam(), scale(-0.1))),
        m().insert_part("1").insert_part("1"),
        m().remove_part("2").remove_part("1"),
    );
    goes_on(&adam(0.1), &inject_hyperparams(adam(0.1)), m().wrap_part(""), m().unwrap_part(""));
    goes_on(
        &adam(0.1),
        &chain((zero_nans(), inject_hyperparams(adam(0.1)))),
        m().wrap_part("").wrap_in_chain("", 1),
        m().remove_part("0").rename_part("0", "").unwrap_part(""),
    );
    goes_on(
        &chain((scale_by_adam(), scale(-0.1))),
        &named_chain(["adam", "rate"], (scale_by_adam(), scale(-0.1))),
        m().rename_part("0", "adam").rename_part("1", "rate"),
        m().rename_part("adam", "0").rename_part("rate", "1"),
    );
    let groups = |optimizer| partition((("all", optimizer), ("none", sgd(0.1))), Labels::by(|_| "all"));
    goes_on(
        &adam(0.1),
        &groups(adam(0.1)),
        m().rename_part("", "all").fresh_part("none"),
        m().drop_part("none").rename_part("all", ""),
    );
}

#[test]
fn adam_resumes_as_adamw() {
    let (before, after) = (adam(0.1), adamw(0.1).weight_decay(0.0));
    let (mut straight, mut p) = (params(), params());
    let mut state = before.init(&p).unwrap();
    steps(&before, &mut p, &mut state, 0..3);
    let error = state.migrate(&after, &p, &Migration::new()).unwrap_err().to_string();
    // Decay is between Adam and the rate.
    let mut moved =
        state.migrate(&after, &p, &Migration::new().insert_part("1")).unwrap_or_else(|e| panic!("{error}\n{e}"));
    steps(&after, &mut p, &mut moved, 3..6);
    let mut state = before.init(&straight).unwrap();
    steps(&before, &mut straight, &mut state, 0..6);
    assert_eq!(p, straight);
}

#[test]
fn a_part_starts_as_a_copy_of_another() {
    let (before, after) = (chain((ema(0.5), scale(-0.1))), chain((ema(0.5), scale(-0.1), ema(0.5))));
    let mut p = params();
    let mut state = before.init(&p).unwrap();
    steps(&before, &mut p, &mut state, 0..3);
    let moved = state.migrate(&after, &p, &Migration::new().take_part("0", "2")).unwrap();
    assert_eq!(moved.0.count, moved.2.count);
    let arrays = [moved.0.moment("ema"), moved.2.moment("ema")].map(|m| m.unwrap().to_array(1).unwrap());
    assert_eq!(arrays[0], arrays[1]);
    assert!(arrays[0].iter().any(|x| *x != 0.0));
}

#[test]
fn unmapped_state_is_an_error_that_suggests_the_only_migration() {
    let p = params();
    let state = chain((scale_by_adam(), scale(-0.1))).init(&p).unwrap();
    let after = named_chain(["adam", "rate"], (scale_by_adam(), scale(-0.1)));
    let error = state.migrate(&after, &p, &Migration::new()).unwrap_err().to_string();
    assert!(error.contains("`adam.mu[0]`: expected moment f32 [3], found nothing"), "{error}");
    assert!(error.contains("`0.mu[0]`: unexpected moment f32 [3]"), "{error}");
    assert!(error.contains("`rename_part(\"0\", \"adam\")` moves them"), "{error}");
    // Two counts cannot be told apart.
    assert!(!error.contains("rename_part(\"1\", \"rate\")"), "{error}");

    let at_end = |after: Boxed, expected: &str| {
        let error = state.migrate(&after, &p, &Migration::new()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\n\nhas not\n\n{expected}");
        assert!(!error.contains("rename_part"), "{error}");
    };
    at_end(
        boxed(chain((zero_nans(), scale_by_adam(), scale(-0.1)))),
        "the fields of `0` are now in `1`: if a member was inserted, use `insert_part(\"0\")`",
    );
    at_end(
        boxed(inject_hyperparams(adam(0.1))),
        "the fields of the whole state are now in `inner`: `wrap_part(\"\")` moves them",
    );
    at_end(
        boxed(chain((zero_nans(), multi_steps(chain((scale_by_adam(), scale(-0.1))), 2)))),
        "the fields of the whole state are now in `1.inner`: `wrap_part(\"\")` and then `wrap_in_chain(\"\", 1)` move \
         them",
    );

    for (migration, message) in [
        (Migration::new().rename_part("2", "adam"), "rename_part: the state has no part `2`"),
        (Migration::new().drop_part("0.nu.x"), "drop_part: the state has no part `0.nu.x`"),
        (Migration::new().unwrap_part("0"), "`0.mu[0]`"),
        (Migration::new().take_part("a", "b"), "take_part: the state has no part `a`"),
        (Migration::new().insert_part("adam"), "`adam` is not a member of a chain"),
        (Migration::new().rename_part("0", "adam").rename_part("0", "rate"), "rename_part: the state has no part `0`"),
    ] {
        let error = state.migrate(&after, &p, &migration).unwrap_err().to_string();
        assert!(error.contains(message) || message == "`0.mu[0]`", "{error}");
    }
    // A part of another dtype is not reused.
    let other = chain((scale_by_adam().mu_dtype(gradchain::DType::F64), scale(-0.1)));
    let error = state.migrate(&other, &p, &Migration::new()).unwrap_err().to_string();
    assert!(error.contains("expected moment f64 [3], found moment f32 [3]"), "{error}");
}

#[test]
fn members_that_changed_places_are_told() {
    let p = params();
    let (before, after) = (chain((trace(0.9), scale_by_adam())), chain((scale_by_adam(), trace(0.9))));
    let mut trained = p.clone();
    let mut state = before.init(&p).unwrap();
    steps(&before, &mut trained, &mut state, 0..3);
    let error = state.migrate(&after, &p, &Migration::new()).unwrap_err().to_string();
    let verbs = r#"`rename_part("0", "other")`, `rename_part("1", "0")` and `rename_part("other", "1")` move them"#;
    assert!(error.contains(verbs) && error.matches("vice versa").count() == 1, "{error}");
    assert!(
        error.ends_with("pass these verbs to `Load::migrating` or `OptState::migrate`, in a `Migration`"),
        "{error}"
    );
    let said = Migration::new().rename_part("0", "other").rename_part("1", "0").rename_part("other", "1");
    let moved = state.migrate(&after, &p, &said).unwrap();
    assert_eq!(moved.0.moment("mu").unwrap().to_array(1), state.1.moment("mu").unwrap().to_array(1));
    assert_eq!(moved.1.moment("trace").unwrap().to_array(1), state.0.moment("trace").unwrap().to_array(1));
}

/// Even if the states would fit without any verb.
#[test]
fn migrations_of_missing_parts_are_errors() {
    let same = chain((scale_by_adam(), scale(-0.1)));
    let p = params();
    let state = same.init(&p).unwrap();
    let m = Migration::new;
    for (migration, message) in [
        (m().rename_part("adam", "0"), "rename_part: the state has no part `adam`"),
        (m().drop_part("0.mo"), "drop_part: the state has no part `0.mo`"),
        (m().unwrap_part("inner"), "unwrap_part: the state has no part `inner`"),
        (m().take_part("2", "0"), "take_part: the state has no part `2`"),
        (m().fresh_part("0.mo"), "fresh_part: the state has no part `0.mo`"),
        (m().fresh_part("2"), "fresh_part: the state has no part `2`"),
        (
            m().rename_part("1", "rate").rename_part("rate", "1").fresh_part("rate"),
            "fresh_part: the state has no part `rate`",
        ),
        (m().remove_part("adam"), "`adam` is not a member of a chain"),
        (m().insert_part("0.mu"), "`0.mu` is not a member of a chain"),
        (m().wrap_in_chain("0", 1), "`0.mu[0]`: unexpected moment"),
        (m().wrap_part("0"), "`0.mu[0]`: unexpected moment"),
    ] {
        let error = state.migrate(&same, &p, &migration).unwrap_err().to_string();
        assert!(error.contains(message), "{error}\n\nhas not\n\n{message}");
    }
    let fresh = state.migrate(&same, &p, &m().fresh_part("0.mu").fresh_part("1")).unwrap();
    assert_eq!(fresh.schema(), state.schema());
}
