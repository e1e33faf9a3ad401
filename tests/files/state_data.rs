//! In serde formats every bit of a state round-trips, and a misfit is refused.

use gradchain::WarningKind;
use gradchain::optimizer::{rprop, schedule_free_sgd};
use gradchain::prelude::*;
use gradchain::state::{StateData, same_bits};
use gradchain::transform::{add_noise, scale_by_lbfgs, scale_by_novograd, scale_by_stable_adam, trace};
use gradchain::wrapper::{allow, freezable, skip_absent};
use ndarray::{Array1, Array2, ShapeBuilder, array};

#[derive(Clone, Debug, PartialEq, Tree)]
struct Model {
    weight: Array2<f32>,
    bias: Array1<f64>,
    empty: Array1<f32>,
    scalar: f32,
}

fn model() -> Model {
    let weight = array![[1.0, -2.0, 3.0], [0.5, 0.25, -0.125]];
    Model { weight, bias: array![0.1, 0.2], empty: array![], scalar: 2.0 }
}

/// Passes data through JSON.
fn json(data: &StateData) -> StateData {
    serde_json::from_str(&serde_json::to_string(data).unwrap()).unwrap()
}

fn toml_(data: &StateData) -> StateData {
    toml::from_str(&toml::to_string(data).unwrap()).unwrap()
}

fn postcard_(data: &StateData) -> StateData {
    postcard::from_bytes(&postcard::to_allocvec(data).unwrap()).unwrap()
}

type Format = (&'static str, fn(&StateData) -> StateData);

const FORMATS: [Format; 3] = [("JSON", json), ("TOML", toml_), ("postcard", postcard_)];

/// States of each step round-trip in each format, and continue bitwise identically.
fn comes_back<T: GradientTransformation<Needs = Nothing>>(optimizer: &T) {
    let gradient = |t: usize| {
        let model = model();
        let factor = t as f32 - 1.5;
        Model { weight: model.weight * factor, bias: model.bias * f64::from(factor), ..model }
    };
    for steps in [0, 1, 4] {
        let (mut params, mut state) = (model(), optimizer.init(&model()).unwrap());
        for t in 0..steps {
            optimizer.step(&mut params, &gradient(t), &mut state).unwrap();
        }
        let data = StateData::of(optimizer, &state).unwrap();
        for (name, through) in FORMATS {
            let back = through(&data);
            assert_eq!(back, data, "{name}");
            let mut loaded = back.load(optimizer, &params).unwrap();
            assert!(same_bits(&*loaded, &*state), "{name} after {steps} steps");
            let (mut here, mut there, mut straight) = (params.clone(), params.clone(), state.clone());
            for t in steps..steps + 3 {
                optimizer.step(&mut here, &gradient(t), &mut straight).unwrap();
                optimizer.step(&mut there, &gradient(t), &mut loaded).unwrap();
            }
            assert_eq!(here, there, "{name}");
            assert!(same_bits(&*loaded, &*straight), "{name}");
        }
    }
}

#[test]
fn states_of_every_kind_come_back() {
    comes_back(&());
    comes_back(&sgd(0.1));
    comes_back(&chain((clip_by_global_norm(1.0), adamw(cosine_decay(0.1, 20)).mask(Mask::path("weight")))));
    // Within a window, with hyperparameters and a random key.
    comes_back(&chain((multi_steps(inject_hyperparams(adam(0.1)), 3), add_noise(0.1, 0.5, u64::MAX / 3))));
    comes_back(&apply_if_finite(lion(0.1), 2));
    comes_back(&params_ema(adafactor(0.1), 0.9));
    comes_back(&lookahead(sgd(0.1).momentum(0.9), 2, 0.5));
    comes_back(&partition([("a", boxed(adam(0.1))), ("b", boxed(rprop(0.1)))].to_vec(), labels()));
    comes_back(&prodigy());
    comes_back(&schedule_free_sgd());
    comes_back(&boxed(scale_by_lbfgs()));
}

fn labels() -> Labels {
    Labels::paths([("weight", "a")]).otherwise("b")
}

#[test]
fn odd_numbers_keep_every_bit() {
    let params = (Array1::<f32>::zeros(6), Array1::<f64>::zeros(6));
    let optimizer = allow(chain((adam(0.1), inject_hyperparams(sgd(0.1)))), [WarningKind::Climbs]);
    let mut state = optimizer.init(&params).unwrap();
    let odd = [f64::NAN, f64::from_bits(0xfff4_0000_0000_0001), -0.0, f64::NEG_INFINITY, 5e-324, 0.1];
    let mu = state.0.0.moment_mut("mu").unwrap();
    mu.get_mut::<f64>(1).unwrap().copy_from_slice(&odd);
    mu.get_mut::<f32>(0).unwrap().copy_from_slice(&[
        f32::NAN,
        f32::from_bits(0xffa0_0001),
        -0.0,
        f32::INFINITY,
        1e-45,
        0.1,
    ]);
    let data = StateData::of(&optimizer, &state).unwrap();
    for (name, through) in FORMATS {
        let loaded = through(&data).load(&optimizer, &params).unwrap();
        assert!(same_bits(&*loaded, &*state), "{name}");
    }
}

#[cfg(feature = "half")]
#[test]
fn sixteen_bit_states_come_back() {
    use half::bf16;
    let params = Array1::from_iter((0..300_u16).map(|i| bf16::from_bits(i * 218)));
    let optimizer = adam(0.1).mu_dtype(gradchain::DType::F16).nu_dtype(gradchain::DType::Bf16);
    let mut state = optimizer.init(&params).unwrap();
    let mu = state.0.moment_mut("mu").unwrap().get_mut::<half::f16>(0).unwrap();
    mu.iter_mut().enumerate().for_each(|(i, x)| *x = half::f16::from_bits(i as u16 * 217));
    let data = StateData::of(&optimizer, &state).unwrap();
    for (name, through) in FORMATS {
        assert!(same_bits(&*through(&data).load(&optimizer, &params).unwrap(), &*state), "{name}");
    }
}

#[test]
fn memory_order_is_that_of_the_parameters() {
    let rows = Array2::from_shape_fn((2, 3), |(i, j)| (i * 3 + j) as f32);
    let mut columns = Array2::zeros((2, 3).f());
    columns.assign(&rows);
    let optimizer = sgd(0.1).momentum(0.9);
    let mut state = optimizer.init(&columns).unwrap();
    optimizer.step(&mut columns, &rows, &mut state).unwrap();
    let text = serde_json::to_string(&StateData::of(&optimizer, &state).unwrap()).unwrap();
    assert!(text.contains(r#""elements":"0.0 1.0 2.0 3.0 4.0 5.0""#), "{text}");
    let data: StateData = serde_json::from_str(&text).unwrap();
    let mut of_rows = data.load(&optimizer, &rows).unwrap();
    let mut of_columns = data.load(&optimizer, &columns).unwrap();
    assert!(same_bits(&*of_columns, &*state));
    let mut other = Array2::zeros((2, 3));
    other.assign(&columns);
    optimizer.step(&mut other, &rows, &mut of_rows).unwrap();
    optimizer.step(&mut columns, &rows, &mut of_columns).unwrap();
    assert_eq!(columns, other);
}

#[test]
fn mismatched_state_data_is_refused() {
    let optimizer = adam(0.1);
    let params = vec![1.0_f32, 2.0];
    let state = optimizer.init(&params).unwrap();
    let data = StateData::of(&optimizer, &state).unwrap();
    let said = |error: gradchain::Error| {
        assert!(error.is_mismatch(), "{error}");
        error.to_string()
    };
    assert_eq!(
        said(data.load(&adam(0.2).b1(0.8), &params).unwrap_err()),
        "the state does not fit: 2 differences\n  optimizer: $.adam.b1: expected 0.8, found 0.9\n  \
         optimizer: $.adam.learning_rate: expected 0.2, found 0.1"
    );
    assert_eq!(
        said(data.load(&optimizer, &vec![1.0_f32; 3]).unwrap_err()),
        "the state does not fit: 1 difference\n  parameters: (root): expected shape [3], found [2]\n  changes of \
         leaves need a `Migration`: `fresh`, `drop`, `rename`"
    );
    assert_eq!(
        said(data.load(&optimizer, &vec![1.0_f64; 2]).unwrap_err()),
        "the state does not fit: 1 difference\n  parameters: (root): expected type f64, found f32\n  \
         `Migration::new().cast(Mask::all())` rounds values and state to the dtypes of these leaves"
    );
    assert_eq!(
        said(data.load(&radam(0.1), &params).unwrap_err()),
        "the state does not fit: 1 difference\n  optimizer: $: expected radam, found adam"
    );
}

#[test]
fn data_that_was_changed_is_refused() {
    let optimizer = adam(0.1);
    let params = vec![1.0_f32, 2.0];
    let state = optimizer.init(&params).unwrap();
    let text = serde_json::to_string(&StateData::of(&optimizer, &state).unwrap()).unwrap();
    let with = |from: &str, to: &str| {
        assert!(text.contains(from), "{from} in {text}");
        let data = serde_json::from_str::<StateData>(&text.replacen(from, to, 1)).map_err(|error| error.to_string())?;
        data.load(&optimizer, &params).map(|_| ()).map_err(|error| error.to_string())
    };
    with(r#""0.0 0.0""#, r#""0.5 -0.0""#).unwrap();
    for (from, to, said) in [
        (r#""0.0 0.0""#, r#""0.0""#, "an array of shape [2] has 1 elements"),
        (r#""0.0 0.0""#, r#""0.0 nan""#, "`nan` is not of type f32"),
        (r#""format":1"#, r#""format":2"#, "it has format 2, and this version of gradchain reads 1"),
        (r#""count":"0""#, r#""count":"-1""#, "`-1` is not an integer"),
        (r#""count":"0""#, r#""flag":true"#, "state: `0.count`: expected count, found flag"),
        (r#""field":"0.nu""#, r#""field":"0.mu""#, "state: `0.mu[]`: expected one source, found two"),
        (r#""field":"0.nu""#, r#""field":"0.xi""#, "state: `0.nu[]`: expected moment f32 [2], found nothing"),
        (r#"{\"adam\":"#, r#"{\"adam\""#, "the state's data: expected `:`"),
        (r#""shape":[2]"#, r#""shape":[4611686018427387904,4]"#, "a leaf exceeds the address space"),
        (r#""format""#, r#""formt""#, "unknown field `formt`"),
    ] {
        let found = with(from, to).unwrap_err();
        assert!(found.contains(said), "{found}\n\nhas not\n\n{said}");
    }
    // Truncated anywhere.
    let bytes = postcard::to_allocvec(&serde_json::from_str::<StateData>(&text).unwrap()).unwrap();
    for len in 0..bytes.len() {
        assert!(postcard::from_bytes::<StateData>(&bytes[..len]).is_err(), "{len} bytes");
    }
}

/// Every leaf has the count of all steps.
#[test]
fn a_state_without_counts_by_leaf_is_read_with_that_of_all() {
    fn check<T: GradientTransformation<Needs = Nothing>>(optimizer: &T) {
        let (mut params, mut state) = (model(), optimizer.init(&model()).unwrap());
        for _ in 0..3 {
            optimizer.step(&mut params, &model(), &mut state).unwrap();
        }
        let mut data = serde_json::to_value(StateData::of(optimizer, &state).unwrap()).unwrap();
        let items = data["items"].as_array_mut().unwrap();
        let all = items.len();
        items.retain(|item| !item["field"].as_str().unwrap().ends_with("updates"));
        assert!(items.len() < all);
        let old: StateData = serde_json::from_value(data).unwrap();
        assert!(same_bits(&*old.load(optimizer, &params).unwrap(), &*state));
    }
    check(&freezable(chain((adam(0.1), masked(trace(0.5), Mask::path("weight"))))));
    check(&skip_absent(chain((scale_by_novograd(), scale_by_stable_adam(), prodigy()))));
}

#[test]
fn a_state_is_serialized_as_its_data() {
    let (optimizer, mut params) = (chain((clip(1.0), adamw(0.1))), vec![1.0_f32, -2.0]);
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &vec![0.5_f32, -0.5], &mut state).unwrap();
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(text, serde_json::to_string(&StateData::of(&optimizer, &state).unwrap()).unwrap());
    let data: StateData = serde_json::from_str(&text).unwrap();
    assert!(same_bits(&*data.load(&optimizer, &params).unwrap(), &*state));
}
