//! 8-bit state.

use gradchain::needs::Nothing;
use gradchain::optimizer::adam_mini;
use gradchain::prelude::*;
use gradchain::state::{AverageOptions, Kind, same_bits};
use gradchain::transform::{apply_every, ema, identity, kahan_summation, scale_by_rms, trace};
use gradchain::tree::SparseRows;
use gradchain::wrapper::{flatten, master, sharded};
use gradchain::{DType, GradientTransformation, Migration};
use ndarray::{Array1, Array2, ShapeBuilder};

#[path = "../../examples/train_digits/data.rs"]
#[allow(dead_code, reason = "the test has batches of its own")]
mod data;
#[path = "../../examples/train_digits/model.rs"]
#[allow(dead_code, reason = "as above")]
mod model;

/// Returns numbers from a thousandth to one.
fn gradient(step: usize, i: usize) -> f32 {
    let size = [1.0, 0.3, 0.02, 0.001][i / 64 % 4];
    size * ((i * 31 + step * 17) as f32 * 0.7).sin()
}

fn array<S>(state: &S, name: &str, leaf: usize) -> Vec<f64>
where
    S: gradchain::state::State,
{
    let mut found = Vec::new();
    state.walk(&mut gradchain::state::StateWalk::new(&mut |path, entry| {
        if let (true, gradchain::state::Entry::Moments(moments)) = (path.ends_with(name), entry) {
            found = moments.to_array(leaf).unwrap().into_iter().collect();
        }
    }));
    found
}

/// A bound on one rounding: relative to the block's largest so far, plus absolute.
#[derive(Clone, Copy)]
struct Rounding {
    block: usize,
    relative: f64,
    absolute: f64,
}

/// Compares a quantized mean `a ← b·a + (1 − b)·x(g)` with `f64`.
///
/// Rounding errors sum to at most 1/(1 − b) of one.
fn is_within_the_bound<T>(t: T, name: &str, b: f64, of: fn(f64) -> f64, one: Rounding)
where
    T: GradientTransformation<Needs = Nothing>,
{
    let (n, steps) = (1000, 80);
    let mut params = vec![0.0_f32; n];
    let mut state = t.init(&params).unwrap();
    let (mut exact, mut scales) = (vec![0.0; n], vec![0.0_f64; n.div_ceil(one.block)]);
    let mut worst = 0.0_f64;
    for step in 0..steps {
        let grads: Vec<f32> = (0..n).map(|i| gradient(step, i)).collect();
        t.step(&mut params, &grads, &mut state).unwrap();
        let found = array(&*state, name, 0);
        for (i, (exact, found)) in exact.iter_mut().zip(&found).enumerate() {
            *exact = b * *exact + (1.0 - b) * of(grads[i].into());
            // The block's largest so far.
            scales[i / one.block] = scales[i / one.block].max(found.abs());
        }
        for (i, (exact, found)) in exact.iter().zip(&found).enumerate() {
            let bound = (one.relative * scales[i / one.block] + one.absolute) / (1.0 - b) * 1.001;
            worst = worst.max((exact - found).abs() / bound);
            assert!((exact - found).abs() <= bound, "{name}[{i}] after {step}: {found:e}, not {exact:e}, of {bound:e}");
        }
    }
    println!("{name}: {worst:.3} of the bound");
    assert!(worst > 0.02, "{name}: {worst:e} of the bound, which says nothing then");
}

#[test]
fn quantization_errors_are_within_the_documented_bounds() {
    let of = |relative| Rounding { block: 256, relative, absolute: 0.0 };
    let (root, fourth_root, logarithm) = (of((2.0 + 2.0 / 127.0) / 127.0), of(5.0 / 255.0), of(1.0 / 8.0));
    is_within_the_bound(quantized(ema(0.9)).min_elements(0), "ema", 0.9, |g| g, root);
    is_within_the_bound(quantized(ema(0.9)).min_elements(0).logarithmic(true), "ema", 0.9, |g| g, logarithm);
    is_within_the_bound(quantized(scale_by_rms().decay(0.9)).min_elements(0), "nu", 0.9, |g| g * g, fourth_root);
    is_within_the_bound(
        quantized(scale_by_rms().decay(0.9)).min_elements(0).logarithmic(true),
        "nu",
        0.9,
        |g| g * g,
        logarithm,
    );
}

/// Also for the subnormals of `f16`.
#[test]
fn the_error_of_16_bits_is_within_half_the_last_bit_at_each_step() {
    let bf16 = Rounding { block: 1, relative: 2.0_f64.powi(-8), absolute: 0.0 };
    let f16 = Rounding { block: 1, relative: 2.0_f64.powi(-11), absolute: 2.0_f64.powi(-25) };
    for (dtype, one) in [(DType::Bf16, bf16), (DType::F16, f16)] {
        is_within_the_bound(ema(0.9).accumulator_dtype(dtype), "ema", 0.9, |g| g, one);
        is_within_the_bound(scale_by_adam().mu_dtype(dtype), "mu", 0.9, |g| g, one);
        is_within_the_bound(scale_by_adam().b2(0.9).nu_dtype(dtype), "nu", 0.9, |g| g * g, one);
    }
}

#[test]
fn second_moments_decay_and_are_zero_only_if_they_are() {
    for optimizer in [
        quantized(scale_by_adam().b2(0.99)).min_elements(0),
        quantized(scale_by_adam().b2(0.99)).min_elements(0).logarithmic(true),
    ] {
        let params = vec![0.0_f32; 1024];
        let mut state = optimizer.init(&params).unwrap();
        let mut exact = vec![0.0; 1024];
        for step in 0..500 {
            // Every fourth gradient stops after 100 steps; every eighth is zero.
            let none = |i: usize| i % 4 == 1 && step >= 100 || i % 8 == 3;
            let mut random = data::Random(step as u64);
            let mut size = |i: usize| [1.0, 0.5, 0.3, 0.1][i / 64 % 4] * (random.uniform() as f32 + 0.1);
            let grads: Vec<f32> = (0..1024).map(|i| if none(i) { 0.0 } else { size(i) }).collect();
            optimizer.update(&grads, &mut state, &params).unwrap();
            exact.iter_mut().zip(&grads).for_each(|(v, g)| *v = 0.99 * *v + 0.01 * f64::from(*g).powi(2));
        }
        let found = array(&*state, "nu", 0);
        let parts = found.iter().zip(&exact).enumerate();
        let stopped: Vec<f64> = parts.filter(|(i, _)| i % 4 == 1).map(|(_, (v, exact))| v / exact).collect();
        // 400 steps leave a fiftieth of the moment.
        let mean = stopped.iter().sum::<f64>() / stopped.len() as f64;
        assert!((0.8..1.25).contains(&mean), "{mean}");
        assert!(found.iter().enumerate().all(|(i, v)| (*v == 0.0) == (i % 8 == 3)));
    }
}

#[test]
fn each_array_has_the_type_that_it_should() {
    let params = (vec![1.0_f32; 300], vec![1.0_f64; 3], vec![half::bf16::ONE; 5]);
    let types = |schema: gradchain::state::Schema| -> Vec<String> {
        schema.entries.iter().map(|entry| entry.to_string()).filter(|entry| entry.contains('[')).collect()
    };
    let of = |schema| types(schema).into_iter().map(|entry| entry.split(' ').nth(2).unwrap_or("").to_owned());
    let found: Vec<_> = of(quantized(adam(0.1)).min_elements(0).init(&params).unwrap().schema()).collect();
    assert_eq!(found, ["root8", "f64", "root8", "fourth_root8", "f64", "fourth_root8"]);
    let logarithmic =
        quantized(adam(0.1).mu_dtype(DType::Bf16)).min_elements(0).logarithmic(true).init(&params).unwrap().schema();
    let found: Vec<_> = of(logarithmic).collect();
    assert_eq!(found, ["bf16", "bf16", "bf16", "unsigned_log8", "f64", "unsigned_log8"]);
    // Copies of parameters and held updates.
    let whole =
        chain((apply_every(2), lookahead(multi_steps(kahan_summation(), 2), 2, 0.5), params_ema(sgd(0.1), 0.5)));
    let schema = quantized(master(whole)).min_elements(0).init(&params).unwrap().schema();
    assert!(!schema.to_string().contains('8'), "{schema}");
    // Wrappers with their own leaves, or that start anew.
    let inside =
        quantized(chain((flatten(trace(0.9)), lookahead(adam(0.1), 1, 0.5).reset_state(true)))).min_elements(0);
    let (mut params, grads) = (vec![1.0_f32; 40], vec![1.0_f32; 40]);
    let mut state = inside.init(&params).unwrap();
    let schema = state.schema();
    assert_eq!(schema.to_string().matches("root8").count(), 3, "{schema}");
    inside.step(&mut params, &grads, &mut state).unwrap();
    assert_eq!(state.schema(), schema);
    let error = adam(0.1).mu_dtype(DType::Root8).init(&params).unwrap_err().to_string();
    assert!(error.contains("root8"), "{error}");
    let error = muon(0.1).mu_dtype(DType::Root8).init(&Array2::<f32>::zeros((3, 4))).unwrap_err().to_string();
    assert!(error.contains("root8"), "{error}");
}

#[test]
fn an_adam_has_little_more_than_two_bytes_for_each_parameter() {
    let params = vec![0.0_f32; 1 << 20];
    let plan = quantized(adamw(0.1)).min_elements(0).plan(&params).unwrap();
    let of_schema = quantized(adamw(0.1)).min_elements(0).init(&params).unwrap().schema().size();
    for size in [&plan.state, &of_schema] {
        assert_eq!(size.bytes(Kind::Moment) as f64 / (1 << 20) as f64, 2.0 * (1.0 + 4.0 / 256.0));
    }
    // Including scales and partial blocks.
    assert_eq!(plan.passes[0].state, 2 * plan.state.bytes(Kind::Moment));
    let plan = quantized(adamw(0.1)).min_elements(0).plan(&vec![vec![0.0_f32; 300], vec![0.0; 5]]).unwrap();
    assert_eq!(plan.passes[0].state, 2 * 2 * (305 + 3 * 4));
}

#[test]
fn rows_are_refused_before_anything_changes() {
    let optimizer = quantized(adam(0.1)).min_elements(0);
    let mut params = Array2::<f32>::ones((4, 3));
    let mut state = optimizer.init(&params).unwrap();
    let before = state.clone();
    let rows = SparseRows::new(vec![1_usize], Array2::<f32>::ones((1, 3)));
    let error = optimizer.step(&mut params, &rows, &mut state).unwrap_err().to_string();
    assert!(error.contains("quantized") && error.contains("row-sparse"), "{error}");
    assert!(same_bits(&*state, &*before) && params == Array2::<f32>::ones((4, 3)));
}

#[test]
fn a_state_goes_into_8_bits_and_back() {
    let (single, few) = (adam(0.1), quantized(adam(0.1)).min_elements(0));
    let mut params = vec![1.0_f32; 700];
    let grads: Vec<f32> = (0..700).map(|i| gradient(1, i)).collect();
    let mut state = single.init(&params).unwrap();
    single.step(&mut params, &grads, &mut state).unwrap();
    let error = state.migrate(&few, &params, &Migration::new().wrap_part("")).unwrap_err().to_string();
    assert!(error.contains("root8") && error.contains("cast_part"), "{error}");
    let coded = state.migrate(&few, &params, &Migration::new().wrap_part("").cast_part("inner")).unwrap();
    let back = coded.migrate(&single, &params, &Migration::new().unwrap_part("").cast_part("")).unwrap();
    for (name, one) in [("mu", 2.02 / 127.0), ("nu", 5.0 / 255.0)] {
        let (exact, coded, back) = (array(&*state, name, 0), array(&*coded, name, 0), array(&*back, name, 0));
        assert_eq!(coded, back, "every code is a number of f32");
        let largest = exact.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
        assert!(exact.iter().zip(&coded).all(|(x, y)| (x - y).abs() <= one * largest));
    }
    // Another format needs a verb.
    let logarithms = quantized(adam(0.1)).min_elements(0).logarithmic(true);
    assert!(coded.migrate(&logarithms, &params, &Migration::new()).is_err());
    coded.migrate(&logarithms, &params, &Migration::new().cast_part("inner")).unwrap();
    let same = coded.migrate(&few, &params, &Migration::new()).unwrap();
    assert!(same_bits(&*same, &*coded));
    let error = coded.migrate(&few, &params, &Migration::new().cast_part("nothing")).err().unwrap().to_string();
    assert!(error.contains("the state has no part `nothing`"), "{error}");
}

#[test]
fn another_memory_order_has_the_same_numbers_as_near_as_codes_can_say() {
    let optimizer = quantized(adam(0.1)).min_elements(0);
    let rows = Array2::from_shape_fn((30, 40), |(i, j)| gradient(3, i * 40 + j));
    let columns = Array2::from_shape_fn((30, 40).f(), |(i, j)| rows[[i, j]]);
    let mut params = Array2::<f32>::ones((30, 40));
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &rows, &mut state).unwrap();
    let mut there = Array2::<f32>::ones((30, 40).f());
    let mut moved = state.migrate(&optimizer, &there, &Migration::new()).unwrap();
    for (name, one) in [("mu", 2.02 / 127.0), ("nu", 5.0 / 255.0)] {
        let (from, to) = (array(&*state, name, 0), array(&*moved, name, 0));
        let largest = from.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
        assert!(from.iter().zip(&to).all(|(x, y)| (x - y).abs() <= one * largest), "{name}");
    }
    optimizer.step(&mut there, &columns, &mut moved).unwrap();
    let back = moved.migrate(&optimizer, &there, &Migration::new()).unwrap();
    assert!(same_bits(&*back, &*moved), "in its own order it keeps its bits");
}

#[test]
fn quantized_states_average_their_decoded_values() {
    let optimizer = quantized(chain((ema(0.9), scale_by_rms()))).min_elements(0);
    let params = vec![0.0_f32; 600];
    let made = |seed: usize| {
        let mut state = optimizer.init(&params).unwrap();
        for step in 0..3 {
            let grads: Vec<f32> = (0..600).map(|i| gradient(step + seed, i)).collect();
            optimizer.update(&grads, &mut state, &params).unwrap();
        }
        state
    };
    let (a, b) = (made(1), made(50));
    let same = OptState::average(&[(&a, 1.0), (&a, 2.0)], AverageOptions::default()).unwrap();
    assert!(same_bits(&*same, &*a), "what is equal stays");
    let mean = OptState::average(&[(&a, 1.0), (&b, 3.0)], AverageOptions::default()).unwrap();
    for (name, one) in [("ema", 2.02 / 127.0), ("nu", 5.0 / 255.0)] {
        let [a, b, mean] = [&a, &b, &mean].map(|state| array(&**state, name, 0));
        let largest = mean.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
        let exact = a.iter().zip(&b).map(|(a, b)| 0.25 * a + 0.75 * b);
        assert!(exact.zip(&mean).all(|(x, y)| (x - y).abs() <= one * largest * 1.001), "{name}");
    }
}

#[test]
fn leaves_of_16_bits_and_odd_lengths_step_as_they_update() {
    for n in [1, 31, 255, 256, 300, 1024, 1300, 17_000] {
        let optimizer = quantized(adamw(0.1)).min_elements(0);
        let grads = Array1::from_shape_fn(n, |i| half::bf16::from_f32(gradient(2, i)));
        let mut params = Array1::from_elem(n, half::bf16::ONE);
        let mut other = params.clone();
        let (mut a, mut b) = (optimizer.init(&params).unwrap(), optimizer.init(&params).unwrap());
        for _ in 0..3 {
            optimizer.step(&mut params, &grads, &mut a).unwrap();
            let updates = optimizer.update(&grads, &mut b, &other).unwrap();
            apply_updates(&mut other, &updates).unwrap();
        }
        assert!(params == other && same_bits(&*a, &*b), "{n}");
    }
}

/// Trains with some numbers of the first gradients replaced.
fn after_three_steps<T>(optimizer: &T, bad: &[(usize, f32)]) -> Vec<f32>
where
    T: GradientTransformation<Needs = Nothing>,
{
    let mut params = vec![0.5_f32; 600];
    let mut state = optimizer.init(&params).unwrap();
    for step in 0..3 {
        let mut grads: Vec<f32> = (0..600).map(|i| gradient(step, i)).collect();
        if step == 0 {
            bad.iter().for_each(|(i, x)| grads[*i] = *x);
        }
        optimizer.step(&mut params, &grads, &mut state).unwrap();
    }
    params
}

fn not_finite(params: &[f32]) -> Vec<usize> {
    (0..params.len()).filter(|i| !params[*i].is_finite()).collect()
}

/// Returns bad gradients in one place, several of a block, two blocks, a whole block.
fn bad_gradients() -> Vec<Vec<(usize, f32)>> {
    let [nan, up, down] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    let one = [nan, up, down].map(|x| vec![(300, x)]);
    let many = vec![(3, up), (4, down), (255, nan), (256, up), (599, nan)];
    let block = (256..512).map(|i| (i, if i % 2 == 0 { up } else { nan })).collect();
    one.into_iter().chain([many, block]).collect()
}

#[test]
fn a_nonfinite_gradient_affects_its_own_element_only() {
    fn check<T, Q>(name: &str, single: &T, coded: [Q; 2])
    where
        T: GradientTransformation<Needs = Nothing>,
        Q: GradientTransformation<Needs = Nothing>,
    {
        for bad in bad_gradients() {
            let expected = after_three_steps(single, &bad);
            for coded in &coded {
                let found = after_three_steps(coded, &bad);
                assert_eq!(not_finite(&found), not_finite(&expected), "{name}: {bad:?}");
                let pairs = found.iter().zip(&expected).filter(|(_, exact)| exact.is_finite());
                let worst = pairs.map(|(x, exact)| (x - exact).abs()).fold(0.0, f32::max);
                assert!(worst < 0.03, "{name}: {bad:?}, {worst}");
            }
        }
    }
    macro_rules! each {
        ($($optimizer:expr),+ $(,)?) => {$(
            let coded = [false, true].map(|log| quantized($optimizer).min_elements(0).logarithmic(log));
            check(stringify!($optimizer), &$optimizer, coded);
        )+};
    }
    each!(adamw(0.01), sgd(0.01).momentum(0.9), rmsprop(0.01), lion(0.01), adagrad(0.01));
}

/// The guards in `docs/few-bits.md` keep all parameters finite.
#[test]
fn the_guards_of_the_guide_keep_all_finite() {
    for bad in bad_gradients() {
        let eight_bits = || quantized(adamw(0.01)).min_elements(0);
        let guarded = after_three_steps(&chain((zero_nans(), clip(1e3), eight_bits())), &bad);
        assert_eq!(not_finite(&guarded), [0; 0], "{bad:?}");
        let skipped = after_three_steps(&apply_if_finite(eight_bits(), 5), &bad);
        assert_eq!(not_finite(&skipped), [0; 0], "{bad:?}");
        // As in the guide.
        let whole = after_three_steps(&apply_if_finite(chain((clip_by_global_norm(1.0), eight_bits())), 5), &bad);
        assert_eq!(not_finite(&whole), [0; 0], "{bad:?}");
    }
}

type Embedded = gradchain::tree::DynTree;

/// Returns an embedding of 64 rows of 100, a matrix and a bias; one row's gradients are 1e5 times the others'.
fn embedded(step: usize) -> Embedded {
    let mut tree = Embedded::new();
    let size = |row: usize| if row == 7 { 1.0 } else { 1e-5 };
    tree.insert("bias", Array1::from_shape_fn(4095, |i| gradient(step, i)));
    tree.insert(
        "tok_embed/weight",
        Array2::from_shape_fn((64, 100), |(i, j)| size(i) * (0.5 + gradient(step, j).abs())),
    );
    tree.insert("weight", Array2::from_shape_fn((64, 64), |(i, j)| gradient(step, i * 64 + j)));
    tree
}

fn trained_on_rows<T>(optimizer: &T) -> (Embedded, OptState<T>)
where
    T: GradientTransformation<Needs = Nothing>,
{
    let mut params = embedded(0);
    gradchain::tree::tree_fill(&mut params, 0.0);
    let mut state = optimizer.init(&params).unwrap();
    (0..4).for_each(|step| _ = optimizer.step(&mut params, &embedded(step), &mut state).unwrap());
    (params, state)
}

fn values(tree: &Embedded, leaf: &str) -> Vec<f64> {
    let mut values = Vec::new();
    gradchain::tree::for_each_leaf(tree, |path, shown| {
        if path == leaf {
            values = shown.to_f64();
        }
    });
    values
}

#[test]
fn embeddings_and_small_leaves_are_unquantized_by_default() {
    let (exact, _) = trained_on_rows(&adamw(0.01));
    for optimizer in [quantized(adamw(0.01)), quantized(adamw(0.01)).logarithmic(true)] {
        let (params, state) = trained_on_rows(&optimizer);
        for leaf in ["bias", "tok_embed/weight"] {
            assert_eq!(values(&params, leaf), values(&exact, leaf), "{leaf}");
        }
        let mu = |leaf| state.inner().0.moment("mu").unwrap().dtype(leaf).unwrap();
        let types = [0, 1, 2].map(mu);
        assert!(types[..2] == [DType::F32, DType::F32] && types[2].size() == 1, "{types:?}");
        let readings = optimizer.readings(&state).unwrap();
        assert!(readings.get("nu.floored[weight]").unwrap() < 0.01);
        assert!(readings.get("nu.floored[bias]").is_err());
    }
    let few = quantized(adamw(0.01)).min_elements(4095).except(None).init(&embedded(0)).unwrap();
    assert!((0..3).all(|leaf| few.inner().0.moment("nu").unwrap().dtype(leaf).unwrap().size() == 1));
    let none = quantized(adamw(0.01)).min_elements(0).except(Mask::all()).init(&embedded(0)).unwrap();
    assert!((0..3).all(|leaf| none.inner().0.moment("nu").unwrap().dtype(leaf) == Some(DType::F32)));
    let error = quantized(adamw(0.01)).except(Mask::path("embde/*")).init(&embedded(0)).unwrap_err().to_string();
    assert!(error.starts_with("quantized: except: pattern `embde/*` matches none"), "{error}");
}

#[test]
fn readings_report_the_share_of_floored_numbers() {
    for (logarithmic, array, least) in
        [(false, "nu", 0.02), (false, "mu", 0.02), (true, "nu", 0.02), (true, "mu", 0.02)]
    {
        let optimizer = quantized(adamw(0.01)).except(None).logarithmic(logarithmic);
        let (_, state) = trained_on_rows(&optimizer);
        let share = optimizer.readings(&state).unwrap().get(&format!("{array}.floored[tok_embed/weight]")).unwrap();
        // Of 6400 numbers, 412 share the large row's two blocks of 256.
        assert!(share > least && share < 0.09, "{array}, {logarithmic}: {share}");
    }
    let optimizer = quantized(ema(0.9)).min_elements(0);
    let mut state = optimizer.init(&vec![0.0_f32; 1000]).unwrap();
    let share = |state: &_| optimizer.readings(state).unwrap().get("floored[]").unwrap();
    assert_eq!(share(&state), 0.0);
    let grads: Vec<f32> = (0..1000).map(|i| [1.0, 1e-8][usize::from(i < 256 && i % 2 == 1)]).collect();
    optimizer.update(&grads, &mut state, &vec![0.0_f32; 1000]).unwrap();
    assert!((share(&state) - 0.128).abs() < 1e-12);
}

#[test]
fn the_means_of_muon_and_adam_mini_are_in_8_bits() {
    fn check<T, Q>(single: &T, coded: &Q, which: &str)
    where
        T: GradientTransformation<Needs = Nothing>,
        Q: GradientTransformation<Needs = Nothing>,
    {
        let even = |step: usize, i: usize| ((i * i * 7 + i * 3 + step * 31) as f32).sin();
        // More than one chunk, runs that end within one, a 16-bit leaf.
        let model = || (Array2::<f32>::zeros((70, 33)), Array2::<half::bf16>::zeros((40, 64)));
        let (mut params, mut exact) = (model(), model());
        let (mut few, mut all) = (coded.init(&params).unwrap(), single.init(&exact).unwrap());
        let types = |of: &str| few.schema().to_string().matches(of).count();
        assert!(types("mu[0]: moment root8") == 1 && types("mu[1]: moment root8") == 1, "{}", few.schema());
        for step in 0..4 {
            let mut grads = model();
            grads.0.indexed_iter_mut().for_each(|((i, j), g)| *g = even(step, i * 33 + j));
            grads.1.indexed_iter_mut().for_each(|((i, j), g)| *g = half::bf16::from_f32(even(step, i * 64 + j)));
            coded.step(&mut params, &grads, &mut few).unwrap();
            single.step(&mut exact, &grads, &mut all).unwrap();
        }
        let norm = |x: &Array2<f32>| x.iter().map(|x| x * x).sum::<f32>().sqrt();
        let apart = norm(&(&params.0 - &exact.0)) / norm(&exact.0);
        assert!(apart > 0.0 && apart < 0.05, "{which}: {apart}");
    }
    check(&muon(0.1), &quantized(muon(0.1)).min_elements(0), "muon");
    check(&adam_mini(0.1), &quantized(adam_mini(0.1)).min_elements(0), "adam_mini");
    let schema = quantized(muon(0.1).mu_dtype(DType::Bf16)).min_elements(0).init(&Array2::<f32>::zeros((9, 9)));
    assert!(!schema.unwrap().schema().to_string().contains("root8"));
}

fn trained<T: GradientTransformation<Needs = Nothing>>(optimizer: &T, digits: &data::Digits, seed: u64) -> f64 {
    let mut random = data::Random(seed);
    let (train, _) = digits.shuffle_and_split(1200, &mut random);
    let mut model = model::Mlp::new(64, 32, 10, &mut random);
    let mut gradient = model.zeros_like();
    let mut state = optimizer.init(&model).unwrap();
    for step in 0..100 {
        let batch: Vec<usize> = (0..64).map(|i| (step * 64 + i) % 1200).collect();
        model.loss(&train.rows(&batch), &mut gradient);
        optimizer.step(&mut model, &gradient, &mut state).unwrap();
    }
    model.loss(digits, &mut gradient)
}

#[test]
fn digits_are_learned_within_the_spread_of_seeds() {
    let digits = data::Digits::load().unwrap();
    let losses = |optimizer: &dyn Fn(u64) -> f64| (0..4).map(optimizer).collect::<Vec<f64>>();
    let single = losses(&|seed| trained(&adamw(3e-3), &digits, seed));
    let spread = single.iter().fold(f64::MIN, |a, b| a.max(*b)) - single.iter().fold(f64::MAX, |a, b| a.min(*b));
    let roots = losses(&|seed| trained(&quantized(adamw(3e-3)).min_elements(0), &digits, seed));
    let logarithms = losses(&|seed| trained(&quantized(adamw(3e-3)).min_elements(0).logarithmic(true), &digits, seed));
    println!("f32 {single:.4?}, roots {roots:.4?}, logarithms {logarithms:.4?}");
    assert!(single.iter().all(|loss| *loss < 0.5), "it learns: {single:?}");
    for (few, single) in roots.iter().chain(&logarithms).zip(single.iter().cycle()) {
        assert!((few - single).abs() < spread, "{few} and {single}, of seeds {spread} apart");
    }
}

#[cfg(feature = "serde")]
#[test]
fn a_state_in_a_document_keeps_its_bits() {
    use gradchain::state::StateData;
    for optimizer in [quantized(adam(0.1)).min_elements(0), quantized(adam(0.1)).min_elements(0).logarithmic(true)] {
        let mut params = (Array2::<f32>::ones((30, 40).f()), Array1::<f32>::ones(7));
        let grads = (Array2::from_shape_fn((30, 40).f(), |(i, j)| gradient(i, j)), Array1::from_elem(7, 0.5_f32));
        let mut state = optimizer.init(&params).unwrap();
        optimizer.step(&mut params, &grads, &mut state).unwrap();
        let data = StateData::of(&optimizer, &state).unwrap();
        let text = serde_json::to_string(&data).unwrap();
        let from_text: StateData = serde_json::from_str(&text).unwrap();
        assert!(same_bits(&*from_text.load(&optimizer, &params).unwrap(), &*state));
        // Another memory order requantizes.
        let rows = (Array2::<f32>::ones((30, 40)), Array1::<f32>::ones(7));
        let moved = data.load(&optimizer, &rows).unwrap();
        let largest = array(&*state, "mu", 0).iter().fold(0.0_f64, |most, x| most.max(x.abs()));
        let pairs = array(&*state, "mu", 0).into_iter().zip(array(&*moved, "mu", 0));
        assert!(pairs.into_iter().all(|(x, y)| (x - y).abs() <= largest / 8.0));
        // Bytes of another array are refused.
        let short = text.replacen("\"bytes\":\"", "\"bytes\":\"1 ", 1);
        let error = serde_json::from_str::<StateData>(&short).unwrap().load(&optimizer, &params).unwrap_err();
        assert!(error.to_string().contains("of another kind"), "{error}");
    }
}

#[cfg(feature = "checkpoint")]
#[test]
fn ranks_write_one_checkpoint_and_files_take_other_dtypes() {
    use std::time::Duration;

    use gradchain::checkpoint::{Checkpoint, Load, Save};
    use gradchain::collective::threads;

    let model = || (Array1::<f32>::ones(40_000), Array2::<f32>::ones((30, 40).f()), Array1::<f32>::ones(3));
    let grads = |step: usize| {
        let mut grads = model();
        grads.0.iter_mut().enumerate().for_each(|(i, g)| *g = gradient(step, i));
        grads.1.indexed_iter_mut().for_each(|((i, j), g)| *g = gradient(step, i * 40 + j));
        grads
    };
    let folder = tempfile::tempdir().unwrap();
    let path = &folder.path().join("step.safetensors");
    std::thread::scope(|scope| {
        for ranks in threads(2, Duration::from_secs(60)) {
            scope.spawn(move || {
                let (optimizer, mut params) = (sharded(quantized(adamw(0.1)).min_elements(0), ranks), model());
                let mut state = optimizer.init(&params).unwrap();
                optimizer.step(&mut params, &grads(0), &mut state).unwrap();
                Save::new(&optimizer, &state).params(&params).to_shards(path, &**optimizer.collective()).unwrap();
            });
        }
    });
    let alone = quantized(adamw(0.1)).min_elements(0);
    let mut params = model();
    let mut state = alone.init(&params).unwrap();
    alone.step(&mut params, &grads(0), &mut state).unwrap();
    let mut there = model();
    let loaded = Checkpoint::open(path).unwrap().load(&alone, &mut there).unwrap();
    assert!(same_bits(&*loaded, &*state) && there == params);

    let migration = Migration::new().unwrap_part("").cast_part("");
    let load = Load::strict().may_differ("$").migrating(migration);
    let (single, _) = load.load(&Checkpoint::open(path).unwrap(), &adamw(0.1), &mut there).unwrap();
    for (name, leaf) in [("mu", 0), ("nu", 0), ("mu", 1), ("nu", 2)] {
        assert_eq!(array(&*single, name, leaf), array(&*state, name, leaf), "{name} of {leaf}");
    }
}

/// Halves all codes, so that requantizing would change them.
fn halve<S: gradchain::state::State>(state: &mut S) {
    use gradchain::state::{EntryMut, StateWalkMut};
    state.walk_mut(&mut StateWalkMut::new(&mut |path, entry| {
        if let EntryMut::Moments(moments) = entry {
            for block in moments.as_bytes_mut(0).unwrap().chunks_mut(4 + 256) {
                let signed = path.ends_with("mu");
                block[4..].iter_mut().for_each(|code| *code = if signed { (*code as i8 / 2) as u8 } else { *code / 2 });
            }
        }
    }));
}

#[test]
fn a_pass_that_does_not_read_quantized_state_does_not_write_it() {
    let (clipped, plain) = (
        chain((clip_by_global_norm(1e9), quantized(adamw(0.1)).min_elements(0))),
        chain((identity(), quantized(adamw(0.1)).min_elements(0))),
    );
    let grads: Vec<f32> = (0..1000).map(|i| gradient(2, i)).collect();
    let (mut params, mut other) = (vec![0.5_f32; 1000], vec![0.5_f32; 1000]);
    let (mut a, mut b) = (clipped.init(&params).unwrap(), plain.init(&other).unwrap());
    for _ in 0..3 {
        clipped.step(&mut params, &grads, &mut a).unwrap();
        plain.step(&mut other, &grads, &mut b).unwrap();
        assert_eq!(params, other);
        halve(&mut *a);
        halve(&mut *b);
    }
}
