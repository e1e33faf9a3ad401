use gradchain::optimizer::adabelief;
use std::path::PathBuf;

use gradchain::Migration;
use gradchain::checkpoint::{Import, Origin};
use gradchain::state::same_bits;

use ndarray::{ArrayD, IxDyn};
use num_traits::Float;
use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};

use super::*;

/// How many steps were done before the file was written, and how many until the end: as `make.py` has it.
const BEFORE: u64 = 5;
const AFTER: u64 = 7;

fn path(case: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/import").join(format!("{case}.safetensors"))
}

#[derive(Clone, Debug, PartialEq, Tree)]
struct Layer<T: gradchain::Element> {
    weight: Array2<T>,
    bias: Array1<T>,
}

/// The model of `make.py`.
#[derive(Clone, Debug, PartialEq, Tree)]
struct Net<T: gradchain::Element> {
    fc: Layer<T>,
}

fn zeros<T: gradchain::Element + num_traits::Zero>() -> Net<T> {
    Net { fc: Layer { weight: Array2::zeros((2, 3)), bias: Array1::zeros(2) } }
}

/// What of a float is compared.
trait Number: gradchain::Element + gradchain::tree::ArrayElement + Float {
    const TENSOR: Dtype;
    fn of(bytes: &[u8]) -> Self;
    /// The distance in units of the last place of the larger one.
    fn ulps(self, other: Self) -> f64 {
        let (a, b) = (self.to_f64().unwrap(), other.to_f64().unwrap());
        let place = 2_f64.powf(a.abs().max(b.abs()).log2().floor()) * Self::epsilon().to_f64().unwrap();
        if a == b { 0.0 } else { (a - b).abs() / place }
    }
}
impl Number for f32 {
    const TENSOR: Dtype = Dtype::F32;
    fn of(bytes: &[u8]) -> f32 {
        f32::from_le_bytes(bytes.try_into().unwrap())
    }
}
impl Number for f64 {
    const TENSOR: Dtype = Dtype::F64;
    fn of(bytes: &[u8]) -> f64 {
        f64::from_le_bytes(bytes.try_into().unwrap())
    }
}

/// The gradient of `make.py`.
fn gradient_at<T: Number>(params: &Net<T>, t: u64) -> Net<T> {
    let number = |x: f64| T::from(x).unwrap();
    let target = |i: usize| number([0.5, -0.25][i % 2]);
    let factor = number(1.0 + t as f64 / 4.0);
    let mut gradient = params.clone();
    gradient.fc.weight.iter_mut().enumerate().for_each(|(i, p)| *p = *p * factor - target(i));
    gradient.fc.bias.iter_mut().enumerate().for_each(|(i, p)| *p = *p * factor - target(i));
    gradient
}

/// Goes on where the other library stopped: the largest distance from where that got by itself, in last places.
fn go_on<N: Number, T: GradientTransformation<Needs = Nothing>>(import: &Import, case: &str, optimizer: &T) -> f64 {
    let mut params = zeros::<N>();
    let mut state = import.load(optimizer, &mut params).unwrap();
    for t in BEFORE..BEFORE + AFTER {
        let gradient = gradient_at(&params, t);
        optimizer.step(&mut params, &gradient, &mut state).unwrap();
    }
    let bytes = std::fs::read(path(&format!("{case}.end"))).unwrap();
    let end = SafeTensors::deserialize(&bytes).unwrap();
    let mut most = 0.0_f64;
    for (leaf, ours) in [("weight", params.fc.weight.into_dyn()), ("bias", params.fc.bias.into_dyn())] {
        let separator = if case.starts_with("torch") { '.' } else { '/' };
        let tensor = end.tensor(&format!("params/fc{separator}{leaf}")).unwrap();
        assert_eq!((tensor.dtype(), tensor.shape()), (N::TENSOR, ours.shape()));
        let values = tensor.data().chunks_exact(size_of::<N>()).map(N::of).collect();
        let theirs = ArrayD::from_shape_vec(IxDyn(tensor.shape()), values).unwrap();
        for (a, b) in ours.iter().zip(&theirs) {
            most = most.max(a.ulps(*b));
        }
    }
    println!("{case}: {most} last places");
    most
}

/// PyTorch rounds a parameter twice in a step of AdamW, by the decay and by the update, and its Adam folds the
/// correction of bias into other factors: a last place a step.
const PLACES: f64 = AFTER as f64;

#[test]
fn a_run_of_pytorch_goes_on() {
    let import = |case| Import::torch(path(case)).unwrap();
    // SGD of PyTorch does not count.
    let counted = |case| import(case).at_step(BEFORE);
    let adam = adam(0.01).b1(0.8).b2(0.95).eps(1e-6);
    let adamw = adamw(0.01).weight_decay(0.125);
    let momentum = sgd(0.01).momentum(0.9);
    // What has no arrays of its own may be around it.
    let clipped = chain((clip(1e6), named_chain(["adamw"], (adamw.clone(),))));
    let found = [
        go_on::<f32, _>(&import("torch_adam"), "torch_adam", &adam),
        go_on::<f32, _>(&import("torch_adamw"), "torch_adamw", &adamw),
        go_on::<f64, _>(&import("torch_adamw_f64"), "torch_adamw_f64", &adamw),
        go_on::<f32, _>(&counted("torch_momentum"), "torch_momentum", &momentum),
        go_on::<f32, _>(&counted("torch_nesterov"), "torch_nesterov", &momentum.clone().nesterov(true)),
        go_on::<f32, _>(&counted("torch_sgd"), "torch_sgd", &sgd(0.01)),
        go_on::<f32, _>(&import("torch_adamw"), "torch_adamw", &clipped),
    ];
    assert!(found.iter().all(|places| *places <= PLACES), "{found:?}");
    // Another argument, or a count that is off by one, shows.
    assert!(go_on::<f32, _>(&import("torch_adamw"), "torch_adamw", &adamw.clone().weight_decay(0.12)) > 100.0);
    let late = cosine_decay(0.01, 1000);
    let early = go_on::<f32, _>(&counted("torch_sgd"), "torch_sgd", &sgd(late));
    assert!(early > 10.0, "{early}");
}

#[test]
fn a_run_of_optax_goes_on() {
    let import = |case| Import::optax(path(case)).unwrap();
    let schedule = cosine_decay(0.01, 20);
    let clipped = chain((clip_by_global_norm(1.0), adamw(schedule).weight_decay(0.125)));
    let momentum = sgd(0.01).momentum(0.9);
    let found = [
        go_on::<f32, _>(&import("optax_adam"), "optax_adam", &adam(0.01).b1(0.8).b2(0.95).eps(1e-6)),
        go_on::<f32, _>(&import("optax_adamw"), "optax_adamw", &clipped),
        go_on::<f64, _>(&import("optax_adamw_f64"), "optax_adamw_f64", &adamw(0.01).weight_decay(0.125)),
        go_on::<f32, _>(&import("optax_momentum").at_step(BEFORE), "optax_momentum", &momentum),
        go_on::<f32, _>(&import("optax_nesterov"), "optax_nesterov", &sgd(schedule).momentum(0.9).nesterov(true)),
    ];
    assert!(found.iter().all(|places| *places <= PLACES), "{found:?}");
    // The schedule goes on at the count of the file.
    let fresh = Import::optax(path("optax_momentum")).unwrap().at_step(0);
    assert!(go_on::<f32, _>(&fresh, "optax_nesterov", &sgd(schedule).momentum(0.9).nesterov(true)) > 100.0);
}

#[cfg(feature = "half")]
#[test]
fn moments_of_sixteen_bits_are_asked_for() {
    use gradchain::DType;
    let mut params = zeros::<half::bf16>();
    let import = Import::optax(path("optax_bf16")).unwrap();
    let optimizer = adam(0.01);
    let error = import.load(&optimizer, &mut params).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "does not fit: 2 differences\n  `nu/fc/weight`: expected f32 [2, 3], found bf16 [2, 3]\n  \
         `nu/fc/bias`: expected f32 [2], found bf16 [2]"
        ),
        "{error}"
    );
    assert_eq!(params, zeros());
    let state = import.load(&optimizer.nu_dtype(DType::Bf16), &mut params).unwrap();
    assert_eq!(state.0.moment("nu").unwrap().dtype(0), Some(DType::Bf16));
    assert!(params.fc.weight[[0, 0]] > half::bf16::ZERO);
}

/// A tensor of a file that is made here: name, type, shape, values.
type Made<'a> = (&'a str, Dtype, &'a [usize], &'a [f64]);

fn made(tensors: &[Made<'_>]) -> Vec<u8> {
    let bytes = |dtype, values: &[f64]| -> Vec<u8> {
        let all = values.iter().map(|x| match dtype {
            Dtype::F64 => x.to_le_bytes().to_vec(),
            Dtype::I64 => (*x as i64).to_le_bytes().to_vec(),
            Dtype::I32 => (*x as i32).to_le_bytes().to_vec(),
            _ => (*x as f32).to_le_bytes().to_vec(),
        });
        all.flatten().collect()
    };
    let data: Vec<_> = tensors.iter().map(|(.., dtype, _, values)| bytes(*dtype, values)).collect();
    let views = tensors
        .iter()
        .zip(&data)
        .map(|((name, dtype, shape, _), data)| (*name, TensorView::new(*dtype, shape.to_vec(), data).unwrap()));
    serialize(views, None).unwrap()
}

const F: Dtype = Dtype::F32;

/// A whole file of PyTorch's Adam for leaves `a` and `b/w`.
const ADAM: [Made<'_>; 8] = [
    ("params/a", F, &[2], &[1.0, 2.0]),
    ("params/b.w", F, &[], &[3.0]),
    ("state/a/exp_avg", F, &[2], &[0.5, 0.25]),
    ("state/a/exp_avg_sq", F, &[2], &[0.75, 0.5]),
    ("state/a/step", F, &[], &[9.0]),
    ("state/b.w/exp_avg", F, &[], &[0.125]),
    ("state/b.w/exp_avg_sq", F, &[], &[0.25]),
    ("state/b.w/step", F, &[], &[9.0]),
];

fn here() -> DynTree {
    let mut tree = dyn_tree(&[("a", &[0.0, 0.0])]);
    tree.insert("b/w", ndarray::arr0(0.0_f32));
    tree
}

/// The file with one tensor changed, left out or added.
fn with(change: Made<'_>) -> Vec<u8> {
    let mut tensors: Vec<_> = ADAM.into_iter().filter(|tensor| tensor.0 != change.0).collect();
    tensors.push(change);
    made(&tensors)
}

fn without(name: &str) -> Vec<u8> {
    made(&ADAM.into_iter().filter(|tensor| tensor.0 != name).collect::<Vec<_>>())
}

/// What is wrong with a file; nothing is changed.
fn refused<T: GradientTransformation>(import: &Import, optimizer: &T) -> String {
    let mut params = here();
    let error = import.load(optimizer, &mut params).unwrap_err();
    assert!(error.is_mismatch(), "{error}");
    assert_eq!(params, here(), "nothing is changed");
    let text = error.to_string();
    text.strip_prefix("the file does not fit: ").unwrap().to_owned()
}

#[test]
fn every_difference_of_a_file_is_named() {
    let torch = |bytes| Import::from_bytes(Origin::Torch, bytes).unwrap();
    let adam = adamw(0.1);
    let mut params = here();
    let state = torch(made(&ADAM)).load(&adam, &mut params).unwrap();
    assert_eq!((state.0.count.get(), state.2.count.get()), (9, 9));
    assert_eq!(params.get::<f32>("a").unwrap(), array![1.0_f32, 2.0].into_dyn());

    for (bytes, said) in [
        (with(("state/a/exp_avg", F, &[1, 2], &[0.0, 0.0])), "`state/a/exp_avg`: expected f32 [2], found f32 [1, 2]"),
        (
            with(("state/a/exp_avg", Dtype::F64, &[2], &[0.0, 0.0])),
            "`state/a/exp_avg`: expected f32 [2], found f64 [2]",
        ),
        (
            with(("state/a/exp_avg", Dtype::I32, &[2], &[0.0, 0.0])),
            "`state/a/exp_avg`: expected f32 [2], found I32 [2]",
        ),
        (with(("params/a", F, &[3], &[0.0; 3])), "`params/a`: expected f32 [2], found f32 [3]"),
        (without("state/b.w/exp_avg_sq"), "missing tensor `state/b.w/exp_avg_sq`: f32 []"),
        (without("params/b.w"), "missing tensor `params/b.w`: f32 []"),
        (without("state/b.w/step"), "missing tensor `state/b.w/step`: a count of steps"),
        (with(("state/c/exp_avg", F, &[2], &[0.0; 2])), "unexpected tensor `state/c/exp_avg`"),
        (with(("state/c/step", F, &[], &[9.0])), "unexpected tensor `state/c/step`"),
        (with(("params/c", F, &[], &[9.0])), "unexpected tensor `params/c`"),
        (with(("state/a/max_exp_avg_sq", F, &[2], &[0.0; 2])), "unexpected tensor `state/a/max_exp_avg_sq`"),
        (with(("state/a/momentum_buffer", F, &[2], &[0.0; 2])), "unexpected tensor `state/a/momentum_buffer`"),
        (with(("mu/a", F, &[2], &[0.0; 2])), "unexpected tensor `mu/a`"),
        (with(("params/b/w", F, &[], &[0.0])), "`params/b.w` and `params/b/w` are the same, of leaf `b/w`"),
        (
            with(("state/b.w/step", F, &[], &[8.0])),
            "`state/b.w/step`: expected 9 steps, as `state/a/step` says, found 8",
        ),
        (with(("state/b.w/step", F, &[], &[8.5])), "`state/b.w/step`: expected a count of steps, found 8.5"),
        (with(("state/b.w/step", F, &[], &[f64::NAN])), "`state/b.w/step`: expected a count of steps, found NaN"),
        (with(("state/b.w/step", F, &[], &[-1.0])), "`state/b.w/step`: expected a count of steps, found -1.0"),
        (
            with(("state/b.w/step", Dtype::I64, &[], &[-1.0])),
            "`state/b.w/step`: expected a count of steps, found negative",
        ),
        (
            with(("state/b.w/step", F, &[], &[16_777_216.0])),
            "`state/b.w/step`: expected a count of steps, found 16777216.0, where a count of this type no longer grows",
        ),
        (with(("state/b.w/step", F, &[2], &[9.0, 9.0])), "`state/b.w/step`: expected one count of steps, found [2]"),
    ] {
        assert_eq!(refused(&torch(bytes), &adam), format!("1 difference\n  {said}"));
    }
    // Many at once.
    let here = refused(&torch(made(&ADAM[..3])), &adam);
    assert_eq!(
        here,
        "5 differences\n  missing tensor `state/b.w/exp_avg`: f32 []\n  missing tensor `state/a/exp_avg_sq`: f32 [2]\n  \
         missing tensor `state/b.w/exp_avg_sq`: f32 []\n  missing tensor `state/a/step`: a count of steps\n  \
         missing tensor `state/b.w/step`: a count of steps"
    );
    // A count of another type is a count, and one that is given must be that of the file.
    assert!(torch(with(("state/b.w/step", Dtype::I64, &[], &[9.0]))).load(&adam, &mut params).is_ok());
    assert!(torch(made(&ADAM)).at_step(9).load(&adam, &mut params).is_ok());
    assert_eq!(
        refused(&torch(made(&ADAM)).at_step(8), &adam),
        "2 differences\n  `state/a/step`: expected 8 steps, as `at_step` says, found 9\n  \
         `state/b.w/step`: expected 8 steps, as `at_step` says, found 9"
    );
}

#[test]
fn momentum_of_pytorch_has_a_buffer_or_is_refused() {
    let momentum = sgd(0.1).momentum(0.9);
    let params = [("params/a", F, &[2][..], &[1.0, 2.0][..]), ("params/b.w", F, &[], &[3.0])];
    let before = Import::from_bytes(Origin::Torch, made(&params)).unwrap();
    assert_eq!(
        refused(&before, &momentum),
        "2 differences\n  missing tensor `state/a/momentum_buffer`: f32 [2]\n  \
         missing tensor `state/b.w/momentum_buffer`: f32 []"
    );
    assert_eq!(refused(&before, &sgd(0.1)), "1 difference\n  there is no count of steps; `at_step` says it");
    let state = before.at_step(4).load(&sgd(0.1), &mut here()).unwrap();
    assert_eq!(state.1.count.get(), 4);

    // Before its first step, asked for.
    let before = Import::from_bytes(Origin::Torch, made(&params)).unwrap().at_step(0);
    let fresh = before.migrating(Migration::new().fresh(Mask::all()));
    let state = fresh.load_state(&momentum, &here()).unwrap();
    assert!(same_bits(&*state, &*momentum.init(&here()).unwrap()));
}

#[test]
fn what_is_not_adam_is_not_taken_for_it() {
    let torch = Import::from_bytes(Origin::Torch, made(&ADAM)).unwrap();
    let said = refused(&torch, &radam(0.1));
    assert!(said.contains("optimizer: $: PyTorch has no state such as that of radam"), "{said}");
    let said = refused(&torch, &chain((adabelief(0.1), clip(1.0))));
    assert!(said.contains("optimizer: $.chain[0]: PyTorch has no state such as that of adabelief"), "{said}");
    let said = refused(&torch, &multi_steps(adam(0.1), 2));
    assert!(said.contains("PyTorch has no state such as that of multi_steps"), "{said}");
    assert!(said.contains("state: PyTorch has nothing for `mini_step`"), "{said}");
    let said = refused(&torch, &chain((scale_by_adam(), scale_by_adam())));
    assert!(said.contains("two arrays of its state would be filled from `state/a/exp_avg`"), "{said}");
    // A file of the other library.
    let said = refused(&Import::from_bytes(Origin::Optax, made(&ADAM)).unwrap(), &adam(0.1));
    assert!(said.contains("unexpected tensor `state/a/exp_avg`") && said.contains("missing tensor `mu/a`"), "{said}");
}

#[test]
fn leaves_are_renamed_dropped_and_fresh() {
    let mut params = dyn_tree(&[("model/a", &[0.0, 0.0]), ("head", &[7.0])]);
    let migration = Migration::new().rename("a", "model/a").drop(Mask::path("b/*")).fresh(Mask::path("head"));
    let import = Import::from_bytes(Origin::Torch, made(&ADAM)).unwrap().migrating(migration);
    let optimizer = adam(0.1);
    let state = import.load(&optimizer, &mut params).unwrap();
    assert_eq!(params, dyn_tree(&[("model/a", &[1.0, 2.0]), ("head", &[7.0])]));
    let mu = state.0.moment("mu").unwrap();
    let leaf = |path| state.structure().index_of(path).unwrap();
    assert_eq!(mu.get::<f32>(leaf("model/a")), Some(&[0.5, 0.25][..]));
    assert_eq!(mu.get::<f32>(leaf("head")), Some(&[0.0][..]));
    assert_eq!(state.0.count.get(), 9);
}

#[test]
fn only_leaves_under_a_mask_have_state() {
    let optimizer = masked(sgd(0.1).momentum(0.5), Mask::path("a")).freeze_others();
    let file = made(&[("trace/a", F, &[2], &[0.5, 0.25]), ("count", Dtype::I32, &[], &[3.0])]);
    let mut params = here();
    let mut state = Import::from_bytes(Origin::Optax, file).unwrap().load_state(&optimizer, &params).unwrap();
    let zero = here();
    optimizer.step(&mut params, &zero, &mut state).unwrap();
    assert_eq!(params.get::<f32>("a").unwrap(), array![-0.025_f32, -0.0125].into_dyn());
}

#[test]
fn a_bare_array_has_the_empty_path() {
    let file = made(&[
        ("params/", F, &[1], &[2.0]),
        ("mu/", F, &[1], &[0.5]),
        ("nu/", F, &[1], &[0.25]),
        ("count", Dtype::I32, &[], &[1.0]),
    ]);
    let mut params = array![0.0_f32];
    let state = Import::from_bytes(Origin::Optax, file).unwrap().load(&adam(0.1), &mut params).unwrap();
    assert_eq!((params[0], state.0.count.get()), (2.0, 1));
}

#[test]
fn memory_order_is_that_of_the_parameters() {
    use ndarray::ShapeBuilder;
    let mut columns = Net { fc: Layer { weight: Array2::<f32>::zeros((2, 3).f()), bias: Array1::zeros(2) } };
    let mut rows = zeros::<f32>();
    let (import, optimizer) = (Import::torch(path("torch_adamw")).unwrap(), adamw(0.01).weight_decay(0.125));
    let mut of_columns = import.load(&optimizer, &mut columns).unwrap();
    let mut of_rows = import.load(&optimizer, &mut rows).unwrap();
    assert_eq!(columns, rows);
    for _ in 0..3 {
        step(&optimizer, &mut columns, &mut of_columns);
        step(&optimizer, &mut rows, &mut of_rows);
    }
    assert_eq!(columns, rows);
}

fn step<T: GradientTransformation<Needs = Nothing>, P: TreeMut + Clone>(
    optimizer: &T,
    params: &mut P,
    state: &mut OptState<T>,
) {
    let gradient = params.clone();
    optimizer.step(params, &gradient, state).unwrap();
}

#[test]
fn other_files_are_refused() {
    for bytes in [b"PK\x03\x04 a zip file, as PyTorch makes".to_vec(), Vec::new(), vec![255; 64]] {
        assert!(Import::from_bytes(Origin::Torch, bytes).unwrap_err().is_file());
    }
    assert!(Import::optax(path("nowhere")).unwrap_err().is_file());
    // An axis longer than any memory, next to one of no length.
    let header =
        r#"{"params/a":{"dtype":"F32","shape":[0,4611686018427387904,4611686018427387904],"data_offsets":[0,0]}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    let import = Import::from_bytes(Origin::Torch, bytes);
    let error = import.and_then(|import| import.load(&adam(0.1), &mut here())).unwrap_err();
    assert!(error.is_file() && error.to_string().contains("larger than any memory"), "{error}");
}
