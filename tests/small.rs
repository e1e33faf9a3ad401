//! Small cases of all `unsafe` code in the engine, for `ci/miri`, which is thousands of times slower.
//!
//! Leaves of every layout and dtype, chains with and without fusion, barriers, boxes, windows, whole leaves and
//! threads. Each compares a step in place with updates applied later; other tests check values.
#![cfg(feature = "derive")]
#![allow(missing_docs, reason = "a test program")]

use gradchain::Tree;
use gradchain::optimizer::{dog, madgrad, rowwise_adagrad, sophia};
use gradchain::prelude::*;
use gradchain::transform::{
    GlobalNorm, monitor, normalize_by_update_norm, scale, scale_by_factored_rms, scale_by_lbfgs, scale_by_sm3,
    scale_by_trust_ratio, trace,
};
use gradchain::wrapper::{cautious, flatten, mechanize, sam};
use ndarray::{Array1, Array2, ArrayViewMut2, ShapeBuilder, s};

/// Row-major, column-major, strided, axis-free, empty and 16-bit leaves.
#[derive(Tree)]
struct Model<'a> {
    dense: Array2<f32>,
    columns: Array2<f64>,
    gaps: ArrayViewMut2<'a, f32>,
    scalar: f64,
    empty: Array1<f32>,
    #[cfg(feature = "half")]
    half: Array1<half::bf16>,
}

fn memory() -> Array2<f32> {
    Array2::from_elem((3, 8), 7.0)
}

fn model(memory: &mut Array2<f32>, seed: usize) -> Model<'_> {
    let number = |i: usize| ((i * 7919 + seed * 613) % 101) as f32 / 50.0 - 1.0;
    let mut gaps = memory.slice_mut(s![.., ..;2]);
    gaps.indexed_iter_mut().for_each(|((i, j), x)| *x = number(i * 4 + j));
    Model {
        dense: Array2::from_shape_fn((5, 7), |(i, j)| number(i * 7 + j + 100)),
        columns: Array2::from_shape_fn((3, 4).f(), |(i, j)| f64::from(number(i * 4 + j + 200))),
        gaps,
        scalar: f64::from(number(300)),
        empty: Array1::zeros(0),
        #[cfg(feature = "half")]
        half: Array1::from_shape_fn(9, |i| half::bf16::from_f32(number(i + 400))),
    }
}

fn bits(model: &Model<'_>) -> Vec<u64> {
    let single = |x: &f32| u64::from(x.to_bits());
    let mut bits: Vec<u64> = model.dense.iter().chain(&model.gaps).chain(&model.empty).map(single).collect();
    bits.extend(model.columns.iter().chain([&model.scalar]).map(|x| x.to_bits()));
    #[cfg(feature = "half")]
    bits.extend(model.half.iter().map(|x| u64::from(x.to_bits())));
    bits
}

/// Compares steps in place, by updates, and in the gradients' arrays bitwise; gaps stay untouched.
fn holds<T: GradientTransformation<Needs = Nothing>>(name: &str, optimizer: &T) {
    let [mut in_place, mut by_updates, mut owned, mut of_gradient] = [(); 4].map(|()| memory());
    {
        let mut params = model(&mut in_place, 0);
        let [mut other, mut third] = [&mut by_updates, &mut owned].map(|memory| model(memory, 0));
        let mut state = optimizer.init(&params).unwrap();
        let [mut state_of_other, mut state_of_third] = [state.clone(), state.clone()];
        for step in 1..=3 {
            let gradient = model(&mut of_gradient, step);
            let outcome = optimizer.step(&mut params, &gradient, &mut state).unwrap();
            let updates = optimizer.update(&gradient, &mut state_of_other, &other).unwrap();
            assert_eq!(outcome, updates.outcome(), "{name}, step {step}");
            apply_updates(&mut other, &updates).unwrap();
            assert_eq!(bits(&params), bits(&other), "{name}, step {step}");
            let (updates, _) = optimizer.update_owned(gradient, &mut state_of_third, &third).unwrap();
            apply_updates(&mut third, &updates).unwrap();
            assert_eq!(bits(&params), bits(&third), "{name}, step {step}");
        }
        assert!(gradchain::state::same_bits(&*state, &*state_of_other), "{name}");
        assert!(gradchain::state::same_bits(&*state, &*state_of_third), "{name}");
    }
    for memory in [in_place, by_updates, owned, of_gradient] {
        assert!(memory.slice(s![.., 1..;2]).iter().all(|x| *x == 7.0), "{name} wrote between the gaps");
    }
}

/// Every stage runs again for each barrier behind it: with the most that `init` allows, miri takes over 15 minutes.
const MOST_BARRIERS: i32 = if cfg!(miri) { 6 } else { 31 };

macro_rules! small {
    ($($name:ident: $optimizer:expr;)*) => {$(
        #[test]
        fn $name() {
            holds(stringify!($name), &$optimizer);
        }
    )*};
}

small! {
    momentum: sgd(0.1).momentum(0.9).nesterov(true);
    masked_decay: adamw(0.1).weight_decay(0.1).mask(Mask::min_ndim(2));
    moments_of_another_type: adam(0.1).mu_dtype(gradchain::DType::F64);
    one_barrier: chain((zero_nans(), clip_by_global_norm(0.5), adamw(0.1)));
    two_barriers: chain((clip_by_global_norm(0.5), scale_by_adam(), scale_by_trust_ratio(), scale(-0.1)));
    two_norms: chain((scale_by_adam(), clip_by_global_norm(0.5), trace(0.9), normalize_by_update_norm(), scale(-0.1)));
    boxes: chain(vec![boxed(clip_by_global_norm(1.0)), boxed(scale_by_adam()), boxed(scale(-0.1))]);
    a_window: multi_steps(adam(0.1), 2);
    finite_steps_only: apply_if_finite(adam(0.1), 3);
    slow_weights: lookahead(sgd(0.1), 2, 0.5);
    gradients_met: cautious(sgd(0.1).momentum(0.9));
    gradients_kept: cautious(chain((sgd(0.1).momentum(0.9), clip_by_global_norm(0.5))));
    arrays_of_what_weighs: mechanize(sgd(0.1)).s_init(0.1);
    inside_now_and_then: sophia(0.1, clip_by_global_norm(0.5)).update_interval(2).mu_dtype(gradchain::DType::F64);
    onlookers: chain((monitor().measure("norm", GlobalNorm), clip_by_global_norm(0.5), sgd(0.1)));
    a_look_first: adafactor(0.1);
    rows_and_columns: chain((scale_by_factored_rms().min_dim_size_to_factor(1), scale_by_sm3(), scale(-0.1)));
    matrix_products: muon(0.1);
    the_whole_tree: lbfgs_direction();
    sums_over_the_tree: prodigy();
    begun_anew_in_a_vector: flatten(lookahead(lookahead(sgd(0.1), 1000, 0.5), 2, 0.5).reset_state(true));
    adversary_in_a_vector: flatten(sam(sgd(0.1), chain((dog(), scale(-0.5)))));
    nested_and_begun_anew: sam(flatten(masked(lookahead(flatten(madgrad(0.1)), 1, 0.5).reset_state(true), Mask::min_ndim(1))), sgd(0.1));
    nested_around_and_inside: multi_steps(flatten(multi_steps(lookahead(dog(), 1, 0.5).reset_state(true), 1)), 1);
    most_barriers: chain((0..MOST_BARRIERS).map(|i| boxed(clip_by_global_norm(0.97_f64.powi(i)))).collect::<Vec<_>>());
    groups: partition((("a", adam(0.1)), ("b", sgd(0.1))), Labels::paths([("d*", "a")]).otherwise("b"));
}

/// Boxes resolve state arrays once for several tiles, and match one loop bit for bit.
///
/// The last stage adds to the parameters, at once or by tile.
#[test]
fn boxes_on_several_tiles() {
    fn hold(boxes: Vec<Boxed>, fused: impl GradientTransformation<Needs = Nothing>, odd: f32) {
        let boxes = chain(boxes);
        let number = |i: usize| ((i * 7919) % 101) as f32 / 50.0 - 1.0;
        let [mut params, mut other] = [(); 2].map(|()| Array1::from_shape_fn(1100, number));
        let (mut state, mut state_of_other) = (boxes.init(&params).unwrap(), fused.init(&other).unwrap());
        for step in 1..=2 {
            let mut gradient = Array1::from_shape_fn(1100, |i| number(i + 100 * step));
            gradient[step * 500] = odd;
            boxes.step(&mut params, &gradient, &mut state).unwrap();
            fused.step(&mut other, &gradient, &mut state_of_other).unwrap();
            assert_eq!(params, other, "step {step}");
        }
    }
    let (clip, adam) = (|| clip_by_global_norm(0.5), scale_by_adam);
    let rate = || scale_by_learning_rate(0.1);
    let boxes: Vec<Boxed> = vec![boxed(zero_nans()), boxed(clip()), boxed(adam()), boxed(rate())];
    hold(boxes, chain((zero_nans(), clip(), adam(), rate())), f32::NAN);
    let boxes: Vec<Boxed> = vec![boxed(clip()), boxed(adam()), boxed(rate())];
    hold(boxes, chain((clip(), adam(), rate())), 100.0);
}

/// Whole tiles in registers and a remainder match boxes, which get tiles in `f32`.
#[cfg(feature = "half")]
#[test]
fn tiles_of_16_bit_leaves_are_reduced() {
    const LEN: usize = if cfg!(miri) { 1024 + 5 } else { 2 * 1024 + 37 };
    fn holds<E: gradchain::Element>(
        one_loop: impl GradientTransformation<Needs = Nothing>,
        boxes: Vec<Boxed>,
        largest: f64,
    ) where
        Vec<E>: TreeMut,
    {
        let boxes = chain(boxes);
        let number = |i: usize| E::from_f64((((i * 7919) % 101) as f64 / 50.0 - 1.0) * largest.powi((i % 3) as i32));
        let [mut params, mut other] = [(); 2].map(|()| (0..LEN).map(number).collect::<Vec<E>>());
        let mut state = one_loop.init(&params).unwrap();
        let mut state_of_other = boxes.init(&other).unwrap();
        for step in 1..=2 {
            let mut gradient: Vec<E> = (0..params.len()).map(|i| number(i + 100 * step)).collect();
            gradient[step * 500] = E::from_f64(f64::NAN);
            one_loop.step(&mut params, &gradient, &mut state).unwrap();
            boxes.step(&mut other, &gradient, &mut state_of_other).unwrap();
            assert!(params == other, "{one_loop:?}, step {step}");
            assert!(params.iter().all(|p| p.as_f64().is_finite()), "{one_loop:?}, step {step}");
        }
    }
    use gradchain::optimizer::{fromage, lars};

    fn of_type<E: gradchain::Element>(largest: f64)
    where
        Vec<E>: TreeMut,
    {
        let clip = || (zero_nans(), clip_by_global_norm(0.5));
        let (zero, norm) = clip();
        holds::<E>(chain((clip(), adamw(0.1))), vec![boxed(zero), boxed(norm), boxed(adamw(0.1))], largest);
        if cfg!(miri) {
            return;
        }
        // Sums of parameters too.
        holds::<E>(chain((zero_nans(), lars(0.1))), vec![boxed(zero_nans()), boxed(lars(0.1))], largest);
        holds::<E>(chain((zero_nans(), fromage(0.1))), vec![boxed(zero_nans()), boxed(fromage(0.1))], largest);
    }
    of_type::<half::bf16>(1e9);
    of_type::<half::f16>(50.0);
}

/// One loop over blocks in registers and a remainder matches boxes, which run tile by tile.
#[cfg(feature = "half")]
#[test]
fn state_of_16_bits_in_one_loop() {
    use gradchain::part::{PartState, Steps};
    use gradchain::{DType, Element};
    const LEN: usize = if cfg!(miri) { 64 + 5 } else { 2 * 1024 + 37 };
    const NOT_A_NUMBER: usize = 7;
    fn bits<E: Element>(numbers: &[E]) -> Vec<u64> {
        numbers.iter().map(|x| x.as_f64().to_bits()).collect()
    }
    fn holds<E: Element, M: Element>()
    where
        Vec<E>: TreeMut,
    {
        // Over the range of each dtype.
        let largest: f64 = if E::DTYPE == DType::F16 || M::DTYPE == DType::F16 { 50.0 } else { 1e6 };
        let number = |i: usize| (((i * 7919) % 101) as f64 / 50.0 - 1.0) * largest.powi(i as i32 % 5 - 2);
        let leaf = |from: usize| (0..LEN).map(|i| E::from_f64(number(i + from))).collect::<Vec<E>>();
        let adam = || scale_by_adam().mu_dtype(M::DTYPE);
        let trace = || trace(0.9).accumulator_dtype(M::DTYPE);
        let one_loop = chain((adam(), trace(), scale(-0.1)));
        let boxes: Vec<Boxed> = vec![boxed(adam()), boxed(trace()), boxed(scale(-0.1))];
        let boxes = chain(boxes);
        let [mut params, mut other] = [leaf(0), leaf(0)];
        let (mut state, mut state_of_other) = (one_loop.init(&params).unwrap(), boxes.init(&other).unwrap());
        for step in 1..=3 {
            let mut gradient = leaf(100 * step);
            gradient[NOT_A_NUMBER] = E::from_f64(f64::NAN);
            gradient[LEN - step] = E::from_f64(f64::INFINITY);
            one_loop.step(&mut params, &gradient, &mut state).unwrap();
            boxes.step(&mut other, &gradient, &mut state_of_other).unwrap();
            assert_eq!(bits(&params), bits(&other), "{:?} with {:?}, step {step}", E::DTYPE, M::DTYPE);
        }
        let boxed = |member: usize| state_of_other[member].downcast_ref::<PartState<Steps>>().unwrap();
        let array = |state: &PartState<Steps>, name: &str| state.moment(name).unwrap().to_array(0).unwrap();
        let of_loop = [array(&state.0, "mu"), array(&state.0, "nu"), array(&state.1, "trace")];
        let of_boxes = [array(boxed(0), "mu"), array(boxed(0), "nu"), array(boxed(1), "trace")];
        for (here, there) in of_loop.iter().zip(&of_boxes) {
            assert_eq!(bits(here.as_slice().unwrap()), bits(there.as_slice().unwrap()));
        }
        let not_numbers = params.iter().filter(|p| p.as_f64().is_nan()).count();
        assert!((1..10).contains(&not_numbers), "{not_numbers} of {LEN}");
        let schema = state.schema();
        assert_eq!(schema.entries.iter().filter(|entry| entry.dtype == Some(M::DTYPE)).count(), 2, "{schema}");
    }
    holds::<f32, half::bf16>();
    holds::<half::bf16, half::bf16>();
    holds::<half::f16, half::bf16>();
    holds::<half::f16, half::f16>();
    if !cfg!(miri) {
        holds::<f32, half::f16>();
        holds::<half::bf16, half::f16>();
    }
}

/// Gradients of every layout with rows, also repeated, match in place and by updates.
#[test]
fn rows() {
    use gradchain::tree::SparseRows;

    let optimizer = chain((scale_by_adam(), clip_by_global_norm(0.5), add_decayed_weights(0.1), rowwise_adagrad(0.1)));
    let number = |i: usize| ((i * 7919) % 101) as f32 / 50.0 - 1.0;
    let mut memory = [(); 2].map(|()| memory());
    let [mut params, mut other] = memory.each_mut().map(|memory| {
        let dense = Array2::from_shape_fn((5, 7), |(i, j)| number(i * 7 + j));
        (dense, memory.slice_mut(s![.., ..;2]), Array1::from_shape_fn(9, |i| f64::from(number(i))))
    });
    let mut state = optimizer.init(&params).unwrap();
    let mut state_of_other = state.clone();
    for step in 1..=3 {
        let values = |n| Array2::from_shape_fn((4, n).f(), |(i, j)| number(i * n + j + 100 * step));
        let dense = SparseRows::new([4, step, 0, step], values(7));
        let gaps = SparseRows::new(vec![1, 1, 1, 1], values(4));
        let few = SparseRows::new(vec![], Array1::<f32>::zeros(0));
        let gradient = (dense, gaps, few);
        optimizer.step(&mut params, &gradient, &mut state).unwrap();
        let updates = optimizer.update(&gradient, &mut state_of_other, &other).unwrap();
        apply_updates(&mut other, &updates).unwrap();
        assert!(params == other, "step {step}");
    }
    assert!(gradchain::state::same_bits(&*state, &*state_of_other));
    for memory in memory {
        assert!(memory.slice(s![.., 1..;2]).iter().chain(memory.row(0)).all(|x| *x == 7.0), "it wrote elsewhere");
    }
}

fn lbfgs_direction() -> impl GradientTransformation<Needs = Nothing> {
    chain((scale_by_lbfgs(), scale(-0.1)))
}

/// Chunks of one leaf run on several threads.
#[cfg(feature = "rayon")]
#[test]
fn threads() {
    let n = if cfg!(miri) { 16 * 1024 * 5 + 3 } else { 300_000 };
    let optimizer = chain((clip_by_global_norm(0.5), sgd(0.1)));
    let run = |threads: usize| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
            let mut params = vec![1.0_f32; n];
            let mut state = optimizer.init(&params).unwrap();
            optimizer.step(&mut params, &vec![0.5_f32; n], &mut state).unwrap();
            params
        })
    };
    assert!(run(1) == run(3));
}
