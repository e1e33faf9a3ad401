//! Adjacent stages that only multiply share one loop with the stage beside them.
//!
//! The last stage's loop adds updates to parameters. Results are bitwise identical to separate loops.

use gradchain::needs::Nothing;
use gradchain::prelude::*;
use gradchain::schedule::from_fn;
use gradchain::transform::{
    clip_by_block_norm, clip_by_block_rms, identity, scale, scale_by_param_block_rms, scale_by_rms, scale_by_schedule,
    scale_by_trust_ratio, set_to_zero, trace,
};
use gradchain::{Boxed, Element};

const LEN: usize = 20_001;

/// Returns numbers of both signs, around 1, subnormal, the largest, and zeros.
fn numbers<E: Element>(seed: usize) -> Vec<E> {
    let number = |i: usize| {
        let x = ((i * 7919 + seed * 104_729) % 2003) as f64 / 1001.0 - 1.0;
        match (i / 6 + seed) % 7 {
            0 => 0.0_f64.copysign(x),
            _ => x * 10.0_f64.powi([0, -3, 3, -40, 38, -20][i % 6]),
        }
    };
    (0..LEN).map(|i| E::from_f64(number(i))).collect()
}

fn run<E: Element, T: GradientTransformation<Needs = Nothing>>(optimizer: &T) -> Vec<u64>
where
    Vec<E>: TreeMut,
{
    run_on::<E, T>(optimizer, |_, numbers| numbers).0
}

/// Returns parameters and readings after steps on gradients changed by `gradients`.
fn run_on<E: Element, T: GradientTransformation<Needs = Nothing>>(
    optimizer: &T,
    gradients: impl Fn(usize, Vec<E>) -> Vec<E>,
) -> (Vec<u64>, Vec<(String, u64)>)
where
    Vec<E>: TreeMut,
{
    let mut params = numbers::<E>(0);
    let mut state = optimizer.init(&params).unwrap();
    for step in 1..4 {
        optimizer.step(&mut params, &gradients(step, numbers::<E>(step)), &mut state).unwrap();
    }
    let bits = |x: f64| if x.is_nan() { u64::MAX } else { x.to_bits() };
    let read = optimizer.readings(&state).unwrap();
    let read = read.iter().map(|reading| (reading.name().to_owned(), bits(reading.value()))).collect();
    (params.iter().map(|x| bits(x.as_f64())).collect(), read)
}

macro_rules! same {
    ($what:literal: $($member:expr),+) => {{
        let boxes = || -> Vec<Boxed> { vec![$(boxed($member)),+] };
        let inner = || -> Vec<Boxed> { vec![boxed(boxes()), boxed(scale(0.9)), boxed(identity())] };
        assert_eq!(run::<f32, _>(&boxes()), run::<f32, _>(&chain(($($member,)+))), "f32, {}", $what);
        assert_eq!(run::<f64, _>(&boxes()), run::<f64, _>(&chain(($($member,)+))), "f64, {}", $what);
        assert_eq!(run::<f32, _>(&inner()), run::<f32, _>(&chain(($($member,)+ scale(0.9)))), "in a box, {}", $what);
        #[cfg(feature = "half")]
        {
            use half::bf16;
            assert_eq!(run::<bf16, _>(&boxes()), run::<bf16, _>(&chain(($($member,)+))), "bf16, {}", $what);
        }
    }};
}

#[test]
fn multiplied_by_one_after_another() {
    same!("one": scale(-0.3));
    same!("two": scale(-0.3), scale_by_learning_rate(1.7));
    same!("more than are done together":
        scale(1.1), scale(-0.3), scale(3.3), scale(0.7), scale(1.3), scale_by_learning_rate(0.1));
    same!("first": scale(-0.3), scale(1.1), trace(0.9));
    same!("between": trace(0.9), scale(-0.3), clip_by_global_norm(1.0), scale(1.1), scale_by_rms(), sgd(0.1));
    same!("after a barrier": clip_by_block_rms(0.5), scale_by_param_block_rms(), scale(-0.1));
    same!("adding up what was multiplied": scale(0.3), clip_by_global_norm(1.0), scale(3.0), clip_by_block_rms(0.5));
    same!("nothing to add": scale(0.0), scale(-1.0));
}

#[test]
fn the_last_member_adds_to_the_parameters() {
    same!("by itself": trace(0.9));
    same!("multiplied after": scale_by_adam(), scale_by_learning_rate(0.1));
    same!("multiplied before and after": clip_by_global_norm(1.0), scale_by_adam(), scale(1.1));
    same!("more than it multiplies by": scale(1.1), scale(-0.3), trace(0.9), scale(0.7), scale(1.3));
    same!("it reads the parameters": scale(0.3), add_decayed_weights(0.1), scale(-1.1));
    same!("and the one before it does": add_decayed_weights(0.1), trace(0.9), scale_by_learning_rate(1.7));
    same!("it has a barrier": zero_nans(), scale(3.0), clip_by_global_norm(1.0), adamw(0.1), scale(1.1));
    same!("it gives out what it is given": scale(-1.0), zero_nans());
    same!("it adds up": scale(1.1), scale_by_trust_ratio(), scale(-0.3), zero_nans());
}

#[test]
fn boxed_zeros_match_for_nonfinite_and_negative_factors() {
    for factor in [f64::NAN, f64::INFINITY, -2.0] {
        let schedule = || from_fn("a number", move |_| factor);
        let boxes: Vec<Boxed> = vec![boxed(set_to_zero()), boxed(scale_by_schedule(schedule())), boxed(scale(2.0))];
        let one = chain((set_to_zero(), scale_by_schedule(schedule()), scale(2.0)));
        assert_eq!(run::<f32, _>(&boxes), run::<f32, _>(&one), "{factor}");
    }
}

/// Adds NaN to every tile, some chunks, the last element, or nowhere, by step.
fn with_nans<E: Element>(step: usize, mut numbers: Vec<E>) -> Vec<E> {
    let nan = E::from_f64(f64::NAN);
    match step {
        1 => numbers.iter_mut().step_by(499).for_each(|x| *x = nan),
        2 => numbers[5000..5003].fill(nan),
        _ => *numbers.last_mut().unwrap() = nan,
    }
    numbers
}

/// Like `same`, with NaN in gradients, and with counts.
macro_rules! same_with_nans {
    ($what:literal: $($member:expr),+) => {{
        same!($what: $($member),+);
        let boxes = || -> Vec<Boxed> { vec![$(boxed($member)),+] };
        let inner = || -> Vec<Boxed> { vec![boxed(boxes()), boxed(scale(0.9)), boxed(identity())] };
        let one = || chain(($($member,)+));
        assert_eq!(run_on::<f32, _>(&boxes(), with_nans), run_on::<f32, _>(&one(), with_nans), "f32, {}", $what);
        assert_eq!(run_on::<f64, _>(&boxes(), with_nans), run_on::<f64, _>(&one(), with_nans), "f64, {}", $what);
        let in_a_box = chain(($($member,)+ scale(0.9)));
        let [(found, _), (expected, _)] =
            [run_on::<f32, _>(&inner(), with_nans), run_on::<f32, _>(&in_a_box, with_nans)];
        assert_eq!(found, expected, "in a box, {}", $what);
        let [around, around_one] = [
            run_on::<f32, _>(&multi_steps(boxes(), 2), with_nans).0,
            run_on::<f32, _>(&multi_steps(one(), 2), with_nans).0,
        ];
        assert_eq!(around, around_one, "in mini-steps, {}", $what);
        #[cfg(feature = "half")]
        {
            use half::bf16;
            assert_eq!(run_on::<bf16, _>(&boxes(), with_nans), run_on::<bf16, _>(&one(), with_nans), "bf16, {}", $what);
        }
    }};
}

#[test]
fn boxed_zero_nans_matches_the_fused_chain() {
    same_with_nans!("alone": zero_nans());
    same_with_nans!("first": zero_nans(), scale_by_learning_rate(0.1));
    same_with_nans!("before state": zero_nans(), scale_by_adam(), scale_by_learning_rate(0.1));
    same_with_nans!("before a barrier": zero_nans(), clip_by_global_norm(1.0), scale_by_adam(), scale(-0.1));
    same_with_nans!("before two": zero_nans(), clip_by_global_norm(1.0), trace(0.9), clip_by_block_rms(0.5), scale(-0.1));
    same_with_nans!("before what reads parameters": zero_nans(), add_decayed_weights(0.1), scale(-0.1));
    same_with_nans!("after a product": scale(0.5), zero_nans(), clip_by_global_norm(1.0), sgd(0.1));
    same_with_nans!("after state": trace(0.9), zero_nans(), clip_by_global_norm(1.0), scale(-0.1));
    same_with_nans!("behind a barrier": clip(2.0), clip_by_block_norm(1.0), zero_nans(), scale_by_rms(), scale(-0.1));
    same_with_nans!("twice": zero_nans(), zero_nans(), clip_by_global_norm(1.0), zero_nans(), scale(-0.1));
    same_with_nans!("last": scale_by_adam(), scale(-0.1), zero_nans());
    same_with_nans!("in a wrapper": masked(zero_nans(), Mask::all()), clip_by_global_norm(1.0), sgd(0.1));
    same_with_nans!("with its neighbours in a wrapper":
        masked(chain((zero_nans(), clip(0.5), zero_nans())), Mask::all()), clip_by_global_norm(1.0), sgd(0.1));
}

#[test]
fn zeros_where_nans_are_in_most_members_of_a_chain() {
    let (params, read) =
        run_on::<f32, _>(&vec![boxed(zero_nans()), boxed(clip_by_global_norm(1.0)), boxed(sgd(0.1))], with_nans);
    assert!(params.iter().all(|bits| *bits != u64::MAX), "no NaN comes through");
    let zeroed = read.iter().find(|(name, _)| name == "zeroed").expect("it is read");
    assert_eq!(f64::from_bits(zeroed.1), (LEN.div_ceil(499) + 3 + 1) as f64);
}
