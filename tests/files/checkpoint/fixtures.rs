//! Every later version loads the files of released versions.
//!
//! Each was written after some steps, and equals a run of these steps from scratch, bit for bit. The powers of its
//! decays are exact, so that they do not depend on a system's `pow`.
//!
//! A file is never rewritten. A new format gets a new folder: give its number to `FOLDER`, keep the old one in
//! `READ`, and write the files with
//!
//! ```text
//! cargo test --all-features --test files -- --ignored write_the_files
//! ```

use std::fs;
use std::path::PathBuf;

use gradchain::schedule::linear;
use gradchain::state::same_bits;
use gradchain::wrapper::freezable;

use super::*;

/// This version's folder, and all that are read.
const FOLDER: &str = "v1";
const READ: [&str; 1] = ["v1"];

fn path(version: &str, name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/checkpoints")
        .join(version)
        .join(format!("{name}.safetensors"))
}

/// A case: name, optimizer, parameters at the start and the end.
trait Each {
    fn case<T, P>(&self, name: &str, optimizer: &T, params: P, gradients: &[P])
    where
        T: GradientTransformation<Needs = Nothing>,
        P: TreeMut + Clone + PartialEq;
}

fn each_case(each: &impl Each) {
    let gradients = |n: usize| -> Vec<Model> { (0..n).map(|t| gradient(t as f32)).collect() };
    let decays = |adamw: gradchain::optimizer::Adamw| adamw.b1(0.5).b2(0.75);
    let masked = decays(adamw(0.1)).weight_decay(0.25).mask(Mask::path("weight"));
    each.case("adamw-in-a-chain", &chain((clip_by_global_norm(1.0), masked)), model(), &gradients(3));
    let window = multi_steps(sgd(0.125).momentum(0.5), 3);
    each.case("in-the-middle-of-a-window", &window, model(), &gradients(5));
    let injected = inject_hyperparams(decays(adamw(linear(0.5, 0.0, 8))));
    each.case("injected-with-a-schedule", &injected, model(), &gradients(4));
    #[cfg(feature = "half")]
    {
        use half::{bf16, f16};
        let params = |x: f32| (array![x, -2.0 * x].mapv(bf16::from_f32), array![[x], [0.5]].mapv(f16::from_f32));
        let optimizer = decays(adamw(0.1)).mu_dtype(gradchain::DType::Bf16);
        each.case("sixteen-bits", &optimizer, params(1.5), &[params(0.25), params(-3.0)]);
    }
}

fn run<T, P>(optimizer: &T, params: &P, gradients: &[P]) -> (P, OptState<T>)
where
    T: GradientTransformation<Needs = Nothing>,
    P: TreeMut + Clone,
{
    let (mut params, mut state) = (params.clone(), optimizer.init(params).unwrap());
    for gradient in gradients {
        optimizer.step(&mut params, gradient, &mut state).unwrap();
    }
    (params, state)
}

fn written<T: GradientTransformation, P: Tree>(name: &str, optimizer: &T, state: &OptState<T>, params: &P) -> Vec<u8> {
    bytes(&Save::new(optimizer, state).params(params).note("case", name))
}

struct Load(&'static str);

impl Each for Load {
    fn case<T, P>(&self, name: &str, optimizer: &T, params: P, gradients: &[P])
    where
        T: GradientTransformation<Needs = Nothing>,
        P: TreeMut + Clone + PartialEq,
    {
        let path = path(self.0, name);
        let file = Checkpoint::open(&path).unwrap();
        assert_eq!(file.note("case"), Some(name));
        // The parameters to load into have other values.
        let mut loaded = params.clone();
        let state = file.load(optimizer, &mut loaded).unwrap();
        let (expected, from_scratch) = run(optimizer, &params, gradients);
        assert!(loaded == expected, "{name}: parameters");
        assert!(loaded != params, "{name}: they have moved");
        assert!(same_bits(&*state, &*from_scratch), "{name}: state");
        assert_eq!(state.schema(), from_scratch.schema(), "{name}: schema");

        // Saving again gives the same file.
        let again = written(name, optimizer, &state, &loaded);
        if self.0 == FOLDER && file.version() == env!("CARGO_PKG_VERSION") {
            assert!(again == fs::read(&path).unwrap(), "{name}: the same version writes the same bytes");
        }
        let again = Checkpoint::from_bytes(again).unwrap();
        let mut last = params.clone();
        let state = again.load(optimizer, &mut last).unwrap();
        assert!(last == loaded && same_bits(&*state, &*from_scratch), "{name}: saved again");
    }
}

#[test]
fn files_of_every_format_are_loaded() {
    READ.into_iter().for_each(|version| each_case(&Load(version)));
    // Every file has a case.
    let files = fs::read_dir(path(FOLDER, "").parent().unwrap()).unwrap().count();
    assert_eq!(files, 4);
}

/// Every leaf has the count of all steps.
#[test]
fn a_file_without_counts_by_leaf_is_read_with_that_of_all() {
    let optimizer = freezable(optimizer());
    let (params, state) = trained(&optimizer, 3);
    let count = |leaf: &str| {
        format!(r#"[{{\"field\":\"inner.1.0.updates\",\"of\":{{\"leaf\":\"{leaf}\"}}}},{{\"count\":3}}],"#)
    };
    let old = damage::with_header_of(bytes(&Save::new(&optimizer, &state).params(&params)), |mut header| {
        for leaf in ["weight", "bias"] {
            assert!(header.contains(&count(leaf)), "{header}");
            header = header.replace(&count(leaf), "");
        }
        header
    });
    let mut loaded = model();
    let read = Checkpoint::from_bytes(old).unwrap().load(&optimizer, &mut loaded).unwrap();
    assert!(loaded == params && same_bits(&*read, &*state));
    assert_eq!(read.schema(), state.schema());
}

struct Write;

impl Each for Write {
    fn case<T, P>(&self, name: &str, optimizer: &T, params: P, gradients: &[P])
    where
        T: GradientTransformation<Needs = Nothing>,
        P: TreeMut + Clone + PartialEq,
    {
        let path = path(FOLDER, name);
        assert!(!path.exists(), "{}: a file that was released is not written again", path.display());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let (params, state) = run(optimizer, &params, gradients);
        fs::write(path, written(name, optimizer, &state, &params)).unwrap();
    }
}

#[test]
#[ignore = "it writes files"]
fn write_the_files() {
    each_case(&Write);
}
