//! Rules for public names, so that later versions can grow.
//!
//! The root is small, each function is in one module, and every type can grow.

#[path = "common/files.rs"]
mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use files::collect;

/// Types that users construct or match exhaustively, with reasons against growth.
const CLOSED: &[(&str, &str)] = &[
    ("Comparison", "devices match it in full, and other comparisons follow from these three"),
    ("Fixed", "a wrapper of one value, which visits of arguments make"),
    ("Inner", "a wrapper of one value, which visits of arguments make"),
    ("Layout", "the inputs of a layer come first or its outputs do"),
    ("Required", "a wrapper of one value, which visits of arguments make"),
];

/// Names with another meaning in programs that import them by `*`.
const COMMON_WORDS: &[&str] =
    &["clamp", "constant", "freeze", "join", "linear", "product", "ratio", "sum", "table", "trace"];

/// Crates that must not be in a public signature.
const INNER: &[&str] = &[
    "crc32fast",
    "faer",
    "fast_glob",
    "matrixmultiply",
    "memmap2",
    "plotters",
    "rayon",
    "safetensors",
    "serde_json",
    "smallvec",
    "tempfile",
    "toml",
    "tracing",
];

/// Modules of which one contains each transformation or schedule.
const SUBJECTS: [&str; 4] = ["optimizer", "schedule", "transform", "wrapper"];

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The sources of `gradchain-core`.
fn core() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("core/src")
}

/// Returns the modules of a subject, in both crates.
fn modules(subject: &str) -> Vec<(PathBuf, String)> {
    let module = if subject == "wrapper" { "wrappers" } else { subject };
    let both = [(src(), subject.to_owned()), (core(), module.to_owned())];
    both.into_iter().filter(|(root, module)| root.join(module).is_dir()).collect()
}

/// Returns the names that `gradchain-core` has for `gradchain` alone.
fn internal() -> BTreeSet<String> {
    exports(&read(&core().join("internal.rs"))).into_iter().map(|(_, name)| name).collect()
}

/// Returns the files of both crates.
fn all_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    [src(), core()].iter().for_each(|root| collect(root, &mut files));
    files
}

fn read(path: &Path) -> Vec<String> {
    tokens(&fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

#[test]
fn the_front_door_is_narrow() {
    let lib = read(&src().join("lib.rs"));
    let at = (0..lib.len()).find(|at| lib[*at..].starts_with(&["pub", "mod", "prelude"].map(String::from)));
    let (root, prelude) = lib.split_at(at.expect("the prelude is in lib.rs"));
    let functions: Vec<String> =
        exports(&read(&src().join("functions.rs"))).into_iter().map(|(_, name)| name).collect();
    assert!(functions.len() > 20, "{functions:?}");
    let with_functions = |tokens: &[String]| -> Vec<String> {
        let names = exports(tokens).into_iter().map(|(_, name)| name).filter(|name| name != "*");
        names.chain(functions.clone()).collect()
    };
    let files = all_files();
    let macros: usize =
        files.iter().map(|file| read(file).iter().filter(|token| *token == "macro_export").count()).sum();
    let modules = root.windows(2).filter(|two| two[0] == "pub" && two[1] == "mod").count() + 1;
    let (root, prelude) = (with_functions(root), with_functions(prelude));
    for names in [&root, &prelude] {
        assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len(), "no name twice: {names:?}");
    }
    let in_root = root.len() + modules + macros;
    assert!((50..=120).contains(&in_root), "{in_root} names at the root: {root:?}");
    assert!((30..=60).contains(&prelude.len()), "{} names in the prelude: {prelude:?}", prelude.len());
    let common: Vec<_> = prelude.iter().filter(|name| COMMON_WORDS.contains(&name.as_str())).collect();
    assert!(common.is_empty(), "names of the prelude that mean something else elsewhere: {common:?}");
}

#[test]
fn every_function_is_in_one_module() {
    let mut places = BTreeMap::<String, Vec<&str>>::new();
    for subject in SUBJECTS {
        let mut files = Vec::new();
        for (root, module) in modules(subject) {
            public_files(&root, &mut vec![module], &mut files);
        }
        let names: BTreeSet<String> =
            files.iter().flat_map(|file| exports(&read(file))).map(|(_, name)| name).collect();
        names.into_iter().for_each(|name| places.entry(name).or_default().push(subject));
    }
    places.retain(|name, _| name.starts_with(char::is_lowercase));
    assert!(places.len() > 150, "{places:?}");
    let twice: Vec<_> = places.iter().filter(|(_, subjects)| subjects.len() > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    for (from, name) in exports(&read(&src().join("functions.rs"))) {
        let subject = from.strip_prefix("crate::").expect("a path from the root");
        assert_eq!(places.get(&name).map(|subjects| &subjects[..]), Some(&[subject][..]), "{name}");
    }
}

#[test]
fn public_types_can_grow() {
    let mut files = Vec::new();
    [src(), core()].iter().for_each(|root| public_files(root, &mut Vec::new(), &mut files));
    assert!(files.len() > 30, "{files:?}");
    let internal = internal();
    files.retain(|file| !file.ends_with("internal.rs"));
    let public: BTreeSet<String> = files.iter().flat_map(|file| public_names(&read(file))).collect();
    assert!(public.len() > 500, "{}", public.len());
    let files = all_files();
    let (mut seen, mut exhaustive) = (0, BTreeSet::new());
    for file in files {
        for Type { name, grows } in types(&read(&file)) {
            // The macro's call names the item.
            if name.starts_with('$') || public.contains(&name) && !internal.contains(&name) {
                seen += 1;
                if !grows {
                    exhaustive.insert((name, file.display().to_string()));
                }
            }
        }
    }
    assert!(seen > 200, "{seen} public types");
    for (name, reason) in CLOSED {
        assert!(exhaustive.iter().any(|(found, _)| found == name), "take `{name}` ({reason}) off the list");
    }
    exhaustive.retain(|(name, _)| CLOSED.iter().all(|(closed, _)| closed != name));
    assert!(
        exhaustive.is_empty(),
        "make these #[non_exhaustive], with a constructor where users need one, or list them with a reason: \
         {exhaustive:#?}"
    );
}

/// Only ndarray, half and the traits of serde and numbers are in public signatures.
#[test]
fn no_type_of_an_inner_dependency_is_public() {
    let files = all_files();
    let (mut seen, mut foreign, internal) = (0, Vec::new(), internal());
    for file in files {
        let tokens = read(&file);
        let heads: Vec<_> = public_heads(&tokens)
            .into_iter()
            .filter(|head| !head.get(2).is_some_and(|name| internal.contains(name)))
            .collect();
        seen += heads.len();
        let imported = imported_from(&tokens, INNER);
        for head in heads {
            if head.iter().any(|token| imported.contains(token) || INNER.contains(&token.as_str())) {
                foreign.push(format!("{}: {}", file.display(), head.join(" ")));
            }
        }
    }
    assert!(seen > 1000, "{seen} public functions, aliases and impls");
    assert!(foreign.is_empty(), "{foreign:#?}");
}

fn imported_from(tokens: &[String], crates: &[&str]) -> BTreeSet<String> {
    let mut found = Vec::new();
    for at in (1..tokens.len()).filter(|at| tokens[at - 1] == "use") {
        branches(tokens, at, &mut Vec::new(), &mut found);
    }
    // The `fmt::Result` of one line is not the `Result` of another.
    let named = found.into_iter().filter(|(from, _)| crates.contains(&from.split("::").next().unwrap_or_default()));
    named.map(|(_, name)| name).filter(|name| !matches!(&**name, "self" | "*" | "_")).collect()
}

/// Returns signatures, type aliases, fields and impls: the tokens before bodies.
fn public_heads(tokens: &[String]) -> Vec<&[String]> {
    let text = |at: usize| tokens.get(at).map_or("", |token| &**token);
    let mut heads = Vec::new();
    for at in 0..tokens.len() {
        // A field for `gradchain` alone.
        if at > 3 && text(at - 1) == "]" && text(at - 3) == "hidden" {
            continue;
        }
        let stops: &[&str] = match (text(at), text(at + 1)) {
            ("pub", "fn" | "type" | "const" | "unsafe" | "async") => &["{", ";", "="],
            ("pub", "trait") => {
                let body = (at..tokens.len()).find(|at| text(*at) == "{").unwrap_or(at);
                let methods = (body..closing(tokens, body)).filter(|at| text(*at) == "fn");
                heads.extend(methods.map(|at| head(tokens, at, &["{", ";"])));
                &["{"]
            }
            ("impl", _) if matches!(at.checked_sub(1).map_or("}", text), "}" | ";" | "]" | "{") => &["{"],
            ("pub", name) if name != "(" && text(at + 2) == ":" => &[",", "}"],
            _ => continue,
        };
        // The target of a type alias follows its `=`.
        let stops = if text(at + 1) == "type" { &[";"][..] } else { stops };
        heads.push(head(tokens, at, stops));
    }
    heads
}

fn head<'a>(tokens: &'a [String], at: usize, stops: &[&str]) -> &'a [String] {
    let end = (at..tokens.len()).find(|at| stops.contains(&&*tokens[*at])).unwrap_or(tokens.len());
    &tokens[at..end]
}

#[test]
fn types_that_cannot_grow_are_found() {
    let cases: [(&str, &[(&str, bool)]); 5] = [
        ("pub struct A { pub a: u8, /* pub(crate) */ pub b: fn(u8) -> bool }", &[("A", false)]),
        (
            "#[derive(Clone)] #[non_exhaustive] #[must_use = \"]\"] pub struct A<T: Fn() -> u8> { pub a: T }",
            &[("A", true)],
        ),
        (
            "pub struct A { pub a: u8, b: u8 } pub struct B(pub u8, pub (u8, u8)); pub struct C(pub u8, u8); pub struct D;",
            &[("A", true), ("B", false), ("C", true), ("D", true)],
        ),
        (
            "pub enum A {} pub enum B { C { pub_: u8 } } #[non_exhaustive] pub enum D { E }",
            &[("A", true), ("B", false), ("D", true)],
        ),
        (
            "$(#[$meta])* #[non_exhaustive] $vis struct $A $(<$G: $B>)? { $(pub $a: $T,)* } \
             $(#[$meta])* pub struct $C { $($(#[$doc])* pub $a: $T,)* } pub struct $D<$T> { $(pub(crate) $a: $T,)* }",
            &[("$A", true), ("$C", false), ("$D", true)],
        ),
    ];
    for (source, expected) in cases {
        let found = types(&tokens(source));
        let found: Vec<_> = found.iter().map(|Type { name, grows }| (&**name, *grows)).collect();
        assert_eq!(found, expected, "{source}");
    }
    let source = "use serde_json::{Map, Value as V}; pub fn f(x: &V) -> u8 { Map } pub trait T { fn g(x: V); } impl A<V> for B {}";
    let source = tokens(source);
    let imported = imported_from(&source, INNER);
    let foreign = |head: &&&[String]| head.iter().any(|token| imported.contains(token));
    assert_eq!(public_heads(&source).iter().filter(foreign).count(), 3);
    assert_eq!(
        exports(&tokens("pub use a::{B, c::{D as E, self}}; pub(crate) use f::G; pub use h::*; pub use i;")),
        [("a", "B"), ("a::c", "E"), ("a::c", "self"), ("h", "*"), ("", "i")]
            .map(|(from, name)| (from.into(), name.into()))
    );
}

struct Type {
    name: String,
    /// True if fields or variants can be added without breaking users.
    ///
    /// The type is `#[non_exhaustive]`, has a private field, is a unit struct, which users do not destructure, or has
    /// no values.
    grows: bool,
}

fn types(tokens: &[String]) -> Vec<Type> {
    let text = |at: usize| tokens.get(at).map_or("", |token| &**token);
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let (kind, begins) = (text(at), at.checked_sub(1).map(text));
        let public = begins == Some("pub") || begins == Some("vis") && at > 1 && text(at - 2) == "$";
        if !matches!(kind, "struct" | "enum") || !public {
            continue;
        }
        let start = if begins == Some("pub") { at - 1 } else { at - 2 };
        let (name, mut next) = match text(at + 1) {
            "$" => (format!("${}", text(at + 2)), at + 3),
            name => (name.to_owned(), at + 2),
        };
        // Skips generics, repetitions of a macro and bounds.
        let mut depth = 0;
        loop {
            match text(next) {
                "$" if text(next + 1) == "(" => next = closing(tokens, next + 1),
                "<" => depth += 1,
                ">" if text(next - 1) != "-" => depth -= 1,
                "{" | "(" | ";" if depth == 0 => break,
                "(" | "[" => next = closing(tokens, next),
                _ => {}
            }
            next += 1;
        }
        let body = if text(next) == ";" { &[] } else { &tokens[next + 1..closing(tokens, next)] };
        let shut = match (kind, text(next)) {
            (_, ";") => false,
            ("enum", _) => !body.is_empty(),
            (_, "(") => columns(body).iter().all(|column| is_public(column)),
            _ => named_fields_are_public(body),
        };
        found.push(Type { name, grows: !shut || is_non_exhaustive(tokens, start) });
    }
    found
}

fn is_non_exhaustive(tokens: &[String], mut start: usize) -> bool {
    loop {
        let last = |n: usize| start.checked_sub(n).map_or("", |at| &*tokens[at]);
        let (end, first) = match (last(1), last(2)) {
            ("]", _) => (start - 1, "#"),
            ("*", ")") => (start - 2, "$"),
            _ => return false,
        };
        let open = opening(tokens, end);
        if open == 0 || tokens[open - 1] != first {
            return false;
        }
        if tokens[open..end].iter().any(|token| token == "non_exhaustive") {
            return true;
        }
        start = open - 1;
    }
}

fn named_fields_are_public(body: &[String]) -> bool {
    let names = (1..body.len()).filter(|at| body[*at] == ":").map(|at| at - 1);
    // `$name` of a macro is two tokens.
    let mut before = names.map(|at| &body[..at - usize::from(at > 0 && body[at - 1] == "$")]).peekable();
    before.peek().is_some() && before.all(|before| before.last().is_some_and(|token| token == "pub"))
}

fn is_public(column: &[String]) -> bool {
    let mut at = 0;
    while column[at] == "#" {
        at = closing(column, at + 1) + 1;
    }
    column[at] == "pub"
        && !matches!(&column[at + 1..], [open, scope, ..] if open == "(" && matches!(&**scope, "crate" | "super" | "in"))
}

fn columns(body: &[String]) -> Vec<&[String]> {
    let mut depth = 0;
    let columns = body.split(|token| {
        match &**token {
            "<" | "(" | "[" | "{" => depth += 1,
            ">" | ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        token == "," && depth == 0
    });
    columns.filter(|column| !column.is_empty()).collect()
}

/// Tracks the depth of brackets; returns true at depth 0.
fn balances(depth: &mut isize, token: &str) -> bool {
    match token {
        "(" | "[" | "{" => *depth += 1,
        ")" | "]" | "}" => *depth -= 1,
        _ => {}
    }
    *depth == 0
}

fn closing(tokens: &[String], open: usize) -> usize {
    let mut depth = 0;
    (open..tokens.len()).find(|at| balances(&mut depth, &tokens[*at])).expect("brackets match")
}

fn opening(tokens: &[String], close: usize) -> usize {
    let mut depth = 0;
    (0..=close).rev().find(|at| balances(&mut depth, &tokens[*at])).expect("brackets match")
}

/// Collects the files of a module, its public modules, and completely re-exported ones.
fn public_files(root: &Path, module: &mut Vec<String>, files: &mut Vec<PathBuf>) {
    let path = module.iter().fold(root.to_owned(), |path, name| path.join(name));
    let own = [path.join(if module.is_empty() { "lib.rs" } else { "mod.rs" }), path.with_extension("rs")];
    let Some(file) = own.into_iter().find(|file| file.is_file()) else { return };
    let tokens = read(&file);
    files.push(file);
    let modules = tokens.windows(4).filter(|four| four[0] == "pub" && four[1] == "mod" && four[3] == ";");
    let modules = modules.map(|four| four[2].clone());
    let all = exports(&tokens).into_iter().filter(|(_, name)| name == "*").map(|(from, _)| from);
    let inner: BTreeSet<String> = modules.chain(all.filter(|from| !from.contains("::"))).collect();
    for name in inner {
        module.push(name);
        public_files(root, module, files);
        module.pop();
    }
}

fn public_names(tokens: &[String]) -> BTreeSet<String> {
    let defined = tokens.windows(3).filter(|three| three[0] == "pub" && matches!(&*three[1], "struct" | "enum"));
    let defined = defined.map(|three| three[2].clone());
    defined.chain(exports(tokens).into_iter().map(|(_, name)| name)).collect()
}

fn exports(tokens: &[String]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for at in 2..=tokens.len() {
        if tokens[at - 2] == "pub" && tokens[at - 1] == "use" {
            branches(tokens, at, &mut Vec::new(), &mut found);
        }
    }
    found
}

fn branches(tokens: &[String], mut at: usize, from: &mut Vec<String>, found: &mut Vec<(String, String)>) -> usize {
    let depth = from.len();
    loop {
        if tokens[at] == "{" {
            at += 1;
            while tokens[at] != "}" {
                at = branches(tokens, at, from, found);
                at += usize::from(tokens[at] == ",");
            }
            from.truncate(depth);
            return at + 1;
        }
        let name = tokens[at].clone();
        at += 1;
        match &*tokens[at] {
            "::" => from.push(name),
            "as" => {
                found.push((from.join("::"), tokens[at + 1].clone()));
                from.truncate(depth);
                return at + 2;
            }
            _ => {
                found.push((from.join("::"), name));
                from.truncate(depth);
                return at;
            }
        }
        at += 1;
    }
}

/// Returns words, `::` and signs, without comments, strings, characters and lifetimes.
fn tokens(source: &str) -> Vec<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut rest, mut tokens) = (source, Vec::new());
    while let Some(first) = rest.chars().next() {
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(raw) = raw_string(rest) {
            raw
        } else if first == '"' {
            quoted(rest, '"')
        } else if rest.starts_with("'\\") {
            quoted(rest, '\'')
        } else if first == '\'' {
            let mut after = rest.char_indices().skip(2);
            match after.next() {
                Some((at, '\'')) => at + 1,
                _ => 1 + rest[1..].find(|c| !is_word(c)).unwrap_or(rest.len() - 1),
            }
        } else if rest.starts_with("::") {
            tokens.push("::".into());
            2
        } else if is_word(first) {
            let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            tokens.push(rest[..len].into());
            len
        } else {
            if !first.is_whitespace() {
                tokens.push(first.into());
            }
            first.len_utf8()
        };
        rest = &rest[len..];
    }
    tokens
}

fn raw_string(text: &str) -> Option<usize> {
    let after = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let inside = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(text.len() - inside.len() + inside.find(&end).expect("a string that ends") + end.len())
}

fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}
