use gradchain::Result;
use gradchain::part::WholeTreeTransformation;
use gradchain::part::{InitContext, StepContext, WholeTree};
use gradchain::state::{Count, Flag, PerLeaf, RandomKey, Scalar, same_bits};
use gradchain::transform::{add_noise, scale_by_rowwise_rss};
use ndarray::ShapeBuilder;

use super::*;

#[test]
fn the_resumed_run_is_the_uninterrupted_one() {
    let optimizer = chain((
        zero_nans(),
        multi_steps(inject_hyperparams(adamw(cosine_decay(0.1, 20)).mu_dtype(gradchain::DType::F64)), 3),
        add_noise(0.1, 0.5, 7),
    ));
    let (straight, end) = trained(&optimizer, 11);
    // Within a window, and before the first step.
    for k in 0..11 {
        let (params, state) = trained(&optimizer, k);
        let file = file(&optimizer, &state, &params);
        let mut params = Model { weight: Array2::zeros((2, 3)), bias: Array1::zeros(2) };
        let mut state = file.load(&optimizer, &mut params).unwrap();
        for t in k..11 {
            optimizer.step(&mut params, &gradient(t as f32), &mut state).unwrap();
        }
        assert_eq!(params, straight, "saved after {k} steps");
        assert!(same_bits(&*state, &*end), "saved after {k} steps");
    }
}

#[test]
fn memory_order_is_the_loaders_own() {
    let rows = Array2::from_shape_fn((3, 4), |(i, j)| (i * 4 + j) as f64);
    let mut columns = Array2::zeros((3, 4).f());
    columns.assign(&rows);
    let optimizer = adam(0.1);
    let mut state = optimizer.init(&columns).unwrap();
    let mut trained = columns.clone();
    optimizer.step(&mut trained, &columns, &mut state).unwrap();
    let file = file(&optimizer, &state, &trained);

    let mut loaded = Array2::<f64>::zeros((3, 4));
    let mut state = file.load(&optimizer, &mut loaded).unwrap();
    assert_eq!(loaded, trained);
    let mut state_before = optimizer.init(&columns).unwrap();
    let mut straight = columns.clone();
    optimizer.step(&mut straight, &columns, &mut state_before).unwrap();
    optimizer.step(&mut straight, &rows, &mut state_before).unwrap();
    optimizer.step(&mut loaded, &rows, &mut state).unwrap();
    assert_eq!(loaded, straight);
}

/// A state field of every kind.
#[derive(Clone, Debug)]
struct Everything;

#[derive(Clone, Debug, gradchain::State)]
struct EverythingState {
    scalar: Scalar,
    count: Count,
    flag: Flag,
    key: RandomKey,
    scalars: PerLeaf<Scalar>,
    counts: PerLeaf<Count>,
    flags: PerLeaf<Flag>,
    moments: gradchain::state::Moments,
    list: Vec<Scalar>,
}

impl gradchain::part::Part for Everything {
    const NAME: &'static str = "everything";
    type Form = gradchain::part::Whole;
}

impl WholeTreeTransformation for Everything {
    type State = EverythingState;

    fn start(&self, at: &InitContext<'_>) -> Result<EverythingState> {
        Ok(EverythingState {
            scalar: Scalar::default(),
            count: Count::default(),
            flag: Flag::default(),
            key: RandomKey::new(0),
            scalars: PerLeaf::new(at.active(), Scalar::default()),
            counts: PerLeaf::new(at.active(), Count::default()),
            flags: PerLeaf::new(at.active(), Flag::default()),
            moments: at.moments()?,
            list: vec![Scalar::default(); 3],
        })
    }

    fn transform(&self, _: &mut EverythingState, _: &StepContext<'_>, _: &mut WholeTree<'_>) {}
}

#[test]
fn every_kind_keeps_every_bit() {
    let params = model();
    let optimizer = chain((Everything, masked(Everything, Mask::path("bias"))));
    let odd = [f64::NAN, f64::from_bits(0x7ff4_0000_0000_0001), -0.0, f64::INFINITY, f64::NEG_INFINITY, 5e-324, 0.1];
    for (i, x) in odd.into_iter().enumerate() {
        let mut state = optimizer.init(&params).unwrap();
        let all = &mut state.0;
        all.scalar.set(x);
        all.count = Count::new(u64::MAX - i as u64);
        all.flag.set(i % 2 == 0);
        all.key = RandomKey::new(u64::MAX / 3);
        all.scalars.set(1, Scalar::new(-x));
        all.counts.set(0, Count::new(1 << 60));
        all.flags.set(1, Flag::new(true));
        all.list[2].set(x);
        all.moments.get_mut::<f64>(1).unwrap()[1] = x;
        all.moments.get_mut::<f32>(0).unwrap()[4] = f32::from_bits(0x7fa0_0001 + i as u32);
        let file = file(&optimizer, &state, &params);
        let loaded = file.load_state(&optimizer, &params).unwrap();
        assert!(same_bits(&*loaded, &*state), "{x}");
        assert_eq!(loaded.schema(), state.schema());
    }
}

#[test]
fn leaves_of_no_axes_and_of_no_elements() {
    let params = (1.5_f32, Vec::<f64>::new(), Array2::<f32>::zeros((0, 3)));
    let optimizer = adam(0.1);
    let mut state = optimizer.init(&params).unwrap();
    let mut trained = params.clone();
    optimizer.step(&mut trained, &params, &mut state).unwrap();
    let mut loaded = params.clone();
    let back = file(&optimizer, &state, &trained).load(&optimizer, &mut loaded).unwrap();
    assert!(loaded == trained && same_bits(&*back, &*state));

    let empty = DynTree::new();
    let state = optimizer.init(&empty).unwrap();
    assert!(file(&optimizer, &state, &empty).load(&optimizer, &mut DynTree::new()).is_ok());
}

#[cfg(feature = "half")]
#[test]
fn sixteen_bit_leaves_come_back() {
    use half::{bf16, f16};

    let params = (
        Array1::from_iter((0..2000_u16).map(|i| f16::from_bits(i * 32))),
        Array1::from_iter((0..2000_u16).map(|i| bf16::from_bits(i * 32 + 1))),
    );
    let optimizer = adam(0.1).mu_dtype(gradchain::DType::Bf16);
    let state = optimizer.init(&params).unwrap();
    let mut loaded = (Array1::<f16>::zeros(2000), Array1::<bf16>::zeros(2000));
    file(&optimizer, &state, &params).load(&optimizer, &mut loaded).unwrap();
    assert!(loaded.0.iter().zip(&params.0).all(|(a, b)| a.to_bits() == b.to_bits()));
    assert!(loaded.1.iter().zip(&params.1).all(|(a, b)| a.to_bits() == b.to_bits()));
}

#[test]
fn a_file_describes_its_contents() {
    let optimizer = optimizer();
    let (params, state) = trained(&optimizer, 2);
    let file = Checkpoint::from_bytes(bytes(&Save::new(&optimizer, &state).params(&params).note("epoch", 3))).unwrap();
    assert_eq!(file.notes().collect::<Vec<_>>(), [("epoch", "3")]);
    assert_eq!(file.version(), env!("CARGO_PKG_VERSION"));
    assert_eq!(file.structure().fingerprint(), state.structure().fingerprint());
    assert!(file.optimizer().contains("clip_by_global_norm") && file.optimizer().contains("0.01"));

    let mut other = model();
    file.load_params(&mut other).unwrap();
    assert_eq!(other, params);
}

#[test]
fn other_readers_can_read_it() {
    let optimizer = adam(0.1);
    let (params, state) = trained(&optimizer, 1);
    let bytes = bytes(&Save::new(&optimizer, &state).params(&params));
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut names = tensors.names();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "params/bias",
            "params/weight",
            "state/0.mu/bias",
            "state/0.mu/weight",
            "state/0.nu/bias",
            "state/0.nu/weight"
        ]
    );
    let weight = tensors.tensor("params/weight").unwrap();
    assert_eq!((weight.dtype(), weight.shape()), (safetensors::Dtype::F32, &[2, 3][..]));
    assert_eq!(weight.data(), params.weight.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>());
}

#[test]
fn a_mapped_file_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let optimizer = optimizer();
    let (params, state) = trained(&optimizer, 3);
    Save::new(&optimizer, &state).params(&params).to_file(&path).unwrap();
    #[allow(unsafe_code, reason = "nobody else has the folder")]
    // SAFETY: the file is in a folder that only this test uses.
    let file = unsafe { Checkpoint::map(&path) }.unwrap();
    let mut loaded = model();
    let back = file.load(&optimizer, &mut loaded).unwrap();
    assert!(loaded == params && same_bits(&*back, &*state));
}

#[test]
fn a_run_with_row_sparse_gradients_resumes() {
    use gradchain::tree::SparseRows;

    #[derive(Tree)]
    struct Gradients {
        weight: SparseRows<Array2<f32>>,
        bias: Array1<f64>,
    }
    let optimizer = chain((clip_by_global_norm(1.0), adam(0.1), scale_by_rowwise_rss()));
    let start = Model { weight: Array2::from_elem((6, 3), 0.5), bias: array![0.1, 0.2] };
    let step = |params: &mut Model, state: &mut _, t: usize| {
        let values = Array2::from_shape_fn((3, 3), |(i, j)| (t + 2 * i) as f32 - j as f32);
        let weight = SparseRows::new(vec![t, 5, t], values);
        optimizer.step(params, &Gradients { weight, bias: array![t as f64, -1.0] }, state).unwrap();
    };
    let (mut straight, mut state) = (start.clone(), optimizer.init(&start).unwrap());
    (0..2).for_each(|t| step(&mut straight, &mut state, t));
    let saved = file(&optimizer, &state, &straight);
    (2..4).for_each(|t| step(&mut straight, &mut state, t));
    let mut resumed = start.clone();
    let mut state_of_resumed = saved.load(&optimizer, &mut resumed).unwrap();
    (2..4).for_each(|t| step(&mut resumed, &mut state_of_resumed, t));
    assert_eq!(straight, resumed);
    assert!(same_bits(&*state, &*state_of_resumed));
    // One number a row.
    let schema = state.schema();
    let sums = schema.entries.iter().filter(|entry| entry.field.ends_with("sum_of_squares"));
    let sums: Vec<_> = sums.map(|entry| (entry.leaf.as_deref(), &entry.shape[..])).collect();
    assert_eq!(sums, [(Some("weight"), &[6][..]), (Some("bias"), &[2][..])]);
}

#[test]
fn tied_leaves_are_saved_once_and_loaded_into_both() {
    use gradchain::tree::Tied;

    let both = |values: [f32; 2]| {
        let shared = Array1::from(values.to_vec()).into_shared();
        (shared.clone(), shared)
    };
    let optimizer = adam(0.1);
    let mut model = both([1.0, -2.0]);
    let mut state = optimizer.init(&Tied::of(&mut model).unwrap()).unwrap();
    let saved = {
        let mut tied = Tied::of(&mut model).unwrap();
        let sum = tied.sum_gradients((array![1.0_f32, 2.0], array![-3.0_f32, 0.5])).unwrap();
        optimizer.step(&mut tied, &sum, &mut state).unwrap();
        file(&optimizer, &state, &tied)
    };
    assert_eq!(saved.structure().paths().collect::<Vec<_>>(), ["0"]);

    let mut other = both([0.0, 0.0]);
    let loaded = saved.load(&optimizer, &mut Tied::of(&mut other).unwrap()).unwrap();
    assert!(same_bits(&*loaded, &*state));
    assert_eq!((&other.0, &other.1), (&model.0, &model.1));
    assert_eq!(other.0.as_ptr(), other.1.as_ptr());
    let error = saved.load(&optimizer, &mut other).unwrap_err().to_string();
    assert!(error.contains("missing leaf 1"), "{error}");
}
