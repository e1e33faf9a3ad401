//! Hashes of parameters and state after ten steps of every entry do not change with the engine.
//!
//! They cover three dtypes, typed, boxed and from a config, one leaf of several chunks and several small ones.
//! ```text
//! cargo test --all-features --test catalogue golden -- --ignored
//! ```
//!
//! `GOLDEN=write` writes the file anew. It is for x86-64 Linux: `exp` and similar functions are the system library's.

use std::fs;
use std::path::PathBuf;
use std::thread;

use gradchain::config::Config;
use gradchain::needs::ValueAndGradFn;
use gradchain::state::{Entry, State, StateWalk};
use gradchain::tree::{DynTree, for_each_leaf};

use crate::common::chunk::CHUNK;
use crate::common::extra_inputs::Member;
use crate::common::registry::{all_selected, registry};
use crate::common::run;
use crate::common::subject::{AnyState, Subject};
use crate::common::trees::{LeafPlan, Number, Order, noise, tree};

const STEPS: u64 = 10;

/// 64-bit FNV-1a.
struct Hash(u64);

impl Hash {
    fn new() -> Hash {
        Hash(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: impl IntoIterator<Item = u8>) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

fn of_params(params: &DynTree) -> u64 {
    let mut hash = Hash::new();
    for_each_leaf(params, |path, leaf| {
        hash.add(path.bytes());
        leaf.to_f64().iter().for_each(|value| hash.add(value.to_bits().to_le_bytes()));
    });
    hash.0
}

fn of_state<S: State>(state: &S) -> u64 {
    let mut hash = Hash::new();
    state.walk(&mut StateWalk::new(&mut |path, entry| {
        hash.add(path.bytes());
        match entry {
            Entry::Moments(moments) => {
                for leaf in 0..moments.len() {
                    hash.add(format!("{leaf} {:?} {:?}", moments.dtype(leaf), moments.shape(leaf)).bytes());
                    hash.add(moments.as_bytes(leaf).unwrap_or_default().iter().copied());
                }
            }
            Entry::Scalar(scalar) => hash.add(scalar.get().to_bits().to_le_bytes()),
            Entry::Scalars(scalars) => {
                for (leaf, scalar) in scalars.iter() {
                    hash.add(leaf.to_le_bytes());
                    hash.add(scalar.get().to_bits().to_le_bytes());
                }
            }
            other => hash.add(format!("{other:?}").bytes()),
        }
    }));
    hash.0
}

fn hashes(entry: &dyn Subject) -> Vec<String> {
    let one: &[&[usize]] = &[&[2 * CHUNK + 232]];
    let several: &[&[usize]] = &[&[40, 9], &[7], &[], &[2, 3, 2, 2], &[1, 33]];
    let mut lines = Vec::new();
    for (number, dtype) in [(Number::F32, "f32"), (Number::F64, "f64"), (Number::Bf16, "bf16")] {
        for (name, shapes) in [("one", one), ("several", several)] {
            let leaf = |shape: &&[usize]| LeafPlan { number, shape: shape.to_vec(), order: Order::C };
            let plan: Vec<LeafPlan> = shapes.iter().map(leaf).collect();
            let params = tree(&plan, |leaf, i| noise(1, leaf, i));
            let grads: Vec<DynTree> = (0..STEPS).map(|t| tree(&plan, |leaf, i| noise(2 + t, leaf, i))).collect();
            let after = entry.run(&params, &grads);
            let typed = (of_params(&after.params), of_state::<AnyState>(&after.state));
            let of = |member: &Member| {
                let after = run(member, &params, &grads);
                (of_params(&after.params), of_state(&*after.state))
            };
            assert_eq!(of(&entry.boxed()), typed, "{}, boxed", entry.name());
            if let Ok(config) = Config::of(&entry.boxed()) {
                let built = config.build_with::<ValueAndGradFn>().expect("a config of a registered entry");
                assert_eq!(of(&built), typed, "{}, from its config", entry.name());
            }
            lines.push(format!("{}\t{dtype}\t{name}\t{:016x}\t{:016x}", entry.name(), typed.0, typed.1));
        }
    }
    lines
}

#[test]
#[ignore = "takes minutes; for changes of the engine"]
fn golden_hashes_have_not_changed() {
    let entries = registry();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    // Threads take entries in turn.
    let of = |first| entries.iter().skip(first).step_by(threads).flat_map(|e| hashes(&**e)).collect::<Vec<_>>();
    let mut lines: Vec<String> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|first| scope.spawn(move || of(first))).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("hashes")).collect()
    });
    lines.sort();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden.tsv");
    if std::env::var("GOLDEN").is_ok_and(|asked| asked == "write") {
        assert!(all_selected(), "`GOLDEN=write` writes all entries: unset `ENTRY`");
        fs::write(&path, lines.join("\n") + "\n").expect("a file of hashes");
        return;
    }
    let recorded = fs::read_to_string(&path).expect("a file of hashes");
    let recorded: Vec<&str> = recorded.lines().collect();
    let changed: Vec<_> = lines.iter().filter(|line| recorded.binary_search(&line.as_str()).is_err()).collect();
    assert!(
        changed.is_empty(),
        "{} of {} have changed or are new: {:#?}",
        changed.len(),
        lines.len(),
        &changed[..changed.len().min(20)]
    );
    assert_eq!(lines.len(), recorded.len(), "entries are missing");
}
