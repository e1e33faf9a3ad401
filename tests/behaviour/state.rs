//! Operations of each kind of state field.

use gradchain::transform::scale_by_lbfgs;
use std::marker::PhantomData;

use gradchain::state::{
    AverageOptions, Count, CountPolicy, Flag, FlagPolicy, KeyPolicy, Kind, Moments, PerLeaf, RandomKey, Scalar, Schema,
    State, average, lerp, same_bits,
};
use gradchain::tree::Structure;
use gradchain::{DType, Result};
use ndarray::{Array2, ShapeBuilder, array};
use proptest::prelude::*;

/// One field of each kind; the leaves are `0: f32 [2, 2]` and `1: f64 []`.
#[derive(State, Clone, Debug)]
struct All {
    count: Count,
    mu: Moments,
    inner: Inner<Scalar>,
    found_nan: Flag,
    seen: PerLeaf<Count>,
    frozen: PerLeaf<Flag>,
    norms: PerLeaf<Scalar>,
    #[state(skip)]
    label: &'static str,
}

#[derive(State, Clone, Debug)]
struct Inner<S>(S, #[state(skip)] PhantomData<fn(S)>, ());

fn structure() -> Structure {
    Structure::of(&(Array2::<f32>::zeros((2, 2)), 0.0_f64)).unwrap()
}

const ACTIVE: [bool; 2] = [true, true];

fn all(value: f64) -> All {
    All {
        count: Count::new(value.abs() as u64),
        mu: Moments::like(&structure(), &ACTIVE, value, |leaf| leaf.dtype()).unwrap(),
        inner: Inner(Scalar::new(value), PhantomData, ()),
        found_nan: Flag::new(value < 0.0),
        seen: PerLeaf::new(&ACTIVE, Count::new(value.abs() as u64)),
        frozen: PerLeaf::new(&[false, true], Flag::new(value < 0.0)),
        norms: PerLeaf::new(&[true, false], Scalar::new(value)),
        label: "kept",
    }
}

fn mean(states: &[(&All, f64)]) -> Result<All> {
    average(states, AverageOptions::default())
}

#[test]
fn counts_saturate_and_flags_are_set() {
    let mut count = Count::new(u64::MAX - 1);
    count.increment();
    count.increment();
    assert_eq!(count.get(), u64::MAX, "it stays at the end");
    count.reset();
    count.increment_by(3);
    assert_eq!((count, count > Count::new(2)), (Count::new(3), true));
    let mut flag = Flag::default();
    flag.set(true);
    assert_eq!(flag, Flag::new(true));
    assert_eq!(RandomKey::new(7).get(), 7);
}

#[test]
fn per_leaf_values_exist_for_active_leaves_alone() {
    let mut values = PerLeaf::new(&[true, false, true], Count::new(1));
    values.set(1, Count::new(5));
    values.set(9, Count::new(5));
    values.set(2, Count::new(2));
    assert_eq!((values.get(0), values.get(1), values.get(9)), (Some(Count::new(1)), None, None));
    values.iter_mut().for_each(|(_, count)| count.increment());
    assert_eq!(values.iter().map(|(leaf, c)| (leaf, c.get())).collect::<Vec<_>>(), [(0, 2), (2, 3)]);
}

#[test]
fn moments_have_the_shape_and_order_of_their_leaves() {
    let tree = (Array2::<f32>::zeros((2, 3).f()), 0.0_f64, vec![0.0_f32; 2]);
    let structure = Structure::of(&tree).unwrap();
    let mut moments = Moments::like(&structure, &[true, true, false], 0.0, |leaf| leaf.dtype()).unwrap();
    assert_eq!((moments.len(), moments.leaves().collect::<Vec<_>>()), (3, vec![0, 1]));
    assert_eq!((moments.dtype(1), moments.shape(0), moments.shape(2)), (Some(DType::F64), Some(&[2, 3][..]), None));
    assert!(moments.get::<f64>(0).is_none(), "it holds f32");
    moments.get_mut::<f32>(0).unwrap().copy_from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let expected = array![[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]].into_dyn();
    assert_eq!(moments.to_array(0), Some(expected), "memory is in the leaf's order");
    moments.fill(0.5);
    assert_eq!((moments.get::<f32>(0).unwrap(), moments.get::<f64>(1).unwrap()), (&[0.5; 6][..], &[0.5][..]));
    assert_eq!(moments.bytes(), 6 * 4 + 8);

    let rows =
        Moments::with_shapes(&structure, &[true; 3], |_| DType::F64, |leaf| leaf.shape().get(..1).map(Into::into))
            .unwrap();
    assert_eq!((rows.shape(0), rows.shape(1), rows.shape(2)), (Some(&[2][..]), None, Some(&[2][..])));
    assert_eq!(rows.get::<f64>(0), Some(&[0.0; 2][..]));
}

#[test]
fn the_schema_lists_every_value() {
    let schema = Schema::of(&(all(1.0), RandomKey::new(3)), &structure());
    let expected = "\
0.count: count
0.mu[0]: moment f32 [2, 2]
0.mu[1]: moment f64 []
0.inner.0: scalar
0.found_nan: flag
0.seen[0]: count
0.seen[1]: count
0.frozen[1]: flag
0.norms[0]: scalar
1: key
";
    assert_eq!(schema.to_string(), expected);
    assert_eq!((schema.entries[1].kind, schema.entries[1].leaf.as_deref()), (Kind::Moment, Some("0")));
}

#[test]
fn the_size_is_reported_by_kind() {
    let size = Schema::of(&all(1.0), &structure()).size();
    assert_eq!((size.values(Kind::Moment), size.bytes(Kind::Moment)), (5, 4 * 4 + 8));
    assert_eq!((size.values(Kind::Count), size.bytes(Kind::Flag), size.bytes(Kind::Key)), (3, 2, 0));
    assert_eq!(size.total_bytes(), 24 + 3 * 8 + 2 * 8 + 2);
    assert_eq!(
        size.to_string(),
        "moment: 5 values, 24 bytes\nscalar: 2 values, 16 bytes\ncount: 3 values, 24 bytes\nflag: 2 values, 2 bytes\n\
         total: 66 bytes"
    );
}

#[test]
fn a_mean_goes_by_kind_and_keeps_types() {
    let (a, b) = (all(1.0), all(-4.0));
    let mean = mean(&[(&a, 3.0), (&b, 1.0)]).unwrap();
    assert_eq!((mean.mu.get::<f32>(0).unwrap(), mean.mu.get::<f64>(1).unwrap()), (&[-0.25; 4][..], &[-0.25][..]));
    assert_eq!((mean.inner.0, mean.norms.get(0)), (Scalar::new(-0.25), Some(Scalar::new(-0.25))));
    assert_eq!((mean.count, mean.seen.get(1)), (Count::new(4), Some(Count::new(4))));
    assert_eq!((mean.found_nan, mean.frozen.get(1)), (Flag::new(true), Some(Flag::new(true))));
    assert_eq!(mean.label, "kept", "skipped fields are the first state's");
}

#[cfg(feature = "half")]
#[test]
fn a_mean_of_sixteen_bits_is_rounded_once() {
    let structure = Structure::of(&0.0_f32).unwrap();
    let moments = |value| Moments::like(&structure, &[true], value, |_| DType::Bf16).unwrap();
    let (a, b, c) = (moments(256.0), moments(1.0), moments(1.0));
    let mean = average(&[(&a, 1.0), (&b, 1.0), (&c, 1.0)], AverageOptions::default()).unwrap();
    assert_eq!(mean.get::<half::bf16>(0), Some(&[half::bf16::from_f32(86.0)][..]));
}

#[test]
fn a_weight_of_zero_silences_a_nan() {
    let (a, b) = (all(2.0), all(f64::NAN));
    for mean in [mean(&[(&a, 1.0), (&b, 0.0)]), lerp(&a, &b, 0.0, AverageOptions::default())] {
        assert!(same_bits(&mean.unwrap(), &a));
    }
    let mean = mean(&[(&a, 1.0), (&b, 1e-9)]).unwrap();
    assert!(mean.inner.0.get().is_nan() && mean.mu.get::<f32>(0).unwrap()[3].is_nan());
    let infinite = all(f64::INFINITY);
    assert_eq!(average(&[(&infinite, 0.0), (&a, 2.0)], AverageOptions::default()).unwrap().inner.0, a.inner.0);
}

#[test]
fn lerp_goes_from_one_state_to_the_other() {
    let (a, b) = (all(1.0), all(2.0));
    let at = |t| lerp(&a, &b, t, AverageOptions::default()).map(|state| state.inner.0.get());
    assert_eq!((at(0.0), at(0.25), at(1.0)), (Ok(1.0), Ok(1.25), Ok(2.0)));
    for t in [-0.1, 1.1, f64::NAN] {
        assert!(at(t).unwrap_err().is_argument());
    }
}

#[test]
fn moments_of_different_memory_order_are_averaged_by_place() {
    let moments = |array: Array2<f32>, values: [f32; 6]| {
        let structure = Structure::of(&array).unwrap();
        let mut moments = Moments::like(&structure, &[true], 0.0, |leaf| leaf.dtype()).unwrap();
        moments.get_mut::<f32>(0).unwrap().copy_from_slice(&values);
        moments
    };
    // Both hold [[1, 2, 3], [4, 5, 6]].
    let rows = moments(Array2::zeros((2, 3)), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let columns = moments(Array2::zeros((2, 3).f()), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    assert_eq!(rows.to_array(0), columns.to_array(0));
    for states in [[(&rows, 1.0), (&columns, 1.0)], [(&columns, 1.0), (&rows, 1.0)]] {
        let mean = average(&states, AverageOptions::default()).unwrap();
        assert_eq!(mean.to_array(0), rows.to_array(0));
        assert!(same_bits(&mean, states[0].0), "in the first state's order");
    }
}

#[test]
fn policies_average_flags_counts_and_keys() {
    let (t, f) = (Flag::new(true), Flag::new(false));
    let flags = |policy, flags: &[Flag]| {
        let states: Vec<_> = flags.iter().map(|flag| (flag, 1.0)).collect();
        average(&states, AverageOptions::default().flags(policy))
    };
    assert_eq!((flags(FlagPolicy::Any, &[f, t]), flags(FlagPolicy::All, &[f, t])), (Ok(t), Ok(f)));
    assert_eq!((flags(FlagPolicy::Any, &[f, f]), flags(FlagPolicy::All, &[t, t])), (Ok(f), Ok(t)));
    assert_eq!(flags(FlagPolicy::Equal, &[t, t, t]), Ok(t));
    assert!(flags(FlagPolicy::Equal, &[t, t, f]).unwrap_err().to_string().contains("the flags differ"));

    let (one, two) = (Count::new(1), Count::new(2));
    let counts = |policy, states: &[(&Count, f64)]| average(states, AverageOptions::default().counts(policy));
    assert_eq!(counts(CountPolicy::Largest, &[(&one, 9.0), (&two, 1.0)]), Ok(two));
    assert_eq!(counts(CountPolicy::Equal, &[(&one, 9.0), (&one, 1.0)]), Ok(one));
    let error = counts(CountPolicy::Equal, &[(&one, 9.0), (&two, 1.0)]).unwrap_err();
    assert!(error.to_string().contains("the counts differ"));

    let (a, b) = (RandomKey::new(1), RandomKey::new(2));
    let keys = |policy| average(&[(&a, 1.0), (&b, 1.0)], AverageOptions::default().keys(policy));
    assert_eq!(keys(KeyPolicy::First), Ok(a));
    let error = keys(KeyPolicy::Refuse).unwrap_err();
    assert_eq!(
        error.to_string(),
        "average: field ``: random keys have no mean; pass `KeyPolicy::First` to keep the first state's"
    );
}

#[test]
fn policies_hold_for_each_leaf() {
    let (a, b) = (all(1.0), all(-2.0));
    let with = |counts, flags| average(&[(&a, 1.0), (&b, 1.0)], AverageOptions::default().counts(counts).flags(flags));
    assert_eq!(with(CountPolicy::Largest, FlagPolicy::All).unwrap().frozen.get(1), Some(Flag::new(false)));
    let error = with(CountPolicy::Equal, FlagPolicy::Any).unwrap_err();
    assert_eq!(error.to_string(), "average: field `count`: the counts differ");
    let error = with(CountPolicy::Largest, FlagPolicy::Equal).unwrap_err();
    assert_eq!(error.to_string(), "average: field `found_nan`: the flags differ");
}

#[test]
fn weights_and_schemas_must_fit() {
    let a = all(1.0);
    for weights in [[0.0, 0.0], [-1.0, 2.0], [f64::NAN, 1.0], [f64::INFINITY, 1.0]] {
        let error = mean(&[(&a, weights[0]), (&a, weights[1])]).unwrap_err();
        assert!(error.is_argument() && error.to_string().contains("weights"), "{error}");
    }
    assert!(mean(&[]).unwrap_err().to_string().contains("at least one state"));

    let (some, none) = (Some(Count::new(1)), None);
    for states in [[(&some, 1.0), (&none, 1.0)], [(&none, 1.0), (&some, 1.0)]] {
        assert!(average(&states, AverageOptions::default()).is_err());
    }
    let (short, long) = (vec![Flag::default()], vec![Flag::default(); 2]);
    assert!(average(&[(&short, 1.0), (&long, 1.0)], AverageOptions::default()).is_err());

    let moments = |dtype| Moments::like(&structure(), &ACTIVE, 0.0, |_| dtype).unwrap();
    let error = average(&[(&moments(DType::F32), 1.0), (&moments(DType::F64), 1.0)], AverageOptions::default());
    assert!(error.unwrap_err().to_string().contains("the arrays differ in type or shape"));
}

#[test]
fn values_for_other_leaves_have_no_mean() {
    fn refused<K: gradchain::state::PerLeafKind>(value: K) {
        let on = |active: &[bool]| PerLeaf::new(active, value);
        for other in [on(&[true, false]), on(&[true]), on(&[false, true, true])] {
            let error = average(&[(&on(&[true, true]), 1.0), (&other, 1.0)], AverageOptions::default()).unwrap_err();
            assert!(error.to_string().contains("the states act on different leaves"), "{error}");
        }
    }
    refused(Scalar::new(1.0));
    refused(Count::new(1));
    refused(Flag::new(true));
}

#[test]
fn same_bits_compares_states_bitwise() {
    assert!(same_bits(&all(1.0), &all(1.0)) && same_bits(&all(f64::NAN), &all(f64::NAN)));
    assert!(!same_bits(&Scalar::new(0.0), &Scalar::new(-0.0)));
    assert!(!same_bits(&Count::new(0), &Count::new(1)));
    let mut other = all(1.0);
    other.mu.get_mut::<f32>(0).unwrap()[3] = 1.0 + f32::EPSILON;
    assert!(!same_bits(&all(1.0), &other));
}

proptest! {
    #[test]
    fn averaging_never_changes_the_schema_nor_invents_a_count_or_flag(
        inputs in prop::collection::vec((-100.0..100.0_f64, 0.01..10.0_f64), 1..5),
        options in (0..3_usize, 0..2_usize),
    ) {
        let states: Vec<_> = inputs.iter().map(|(value, weight)| (all(*value), *weight)).collect();
        let weighted: Vec<_> = states.iter().map(|(state, weight)| (state, *weight)).collect();
        let options = AverageOptions::default().flags([FlagPolicy::Any, FlagPolicy::All, FlagPolicy::Equal][options.0]).counts([CountPolicy::Largest, CountPolicy::Equal][options.1]).keys(KeyPolicy::Refuse);
        let Ok(mean) = average(&weighted, options) else {
            prop_assert!(options.flags == FlagPolicy::Equal || options.counts == CountPolicy::Equal);
            return Ok(());
        };
        prop_assert_eq!(Schema::of(&mean, &structure()), Schema::of(&states[0].0, &structure()));
        let any = |had: &dyn Fn(&All) -> bool| states.iter().any(|(state, _)| had(state));
        prop_assert!(any(&|state| state.count == mean.count));
        prop_assert!(any(&|state| state.found_nan == mean.found_nan));
        prop_assert!(any(&|state| state.seen.get(1) == mean.seen.get(1)));
        prop_assert!(any(&|state| state.frozen.get(1) == mean.frozen.get(1)));
        let (total, sum) = inputs.iter().fold((0.0, 0.0), |(t, s), (x, w)| (t + w, s + w * x));
        prop_assert!((mean.inner.0.get() - sum / total).abs() < 1e-12 * 100.0);
        prop_assert!((f64::from(mean.mu.get::<f32>(0).unwrap()[2]) - sum / total).abs() < 1e-5 * 100.0);
    }
}

#[test]
fn arrays_that_cannot_be_had_are_refused() {
    use gradchain::prelude::*;

    let structure = structure();
    let error =
        Moments::with_shapes(&structure, &[true; 3], |_| DType::F64, |_| Some(vec![usize::MAX, 2])).unwrap_err();
    assert!(error.to_string().contains(&structure.leaves()[0].path().to_string()), "{error}");
    assert!(error.to_string().contains("out of memory"), "{error}");
    // As many bytes as addresses, and more than any machine's memory.
    for len in [usize::MAX / 8, usize::MAX / 32] {
        let error = Moments::with_shapes(&structure, &[true; 3], |_| DType::F64, |_| Some(vec![len])).unwrap_err();
        assert!(error.to_string().contains("out of memory"), "{error}");
    }
    for memory_size in [0, usize::MAX, usize::MAX / 64] {
        let error = scale_by_lbfgs().memory_size(memory_size).init(&vec![1.0_f64; 3]).unwrap_err();
        assert!(error.is_argument() && error.to_string().contains("memory_size"), "{error}");
        assert!(scale_by_lbfgs().memory_size(memory_size).init(&Vec::<f64>::new()).is_err());
    }
}

#[cfg(not(feature = "half"))]
#[test]
fn sixteen_bit_state_needs_the_feature() {
    use gradchain::prelude::*;

    let dtype = DType::Bf16;
    let refused = |error: gradchain::Error| {
        assert!(error.to_string().contains("16-bit types need the feature `half`"), "{error}");
    };
    refused(adam(0.1).mu_dtype(dtype).init(&1.0_f32).unwrap_err());
    refused(lion(0.1).mu_dtype(dtype).init(&1.0_f32).unwrap_err());
    refused(multi_steps(sgd(0.1), 2).accumulator_dtype(dtype).init(&1.0_f32).unwrap_err());
    refused(schedule_free(sgd(0.1), 0.1).state_dtype(dtype).init(&1.0_f32).unwrap_err());
}
