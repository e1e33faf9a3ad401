//! A mean of states keeps the schema, for any composition and replicas.
//!
//! Flags stay flags, by the policy, and each count is some replica's.

use gradchain::optimizer::rprop;
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::state::{AverageOptions, CountPolicy, Entry, FlagPolicy, KeyPolicy, State, StateWalk};
use gradchain::transform::{GlobalNorm, add_noise, ema, measure_with_ema, monitor, trace};
use gradchain::wrapper::allow;
use gradchain::wrapper::{
    conditionally_transform, flatten, params_swa, schedule_free, skip_not_finite, skip_on_spike, step_lt,
};
use gradchain::{GradientTransformation, Result};
use ndarray::{Array2, array};
use proptest::prelude::*;

use super::noise;

#[cfg(feature = "half")]
type Params = (Array2<f32>, f64, Vec<half::bf16>);
#[cfg(not(feature = "half"))]
type Params = (Array2<f32>, f64, Vec<f32>);

fn tree(at: impl Fn(usize) -> f64) -> Params {
    let small = |i| {
        #[cfg(feature = "half")]
        return half::bf16::from_f64(at(i));
        #[cfg(not(feature = "half"))]
        return at(i) as f32;
    };
    (array![[at(0) as f32, at(1) as f32], [at(2) as f32, at(3) as f32]], at(4), vec![small(5), small(6)])
}

/// Generates flags, counts, per-leaf counts and flags, scalars, keys and moments.
fn composition() -> impl Strategy<Value = Boxed> {
    let part = (0..9_usize).prop_map(|i| match i {
        0 => boxed(zero_nans()),
        1 => boxed(trace(0.9)),
        2 => boxed(adam(0.1)),
        3 => boxed(rprop(0.1)),
        4 => boxed(add_noise(0.01, 0.5, 3)),
        5 => boxed(chain((clip_by_global_norm(1.0), ema(0.9)))),
        6 => boxed(sgd(linear(0.1, 0.2, 3)).momentum(0.9)),
        7 => boxed(inject_hyperparams(adamw(0.1))),
        _ => boxed(monitor().measure("norm", measure_with_ema(GlobalNorm, 0.9))),
    });
    part.prop_recursive(4, 12, 3, |inner| {
        let pair = prop::collection::vec(inner.clone(), 1..4);
        let wrapped = (0..11_usize, inner).prop_map(|(i, inner)| match i {
            0 => boxed(multi_steps(inner, 2).should_skip_update_fn(skip_not_finite())),
            1 => boxed(multi_steps(chain((zero_nans(), inner)), 3)),
            2 => boxed(apply_if_finite(inner, 1)),
            3 => boxed(masked(inner, Mask::min_ndim(1))),
            4 => boxed(lookahead(inner, 2, 0.5)),
            5 => boxed(params_ema(inner, 0.9).update_every(2)),
            6 => boxed(params_swa(inner).start(2)),
            7 => boxed(flatten(inner)),
            8 => boxed(conditionally_transform(inner, step_lt(2))),
            9 => boxed(skip_on_spike(inner, 1.0).warmup_steps(1)),
            _ => boxed(schedule_free(inner, 0.1)),
        });
        prop_oneof![pair.prop_map(boxed_chain), wrapped]
    })
    .prop_map(|composition| {
        boxed(allow(composition, [gradchain::WarningKind::Climbs, gradchain::WarningKind::NegativeDecay]))
    })
}

fn boxed_chain(members: Vec<Boxed>) -> Boxed {
    boxed(chain(members))
}

/// Returns a replica's state after steps with some NaN gradients.
fn replica(transformation: &Boxed, seed: u64, steps: u64, not_finite: u64) -> Result<OptState<Boxed>> {
    let mut params = tree(|i| noise(0, i));
    let mut state = transformation.init(&params)?;
    for t in 0..steps {
        let bad = not_finite >> t & 1 == 1;
        let at = |i| if bad && i == 4 { f64::NAN } else { noise((seed << 8) | (t + 1), i) };
        transformation.step(&mut params, &tree(at), &mut state)?;
    }
    Ok(state)
}

#[derive(Debug)]
enum Field {
    Counts(Vec<u64>),
    Flags(Vec<bool>),
    Numbers(Vec<f64>),
    Key(u64),
}

fn fields<S: State>(state: &S) -> Vec<(String, Field)> {
    let mut out = Vec::new();
    let mut show = |path: &str, entry: Entry<'_>| {
        let field = match entry {
            Entry::Count(c) => Field::Counts(vec![c.get()]),
            Entry::Counts(v) => Field::Counts(v.iter().map(|(_, c)| c.get()).collect()),
            Entry::Flag(f) => Field::Flags(vec![f.get()]),
            Entry::Flags(v) => Field::Flags(v.iter().map(|(_, f)| f.get()).collect()),
            Entry::Scalar(s) => Field::Numbers(vec![s.get()]),
            Entry::Scalars(v) => Field::Numbers(v.iter().map(|(_, s)| s.get()).collect()),
            Entry::Key(k) => Field::Key(k.get()),
            Entry::Moments(m) => Field::Numbers((0..m.len()).filter_map(|i| m.to_array(i)).flatten().collect()),
            other => panic!("a kind that this test does not know: {other:?}"),
        };
        out.push((path.to_owned(), field));
    };
    state.walk(&mut StateWalk::new(&mut show));
    out
}

fn check(path: &str, mean: &Field, column: &[&Field], weights: &[f64], flags: FlagPolicy) {
    macro_rules! each {
        ($Variant:ident, $mean:ident, $i:ident, $values:ident, $holds:expr) => {
            for $i in 0..$mean.len() {
                let $values: Vec<_> = column
                    .iter()
                    .map(|field| match field {
                        Field::$Variant(values) => values[$i],
                        other => panic!("{path}: {other:?} is of another kind"),
                    })
                    .collect();
                assert!($holds, "{path}: {:?} is no mean of {:?}", $mean[$i], $values);
            }
        };
    }
    match mean {
        Field::Counts(mean) => each!(Counts, mean, i, values, values.iter().max() == Some(&mean[i])),
        Field::Flags(mean) => each!(
            Flags,
            mean,
            i,
            values,
            match flags {
                FlagPolicy::All => mean[i] == values.iter().all(|f| *f),
                _ => mean[i] == values.contains(&true),
            }
        ),
        Field::Key(key) => assert!(matches!(column[0], Field::Key(first) if first == key), "{path}"),
        Field::Numbers(mean) => each!(Numbers, mean, i, values, is_mean(mean[i], &values, weights)),
    }
}

/// Returns true if the mean is between the weighted values, or NaN if one of them is.
fn is_mean(mean: f64, values: &[f64], weights: &[f64]) -> bool {
    let counted: Vec<f64> = values.iter().zip(weights).filter(|(_, w)| **w > 0.0).map(|(x, _)| *x).collect();
    if counted.iter().any(|x| !x.is_finite()) {
        return !mean.is_finite();
    }
    let least = counted.iter().copied().fold(f64::INFINITY, f64::min);
    let most = counted.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let slack = 1e-6 * most.abs().max(least.abs());
    least - slack <= mean && mean <= most + slack
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_composition_turns_one_kind_into_another(
        transformation in composition(),
        replicas in prop::collection::vec((any::<u32>(), 0..7_u64, any::<u64>(), prop_oneof![Just(0.0), 0.1..9.0]), 1..5),
        all in any::<bool>(),
    ) {
        let mut weights: Vec<f64> = replicas.iter().map(|r| r.3).collect();
        weights[0] += 1.0;
        let states: Vec<_> = replicas
            .iter()
            .map(|(seed, steps, bad, _)| replica(&transformation, u64::from(*seed), *steps, *bad).unwrap())
            .collect();
        let given: Vec<_> = states.iter().zip(&weights).map(|(state, w)| (state, *w)).collect();
        let flags = if all { FlagPolicy::All } else { FlagPolicy::Any };
        let options = AverageOptions::default().flags(flags).keys(KeyPolicy::First);
        let mean = OptState::average(&given, options).unwrap();

        prop_assert_eq!(mean.schema(), states[0].schema());
        let rows: Vec<_> = states.iter().map(|state| fields(&**state)).collect();
        for (i, (path, field)) in fields(&*mean).iter().enumerate() {
            let column: Vec<&Field> = rows.iter().map(|row| &row[i].1).collect();
            check(path, field, &column, &weights, flags);
        }

        // Strict policies accept only states that agree; the mean of one state is that state.
        let strict = AverageOptions::default().counts(CountPolicy::Equal).flags(FlagPolicy::Equal).keys(KeyPolicy::First);
        let agree = (0..rows[0].len()).all(|i| rows.iter().all(|row| match (&row[i].1, &rows[0][i].1) {
            (Field::Counts(a), Field::Counts(b)) => a == b,
            (Field::Flags(a), Field::Flags(b)) => a == b,
            _ => true,
        }));
        prop_assert_eq!(OptState::average(&given, strict).is_ok(), agree);
        let one = OptState::average(&given[..1], strict).unwrap();
        prop_assert!(gradchain::state::same_bits(&*one, &*states[0]));

        let mut mean = mean;
        transformation.step(&mut tree(|i| noise(0, i)), &tree(|i| noise(1, i)), &mut mean).unwrap();
        prop_assert_eq!(mean.schema(), states[0].schema());
    }
}
