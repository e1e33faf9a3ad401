//! The core loops are vectorized, and bitwise identical, at every SIMD level, including divisions.
//!
//! The test reads the machine code of an example's release build.
#![cfg(target_arch = "x86_64")]
#![allow(missing_docs, reason = "a test program")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

static BUILT: LazyLock<Built> = LazyLock::new(build);

/// Parsed once: some ten megabytes of text.
static FUNCTIONS: LazyLock<Functions<'static>> = LazyLock::new(|| functions(&BUILT.assembly));

struct Built {
    program: PathBuf,
    assembly: String,
}

/// The instructions and labels of each symbol.
type Functions<'a> = BTreeMap<&'a str, Vec<&'a str>>;

/// Builds the example and the library with their assembly, as a separate package.
///
/// As an example, Cargo would also build all dependencies of the tests. Link-time optimization is off, since some users
/// disable it: no loop may depend on its inlining. Set `CORE_LOOPS_LTO` to `false` for Cargo's default.
fn build() -> Built {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let folder = std::path::absolute(target).expect("a folder").join("core_loops");
    std::fs::create_dir_all(&folder).expect("a folder for the package");
    let lto = std::env::var("CORE_LOOPS_LTO").unwrap_or_else(|_| "'off'".into());
    let manifest = format!(
        "[package]\nname = 'core_loops'\nedition = '2024'\n[workspace]\n[profile.release]\ndebug = false\nlto = {lto}\n\
         [[bin]]\nname = 'core_loops'\npath = '{root}/examples/core_loops.rs'\n\
         [dependencies]\ngradchain = {{ path = '{root}', default-features = false, features = ['half'] }}\nhalf = '2'\nndarray = '0.17'\n",
        root = root.display(),
    );
    std::fs::write(folder.join("Cargo.toml"), manifest).expect("a manifest is written");
    // Uses the tests' locked versions, if any.
    let _none_yet = std::fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(&folder)
        // The default number of codegen units, which `--emit asm` would reduce to one. Mangling version 0 keeps type
        // arguments.
        .env("RUSTFLAGS", "--emit asm -C codegen-units=16 -C symbol-mangling-version=v0")
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .args(["build", "--release"])
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the example builds");
    // The files of the last build: its hash precedes the first dot of the name.
    let newest = |name: &str| {
        let files = std::fs::read_dir(folder.join("target/release/deps")).expect("a folder that cargo has made");
        let files: Vec<_> = files
            .filter_map(Result::ok)
            .filter_map(|file| Some((file.file_name().into_string().ok()?, file)))
            .filter(|(file, _)| file.starts_with(name) && file.ends_with(".s"))
            .collect();
        let (last, _) = files
            .iter()
            .max_by_key(|(_, file)| file.metadata().and_then(|m| m.modified()).ok())
            .expect("an assembly file");
        let build = |file: &str| file.split('.').next().map(str::to_owned);
        let of_build = files.iter().filter(|(file, _)| build(file) == build(last));
        of_build.map(|(_, file)| std::fs::read_to_string(file.path()).expect("it is text")).collect::<String>()
    };
    let assembly = ["gradchain_core-", "gradchain-", "core_loops-"].map(newest).concat();
    Built {
        program: folder.join("target/release/core_loops").with_extension(std::env::consts::EXE_EXTENSION),
        assembly,
    }
}

fn functions(assembly: &str) -> Functions<'_> {
    let mut all = Functions::new();
    let mut current = None;
    for line in assembly.lines() {
        if let Some(name) = line.strip_suffix(':').filter(|l| l.starts_with("_R")) {
            current = Some(name);
        } else if line.starts_with('\t') && !line.starts_with("\t.") || line.starts_with(".L") && line.ends_with(':') {
            current.into_iter().for_each(|name| all.entry(name).or_default().push(line.trim()));
        }
    }
    // Merged functions become aliases.
    let same = assembly.lines().filter_map(|line| line.split_once(" = ").filter(|(name, _)| name.starts_with("_R")));
    for (name, of) in same {
        if let Some(code) = all.get(of).cloned() {
            all.insert(name, code);
        }
    }
    all
}

/// Returns a function's longest innermost loop.
fn longest_loop<'a>(code: &[&'a str]) -> Vec<&'a str> {
    inner_loops(code).into_iter().max_by_key(Vec::len).unwrap_or_default()
}

/// Returns the longest loop with several jumps back, to the last of them.
///
/// Peeled first or last iterations cause these.
fn longest_loop_in_parts<'a>(code: &[&'a str]) -> Vec<&'a str> {
    let jump_to = |line: &&str| line.split_whitespace().nth(1).filter(|_| line.starts_with('j')).map(str::to_owned);
    let labels = code.iter().enumerate().filter_map(|(start, line)| Some((start, line.strip_suffix(':')?)));
    let ends = labels.filter_map(|(start, label)| {
        let last = code.iter().rposition(|line| jump_to(line).as_deref() == Some(label))?;
        (last > start).then(|| code[start..=last].iter().copied().filter(|line| !line.ends_with(':')).collect())
    });
    ends.max_by_key(Vec::len).unwrap_or_default()
}

/// Returns a function's innermost loops.
fn inner_loops<'a>(code: &[&'a str]) -> Vec<Vec<&'a str>> {
    let begins = |label: &str| code.iter().position(|line| line.strip_suffix(':') == Some(label));
    let jumps = code.iter().enumerate().filter(|(_, line)| line.starts_with('j'));
    let back = jumps.filter_map(|(end, line)| {
        let start = begins(line.split_whitespace().nth(1)?)?;
        (start < end).then_some((start, end))
    });
    let loops: Vec<_> = back.collect();
    let holds = |(start, end): (usize, usize)| {
        loops.iter().any(|inner| *inner != (start, end) && start <= inner.0 && inner.1 <= end)
    };
    let inner = loops.iter().filter(|found| !holds(**found)).map(|(start, end)| &code[*start..=*end]);
    inner.map(|lines| lines.iter().copied().filter(|line| !line.ends_with(':')).collect()).collect()
}

/// The output mode of a loop of `engine/kernel.rs`, and mixed dtypes or not, as in a mangled name.
///
/// They follow the letter of the compute type. The pass's arguments precede it: `Kj0_` for a pass that begins with
/// gradients.
const ADDS: &str = "Kh2_Kb0_";
const ADDS_MIXED: &str = "fKh2_Kb1_";
const STORES: &str = "Kh1_Kb0_";
const DROPS: &str = "Kh0_Kb0_";
const DROPS_MIXED: &str = "fKh0_Kb1_";

fn loops<'a>(functions: &'a Functions<'a>, simd: &str, chain: &str, others: &[&str]) -> Vec<&'a [&'a str]> {
    let set = format!("4simd{}{simd}", simd.len());
    let parts = [&[set.as_str(), chain], others].concat();
    // A chain inside `multi_steps` is another one.
    let wrapped = |name: &str| name.contains("10MultiSteps") && !chain.contains("MultiSteps");
    let of = |name: &str| parts.iter().all(|part| name.contains(part)) && !wrapped(name);
    functions.iter().filter(|(name, _)| of(name)).map(|(_, code)| code.as_slice()).collect()
}

/// The loops between 8-bit state and `f32`: format, and instructions without prefix, required on whole registers.
const CODES: &[(&str, &str, &[&str])] = &[
    ("6Decode", "4Root", &["mulps", "cvtdq2ps"]),
    ("6Decode", "10FourthRoot", &["mulps", "cvtdq2ps"]),
    ("6Decode", "3LogKb1", &["pslld", "paddd"]),
    ("6Decode", "3LogKb0", &["pslld", "paddd"]),
    ("6Encode", "4Root", &["sqrtps", "mulps", "psrld"]),
    ("6Encode", "10FourthRoot", &["sqrtps", "mulps", "psrld"]),
    ("6Encode", "3LogKb1", &["psrad", "paddd"]),
    ("6Encode", "3LogKb0", &["psrad", "paddd"]),
];

/// Work along axes between passes, and common work of chains with several loops: file, job, instructions as in `CODES`.
///
/// `_` stands for the type's letter.
const AXES: &[(&str, &str, &[&str])] = &[
    ("21scale_by_factored_rms", "7Squares", &["mulpd", "addpd"]),
    ("21scale_by_factored_rms", "5Plain", &["mulp_", "addp_"]),
    ("21scale_by_factored_rms", "5Roots", &["sqrtp_", "divp_"]),
    ("21scale_by_factored_rms", "8Products", &["mulp_"]),
    ("12scale_by_sm3", "5Least", &["minp_"]),
    ("12scale_by_sm3", "8Elements", &["mulp_"]),
    ("12scale_by_sm3", "4Rows", &["mulp_", "minp_"]),
];

const CHAINS: &[(&str, &[&str])] = &[
    ("4Adam", &["sqrt", "div", "mul", "add"]),
    ("5Adamw", &["sqrt", "div", "mul", "add"]),
    // Before other stages: alone in a box it has neither roots nor divisions.
    ("8ZeroNansN", &["sqrt", "div", "mul", "add"]),
    ("4Lion", &["mul", "add"]),
    ("3Sgd", &["mul", "add"]),
    ("5Trace", &["mul", "add"]),
    ("9Adabelief", &["sqrt", "div", "mul", "add"]),
    ("8Adadelta", &["sqrt", "div", "mul", "add"]),
    ("7Adagrad", &["sqrt", "div", "mul", "add"]),
    ("6Adamax", &["div", "mul", "add"]),
    ("4Adan", &["sqrt", "div", "mul", "add"]),
    ("7Amsgrad", &["sqrt", "div", "mul", "add"]),
    ("7Madgrad", &["div", "mul", "add"]),
    ("5Radam", &["sqrt", "div", "mul", "add"]),
    ("7Rmsprop", &["sqrt", "div", "mul", "add"]),
    ("5Rprop", &["mul", "add"]),
    ("7SignSgd", &["mul", "add"]),
    ("4Yogi", &["sqrt", "div", "mul", "add"]),
    // Behind leaf statistics.
    ("9Adafactor", &["mul", "add"]),
    ("3Sm3", &["sqrt", "div", "mul", "add"]),
];

/// Stages that are separate loops, in boxes: part, pass, instructions as in `AXES`.
const MEMBERS: &[(&str, &str, &str, &[&str])] = &[
    ("8ZeroNans", STORES, "Kj0_K", &["cmpordp_"]),
    ("16ClipByGlobalNorm", DROPS, "Kj0_KB", &["mulpd", "addpd"]),
    ("11ScaleByAdam", STORES, "Kj0_K", &["sqrtp_", "divp_", "mulp_", "addp_"]),
];

#[test]
fn all_simd_levels_of_this_cpu_are_bitwise_identical() {
    let ran = Command::new(&BUILT.program).output().expect("the example runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let each = format!(": bitwise identical up to {:?}", gradchain::detected_simd_level());
    assert!(said.lines().count() > CHAINS.len() && said.lines().all(|line| line.ends_with(&each)), "{said}");
}

#[test]
fn core_loops_vectorize_divisions_and_roots() {
    let functions = &*FUNCTIONS;
    for (simd, prefix, registers) in [("baseline", "", "xmm"), ("avx2", "v", "ymm"), ("avx512", "v", "zmm")] {
        for ((chain, operations), (real, letter)) in CHAINS.iter().flat_map(|c| [(c, ('f', 's')), (c, ('d', 'd'))]) {
            let loops = loops(functions, simd, chain, &[&format!("{real}{ADDS}"), "Kj0_K"]);
            assert!(!loops.is_empty(), "no loop of {chain} for {simd} and {real}");
            for code in loops {
                for operation in *operations {
                    let packed = format!("{prefix}{operation}p{letter}\t");
                    let found = code.iter().any(|line| line.starts_with(&packed) && line.contains(registers));
                    assert!(found, "{chain}, {simd}, {real}: no {packed}in {registers}:\n{}", code.join("\n"));
                    // Only the remainder after whole registers uses single numbers: once, against several times for the
                    // blocks.
                    let count = |name: &str| code.iter().filter(|line| line.starts_with(name)).count();
                    let (whole, single) = (count(&packed), count(&format!("{prefix}{operation}s{letter}\t")));
                    let slow = ["sqrt", "div"].contains(operation) && whole < single;
                    assert!(
                        !slow,
                        "{chain}, {simd}, {real}: {operation} on {whole} registers, {single} times on one number"
                    );
                }
                let gathers = code.iter().any(|line| line.contains("gather"));
                assert!(!gathers, "{chain}, {simd}, {real}: vectorised across blocks, with gathers");
            }
        }
    }
}

/// Returns the instruction that converts `bf16` to `f32`: a shift, or, without AVX2, an interleave with zeros.
///
/// Without AVX2 such a loop has no other conversion.
fn shift(simd: &str) -> &'static str {
    if simd == "baseline" { "punpcklwd" } else { "pslld" }
}

#[test]
fn conversions_of_16_bit_leaves_are_vectorized() {
    let functions = &*FUNCTIONS;
    for (simd, prefix, registers) in [("baseline", "", "xmm"), ("avx2", "v", "ymm"), ("avx512", "v", "zmm")] {
        // LLVM may keep this chain's parameters in memory.
        for (chain, operations) in CHAINS.iter().chain(&[("7Fromage", &["mul", "add"] as &[_])]) {
            let loops = loops(functions, simd, chain, &[ADDS_MIXED, "Kj0_K"]);
            assert!(!loops.is_empty(), "no loop of {chain} for {simd} on 16 bits");
            for code in loops {
                let count = |start: &str, also: &str| {
                    code.iter().filter(|line| line.starts_with(start) && line.contains(also)).count()
                };
                for operation in *operations {
                    let (whole, single) = (format!("{prefix}{operation}ps\t"), format!("{prefix}{operation}ss\t"));
                    assert!(count(&whole, registers) > 0, "{chain}, {simd}: no {whole}in {registers}");
                    // As above, for the remainder after whole blocks.
                    let slow = ["sqrt", "div"].contains(operation) && count(&single, "") > count(&whole, registers);
                    assert!(!slow, "{chain}, {simd}: {operation} on single numbers");
                }
                // f16 by the CPU's conversions, twice in each direction; bf16 by shifts.
                let (there, back) = (count("vcvtph2ps\t", registers), count("vcvtps2ph\t", registers));
                match simd {
                    "baseline" => assert_eq!((there, back), (0, 0), "{chain}"),
                    _ => assert!(there >= 2 && back >= 2, "{chain}, {simd}: {there} and {back} conversions"),
                }
                let shifts = count(&format!("{prefix}{}\t", shift(simd)), registers);
                assert!(shifts > 0, "{chain}, {simd}: no shifts in {registers}");
                assert_eq!(count("vp", "gather"), 0, "{chain}, {simd}: gathers");
                assert_eq!(count("call", "convert") + count("call", "half_floats"), 0, "{chain}, {simd}: calls");
                // With 32 registers little of a block needs the stack; other levels have too few.
                for code in inner_loops(code).iter().filter(|_| simd == "avx512") {
                    let on_stack = |line: &&&str| line.contains("(%rsp)") && line.contains(registers);
                    let stacked = code.iter().filter(on_stack).count();
                    let few = stacked <= code.len() / 20;
                    assert!(few, "{chain}, {simd}: {stacked} instructions of a loop of {} use the stack", code.len());
                }
            }
        }
    }
}

/// A tile's updates are added to 16-bit parameters in registers.
#[test]
fn additions_to_16_bit_parameters_are_vectorized() {
    let functions = &*FUNCTIONS;
    for (simd, prefix, registers) in [("baseline", "", "xmm"), ("avx2", "v", "ymm"), ("avx512", "v", "zmm")] {
        let found = loops(functions, simd, "4sink8Identity", &[ADDS_MIXED]);
        assert_eq!(found.len(), 1, "{simd}");
        let count =
            |start: &str| found[0].iter().filter(|line| line.starts_with(start) && line.contains(registers)).count();
        assert!(count(&format!("{prefix}addps\t")) > 0, "{simd}");
        let (there, back) = (count("vcvtph2ps\t"), count("vcvtps2ph\t"));
        assert_eq!((there > 0, back > 0), (simd != "baseline", simd != "baseline"), "{simd}");
    }
}

#[test]
fn reductions_are_vectorized() {
    let functions = &*FUNCTIONS;
    for (simd, prefix, registers) in [("baseline", "", "xmm"), ("avx2", "v", "ymm"), ("avx512", "v", "zmm")] {
        // The squares of one array, and of two.
        for (chain, real) in ["8ZeroNans", "7Fromage", "4Lars"].iter().flat_map(|chain| [(chain, 'f'), (chain, 'd')]) {
            let loops = loops(functions, simd, chain, &[&format!("{real}{DROPS}"), "Kj0_K"]);
            assert!(!loops.is_empty(), "no pass of {chain} that adds up for {simd} and {real}");
            for code in loops {
                for operation in ["addpd", "mulpd"] {
                    let packed = format!("{prefix}{operation}\t");
                    let found = code.iter().any(|line| line.starts_with(&packed) && line.contains(registers));
                    assert!(found, "{simd}, {real}: no {packed}in {registers}:\n{}", code.join("\n"));
                }
                // Sums use whole registers, except the lanes of the tail, on the stack.
                let whole = |line: &&str| line.contains("addpd\t") && line.contains(registers);
                let blocks = inner_loops(code).into_iter().filter(|code| code.iter().any(whole));
                let mut adds = blocks.flatten().filter(|line| line.contains("addpd") || line.contains("addsd"));
                let narrow = adds.find(|line| !whole(line) && !line.contains("(%rsp"));
                assert!(narrow.is_none(), "{chain}, {simd}, {real}: {narrow:?} in\n{}", code.join("\n"));
            }
        }
    }
}

/// Sums are `f64`, but `f32` elements beside them must not run at half width.
#[test]
fn arithmetic_in_loops_with_reductions_is_vectorized() {
    let functions = &*FUNCTIONS;
    for (simd, registers) in [("avx2", "ymm"), ("avx512", "zmm")] {
        for chain in ["4Lamb", "13CautiousAdamw"] {
            let found = loops(functions, simd, chain, &[&format!("f{STORES}"), "Kj0_"]);
            assert!(!found.is_empty(), "no loop of {chain} that adds up for {simd}");
            for code in found {
                for operation in ["vsqrtps\t", "vdivps\t"] {
                    let all: Vec<_> = code.iter().filter(|line| line.starts_with(operation)).collect();
                    let whole = !all.is_empty() && all.iter().all(|line| line.contains(registers));
                    assert!(whole, "{chain}, {simd}: {all:?} in\n{}", code.join("\n"));
                }
            }
        }
    }
}

/// The functions that a loop's function may call.
///
/// They end the program, move or free memory, run once for a whole slice, compute a hyperbolic tangent in a loop of
/// their own, or process 8-bit blocks with numbers that are not finite.
const CALLS: &[&str] = &[
    "9panicking",
    "13out_of_bounds",
    "fail",
    "memcpy",
    "memmove",
    "memset",
    "_Unwind_Resume",
    "rust_dealloc",
    "13drop_in_place",
    "4Drop4drop",
    "8SpecFill",
    "copy_from_slice_impl",
    "4cast7Project",
    "8prefetch",
    "8leaf_key",
    "7strided",
    "tanh",
    "code_marked",
    "largest_finite",
];

/// Without link-time optimization, `zip` and `map` of arrays are not inlined; such a call in an elementwise loop takes
/// ten to fifty times as long.
#[test]
fn loops_call_nothing_and_gather_nothing() {
    let functions = &*FUNCTIONS;
    let of_sets = functions.iter().filter(|(name, _)| SIMD_LEVELS.iter().any(|set| name.contains(set)));
    let of_sets: Vec<_> = of_sets.collect();
    assert!(of_sets.len() > 10 * CHAINS.len(), "{} loops", of_sets.len());
    for (name, code) in of_sets {
        let called = code.iter().filter_map(|line| {
            let (instruction, to) = line.split_once('\t')?;
            (instruction.starts_with("call") || instruction == "jmp" && !to.starts_with(".L")).then_some(to)
        });
        for to in called {
            // A register may hold an address for several calls.
            let into =
                to.strip_prefix('*').filter(|to| to.starts_with('%')).map(|register| format!("(%rip), {register}"));
            let kept =
                |line: &&str| into.as_ref().is_some_and(|into| line.starts_with("movq\t") && line.ends_with(into));
            let named = if into.is_some() { code.iter().copied().filter(kept).collect() } else { vec![to] };
            assert!(!named.is_empty(), "{name} calls {to}, from somewhere");
            for to in named {
                assert!(CALLS.iter().any(|may| to.contains(may)), "{name} calls {to}");
            }
        }
        let apart = code.iter().any(|line| line.contains("gather") || line.contains("scatter"));
        assert!(!apart, "{name}: vectorised across blocks, with gathers");
    }
}

/// LLVM turns a select between the old and a new value into a masked store.
///
/// With AVX2 that takes 14 cycles on an AMD EPYC, which tripled the time of held mini-steps in the cache.
#[test]
fn stores_fill_whole_registers() {
    let functions = &*FUNCTIONS;
    for (name, code) in functions.iter().filter(|(name, _)| name.contains("4simd4avx2")) {
        let masked = |line: &&&str| line.starts_with("vmaskmov") || line.starts_with("vpmaskmov");
        let stores = code.iter().filter(masked).find(|line| line.ends_with(')'));
        assert!(stores.is_none(), "{name}: {stores:?} in\n{}", code.join("\n"));
    }
}

/// A comparison that both selects and counts may become 28 mask shifts per register.
///
/// A few are allowed for values combined from halves.
#[test]
fn masks_are_not_taken_apart() {
    let functions = &*FUNCTIONS;
    for (name, code) in functions.iter().filter(|(name, _)| name.contains("4simd6avx512")) {
        for code in inner_loops(code) {
            let shifts = code.iter().filter(|line| line.starts_with("kshift")).count();
            assert!(shifts <= 4, "{name}: {shifts} shifts of masks in\n{}", code.join("\n"));
        }
    }
}

/// Name parts of functions compiled for one SIMD level.
const SIMD_LEVELS: &[&str] = &["4simd8baseline", "4simd4avx2", "4simd6avx512"];

#[test]
fn boxed_members_are_vectorized() {
    let functions = &*FUNCTIONS;
    for (simd, prefix, registers) in [("baseline", "", "xmm"), ("avx2", "v", "ymm"), ("avx512", "v", "zmm")] {
        for ((part, out, pass, instructions), (real, letter)) in
            MEMBERS.iter().flat_map(|member| [(member, ('f', "s")), (member, ('d', "d"))])
        {
            // The type of a chain begins with another letter.
            let loops = loops(functions, simd, part, &["5FusedN", &format!("{real}{out}"), pass]);
            assert!(!loops.is_empty(), "no loop of {part} for {simd} and {real}");
            for code in loops {
                for instruction in *instructions {
                    let packed = format!("{prefix}{}\t", instruction.replace('_', letter));
                    let found = code.iter().any(|line| line.starts_with(&packed) && line.contains(registers));
                    assert!(found, "{part}, {simd}, {real}: no {packed}in {registers}:\n{}", code.join("\n"));
                }
                let apart = code.iter().any(|line| line.contains("gather") || line.contains("scatter"));
                assert!(!apart, "{part}, {simd}, {real}: vectorised across blocks, with gathers");
                // No lane of a reduction runs alone.
                let whole = |line: &&str| line.contains("movup") && line.contains(registers);
                for code in inner_loops(code).into_iter().filter(|code| code.iter().any(whole)) {
                    let single = code.iter().find(|line| SINGLE.iter().any(|single| line.contains(single)));
                    assert!(single.is_none(), "{part}, {simd}, {real}: {single:?} in\n{}", code.join("\n"));
                }
            }
        }
    }
}

/// Scalar instructions that a partially vectorized loop may contain.
const SINGLE: &[&str] = &["ucomis", "cvtss2sd", "movss\t", "setp\t"];

/// Passes that reduce 16-bit leaves: squares of one array, of two, and a pass that updates parameters.
const ADDED_HALVES: &[(&str, &str)] =
    &[("8ZeroNans", DROPS_MIXED), ("7Fromage", DROPS_MIXED), ("4Lars", DROPS_MIXED), ("11DadaptAdamw", ADDS_MIXED)];

#[test]
fn reductions_of_16_bit_leaves_are_vectorized() {
    let functions = &*FUNCTIONS;
    for (simd, prefix, registers) in [("baseline", "", "xmm"), ("avx2", "v", "ymm"), ("avx512", "v", "zmm")] {
        for (chain, job) in ADDED_HALVES {
            let found = loops(functions, simd, chain, &[job, "Kj0_"]);
            assert!(!found.is_empty(), "no {job} of {chain} for {simd}");
            for code in found {
                let alone = *chain == "8ZeroNans";
                let conversion = alone.then(|| shift(simd));
                for operation in ["addpd", "mulpd"].into_iter().chain(conversion) {
                    let packed = format!("{prefix}{operation}\t");
                    // Bits may fill half a register, since they become a whole one of `f64`.
                    let found =
                        |registers: &str| code.iter().any(|line| line.starts_with(&packed) && line.contains(registers));
                    let packs = found(registers) || operation == "pslld" && simd == "avx512" && found("ymm");
                    assert!(packs, "{chain}, {simd}: no {packed}in {registers}:\n{}", code.join("\n"));
                }
                let whole = |line: &&str| line.contains("addpd\t") && line.contains(registers);
                for code in inner_loops(code).into_iter().filter(|code| code.iter().any(whole)) {
                    let adds = code.iter().filter(|line| line.contains("addsd\t") || line.contains("addpd\t"));
                    let narrow = adds.filter(|line| !line.contains("(%rsp")).find(|line| !whole(line));
                    assert!(narrow.is_none(), "{chain}, {simd}: {narrow:?} in\n{}", code.join("\n"));
                    let stacked =
                        code.iter().filter(|line| line.contains("(%rsp)") && line.contains(registers)).count();
                    assert!(!alone || simd != "avx512" || stacked == 0, "{chain}: {stacked} of\n{}", code.join("\n"));
                }
            }
        }
    }
}

/// Chain, job, type and pass, and the maximal instructions of a loop with AVX-512 and AVX2.
///
/// The limits are a tenth above the measurements of November 2026. A loop takes 32 elements with AVX-512 and 16 with
/// AVX2, or 32 with 16-bit arrays, and then holds the instructions of every storage type. Comments name the exceptions.
const LENGTHS: &[(&str, &str, &str, [usize; 2])] = &[
    ("4Adam", "fKh2_Kb0_", "Kj0_", [59, 62]),
    ("5AdamwE", "fKh2_Kb0_", "Kj", [85, 99]),
    ("4Adam", ADDS_MIXED, "", [308, 585]),
    ("8ZeroNansN", ADDS_MIXED, "", [361, 646]),
    ("8ZeroNansN", DROPS_MIXED, "", [102, 135]),
    ("8ZeroNansN", "fKh0_Kb0_", "Kj0_K", [52, 44]),
    ("11DadaptAdamw", "fKh2_Kb0_", "Kj", [133, 185]),
    ("10MultiSteps", ADDS_MIXED, "", [434, 771]),
    ("4Lamb", "fKh1_Kb0_", "Kj0_", [86, 95]),
    ("4Lamb", "fKh2_Kb0_", "Kj", [22, 19]),
    // Eight rows of 16 with AVX-512, else two; 32; four rows of 8; 32; 16; 256, read and written.
    ("12scale_by_sm3", "4Rows", "fE", [158, 50]),
    ("3Sm3", "fKh2_Kb0_", "Kj", [56, 47]),
    ("21scale_by_factored_rms", "7Squares", "fE", [34, 64]),
    ("9Adafactor", "fKh2_Kb0_", "Kj", [44, 42]),
    ("9Adafactor", "fKh0_Kb0_", "Kj0_K", [31, 39]),
    ("12quantization", "6Decode", "4Root", [235, 358]),
    ("12quantization", "6Encode", "4Root", [369, 809]),
];

#[test]
fn the_loops_have_no_more_instructions_than_they_need() {
    let functions = &*FUNCTIONS;
    let mut too_long = Vec::new();
    for (chain, job, arguments, most) in LENGTHS {
        for (simd, most) in ["avx512", "avx2"].into_iter().zip(most) {
            let lengths: Vec<_> = loops(functions, simd, chain, &[job, arguments])
                .into_iter()
                .map(|code| {
                    if [ADDS_MIXED, DROPS_MIXED].contains(job) {
                        longest_loop_in_parts(code)
                    } else {
                        longest_loop(code)
                    }
                })
                .inspect(|code| assert!(code.iter().any(|line| line.contains("mm")), "{chain}, {job}: {code:?}"))
                .map(|code| code.len())
                .collect();
            println!("{chain}, {job} {arguments}, {simd}: {lengths:?}, at most {most}");
            assert!(!lengths.is_empty(), "no {job} of {chain} for {simd}");
            if lengths.iter().any(|length| length > most) {
                too_long.push(format!("{chain}, {job}, {simd}: {lengths:?} instructions, at most {most}"));
            }
        }
    }
    assert!(too_long.is_empty(), "{}", too_long.join("\n"));
}

/// Loops of the first of several passes, and the number of arrays that each writes, including emitted updates.
///
/// A name has the pass number once; a back reference replaces it elsewhere. A loop that writes an unchanged array back
/// takes it through memory.
const WRITES: &[(&str, &str, &str, usize)] = &[
    // The last pass clears the accumulator and writes the moments.
    ("10MultiSteps", STORES, "Kj0_KB", 1),
    ("8ZeroNansN", DROPS, "Kj0_KB", 0),
    // Two moments.
    ("4Lamb", STORES, "Kj0_KB", 3),
];

#[test]
fn passes_write_only_modified_arrays() {
    let functions = &*FUNCTIONS;
    for (chain, out, arguments, most) in WRITES {
        for simd in ["avx512", "avx2"] {
            let found = loops(functions, simd, chain, &[&format!("f{out}"), arguments]);
            assert!(!found.is_empty(), "no loop of {chain} {arguments} for {simd}");
            for code in found {
                let code = longest_loop(code);
                // `move from, place(base, index)`; the place in an unrolled loop differs by a number only.
                let stores = code.iter().filter_map(|line| {
                    let (instruction, operands) = line.split_once('\t')?;
                    let (from, place) = operands.rsplit_once(", ")?;
                    let stores = instruction.starts_with("vmov") && from.starts_with('%') && place.ends_with(')');
                    // A place without an index is the result's.
                    stores.then(|| place.split_once('(')).flatten().filter(|(_, place)| place.contains(','))
                });
                let to: std::collections::BTreeSet<&str> =
                    stores.map(|(_, place)| place).filter(|place| !place.contains("%rsp")).collect();
                println!("{chain} {arguments} {simd}: {} {to:?}", code.len());
                assert!(*most == 0 || !to.is_empty(), "{chain} {arguments}, {simd}: no stores with an index");
                assert!(to.len() <= *most, "{chain} {arguments}, {simd}: {to:?} in\n{}", code.join("\n"));
            }
        }
    }
}

/// The prologue of such a frame touches every page, which doubled the time of calls for small leaves.
#[test]
fn per_chunk_functions_have_no_stack_probes() {
    let functions = &*FUNCTIONS;
    let of_chunks =
        |name: &str| ["4Pass", "8in_steps", "9with_list", "12loop_on_tile"].iter().any(|part| name.contains(part));
    let of_chunks: Vec<_> = functions.iter().filter(|(name, _)| name.contains("6engine") && of_chunks(name)).collect();
    assert!(of_chunks.len() > CHAINS.len(), "{} functions", of_chunks.len());
    for (name, code) in of_chunks {
        let probes = code.iter().any(|line| line.starts_with("subq\t$4096, %rsp"));
        assert!(!probes, "{name}:\n{}", code[..code.len().min(20)].join("\n"));
    }
}

#[test]
fn loads_and_stores_of_8_bit_state_are_vectorized() {
    let functions = &*FUNCTIONS;
    for (simd, prefix, registers) in [("baseline", "", "xmm"), ("avx2", "v", "ymm"), ("avx512", "v", "zmm")] {
        for (job, code, instructions) in CODES {
            let parts = [format!("4simd{}{simd}", simd.len()), "12quantization".into(), (*job).into(), (*code).into()];
            let of = |name: &str| parts.iter().all(|part| name.contains(part.as_str()));
            let loops: Vec<_> = functions.iter().filter(|(name, _)| of(name)).map(|(_, code)| code).collect();
            assert_eq!(loops.len(), 1, "{job} of {code} for {simd}");
            for code_line in *instructions {
                let packed = format!("{prefix}{code_line}\t");
                let found = loops[0].iter().any(|line| line.starts_with(&packed) && line.contains(registers));
                assert!(found, "{job} of {code}, {simd}: no {packed}in {registers}:\n{}", loops[0].join("\n"));
            }
            let count =
                |name: &str| loops[0].iter().filter(|line| line.starts_with(&format!("{prefix}{name}"))).count();
            assert_eq!(count("sqrtss"), 0, "{job} of {code}, {simd}: roots of single numbers");
        }
    }
}

/// Parts with random numbers, and the instructions required on whole registers.
///
/// `_` stands for the letter of the compute type, in which numbers are drawn.
const DRAWS: &[(&str, &[&str])] =
    &[("8AddNoise", &["sqrtp_", "divp_", "mulp_", "addp_", "pmuludq"]), ("18StochasticRounding", &["pmuludq"])];

#[test]
fn random_numbers_are_vectorized() {
    let functions = &*FUNCTIONS;
    for (simd, prefix, registers) in [("baseline", "", "xmm"), ("avx2", "v", "ymm"), ("avx512", "v", "zmm")] {
        for ((part, instructions), (real, letter)) in
            DRAWS.iter().flat_map(|part| [(part, ('f', "s")), (part, ('d', "d"))])
        {
            let found = loops(functions, simd, part, &["10ApplySlice", &format!("{real}E")]);
            assert_eq!(found.len(), 1, "{part} for {simd} and {real}");
            for instruction in *instructions {
                let packed = format!("{prefix}{}\t", instruction.replace('_', letter));
                let packs = found[0].iter().any(|line| line.starts_with(&packed) && line.contains(registers));
                assert!(packs, "{part}, {simd}, {real}: no {packed}in {registers}:\n{}", found[0].join("\n"));
            }
            // Counter words combined on the stack would wait for earlier stores.
            for slow in ["gather", "valign"] {
                assert!(!found[0].iter().any(|line| line.contains(slow)), "{part}, {simd}, {real}: {slow}");
            }
        }
    }
}

#[test]
fn rows_and_columns_are_vectorized() {
    let functions = &*FUNCTIONS;
    for (simd, prefix, registers) in [("baseline", "", "xmm"), ("avx2", "v", "ymm"), ("avx512", "v", "zmm")] {
        for ((file, job, instructions), (real, letter)) in
            AXES.iter().flat_map(|job| [(job, ('f', "s")), (job, ('d', "d"))])
        {
            let loops = loops(functions, simd, file, &[job, &format!("{real}E")]);
            assert_eq!(loops.len(), 1, "{job} of {file} for {simd} and {real}");
            for instruction in *instructions {
                let packed = format!("{prefix}{}\t", instruction.replace('_', letter));
                let found = loops[0].iter().any(|line| line.starts_with(&packed) && line.contains(registers));
                assert!(found, "{job}, {simd}, {real}: no {packed}in {registers}:\n{}", loops[0].join("\n"));
            }
            assert!(!loops[0].iter().any(|line| line.contains("gather")), "{job}, {simd}, {real}: gathers");
        }
    }
}
