//! Checkpoints hold a module's buffers.

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::GradientsParams;
use burn::tensor::activation::relu;
use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData};
use gradchain::Migration;
use gradchain::checkpoint::{Checkpoint, Load, Rotation, Save, latest_valid};
use gradchain::prelude::*;
use gradchain::wrapper::sharded;
use gradchain_burn::{init, params, params_mut, step};

use crate::device;

/// A frozen backbone with running statistics, a trained layer with its own, constants, counts, flags.
#[derive(Module, Debug)]
struct Net {
    backbone: Linear,
    backbone_norm: BatchNorm,
    head: Linear,
    norm: BatchNorm,
    out: Linear,
    scale: Param<Tensor<1>>,
    half: Param<Tensor<1>>,
    classes: Param<Tensor<2, Int>>,
    used: Param<Tensor<1, Bool>>,
}

fn tensor<const D: usize>(shape: [usize; D], seed: usize, device: &Device) -> Tensor<D> {
    let len: usize = shape.iter().product();
    let from = (seed * 100) as i64;
    Tensor::arange(from..from + len as i64, device).float().sin().reshape(shape)
}

impl Net {
    fn new(seed: usize, device: &Device) -> Net {
        let linear = |i, o| LinearConfig::new(i, o).init(device);
        let frozen = |x: Tensor<1>| Param::initialized(ParamId::new(), x);
        let classes = Tensor::<2, Int>::from_data([[seed as i64, 2], [3, -4]], device);
        let used = Tensor::<1, Bool>::from_data([seed == 1, true, false], device);
        let half = Tensor::from_data(TensorData::from([seed as f32, -0.0]), (device, DType::F16));
        Net {
            backbone: linear(6, 5).no_grad(),
            backbone_norm: BatchNormConfig::new(5).init(device).no_grad(),
            head: linear(5, 4),
            norm: BatchNormConfig::new(4).init(device),
            out: linear(4, 2),
            scale: frozen(tensor([4], seed, device)),
            half: frozen(half),
            classes: Param::initialized(ParamId::new(), classes),
            used: Param::initialized(ParamId::new(), used),
        }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let x = self.backbone_norm.forward(relu(self.backbone.forward(x)));
        let x = self.norm.forward(self.head.forward(x)) * self.scale.val().unsqueeze();
        self.out.forward(relu(x)) * self.classes.val().float() + self.half.val().cast(DType::F32).unsqueeze()
    }

    fn gradients(&self, number: usize) -> GradientsParams {
        let x = tensor([2, 6], number + 7, &self.head.weight.device());
        GradientsParams::from_grads(self.forward(x).powi_scalar(2).mean().backward(), self)
    }
}

/// Returns every tensor that burn shows, by path.
fn all<M: Module>(module: &M) -> Vec<(String, TensorData)> {
    #[derive(Default)]
    struct All(Vec<String>, Vec<(String, TensorData)>);
    impl All {
        fn add(&mut self, data: TensorData) {
            self.1.push((self.0.join("/"), data));
        }
    }
    impl ModuleVisitor for All {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.0.push(name.into());
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.0.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.add(param.val().into_data());
        }
        fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
            self.add(param.val().into_data());
        }
        fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
            self.add(param.val().into_data());
        }
    }
    let mut all = All::default();
    drop(module.valid());
    module.visit(&mut all);
    all.1
}

fn optimizer() -> impl GradientTransformation<Needs = gradchain::needs::Nothing> {
    multi_steps(chain((clip_by_global_norm(1.0), adamw(1e-2).mask(Mask::path("**/weight")))), 2)
}

/// Saved before each step and loaded into another module, buffers included.
#[test]
fn a_resumed_run_is_bitwise_identical_to_the_uninterrupted_one() {
    let (optimizer, steps) = (optimizer(), 6);
    for cut in 0..steps {
        let mut straight = Net::new(1, &device());
        let mut state = init(&optimizer, &straight).unwrap();
        let mut file = std::io::Cursor::new(Vec::new());
        for number in 0..steps {
            if number == cut {
                Save::new(&optimizer, &state).params(&params(&straight).unwrap()).to_writer(&mut file).unwrap();
            }
            let grads = straight.gradients(number);
            step(&optimizer, &mut straight, &grads, &mut state).unwrap();
        }
        let mut resumed = Net::new(2, &device());
        // Loading must discard the last batch's statistics.
        let _ = resumed.gradients(99);
        let file = Checkpoint::from_bytes(file.into_inner()).unwrap();
        let mut state = file.load(&optimizer, &mut params_mut(&mut resumed).unwrap()).unwrap();
        for number in cut..steps {
            let grads = resumed.gradients(number);
            step(&optimizer, &mut resumed, &grads, &mut state).unwrap();
        }
        assert_eq!(all(&resumed), all(&straight), "cut before step {cut}");
        let x = tensor([2, 6], 55, &device());
        assert_eq!(resumed.valid().forward(x.clone()).into_data(), straight.valid().forward(x).into_data());
    }
}

/// Saves parameters and buffers, and opens the file.
fn saved<M: Module>(module: &M) -> Checkpoint {
    let (optimizer, mut file) = (sgd(0.5).momentum(0.5), std::io::Cursor::new(Vec::new()));
    let state = init(&optimizer, module).unwrap();
    Save::new(&optimizer, &state).params(&params(module).unwrap()).to_writer(&mut file).unwrap();
    Checkpoint::from_bytes(file.into_inner()).unwrap()
}

const BUFFERS: [&str; 12] = [
    "backbone/weight",
    "backbone/bias",
    "backbone_norm/gamma",
    "backbone_norm/beta",
    "backbone_norm/running_mean",
    "backbone_norm/running_var",
    "norm/running_mean",
    "norm/running_var",
    "scale",
    "half",
    "classes",
    "used",
];

#[test]
fn non_leaf_tensors_are_buffers_and_named_in_the_plan() {
    let net = Net::new(1, &device());
    let file = saved(&net);
    let mut expected: Vec<&str> = BUFFERS.into();
    expected.sort_unstable();
    assert_eq!(file.buffers().iter().map(|buffer| buffer.path()).collect::<Vec<_>>(), expected);
    let shown: Vec<String> = file.buffers().iter().map(ToString::to_string).collect();
    for spec in ["classes: i32 [2, 2]", "half: f16 [2]", "norm/running_mean: f32 [4]", "used: bool [3]"] {
        assert!(shown.iter().any(|found| found == spec), "{spec} in {shown:?}");
    }
    let plan = adamw(0.1).plan(&params(&net).unwrap()).unwrap();
    assert_eq!(plan.buffers.iter().map(|buffer| buffer.path()).collect::<Vec<_>>(), BUFFERS);
    assert!(plan.to_string().contains("not trained: backbone/weight: f32 [6, 5]; "), "{plan}");
}

/// The message's advice works.
#[test]
fn a_file_that_lacks_buffers_is_refused_and_the_advice_works() {
    let net = Net::new(1, &device());
    // Only leaves.
    let (optimizer, mut file) = (sgd(0.5).momentum(0.5), std::io::Cursor::new(Vec::new()));
    let mut leaves = gradchain::tree::DynTree::new();
    gradchain::tree::for_each_leaf(&params(&net).unwrap(), |path, leaf| {
        let shape = leaf.shape().to_vec();
        let elements = leaf.to_f64().into_iter().map(|x| x as f32).collect();
        leaves.insert(path, ndarray::ArrayD::from_shape_vec(shape, elements).unwrap());
    });
    let state = optimizer.init(&leaves).unwrap();
    Save::new(&optimizer, &state).params(&leaves).to_writer(&mut file).unwrap();
    let file = Checkpoint::from_bytes(file.into_inner()).unwrap();

    let mut other = Net::new(2, &device());
    let before = all(&other);
    for alone in [false, true] {
        let mut into = params_mut(&mut other).unwrap();
        let loaded = if alone { file.load_params(&mut into) } else { file.load(&optimizer, &mut into).map(drop) };
        drop(into);
        let error = format!("{:#}", loaded.unwrap_err());
        for path in BUFFERS {
            assert!(error.contains(&format!("buffers: missing {path}: ")), "{path} in {error}");
        }
        assert!(error.contains("`Migration::new().fresh(\"backbone/weight\")`"), "{error}");
        assert_eq!(all(&other), before);
    }
    let load = Load::strict().migrating(BUFFERS.into_iter().fold(Migration::new(), |all, path| all.fresh(path)));
    let (_, report) = load.load(&file, &optimizer, &mut params_mut(&mut other).unwrap()).unwrap();
    assert_eq!(report.fresh, BUFFERS);
    for ((path, found), (_, old)) in all(&other).into_iter().zip(&before) {
        assert_eq!(found == *old, BUFFERS.contains(&&*path) || path == "norm/beta" || path == "norm/gamma", "{path}");
    }
    // A state has leaves only.
    file.load_state(&optimizer, &params(&other).unwrap()).unwrap();
}

#[test]
fn mismatched_or_unexpected_buffers_are_refused() {
    let file = saved(&Net::new(1, &device()));
    let refused = |net: &mut Net| {
        let before = all(net);
        let error = file.load(&sgd(0.5).momentum(0.5), &mut params_mut(net).unwrap()).unwrap_err();
        assert_eq!(all(net), before);
        error.to_string()
    };
    let mut net = Net::new(2, &device());
    net.scale = Param::initialized(ParamId::new(), tensor([5], 2, &device()));
    assert!(refused(&mut net).contains("buffers: scale: expected f32 [5], found f32 [4]"));
    let mut net = Net::new(2, &device());
    net.half = Param::initialized(ParamId::new(), tensor([2], 2, &device()));
    assert!(refused(&mut net).contains("buffers: half: expected f32 [2], found f16 [2]"));

    // A snapshot is read-only.
    let error = file.load_params(&mut params(&net).unwrap()).unwrap_err().to_string();
    assert!(error.contains("half"), "{error}");
    let net = Net::new(2, &device());
    let error = saved(&net).load_params(&mut params(&net).unwrap()).unwrap_err().to_string();
    assert!(error.contains("`walk_mut` does not visit"), "{error}");

    // The target lacks buffers of the file.
    let mut leaves = gradchain::tree::DynTree::new();
    ["gamma", "beta"].into_iter().for_each(|path| leaves.insert(path, ndarray::Array1::<f32>::zeros(4)));
    let file = saved(&BatchNormConfig::new(4).init(&device()));
    let error = file.load_params(&mut leaves).unwrap_err().to_string();
    assert!(error.contains("buffers: unexpected running_mean: f32 [4]"), "{error}");
    Load::strict().migrating(Migration::new().drop("running_*")).load_params(&file, &mut leaves).unwrap();
}

/// The migration describes the state of frozen and thawed parameters.
#[test]
fn values_come_along_when_parameters_are_frozen_or_thawed() {
    let optimizer = sgd(0.5).momentum(0.5);
    let [thawed, mut frozen] = [Net::new(1, &device()), Net::new(2, &device())];
    frozen.head = frozen.head.no_grad();
    let expected = |net: &Net| all(net).into_iter().filter(|(path, _)| path.starts_with("head")).collect::<Vec<_>>();
    let leaves = Mask::path("head/**");

    let (file, head) = (saved(&thawed), expected(&thawed));
    let error = file.load(&optimizer, &mut params_mut(&mut frozen).unwrap()).unwrap_err().to_string();
    assert!(error.contains("parameters: unexpected leaf head/weight"), "{error}");
    let load = Load::strict().migrating(Migration::new().drop(leaves.clone()));
    load.load(&file, &optimizer, &mut params_mut(&mut frozen).unwrap()).unwrap();
    assert_eq!(expected(&frozen), head);

    let (mut frozen, mut thawed) = (Net::new(3, &device()), Net::new(4, &device()));
    frozen.head = frozen.head.no_grad();
    let (file, head) = (saved(&frozen), expected(&frozen));
    let error = file.load(&optimizer, &mut params_mut(&mut thawed).unwrap()).unwrap_err().to_string();
    assert!(error.contains("parameters: missing leaf head/weight"), "{error}");
    let load = Load::strict().migrating(Migration::new().fresh(leaves));
    let (_, report) = load.load(&file, &optimizer, &mut params_mut(&mut thawed).unwrap()).unwrap();
    assert_eq!(expected(&thawed), head);
    assert!(report.loaded.contains(&"head/weight".into()) && report.fresh.is_empty(), "{report}");
}

#[test]
fn folders_and_shards_have_buffers_too() {
    let folder = tempfile::tempdir().unwrap();
    let (net, optimizer) = (Net::new(1, &device()), adamw(0.1));
    let state = init(&optimizer, &net).unwrap();
    let rotation = Rotation::new(folder.path().join("run")).unwrap().keep_last(1);
    for number in 0..3 {
        rotation.save(number, None, Save::new(&optimizer, &state).params(&params(&net).unwrap())).unwrap();
    }
    let (_, file) = latest_valid(folder.path().join("run")).unwrap().checkpoint.unwrap();
    let mut again = Net::new(2, &device());
    file.load(&optimizer, &mut params_mut(&mut again).unwrap()).unwrap();
    assert_eq!(all(&again), all(&net));

    let list = folder.path().join("sharded.safetensors");
    std::thread::scope(|scope| {
        for ranks in gradchain::collective::threads(2, std::time::Duration::from_secs(60)) {
            let (net, list) = (net.clone(), &list);
            scope.spawn(move || {
                let optimizer = sharded(adamw(0.1), ranks);
                let state = init(&optimizer, &net).unwrap();
                let params = params(&net).unwrap();
                Save::new(&optimizer, &state).params(&params).to_shards(list, &**optimizer.collective()).unwrap();
            });
        }
    });
    let merged = folder.path().join("merged.safetensors");
    gradchain::checkpoint::merge(&list, &merged).unwrap();
    for file in [list, merged] {
        let mut again = Net::new(2, &device());
        Checkpoint::open(file).unwrap().load(&optimizer, &mut params_mut(&mut again).unwrap()).unwrap();
        assert_eq!(all(&again), all(&net));
    }
}
