//! Counts at the end of their range neither wrap nor panic.

use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::schedule::{
    InterpolateType, constant, cosine_restarts, inverse_sqrt, join, linear, linear_onecycle, piecewise_constant,
    piecewise_interpolate, polynomial, rex, sgdr, table, warmup_constant, warmup_exponential_decay,
};
use gradchain::state::{Count, EntryMut, State, StateWalkMut};
use gradchain::tree::DynTree;

use super::edges::{optimizers, trees};
use super::*;

fn set_counts<S: State>(state: &mut S, value: u64) -> usize {
    let mut set = 0;
    state.walk_mut(&mut StateWalkMut::new(&mut |_, entry| match entry {
        EntryMut::Count(count) => {
            *count = Count::new(value);
            set += 1;
        }
        EntryMut::Counts(counts) => {
            for leaf in 0..8 {
                counts.set(leaf, Count::new(value));
            }
            set += 1;
        }
        _ => {}
    }));
    set
}

fn counts<S: State>(state: &S) -> Vec<u64> {
    let mut all = Vec::new();
    state.walk(&mut gradchain::state::StateWalk::new(&mut |_, entry| match entry {
        gradchain::state::Entry::Count(count) => all.push(count.get()),
        gradchain::state::Entry::Counts(counts) => all.extend(counts.iter().map(|(_, count)| count.get())),
        _ => {}
    }));
    all
}

/// Just before limits of 31, 32, 53, 63 and 64 bits. Overflow checks are on in tests, so wrapping panics.
const STARTS: &[u64] =
    &[i32::MAX as u64 - 1, u32::MAX as u64 - 1, (1 << 53) - 1, i64::MAX as u64 - 1, u64::MAX - 2, u64::MAX];

#[test]
fn a_count_at_a_limit_increments_or_saturates() {
    let params: Vec<DynTree> = trees(&|name, i| noise((name.len() + i) as u64));
    let mut runs = 0;
    for (name, optimizer) in optimizers() {
        for &start in STARTS {
            for (number, params) in params.iter().enumerate() {
                let at = format!("{name}, tree {number}, from {start}");
                let Ok(mut state) = optimizer.init(params) else { continue };
                if set_counts(&mut *state, start) == 0 {
                    continue;
                }
                runs += 1;
                let mut file = std::io::Cursor::new(Vec::new());
                Save::new(&optimizer, &state).params(params).to_writer(&mut file).unwrap();
                let mut params = params.clone();
                let file = Checkpoint::from_bytes(file.into_inner()).unwrap();
                let mut state = file.load(&optimizer, &mut params).unwrap();
                assert!(counts(&*state).iter().all(|count| *count == start), "{at}");
                for step in 0..5 {
                    let grads = trees(&|name, i| noise((name.len() + i) as u64 ^ step)).swap_remove(number);
                    optimizer.step(&mut params, &grads, &mut state).unwrap_or_else(|error| panic!("{at}: {error}"));
                    for_each_leaf(&params, |path, leaf| {
                        assert!(leaf.to_f64().iter().all(|x| x.is_finite()), "{at}, step {step}: {path}: {leaf:?}");
                    });
                }
                for count in counts(&*state) {
                    // Windows and periods restart at 0; other counts increase, and saturate.
                    let from_start = count.wrapping_sub(start) <= 5 && count >= start;
                    assert!(from_start || count <= 5, "{at}: {count}");
                }
            }
        }
    }
    println!("{runs} runs");
}

/// A saturated count acts as a large one.
///
/// A wrapped count would change the bias correction or the decay, and discard the moments.
#[test]
fn a_count_at_its_end_is_a_large_one() {
    for (name, optimizer) in optimizers() {
        // Periodic actions depend on the exact number.
        if ["in some steps", "soap", "lbfgs without a search", "noise"].contains(&name) {
            continue;
        }
        let [large, end] = [1 << 62, u64::MAX].map(|count| {
            let mut params = model();
            let mut state = optimizer.init(&params).unwrap();
            let step = |params: &mut Model, state: &mut OptState<Boxed>, number| {
                let gradient = gradient(params, number);
                optimizer.step(params, &gradient, state).unwrap();
            };
            (0..3).for_each(|number| step(&mut params, &mut state, number));
            set_counts(&mut *state, count);
            step(&mut params, &mut state, 3);
            params
        });
        for (a, b) in large.weight.iter().zip(&end.weight) {
            assert!((a - b).abs() <= 1e-6, "{name}: {a} and {b}");
        }
    }
}

/// Schedules that grow or repeat, at counts whose sums would wrap.
#[test]
fn schedules_at_a_limit() {
    for schedule in [
        linear(1.0, 0.1, u64::MAX).transition_begin(u64::MAX).into(),
        polynomial(1.0, 0.1, 2.0, u64::MAX).transition_begin(u64::MAX).into(),
        exponential_decay(1.0, u64::MAX, 0.9).transition_begin(u64::MAX).into(),
        exponential_decay(1.0, 1, 0.9).staircase(true).into(),
        cosine_decay(1.0, u64::MAX).into(),
        warmup_constant(0.0, 1.0, u64::MAX).into(),
        warmup_cosine_decay(0.0, 1.0, u64::MAX - 1, u64::MAX).end_value(0.1).into(),
        warmup_exponential_decay(0.0, 1.0, u64::MAX, u64::MAX, 0.9).transition_begin(u64::MAX).into(),
        warmup_stable_decay(1.0, u64::MAX, u64::MAX, u64::MAX).into(),
        inverse_sqrt(1.0, u64::MAX).into(),
        rex(1.0, u64::MAX).into(),
        linear_onecycle(u64::MAX, 1.0).into(),
        cosine_onecycle(u64::MAX, 1.0).into(),
        cosine_restarts(1.0, u64::MAX).steps_factor(u64::MAX).into(),
        cosine_restarts(1.0, 1).steps_factor(2).into(),
        cosine_restarts(1.0, 1).into(),
        table([1.0, 0.5]).every(u64::MAX).into(),
        piecewise_constant(1.0, [(u64::MAX, 0.5)]).into(),
        piecewise_interpolate(InterpolateType::Cosine, 1.0, [(u64::MAX - 1, 0.5), (u64::MAX, 0.5)]).into(),
        join([constant(1.0).into(), rex(1.0, 10).into()], [u64::MAX]).into(),
        sgdr([
            warmup_cosine_decay(0.0, 1.0, 1, u64::MAX).end_value(0.1),
            warmup_cosine_decay(0.0, 1.0, 1, u64::MAX).end_value(0.1),
        ])
        .into(),
    ] as [Schedule; 21]
    {
        schedule.validate().unwrap();
        for &count in STARTS.iter().chain(&[0, 1, 2, u64::MAX - 1]) {
            let value = schedule.at(count);
            assert!(value.is_finite() && (0.0..=1.0).contains(&value), "{schedule} at {count}: {value}");
        }
    }
}
