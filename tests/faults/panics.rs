//! A panic in user code leaves parameters and state untouched, or poisons the state.

use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::part::{
    Clock, InitContext, OneElement, Part, Rule, Slot, StepContext, Whole, WholeTree, WholeTreeTransformation,
};
use gradchain::schedule::{FromFn, from_fn};
use gradchain::state::{AverageOptions, same_bits};
use gradchain::transform::{scale, scale_by_backtracking_linesearch, scale_by_schedule, scale_by_trust_ratio, trace};
use gradchain::tree::{Walk, WalkMut};
use gradchain::wrapper::sam;
use gradchain::{Migration, Real, Result, TreeMut, extra};

use super::chunk::CHUNK;
use super::*;

/// A sum of gradients, with a bug that large ones trigger.
#[derive(Clone, Debug)]
struct Buggy;

impl Part for Buggy {
    const NAME: &'static str = "buggy";
    type Form = OneElement;
}

impl Rule for Buggy {
    const SLOTS: &'static [Slot] = &[Slot::exact("sum")];
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = [C; 2];

    fn scalars<C: Real>(&self, _: Clock) -> [C; 2] {
        [1e3, -0.1].map(C::of)
    }

    #[inline(always)]
    fn apply<C: Real>([limit, rate]: [C; 2], [sum]: &mut [C; 1], u: C, _: C) -> C {
        assert!(u < limit, "a bug in a rule");
        *sum += u;
        rate * *sum
    }
}

#[derive(Clone, Debug)]
struct BuggyTree;

impl Part for BuggyTree {
    const NAME: &'static str = "buggy_tree";
    type Form = Whole;
}

impl WholeTreeTransformation for BuggyTree {
    type State = gradchain::state::Count;

    fn start(&self, _: &InitContext<'_>) -> Result<Self::State> {
        Ok(Self::State::default())
    }

    fn transform(&self, state: &mut Self::State, _: &StepContext<'_>, _: &mut WholeTree<'_>) {
        state.increment();
        assert!(state.get() < 3, "a bug in a transformation");
    }
}

/// Returns a schedule with a bug at a count.
fn buggy_schedule(at: u64) -> FromFn {
    from_fn("buggy", move |count| {
        assert!(count != at, "a bug in a schedule");
        0.1
    })
}

/// Returns more than four chunks, for four threads.
fn params() -> Vec<Array1<f32>> {
    let lens = [CHUNK + 3_616, 7, 0, CHUNK + 616, 1];
    lens.iter().map(|&len| Array1::from_shape_fn(len, |i| noise((len + i) as u64) as f32)).collect()
}

fn grads(step: u64) -> Vec<Array1<f32>> {
    params().iter().map(|leaf| leaf.mapv(|p| p + noise(step) as f32)).collect()
}

fn text(payload: &(dyn std::any::Any + Send)) -> Option<&str> {
    payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

fn panics<T>(work: impl FnOnce() -> T) -> String {
    static QUIET: std::sync::Once = std::sync::Once::new();
    QUIET.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !text(info.payload()).is_some_and(|message| message.starts_with("a bug in a ")) {
                print(info);
            }
        }));
    });
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(work()))).expect_err("it must panic");
    text(&*panic).expect("the message is a text").to_owned()
}

/// Asserts that every use of a poisoned state fails and changes nothing.
fn refused<T>(optimizer: &T, state: &mut OptState<T>, params: &mut Vec<Array1<f32>>)
where
    T: GradientTransformation<Needs = Nothing>,
{
    let before = bits_of(params);
    let mut updates = state.zero_updates();
    let mut copy = state.clone();
    for (what, error) in [
        ("step", optimizer.step(params, &grads(0), state).unwrap_err()),
        ("the step of a copy", optimizer.step(params, &grads(0), &mut copy).unwrap_err()),
        ("update", optimizer.update(&grads(0), state, params).unwrap_err()),
        ("update_into", optimizer.update_into(&grads(0), state, params, &mut updates).unwrap_err()),
        ("minimize_step", optimizer.minimize_step(params, |p| (0.0, p.clone()), state).unwrap_err()),
        ("migrate", state.migrate(optimizer, params, &Migration::new()).unwrap_err()),
        ("reset", state.reset(optimizer, params, Mask::all()).unwrap_err()),
        ("average", OptState::average(&[(&*state, 1.0)], AverageOptions::default()).unwrap_err()),
        ("save", Save::new(optimizer, state).to_writer(std::io::Cursor::new(Vec::new())).unwrap_err()),
    ] {
        assert!(error.is_poisoned(), "{what}: {error}");
        assert!(error.to_string().contains("half written by a panic"), "{what}: {error}");
    }
    assert!(bits_of(params) == before, "a refused call changes nothing");
}

/// Checks that only a copy or a checkpoint from before the panic leads on, bitwise correctly.
fn law<T>(name: &str, optimizer: &T, steps: u64, message: &str, bad: &[Array1<f32>], params_stay: bool)
where
    T: GradientTransformation<Needs = Nothing>,
{
    let start = || {
        let mut params = params();
        let mut state = optimizer.init(&params).unwrap();
        for step in 0..steps {
            optimizer.step(&mut params, &grads(step), &mut state).unwrap();
        }
        (params, state)
    };
    let (mut params, mut state) = start();
    let (kept, copy) = (params.clone(), state.clone());
    let mut file = std::io::Cursor::new(Vec::new());
    Save::new(optimizer, &state).params(&params).to_writer(&mut file).unwrap();

    let said = panics(|| optimizer.step(&mut params, &bad.to_vec(), &mut state));
    assert_eq!(said, message, "{name}");
    if params_stay {
        assert!(bits_of(&params) == bits_of(&kept), "{name}: no parameter has been written");
    }
    refused(optimizer, &mut state, &mut params);

    // `update` never writes parameters.
    let (of_update, mut state) = (kept.clone(), copy.clone());
    assert_eq!(panics(|| optimizer.update(&bad.to_vec(), &mut state, &of_update)), message, "{name}");
    assert!(bits_of(&of_update) == bits_of(&kept), "{name}");
    refused(optimizer, &mut state, &mut of_update.clone());

    // Continues from both with a gradient that avoids the bug.
    let (mut straight, mut end) = start();
    let (mut copied, mut of_copy, mut loaded) = (kept.clone(), copy, self::params());
    let file = Checkpoint::from_bytes(file.into_inner()).unwrap();
    let mut of_file = file.load(optimizer, &mut loaded).unwrap();
    for (params, state) in [(&mut straight, &mut end), (&mut copied, &mut of_copy), (&mut loaded, &mut of_file)] {
        // A schedule's bug stays at its count.
        if bad.iter().flatten().any(|g| *g > 1e3) {
            optimizer.step(params, &grads(steps), state).unwrap();
        }
    }
    assert!(bits_of(&copied) == bits_of(&straight) && same_bits(&*of_copy, &*end), "{name}: from a copy");
    assert!(bits_of(&loaded) == bits_of(&straight) && same_bits(&*of_file, &*end), "{name}: from a checkpoint");
}

/// On one thread, and on several with the feature.
fn on_threads(law: impl Fn() + Send + Sync) {
    #[cfg(not(feature = "rayon"))]
    law();
    #[cfg(feature = "rayon")]
    for threads in [1, 4] {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(&law);
    }
}

#[test]
fn in_a_rule() {
    on_threads(|| {
        // In the first element, within a large leaf, in later leaves; at the first step and later.
        for (leaf, i) in [(0, 0), (0, CHUNK + 6), (1, 3), (3, CHUNK), (4, 0)] {
            for steps in [0, 2] {
                let mut bad = grads(steps);
                bad[leaf][i] = 1e6;
                let at = format!("element {i} of leaf {leaf} after {steps} steps");
                let message = "a bug in a rule";
                law(&at, &Buggy, steps, message, &bad, false);
                law(&at, &boxed(chain((trace(0.9), Buggy))), steps, message, &bad, false);
                // The rule precedes a barrier, so no parameter has changed.
                law(&at, &chain((Buggy, clip_by_global_norm(1.0))), steps, message, &bad, true);
                law(&at, &chain((Buggy, scale_by_trust_ratio(), scale(0.5))), steps, message, &bad, true);
            }
            // The third mini-step passes the mean to the rule.
            let mut bad = grads(2);
            bad[leaf][i] = 1e6;
            law("in a window", &multi_steps(Buggy, 3), 2, "a bug in a rule", &bad, false);
        }
    });
}

/// Each parameter is as before or as after a whole step.
#[test]
fn in_a_rule_parameters_are_of_before_or_after() {
    on_threads(|| {
        let (mut part, mut whole) = (params(), params());
        let (mut state, mut of_whole) = (Buggy.init(&part).unwrap(), Buggy.init(&whole).unwrap());
        Buggy.step(&mut whole, &grads(0), &mut of_whole).unwrap();
        let mut bad = grads(0);
        bad[3][CHUNK / 2] = 1e6;
        panics(|| Buggy.step(&mut part, &bad, &mut state));
        for ((p, before), after) in part.iter().flatten().zip(params().iter().flatten()).zip(whole.iter().flatten()) {
            assert!(p.to_bits() == before.to_bits() || p.to_bits() == after.to_bits());
        }
        assert!(bits_of(&part) != bits_of(&whole));
    });
}

#[test]
fn in_a_whole_tree_transformation() {
    on_threads(|| {
        law("", &BuggyTree, 2, "a bug in a transformation", &grads(2), true);
        let chained = chain((trace(0.9), BuggyTree, scale(-0.1)));
        law("in a chain", &chained, 2, "a bug in a transformation", &grads(2), true);
    });
}

#[test]
fn in_a_schedule() {
    on_threads(|| {
        let message = "a bug in a schedule";
        // Schedules are evaluated before parameters are written, and by `init` for the first step.
        for at in [1, 2] {
            law("sgd", &sgd(buggy_schedule(at)), at, message, &grads(at), true);
            law("adamw", &adamw(buggy_schedule(at)), at, message, &grads(at), true);
            let last = chain((scale_by_adam(), clip_by_global_norm(1.0), scale_by_schedule(buggy_schedule(at))));
            law("after a barrier", &last, at, message, &grads(at), true);
            law("boxed", &boxed(sgd(buggy_schedule(at))), at, message, &grads(at), true);
            law("masked", &masked(sgd(buggy_schedule(at)), Mask::path("3")), at, message, &grads(at), true);
            law("wrapped", &lookahead(sgd(buggy_schedule(at)), 2, 0.5), at, message, &grads(at), true);
            // The third window.
            let windows = multi_steps(sgd(buggy_schedule(at)), 2);
            law("in a window", &windows, 2 * at + 1, message, &grads(at), true);
            let length = from_fn("buggy", move |count| {
                assert!(count != at, "a bug in a schedule");
                1.0
            });
            length_of_a_window(&multi_steps(sgd(0.1), Schedule::from(length)), at);
            let injected = inject_hyperparams(adamw(buggy_schedule(at)));
            law("injected", &injected, at, message, &grads(at), true);
        }
        assert_eq!(panics(|| sgd(buggy_schedule(0)).init(&params())), message);
        assert_eq!(panics(|| inject_hyperparams(sgd(buggy_schedule(0))).init(&params())), message);
    });
}

/// The length is evaluated before the step begins, so the step can be repeated.
fn length_of_a_window<T: GradientTransformation<Needs = Nothing>>(optimizer: &T, at: u64) {
    let mut params = params();
    let mut state = optimizer.init(&params).unwrap();
    let mut done = 0;
    let said = panics(|| {
        for step in 0..=at + 1 {
            optimizer.step(&mut params, &grads(step), &mut state).unwrap();
            done += 1;
        }
    });
    assert_eq!((said.as_str(), done), ("a bug in a schedule", at));
    assert!(Save::new(optimizer, &state).to_writer(std::io::Cursor::new(Vec::new())).is_ok(), "no step had begun");
}

struct BuggyLeaves(Vec<f32>, bool);

impl Tree for BuggyLeaves {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        walk.index(0, &self.0);
        assert!(!self.1, "a bug in a tree");
        walk.index(1, &self.0);
    }
}

impl TreeMut for BuggyLeaves {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        walk.index(0, &mut self.0);
        panic!("a bug in a tree");
    }
}

/// Trees are checked before the step begins, so the state stays usable.
#[test]
fn in_a_tree() {
    let optimizer = adamw(0.1);
    let mut params = [vec![1.0_f32, 2.0], vec![3.0, 4.0]];
    let mut state = optimizer.init(&params).unwrap();
    let (kept, copy) = (params.clone(), state.clone());
    let said = panics(|| optimizer.step(&mut params, &BuggyLeaves(vec![1.0, 1.0], true), &mut state));
    assert_eq!((said.as_str(), &params), ("a bug in a tree", &kept));
    assert!(same_bits(&*state, &*copy));
    let mut buggy = BuggyLeaves(vec![1.0, 1.0], false);
    assert_eq!(panics(|| optimizer.step(&mut buggy, &kept, &mut state)), "a bug in a tree");
    assert_eq!(buggy.0, [1.0, 1.0]);
    assert!(same_bits(&*state, &*copy));
    let grads = [vec![1.0_f32, 1.0], vec![1.0, 1.0]];
    optimizer.step(&mut params, &grads, &mut state).unwrap();
    let (mut other, mut of_other) = (kept, copy);
    optimizer.step(&mut other, &grads, &mut of_other).unwrap();
    assert!(params == other && same_bits(&*state, &*of_other));
}

/// A line search evaluates the loss inside the step, `minimize_step` before it.
#[test]
fn in_a_loss() {
    let optimizer = chain((sgd(1.0), scale_by_backtracking_linesearch(10)));
    let mut params = 2.0_f64;
    let mut state = optimizer.init(&params).unwrap();
    let buggy = |_: &f64| -> f64 { panic!("a bug in a loss") };
    let said = panics(|| optimizer.step_with(&mut params, &2.0, extra::value_fn(2.0, buggy), &mut state));
    assert_eq!((said.as_str(), params), ("a bug in a loss", 2.0));
    let error = optimizer.step_with(&mut params, &2.0, extra::value_fn(2.0, |p: &f64| p * p), &mut state).unwrap_err();
    assert!(error.is_poisoned() && params == 2.0, "{error}");

    let optimizer = adam(0.1);
    let mut state = optimizer.init(&params).unwrap();
    let copy = state.clone();
    let buggy = |_: &f64| -> (f64, f64) { panic!("a bug in a loss") };
    assert_eq!(panics(|| optimizer.minimize_step(&mut params, buggy, &mut state)), "a bug in a loss");
    assert!(params == 2.0 && same_bits(&*state, &*copy));
    optimizer.minimize_step(&mut params, |p: &f64| (p * p, 2.0 * p), &mut state).unwrap();
    assert!(params < 2.0);
}

/// `init` evaluates masks, labels and starts.
#[test]
fn in_a_mask() {
    let optimizer = masked(adam(0.1), Mask::by(|_| panic!("a bug in a mask")));
    assert_eq!(panics(|| optimizer.init(&params())), "a bug in a mask");
}

#[derive(Clone, Debug)]
struct Choosy;

impl Part for Choosy {
    const NAME: &'static str = "choosy";
    type Form = Whole;
}

impl WholeTreeTransformation for Choosy {
    type State = gradchain::state::Count;

    fn start(&self, at: &InitContext<'_>) -> Result<Self::State> {
        match at.params_as_moments()?.get::<f32>(0).is_none_or(|x| x[0] < 3.0) {
            true => Ok(Self::State::default()),
            false => Err(gradchain::Error::argument(Self::NAME, "params", "small", "3 or more")),
        }
    }

    fn transform(&self, _: &mut Self::State, _: &StepContext<'_>, _: &mut WholeTree<'_>) {}
}

#[test]
fn a_failed_state_reset_is_an_error_before_the_step() {
    fn check<T: GradientTransformation<Needs = Nothing>>(optimizer: T) {
        let mut params = vec![1.0_f32];
        let mut state = optimizer.init(&params).unwrap();
        for _ in 0..9 {
            let (before, held) = (params.clone(), state.clone());
            if let Err(error) = optimizer.step(&mut params, &vec![-1.0_f32], &mut state) {
                assert!(error.to_string().contains("choosy: argument `params` must be small"), "{error}");
                assert_eq!(params, before);
                assert!(same_bits(&*state, &*held));
                return;
            }
        }
        panic!("{params:?} are too large to begin with");
    }
    check(lookahead(chain((Choosy, sgd(1.0))), 2, 1.0).reset_state(true));
    check(sam(sgd(1.0), chain((Choosy, scale(0.5)))));
}
