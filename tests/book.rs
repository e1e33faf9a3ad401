//! Consistency of the guide: every page is listed, every link resolves, and every command exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn adapters() -> Vec<String> {
    let entries = fs::read_dir(root().join("adapters")).expect("the adapters");
    let folders = entries.map(|entry| entry.expect("readable").path()).filter(|path| path.is_dir());
    folders.map(|path| format!("adapters/{}", path.file_name().expect("a name").to_string_lossy())).collect()
}

fn pages() -> BTreeSet<String> {
    let names = fs::read_dir(root().join("docs")).expect("the guide lies in docs");
    let names = names.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".md") && name != "SUMMARY.md").collect()
}

fn links(text: &str) -> Vec<String> {
    let mut code = false;
    let prose = text.lines().filter(|line| {
        code ^= line.starts_with("```");
        !code
    });
    prose.flat_map(|line| line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.into()))).collect()
}

#[test]
fn every_page_is_in_the_table_of_contents_once() {
    let listed = links(&read("docs/SUMMARY.md"));
    assert_eq!(listed.len(), listed.iter().collect::<BTreeSet<_>>().len(), "no page twice");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), pages());
}

/// A page's code is a doc test of this crate, or of the adapter that it needs.
#[test]
fn the_code_of_every_page_is_tested() {
    // An adapter includes its page as `guide.md`, so that its package contains it.
    let guides: Vec<String> =
        adapters().iter().filter_map(|it| fs::read_to_string(root().join(it).join("guide.md")).ok()).collect();
    let book = read("src/_guide.rs");
    let documents = pages().into_iter().map(|page| format!("docs/{page}"));
    for path in documents.chain(["README.md".into(), "CONTRIBUTING.md".into()]) {
        let included = book.contains(&format!("../{path}\"")) || guides.contains(&read(&path));
        assert!(included, "src/_guide.rs, or an adapter, should include {path}");
    }
}

/// Returns the anchor of a heading, as rustdoc, mdBook and forges generate it.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn anchors(text: &str) -> Vec<String> {
    let mut code = false;
    let headings = text.lines().filter(|line| {
        code ^= line.starts_with("```");
        !code && line.starts_with('#')
    });
    headings.map(|line| slug(line.trim_start_matches(['#', ' ']))).collect()
}

/// Returns the file behind a docs.rs address of the guide.
fn page_of(address: &str) -> Option<PathBuf> {
    let rest = address.strip_prefix("https://docs.rs/")?;
    let (module, rest) = rest.split_once("/_guide/")?;
    let page = rest.trim_end_matches("index.html").trim_end_matches('/');
    match (module, page) {
        ("gradchain/latest/gradchain", "") => Some("docs/SUMMARY.md".into()),
        ("gradchain/latest/gradchain", page) => Some(format!("docs/{}.md", page.replace('_', "-")).into()),
        (adapter, _) => {
            let name = adapter.split('/').next()?.strip_prefix("gradchain-")?;
            Some(format!("adapters/{name}/guide.md").into())
        }
    }
}

fn addresses(text: &str) -> Vec<String> {
    let starts = ["https://docs.rs/gradchain", "https://docs.rs/crate/gradchain"];
    let found = starts.iter().flat_map(|start| text.match_indices(start));
    let ends = |c: char| c.is_whitespace() || matches!(c, ')' | '>' | '"' | '`' | ']' | ',');
    found.filter_map(|(at, _)| text[at..].split(ends).next()).map(|it| it.trim_end_matches('.').into()).collect()
}

/// Returns the pages of the guide, the other documents, and the sources that rustdoc reads.
fn documents() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = pages().into_iter().map(|page| PathBuf::from("docs").join(page)).collect();
    found.extend(["README.md", "CONTRIBUTING.md", "docs/SUMMARY.md"].map(PathBuf::from));
    let mut folders: Vec<PathBuf> = vec!["src".into(), "core/src".into(), "derive/src".into()];
    for adapter in adapters() {
        found.extend(Some(PathBuf::from(&adapter).join("README.md")).filter(|path| root().join(path).exists()));
        folders.push(PathBuf::from(adapter).join("src"));
    }
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a folder") {
            let path = folder.join(entry.expect("readable").file_name());
            if root().join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut linked = 0;
    for document in documents() {
        let text = read(&document);
        let written = document.extension().is_some_and(|extension| extension == "md");
        let links = if written { links(&text) } else { Vec::new() };
        let near = links.into_iter().filter(|link| !link.contains("://"));
        let pages = addresses(&text).into_iter().filter(|link| link.contains("/_guide/"));
        for link in near.chain(pages) {
            linked += 1;
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let folder = document.parent().expect("a file is in a folder");
            let near = || if file.is_empty() { document.clone() } else { folder.join(file) };
            let target = page_of(file).unwrap_or_else(near);
            assert!(root().join(&target).exists(), "{}: {link} leads nowhere", document.display());
            let found = heading.is_empty() || anchors(&read(&target)).iter().any(|anchor| anchor == heading);
            assert!(found, "{}: {link} leads to no heading", document.display());
        }
    }
    assert!(linked > 200, "the links were found: {linked}");
}

/// Pages are on docs.rs too, where relative links do not resolve.
#[test]
fn pages_link_to_each_other_by_their_addresses() {
    for page in pages() {
        let near = links(&read(Path::new("docs").join(&page))).into_iter().filter(|link| !link.contains("://"));
        let relative: Vec<String> = near.filter(|link| !link.starts_with('#')).collect();
        assert_eq!(relative, [] as [&str; 0], "docs/{page}");
    }
}

/// The first page on docs.rs lists the pages in the order of the book.
#[test]
fn the_front_page_is_the_table_of_contents() {
    let entry = |line: &str| {
        let (title, rest) = line.split_once("* [").or(line.split_once("- ["))?.1.split_once("](")?;
        let target = rest.split(')').next()?;
        let stem = match page_of(target) {
            Some(guide) => fs::canonicalize(root().join(guide)).ok()?.file_stem()?.to_string_lossy().into_owned(),
            None => target.trim_end_matches(".md").replace('_', "-"),
        };
        Some((title.to_string(), stem))
    };
    let text = read("docs/SUMMARY.md").replace("\n[Introduction]", "\n- [Introduction]");
    let listed: Vec<_> = text.lines().filter_map(entry).collect();
    let front: Vec<_> = read("src/_guide.rs").lines().filter_map(entry).collect();
    assert_eq!(front, listed, "src/_guide.rs, docs/SUMMARY.md");
}

#[test]
fn links_lead_to_their_subject() {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut names = 0;
    for page in pages() {
        let text = read(Path::new("docs").join(&page));
        for (before, rest) in text.match_indices("](").map(|(at, _)| text.split_at(at)) {
            let target = rest[2..].split([')', '#']).next().expect("a link ends");
            let Some(name) = before.rsplit('[').next().and_then(|link| link.strip_prefix('`')) else { continue };
            let name = name.split(|c| !word(c)).next().expect("a name");
            if let Some(target) = page_of(target).filter(|_| !name.is_empty()) {
                names += 1;
                let has = read(&target).split(|c| !word(c)).any(|found| found == name);
                assert!(has, "docs/{page}: the link of `{name}` leads to {}, which lacks it", target.display());
            }
        }
    }
    assert!(names > 10, "the links were found");
}

#[test]
fn families_link_to_their_pages() {
    let families = read("src/transform/mod.rs");
    for entry in fs::read_dir(root().join("src/transform")).expect("the families") {
        let entry = entry.expect("readable");
        let family = entry.file_name().to_string_lossy().into_owned();
        let page = format!("//! [{family}]: https://docs.rs/gradchain/latest/gradchain/_guide/");
        assert!(!entry.path().is_dir() || families.contains(&page), "the page of {family}");
    }
}

/// Compares a file's contents; with the variable `BLESS` it writes the wanted ones.
fn same(path: &Path, found: &str, wanted: &str, why: &str) {
    if std::env::var_os("BLESS").is_some() {
        fs::write(root().join(path), wanted).expect("written");
    } else if found != wanted {
        let lines = || wanted.lines().filter(|line| !found.contains(line)).take(5).collect::<Vec<_>>().join("\n");
        panic!("{}: {why} (BLESS=1 cargo test --test book):\n{}", path.display(), lines());
    }
}

/// Returns the catalogue's functions with the modules of their pages.
fn catalogue() -> BTreeMap<String, Vec<&'static str>> {
    let mut found = BTreeMap::<String, Vec<_>>::new();
    for module in ["optimizer", "transform", "wrapper", "schedule", "projection", "constraint"] {
        let mut folders = vec![root().join("src").join(module), root().join("core/src").join(module)];
        if module == "wrapper" {
            folders.push(root().join("core/src/wrappers"));
        }
        folders.retain(|folder| folder.is_dir());
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("readable").path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    for rest in read(path).lines().filter_map(|line| line.strip_prefix("pub fn ")) {
                        let name = rest.split(['(', '<']).next().expect("a name");
                        found.entry(name.into()).or_default().push(module);
                    }
                }
            }
        }
    }
    found
}

fn cells(row: &str) -> Vec<&str> {
    let mut cells = Vec::new();
    let mut start = 0;
    for (at, _) in row.match_indices('|').filter(|(at, _)| !row[..*at].ends_with('\\')) {
        cells.push(&row[start..at]);
        start = at + 1;
    }
    cells.push(&row[start..]);
    cells
}

/// Returns the name at the head of code such as `adamw(1e-3)`, if it is in the catalogue.
fn named<'a>(code: &'a str, catalogue: &BTreeMap<String, Vec<&str>>) -> Option<&'a str> {
    let end = code.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(code.len());
    let called = code[end..].is_empty() || code[end..].starts_with('(');
    Some(&code[..end]).filter(|name| called && catalogue.contains_key(*name))
}

/// Links the names in a cell's code, or in its single word, each once in a row.
fn linked_cell(cell: &str, catalogue: &BTreeMap<String, Vec<&str>>, linked: &mut BTreeSet<String>) -> String {
    let bare = cell.trim();
    if catalogue.contains_key(bare) && linked.insert(bare.into()) {
        return cell.replacen(bare, &format!("[`{bare}`]"), 1);
    }
    let mut out = String::new();
    for (i, chunk) in cell.split('`').enumerate() {
        if i > 0 {
            out.push('`');
        }
        let name = (i % 2 == 1).then(|| named(chunk, catalogue)).flatten();
        if let Some(name) = name.filter(|_| !out.ends_with("[`")).filter(|name| linked.insert((*name).into())) {
            out.insert(out.len() - 1, '[');
            let label = if chunk == name { "`]".into() } else { format!("`][`{name}`]") };
            out.push_str(chunk);
            out.push_str(&label);
            // The closing backtick has been written.
            out.push('\u{0}');
        } else {
            out.push_str(chunk);
        }
    }
    out.replace("\u{0}`", "").replace('\u{0}', "")
}

/// Returns a page with links in its tables, defined at its end.
fn with_links(page: &str, text: &str, catalogue: &BTreeMap<String, Vec<&str>>) -> String {
    const API: &str = "https://docs.rs/gradchain/latest/gradchain/";
    let definition =
        |line: &&str| line.starts_with("[`") && line.contains(&format!("`]: {API}")) && line.contains("/fn.");
    // Columns of other libraries' names.
    let is_other = |cell: &&str| ["PyTorch", "Optax", "burn", "candle"].contains(&cell.trim());
    let (mut code, mut foreign, mut out) = (false, None, String::new());
    for line in text.lines().filter(|line| !definition(line)) {
        code ^= line.starts_with("```");
        if code || !line.starts_with('|') {
            foreign = None;
            out.push_str(line);
        } else if foreign.is_none() && cells(line).iter().all(|cell| !cell.contains('`')) {
            // A head holds words, not names.
            foreign = Some(cells(line).iter().map(is_other).collect::<Vec<_>>());
            out.push_str(line);
        } else {
            let cells = cells(line);
            let head = || cells.iter().map(is_other).collect::<Vec<_>>();
            let foreign = foreign.get_or_insert_with(head);
            let other = |i: usize| foreign.get(i).copied().unwrap_or(false);
            let ours = cells.iter().enumerate().filter(|(i, _)| !other(*i)).map(|(_, cell)| *cell);
            let has = |name: &str| ours.clone().any(|cell| cell.contains(&format!("[`{name}`]")));
            let mut linked: BTreeSet<_> = catalogue.keys().filter(|name| has(name)).cloned().collect();
            let link = |(i, cell): (usize, &&str)| {
                if other(i) { cell.to_string() } else { linked_cell(cell, catalogue, &mut linked) }
            };
            out.push_str(&cells.iter().enumerate().map(link).collect::<Vec<_>>().join("|"));
        }
        out.push('\n');
    }
    let out = out.trim_end().to_string();
    let used = catalogue.iter().filter(|(name, _)| out.contains(&format!("[`{name}`]")));
    let definitions = used.map(|(name, modules)| {
        let module = modules.iter().find(|module| page.starts_with(**module)).unwrap_or(&modules[0]);
        format!("[`{name}`]: {API}{module}/fn.{name}.html\n")
    });
    let definitions: String = definitions.collect();
    if definitions.is_empty() { format!("{out}\n") } else { format!("{out}\n\n{definitions}") }
}

#[test]
fn tables_link_to_the_functions_they_name() {
    let catalogue = catalogue();
    let mut links = 0;
    for page in pages() {
        let path = Path::new("docs").join(&page);
        let text = read(&path);
        let wanted = with_links(&page, &text, &catalogue);
        links += wanted.matches("/fn.").count();
        same(&path, &text, &wanted, "tables and the definitions of links");
        for line in wanted.lines().filter(|line| line.starts_with('|')) {
            for (code, _) in line.match_indices("[`").map(|(at, _)| line[at + 2..].split_once('`').expect("code ends"))
            {
                let name = named(code, &catalogue).filter(|name| !line.contains(&format!("[`{name}`]")));
                assert_eq!(name, None, "docs/{page}: should link to its page, not to another:\n{line}");
            }
        }
    }
    assert!(links > 250, "the links were found: {links}");
}

/// Rustdoc reads pictures from data URIs before the page's definitions.
#[test]
fn pictures_are_inline_in_the_documentation() {
    let included = read("src/_guide.rs");
    let mut pictures = 0;
    for page in pages() {
        let text = read(Path::new("docs").join(&page));
        let definitions = text.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: images/"));
        let inline = definitions.map(|(label, file)| {
            pictures += 1;
            assert!(text.contains(&format!("![{label}]")), "docs/{page} should show {file}");
            let data = read(Path::new("docs/images").join(file))
                .trim_end()
                .chars()
                .map(|c| match c {
                    '\n' => " ".into(),
                    '<' | '>' | '"' | '%' | '#' | '&' | '\\' => format!("%{:02X}", c as u32),
                    c => c.to_string(),
                })
                .collect::<String>();
            format!("[{label}]: <data:image/svg+xml,{data}>\n")
        });
        let inline: String = inline.collect();
        assert!(!links(&text).iter().any(|link| link.ends_with(".svg")), "docs/{page}: pictures have definitions");
        if !inline.is_empty() {
            let path = Path::new("docs/images/inline").join(&page);
            assert!(included.contains(&format!("\"../docs/{page}\", \"../{}\";", path.display())), "{page}");
            let found = fs::read_to_string(root().join(&path)).unwrap_or_default();
            same(&path, &found, &inline, "the pictures");
        }
    }
    assert!(pictures > 20, "the pictures were found: {pictures}");
}

/// Words contain a letter or a digit. The core's pages count in the sum, and have no limit of their own.
#[test]
fn the_guide_stays_short() {
    let words = |page: &String| {
        let text = read(Path::new("docs").join(page));
        let written = text.lines().filter(|line| !(line.starts_with('[') && line.contains("]: ")));
        written.flat_map(str::split_whitespace).filter(|word| word.contains(char::is_alphanumeric)).count()
    };
    let all: usize = pages().iter().map(words).sum();
    assert!(all <= 45_000, "{all} words");
    for page in ["performance", "few-bits", "least-squares", "conformance", "reliability", "scale-on-paper"] {
        let found = words(&format!("{page}.md"));
        assert!(found <= 1_200, "docs/{page}.md: {found} words");
    }
}

#[test]
fn cards_of_the_gallery_are_drawn_by_examples() {
    let gallery = read("docs/gallery.md");
    let mut cards = 0;
    for card in gallery.split("\n## ").skip(1) {
        cards += 1;
        let command = card.lines().find(|line| line.starts_with("cargo run ")).expect("a card has a command");
        assert!(command.contains(" --example "), "{command}");
        assert!(card.contains("\n!["), "a card has a picture: {command}");
        let code = card.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a card has code");
        assert!(code.lines().filter(|line| !line.starts_with("# ")).count() <= 20, "{command}");
    }
    assert!(cards >= 6);
    for entry in fs::read_dir(root().join("docs/images/gallery")).expect("the pictures") {
        let path = entry.expect("readable").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(gallery.contains(&format!("images/gallery/{name}")), "{name} is shown");
        assert!(fs::metadata(path).expect("readable").len() <= 60_000, "{name} is too large");
    }
}

/// Every docs.rs address is a page with that anchor in the output of `cargo doc`.
///
/// Pages of adapters count if they have been built.
#[test]
#[ignore = "needs `cargo doc --no-deps --all-features`: run `ci/links`"]
fn addresses_on_docs_rs_exist() {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let (mut followed, mut not_made, mut wrong) = (BTreeMap::<String, usize>::new(), 0, Vec::new());
    let mut htmls = BTreeMap::<PathBuf, Option<String>>::new();
    for document in documents() {
        for address in addresses(&read(&document)) {
            let mut fail = |why: &str| wrong.push(format!("{}: {address} {why}", document.display()));
            let (page, anchor) = address.split_once('#').unwrap_or((&address, ""));
            if let Some((_, file)) = page.split_once("/latest/source/") {
                if !root().join(file).exists() {
                    fail("is not there");
                }
                continue;
            }
            let Some((krate, path)) = page["https://docs.rs/".len()..].split_once("/latest/") else { continue };
            let folder = target.join("doc").join(krate.replace('-', "_"));
            if krate != "gradchain" && !folder.exists() {
                not_made += 1;
                continue;
            }
            *followed.entry(krate.into()).or_default() += 1;
            let file = target.join("doc").join(path);
            let file = if path.ends_with(".html") { file } else { file.join("index.html") };
            let html = htmls.entry(file.clone()).or_insert_with(|| fs::read_to_string(file).ok());
            match html {
                None => fail("is no page"),
                Some(html) if anchor.is_empty() || html.contains(&format!("id=\"{anchor}\"")) => {}
                Some(_) => fail("has no such anchor"),
            }
        }
    }
    println!("{followed:?}; {not_made} into crates whose documentation has not been made");
    assert!(wrong.is_empty(), "{} of the addresses:\n{}", wrong.len(), wrong.join("\n"));
    assert!(followed["gradchain"] > 400, "the addresses were found");
}

#[test]
fn every_example_is_in_the_index() {
    let index = read("docs/examples.md");
    let of_adapters = adapters().into_iter().map(|adapter| format!("{adapter}/examples"));
    let folders = ["examples", "programs/examples"].map(String::from).into_iter().chain(of_adapters);
    for folder in folders.filter(|folder| root().join(folder).exists()) {
        for entry in fs::read_dir(root().join(folder)).expect("examples") {
            let path = entry.expect("readable").path();
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            assert!(name == "data" || index.contains(&format!("`{name}`")), "docs/examples.md should have {name}");
        }
    }
}

#[test]
fn commands_name_examples_and_benches_that_exist() {
    let documents = pages().into_iter().map(|page| format!("docs/{page}"));
    let mut commands = 0;
    for document in documents.chain(["README.md".into(), "CONTRIBUTING.md".into()]) {
        for line in read(&document).lines().filter(|line| line.starts_with("cargo ") || line.starts_with("ci/")) {
            commands += 1;
            let words: Vec<&str> = line.split_whitespace().collect();
            let exists = |file: &str, folder: &str| {
                let packages = [".".into(), "programs".into()].into_iter().chain(adapters());
                let found = packages
                    .map(|package| root().join(package))
                    .any(|package| [file, folder].iter().any(|path| package.join(path).exists()));
                assert!(found, "{document}: `{line}` needs {file}");
            };
            for pair in words.windows(2) {
                if let [option @ ("--example" | "--bench" | "--test"), name] = pair {
                    let kind = match *option {
                        "--bench" => "benches",
                        option => &format!("{}s", &option[2..]),
                    };
                    exists(&format!("{kind}/{name}.rs"), &format!("{kind}/{name}/main.rs"));
                }
            }
            if words[0].starts_with("ci/") {
                exists(words[0], words[0]);
            }
        }
    }
    assert!(commands > 5, "the commands were found");
}

#[test]
fn every_departure_is_in_the_guide() {
    let (rules, page) = (read("tests/conformance/departures.toml"), read("docs/conformance.md"));
    let names = rules.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    for name in names {
        assert!(page.contains(&format!("| {name} |")), "docs/conformance.md should have the departure `{name}`");
    }
}

#[test]
fn ci_runs_the_readme_commands() {
    let (ci, readme) = (read(".ci/run"), read("README.md"));
    let command = readme.lines().find(|line| line.starts_with("cargo test ")).expect("the README has it");
    assert!(ci.contains(command), ".ci/run should run `{command}`");
}

#[test]
fn the_features_are_those_in_the_readme() {
    let (manifest, readme) = (read("Cargo.toml"), read("README.md"));
    let features = manifest.split("[features]").nth(1).and_then(|rest| rest.split("\n[").next()).expect("features");
    let names = features.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name.trim());
    for name in names.filter(|name| *name != "default" && !name.starts_with('#')) {
        assert!(readme.contains(&format!("| `{name}` |")), "the README should explain the feature `{name}`");
    }
}

/// Returns the scripts that a file names: `ci/NAME`, preceded by anything but a path.
fn scripts(text: &str) -> BTreeSet<String> {
    let part = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
    let words = text.split(|c: char| !part(c) && c != '/').map(|word| word.trim_end_matches(['.', '/']));
    let named = words.filter(|word| {
        word.split_once('/').is_some_and(|(folder, name)| matches!(folder, "ci" | ".ci") && name.chars().all(part))
    });
    named.map(String::from).collect()
}

#[test]
fn named_scripts_exist() {
    let mut files: Vec<PathBuf> =
        [".ci/run", "justfile", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md"].map(PathBuf::from).into();
    for folder in [".github/workflows", "ci"] {
        let entries =
            fs::read_dir(root().join(folder)).expect("a folder").map(|entry| entry.expect("readable").file_name());
        files.extend(entries.map(|name| Path::new(folder).join(name)));
    }
    files.extend(pages().into_iter().map(|page| Path::new("docs").join(page)));
    for file in files {
        for script in scripts(&read(&file)) {
            assert!(root().join(&script).is_file(), "{}: {script} is not there", file.display());
        }
    }
}

#[test]
fn every_script_is_a_recipe_and_explained() {
    let (recipes, explained) = (scripts(&read("justfile")), scripts(&read("CONTRIBUTING.md")));
    for entry in fs::read_dir(root().join("ci")).expect("the scripts") {
        let script = format!("ci/{}", entry.expect("readable").file_name().to_string_lossy());
        // Parts of `ci/examples.sh` and of `ci/weight`.
        if script != "ci/accuracy" && script != "ci/weight.rs" {
            assert!(recipes.contains(&script), "the justfile should have a recipe for {script}");
            assert!(explained.contains(&script), "CONTRIBUTING.md should explain {script}");
        }
    }
}
