//! The layers of `core/src/` and of `src/`: a module uses only modules above it in its list below. What `gradchain`
//! re-exports from `gradchain-core` is below all of its own modules.
//!
//! Dependencies thus have no cycles. The test checks `use` lines and paths that begin with `crate`, `super`, `self` or
//! `gradchain`, but no comments, links and strings.

#[path = "common/files.rs"]
mod files;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use files::collect;

/// Folders with comments; a package has only the sources.
const FOLDERS: &[&str] = &["adapters", "benches", "core", "derive", "examples", "programs", "src", "tests"];

/// The layers of `gradchain-core`, bottom first. A folder's `mod.rs` is above its listed parts.
const CORE: &[&str] = &[
    "range",
    "element",
    "layout",
    "error",
    "tuples",
    "memory",
    "numeric",
    "needs",
    "recipe",
    "tree",
    "schedule",
    "select",
    "state",
    "arguments",
    "collective",
    "engine",
    "part",
    "program",
    "extra",
    "evaluation_cache",
    "transformation",
    "device",
    "macros",
    "evaluation",
    "replicas",
    "migrate",
    "plot",
    "wrappers",
    "restore",
    "internal",
];

/// Those of `gradchain`.
const FACADE: &[&str] = &[
    "macros",
    "constraint",
    "watch",
    "projection",
    "minimize",
    "transform/moment",
    "transform/rescale",
    "transform/elementwise",
    "transform/adaptive",
    "transform/norms",
    "transform/sign",
    "transform/matrix",
    "transform/parameter_free",
    "transform/loss",
    "transform/curvature",
    "transform/noise",
    "transform/projection",
    "transform/watching",
    "transform",
    "wrapper",
    "checkpoint",
    "optimizer/elementwise",
    "optimizer/adaptive",
    "optimizer/norms",
    "optimizer/sign",
    "optimizer/matrix",
    "optimizer/parameter_free",
    "optimizer/loss",
    "optimizer/curvature",
    "optimizer/noise",
    "optimizer",
    "functions",
    "config/fields",
    "config/json",
    "config/serialized",
    "config/own_loops",
    "config/registry",
    "config/boxed_members",
    "config/families",
    "config/build",
    "config/data",
    "config/schema",
    "config",
    // The guide, whose code runs as doc tests.
    "_guide",
];

/// Fields, methods and macros outside of `gradchain_core::internal`.
const HIDDEN_IN_CORE: usize = 170;

const CRATES: [(&str, &[&str]); 2] = [("core/src", CORE), ("src", FACADE)];

#[test]
fn no_module_uses_a_higher_layer() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut wrong, mut paths, mut read) = (Vec::new(), 0, 0);
    for (folder, layers) in CRATES {
        let root = package.join(folder);
        let mut files = Vec::new();
        collect(&root, &mut files);
        files.sort();
        read += files.len();
        let lib = fs::read_to_string(root.join("lib.rs")).unwrap();
        let (reexports, from_core) = (reexports(&lib), from_core(&lib));
        for file in &files {
            let module = module_of(file.strip_prefix(&root).unwrap());
            if module == ["lib"] {
                continue;
            }
            let name = file.strip_prefix(package).unwrap().display();
            let Some(own) = layer(layers, &module) else {
                wrong.push(format!("{name}: is in no layer"));
                continue;
            };
            for Use { line, path } in uses(&fs::read_to_string(file).unwrap(), &module) {
                paths += 1;
                let Some(first) = path.first().filter(|first| !from_core.contains(*first)) else { continue };
                match layer(layers, reexports.get(first).unwrap_or(&path)) {
                    Some(place) if place <= own => {}
                    Some(place) => {
                        let [from, to] = [own, place].map(|layer| layers[layer]);
                        wrong.push(format!("{name}:{line}: `{from}` uses `{to}`: {}", path.join("::")));
                    }
                    // Exported macros are at the root.
                    None if own == layers.len() - 1 && path.len() == 1 => {}
                    None => wrong.push(format!("{name}:{line}: name the module of {}", path.join("::"))),
                }
            }
        }
    }
    assert!(read > 400, "the files of both crates, not of something else: {read}");
    assert!(paths > 2000, "the paths of the crates are found: {paths}");
    assert!(wrong.is_empty(), "{} arrows go up\n{}", wrong.len(), wrong.join("\n"));
}

/// Adapters bring hundreds of crates, and some need a library.
#[test]
fn commands_without_a_package_leave_adapters_out() {
    let manifest = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).expect("readable");
    let default = manifest.lines().find_map(|line| line.strip_prefix("default-members = "));
    assert_eq!(default, Some(r#"[".", "core", "derive", "programs"]"#));
}

/// `cargo fmt` covers code.
#[test]
fn comments_are_at_most_120_columns_wide() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in FOLDERS.iter().map(|folder| root.join(folder)).filter(|folder| folder.is_dir()) {
        collect(&folder, &mut files);
    }
    let mut wide = Vec::new();
    for file in files {
        for (i, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            let comment = line.trim_start().strip_prefix("//").map(|text| text.trim_start_matches(['/', '!', ' ']));
            let breaks = comment.is_some_and(|text| !text.starts_with('|') && !text.contains("http"));
            if breaks && line.chars().count() > 120 {
                wide.push(format!("{}:{}", file.display(), i + 1));
            }
        }
    }
    assert!(wide.is_empty(), "{}", wide.join("\n"));
}

/// Beginnings of a comment line that make a clause its subject.
const CLAUSES: &[&str] = &["What ", "Whatever ", "Whether ", "Whoever ", "Who ", "Which "];
const PHRASES: &[&str] = &[
    "what is inside",
    "what is around",
    "whoever",
    "the one that",
    "so many",
    "by itself",
    "instruction set",
    "numbers of 16 bits",
    "leaves of 16 bits",
    "adds up over",
];

#[test]
fn comments_use_the_terms_of_the_field() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in FOLDERS.iter().map(|folder| root.join(folder)).filter(|folder| folder.is_dir()) {
        collect(&folder, &mut files);
    }
    let mut found = Vec::new();
    for file in files {
        for (i, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            let text = comment.trim_start_matches(['/', '!', ' ']).trim_start_matches("- ");
            let begins = CLAUSES.iter().find(|clause| text.starts_with(**clause));
            let has = PHRASES.iter().find(|phrase| text.to_lowercase().contains(**phrase));
            found.extend(begins.or(has).map(|words| format!("{}:{}: {words}", file.display(), i + 1)));
        }
    }
    assert!(found.is_empty(), "see Conventions in CONTRIBUTING.md\n{}", found.join("\n"));
}

/// Items that only the crates call are in traits and types without a path, so that every nameable item is documented.
/// Except for those of `gradchain-core` that `gradchain` calls: their number only falls.
#[test]
fn nothing_that_can_be_named_is_hidden() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["adapters", "core", "derive", "src"].map(|folder| root.join(folder)) {
        if folder.is_dir() {
            collect(&folder, &mut files);
        }
    }
    assert!(files.len() > 400);
    let hidden = |file: &Path| fs::read_to_string(file).unwrap().matches("doc(hidden)").count();
    let shared: usize = files.iter().filter(|file| file.starts_with(root.join("core"))).map(|file| hidden(file)).sum();
    assert!(shared <= HIDDEN_IN_CORE, "{shared}");
    files.retain(|file| !file.starts_with(root.join("core")) && hidden(file) > 0);
    assert!(files.is_empty(), "{files:?}");
}

#[test]
fn files_are_short() {
    let mut files = Vec::new();
    for (folder, _) in CRATES {
        collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut files);
    }
    files.retain(|file| fs::read_to_string(file).unwrap().lines().count() > 500);
    assert!(files.is_empty(), "more than 500 lines: {files:?}");
}

#[test]
fn every_layer_exists() {
    for (folder, layers) in CRATES {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        for layer in layers {
            assert!(root.join(layer).is_dir() || root.join(layer).with_extension("rs").is_file(), "{folder}/{layer}");
        }
    }
}

#[test]
fn the_maps_of_the_guide_have_the_same_order() {
    let guide = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/architecture.md")).unwrap();
    let rows = guide.split_once("## Map").unwrap().1.split("\n## ").next().unwrap().lines();
    let places = rows.filter_map(|row| row.strip_prefix("| `")?.split_once('`')).map(|(place, _)| place);
    let places: Vec<_> = places.map(|place| place.trim_end_matches(".rs").trim_end_matches('/')).collect();
    let mut folders: Vec<_> = [CORE, FACADE].concat().iter().map(|layer| layer.split('/').next().unwrap()).collect();
    folders.dedup();
    folders.pop_if(|last| *last == "_guide");
    assert_eq!(places, folders);
}

#[test]
fn paths_are_found_where_they_count() {
    let module = ["tree", "math"].map(String::from);
    let found = |source: &str| -> Vec<String> {
        uses(source, &module).into_iter().map(|Use { line, path }| format!("{line} {}", path.join("::"))).collect()
    };
    assert_eq!(found("use crate::{a::{B, C as D}, e};"), ["1 a::B", "1 a::C", "1 e"]);
    assert_eq!(found("// crate::a\n/* crate::b\n /* */ */ crate::c::<u8>()"), ["3 c"]);
    assert_eq!(
        found(r##"f("crate::a\" crate::b", r#"crate::"c"#, '"', 'x', b'"'); let x: &'a u8 = crate::d;"##),
        ["1 d"]
    );
    assert_eq!(
        found("use super::leaf; mod tests { use super::*; super::super::x() } self::y!()"),
        ["1 tree::leaf", "1 tree::math::*", "1 tree::x", "1 tree::math::y",]
    );
    assert_eq!(found("crate::a! { $crate::b::c!() }"), ["1 macros", "1 b::c"]);
    assert_eq!(
        found("pub(in crate::a) fn f() { $crate::b::c(); ::gradchain::d() } pub(crate) use e;"),
        ["1 b::c", "1 d"]
    );
}

fn module_of(file: &Path) -> Vec<String> {
    let file = file.with_extension("");
    let mut module: Vec<_> = file.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    module.pop_if(|last| last == "mod");
    module
}

fn layer(layers: &[&str], path: &[String]) -> Option<usize> {
    (1..=path.len()).rev().find_map(|len| {
        let prefix = path[..len].join("/");
        layers.iter().position(|layer| *layer == prefix)
    })
}

/// Returns the modules of names that the root re-exports individually.
fn reexports(lib: &str) -> HashMap<String, Vec<String>> {
    let named = uses(&lib.replace("pub use crate::", "pub use ").replace("pub use ", "pub use crate::"), &[])
        .into_iter()
        .map(|found| found.path);
    named.filter(|path| path.len() > 1).map(|path| (path.last().unwrap().clone(), path)).collect()
}

/// Returns the names that the root re-exports from `gradchain-core`, or imports for its modules.
fn from_core(lib: &str) -> HashSet<String> {
    let found = uses(&lib.replace("use gradchain_core::", "use crate::core::"), &[]);
    found.into_iter().filter(|found| found.path[0] == "core").filter_map(|mut found| found.path.pop()).collect()
}

struct Use {
    line: usize,
    path: Vec<String>,
}

fn uses(source: &str, module: &[String]) -> Vec<Use> {
    let tokens = tokens(source);
    let text = |at: usize| tokens.get(at).map_or("", |token: &(usize, String)| &token.1);
    // The file's module, its inline modules and their depths.
    let (mut here, mut inside, mut depth) = (module.to_vec(), Vec::new(), 0);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match text(at) {
            "mod" if text(at + 2) == "{" => {
                inside.push(depth);
                here.push(text(at + 1).into());
                at += 1;
            }
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                if inside.pop_if(|outer| *outer == depth).is_some() {
                    here.pop();
                }
            }
            root @ ("crate" | "gradchain" | "self" | "super") if text(at + 1) == "::" && begins(text, at) => {
                let line = tokens[at].0;
                let mut from = if matches!(root, "crate" | "gradchain") { Vec::new() } else { here.clone() };
                while text(at) == "super" && text(at + 1) == "::" {
                    from.pop();
                    at += 2;
                }
                at += if root == "super" { 0 } else { 2 };
                let mut paths = Vec::new();
                at = branches(text, at, from, &mut paths);
                // An exported macro is at the root, wherever it is defined: in `macros`.
                if let ([path], "!") = (&mut paths[..], text(at))
                    && path.len() == 1
                {
                    path[0] = "macros".into();
                }
                found.extend(paths.into_iter().map(|path| Use { line, path }));
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Returns true if a path begins here, after no separator and not in a visibility.
fn begins<'a>(text: impl Fn(usize) -> &'a str, at: usize) -> bool {
    let before = |n: usize| at.checked_sub(n).map_or("", &text);
    let outermost = text(at) == "gradchain" && before(1) == "::" && !before(2).chars().any(char::is_alphanumeric);
    before(1) != "in" && (before(1) != "::" || outermost)
}

/// Returns the paths of a `use` tree, expression or type, and its end.
fn branches<'a>(
    text: impl Fn(usize) -> &'a str + Copy,
    mut at: usize,
    mut path: Vec<String>,
    paths: &mut Vec<Vec<String>>,
) -> usize {
    loop {
        match text(at) {
            "{" => {
                at += 1;
                while text(at) != "}" {
                    at = branches(text, at, path.clone(), paths);
                    at += usize::from(text(at) == ",");
                }
                return at + 1;
            }
            segment => path.push(segment.into()),
        }
        at += 1;
        if text(at) == "as" {
            at += 2;
        }
        if text(at) != "::" || text(at + 1) == "<" {
            paths.push(path);
            return at;
        }
        at += 1;
    }
}

/// Returns words, `::` and signs with their lines, without comments, strings, characters and lifetimes.
fn tokens(source: &str) -> Vec<(usize, String)> {
    let source: Vec<char> = source.chars().collect();
    let get = |at: usize| source.get(at).copied().unwrap_or('\0');
    let (mut at, mut line, mut tokens) = (0, 1, Vec::new());
    while at < source.len() {
        let (start, first) = (at, get(at));
        match (first, get(at + 1)) {
            ('/', '/') => at += source[at..].iter().position(|c| *c == '\n').unwrap_or(source.len() - at),
            ('/', '*') => {
                let mut open = 0;
                loop {
                    match (get(at), get(at + 1)) {
                        ('/', '*') => (open, at) = (open + 1, at + 2),
                        ('*', '/') => (open, at) = (open - 1, at + 2),
                        _ => at += 1,
                    }
                    if open == 0 {
                        break;
                    }
                }
            }
            ('"', _) => {
                at += 1;
                while get(at) != '"' {
                    at += if get(at) == '\\' { 2 } else { 1 };
                }
                at += 1;
            }
            ('r', '"' | '#') => {
                let hashes = source[at + 1..].iter().take_while(|c| **c == '#').count();
                at += 1 + hashes;
                if get(at) == '"' {
                    let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
                    at += 1;
                    at += source[at..].windows(end.len()).position(|w| w == end).expect("a text that ends") + end.len();
                }
            }
            ('\'', '\\') => {
                at += 3;
                while get(at) != '\'' {
                    at += 1;
                }
                at += 1;
            }
            ('\'', _) if get(at + 2) == '\'' => at += 3,
            ('\'', _) => at += 1 + source[at + 1..].iter().take_while(|c| word(**c)).count(),
            (':', ':') => {
                tokens.push((line, "::".into()));
                at += 2;
            }
            (c, _) if word(c) => {
                at += source[at..].iter().take_while(|c| word(**c)).count();
                tokens.push((line, source[start..at].iter().collect()));
            }
            (c, _) => {
                if !c.is_whitespace() {
                    tokens.push((line, c.into()));
                }
                at += 1;
            }
        }
        line += source[start..at.min(source.len())].iter().filter(|c| **c == '\n').count();
    }
    tokens
}

fn word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
