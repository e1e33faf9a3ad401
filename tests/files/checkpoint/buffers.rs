//! A model's buffers are saved and loaded, also from other libraries' files.

use gradchain::Migration;
use gradchain::checkpoint::{Import, Load, Origin};
use gradchain::tree::{Slices, SlicesMut};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use super::*;

struct Kept {
    weight: Vec<f32>,
    mean: Array1<f64>,
    batches: Vec<i64>,
    used: Vec<bool>,
}

fn kept(seed: f32) -> Kept {
    let at = f64::from(seed);
    Kept {
        weight: vec![seed; 2],
        mean: ndarray::array![at, -at],
        batches: vec![seed as i64],
        used: vec![seed > 1.0, true],
    }
}

impl Kept {
    fn read(&self) -> Slices<'_> {
        let tree = Slices::new().with("norm/weight", &self.weight, &[2]).unwrap();
        tree.with_buffer("norm/mean", &self.mean).with_buffer("batches", &self.batches).with_buffer("used", &self.used)
    }

    fn write(&mut self) -> SlicesMut<'_> {
        let Kept { weight, mean, batches, used } = self;
        let tree = SlicesMut::new().with("norm/weight", weight, &[2]).unwrap();
        tree.with_buffer("norm/mean", mean).with_buffer("batches", batches).with_buffer("used", used)
    }

    fn values(&self) -> (Vec<f32>, Vec<f64>, Vec<i64>, Vec<bool>) {
        (self.weight.clone(), self.mean.to_vec(), self.batches.clone(), self.used.clone())
    }
}

#[test]
fn buffers_travel_are_renamed_and_checked() {
    let (optimizer, one) = (sgd(0.1).momentum(0.5), kept(7.0));
    let state = optimizer.init(&one.read()).unwrap();
    let saved = bytes(&Save::new(&optimizer, &state).params(&one.read()));
    let file = Checkpoint::from_bytes(saved.clone()).unwrap();
    let mut other = kept(1.0);
    file.load(&optimizer, &mut other.write()).unwrap();
    assert_eq!(other.values(), one.values());

    // Under another path, like leaves.
    let mut weight = vec![0.0_f32; 2];
    let (mut mean, mut batches, mut used) = (Array1::<f64>::zeros(2), vec![0_i64], vec![false; 2]);
    let tree = SlicesMut::new().with("bn/weight", &mut weight, &[2]).unwrap().with_buffer("bn/mean", &mut mean);
    let mut tree = tree.with_buffer("batches", &mut batches).with_buffer("used", &mut used);
    let load = Load::strict().migrating(Migration::new().rename("norm", "bn"));
    load.load(&file, &optimizer, &mut tree).unwrap();
    drop(tree);
    assert_eq!((mean.to_vec(), batches), (one.mean.to_vec(), one.batches.clone()));

    let at = saved.windows(8).rposition(|bytes| bytes == (7.0_f64).to_le_bytes()).unwrap();
    let mut damaged = saved;
    damaged[at] ^= 1;
    let mut other = kept(1.0);
    let error = Checkpoint::from_bytes(damaged).unwrap().load(&optimizer, &mut other.write()).unwrap_err().to_string();
    assert!(error.contains("tensor `buffers/norm/mean` has checksum"), "{error}");
    assert_eq!(other.values(), kept(1.0).values());
}

#[test]
fn a_run_of_pytorch_brings_its_buffers() {
    let (x, mean, step) = (
        [1_f32, 2.0].map(f32::to_le_bytes).concat(),
        [3.0_f64, 4.0].map(f64::to_le_bytes).concat(),
        5_i64.to_le_bytes(),
    );
    let floats = || TensorView::new(Dtype::F32, vec![2], &x).unwrap();
    let mut tensors = vec![
        ("params/norm.weight", floats()),
        ("state/norm.weight/momentum_buffer", floats()),
        ("buffers/norm.mean", TensorView::new(Dtype::F64, vec![2], &mean).unwrap()),
        ("buffers/batches", TensorView::new(Dtype::I64, vec![1], &step).unwrap()),
        ("buffers/used", TensorView::new(Dtype::BOOL, vec![2], &[1, 0]).unwrap()),
    ];
    let import = |tensors: &Vec<(&str, TensorView<'_>)>| {
        let file = safetensors::serialize(tensors.clone(), None).unwrap();
        Import::from_bytes(Origin::Torch, file).unwrap().at_step(3)
    };
    let (optimizer, mut into) = (sgd(0.1).momentum(0.5), kept(9.0));
    import(&tensors).load(&optimizer, &mut into.write()).unwrap();
    assert_eq!(into.values(), (vec![1.0, 2.0], vec![3.0, 4.0], vec![5], vec![true, false]));

    let mut into = kept(9.0);
    tensors.remove(2);
    let error = import(&tensors).load(&optimizer, &mut into.write()).unwrap_err().to_string();
    assert!(error.contains("missing tensor `buffers/norm.mean`: f64 [2]"), "{error}");
    assert_eq!(into.values(), kept(9.0).values());
    let fresh = import(&tensors).migrating(Migration::new().fresh("norm/mean"));
    fresh.load(&optimizer, &mut into.write()).unwrap();
    assert_eq!((into.weight, into.mean), (vec![1.0, 2.0], kept(9.0).mean));
}

/// The run continues in another dtype.
#[test]
fn buffers_are_cast_as_leaves_are() {
    let optimizer = sgd(0.1).momentum(0.5);
    let (weight, frozen, count) = (vec![1.0_f32, 2.0], vec![0.1_f32, 0.3], vec![7_i64]);
    let tree = Slices::new().with("head/w", &weight, &[2]).unwrap();
    let tree = tree.with_buffer("body/w", &frozen).with_buffer("count", &count);
    let file = file(&optimizer, &optimizer.init(&tree).unwrap(), &tree);
    let views = [("params/head.w", &weight), ("params/body.w", &frozen)];
    let bytes = views.map(|(name, values)| (name, values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()));
    let count_bytes = 7_i64.to_le_bytes();
    let floats = bytes.iter().map(|(name, bytes)| (*name, TensorView::new(Dtype::F32, vec![2], bytes).unwrap()));
    let counted = ("buffers/count", TensorView::new(Dtype::I64, vec![1], &count_bytes).unwrap());
    let theirs = safetensors::serialize(floats.chain([counted]), None).unwrap();

    let migration = || Migration::new().cast(Mask::all());
    let import = || Import::from_bytes(Origin::Torch, theirs.clone()).unwrap().at_step(0);
    let load = |migration: Migration, from_torch: bool| {
        let (mut weight, mut frozen, mut count) = (vec![0.0_f64; 2], Array1::<f64>::zeros(2), vec![0_i64]);
        let tree = SlicesMut::new().with("head/w", &mut weight, &[2]).unwrap();
        let mut tree = tree.with_buffer("body/w", &mut frozen).with_buffer("count", &mut count);
        let done = if from_torch {
            import().migrating(migration).load(&sgd(0.1), &mut tree).map(drop)
        } else {
            Load::strict().migrating(migration).load(&file, &optimizer, &mut tree).map(drop)
        };
        drop(tree);
        done.map(|()| (weight, frozen, count))
    };
    let wide = (vec![1.0, 2.0], array![f64::from(0.1_f32), f64::from(0.3_f32)], vec![7]);
    assert_eq!(load(migration(), false).unwrap(), wide);
    assert_eq!(load(migration(), true).unwrap(), wide);
    let error = load(Migration::new().cast("head/w"), false).unwrap_err().to_string();
    assert!(error.contains("buffers: body/w: expected f64 [2], found f32 [2]"), "{error}");
    let error = load(Migration::new().cast("head/w"), true).unwrap_err().to_string();
    assert!(error.contains("`params/body.w`: expected f64 [2], found f32 [2]"), "{error}");
}
