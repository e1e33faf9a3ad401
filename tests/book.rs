//! The guide holds together: no page is forgotten, no link leads nowhere, and the commands in it are the ones that
//! exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The folders of the crates that connect gradchain to others.
fn adapters() -> Vec<String> {
    let entries = fs::read_dir(root().join("adapters")).expect("the adapters");
    let folders = entries.map(|entry| entry.expect("readable").path()).filter(|path| path.is_dir());
    folders.map(|path| format!("adapters/{}", path.file_name().expect("a name").to_string_lossy())).collect()
}

/// Every page of the guide but the table of contents.
fn pages() -> BTreeSet<String> {
    let names = fs::read_dir(root().join("docs")).expect("the guide lies in docs");
    let names = names.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".md") && name != "SUMMARY.md").collect()
}

/// The targets of the links of a page, outside of code.
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

/// Here, or where the crates are that it needs.
#[test]
fn the_code_of_every_page_is_tested() {
    // An adapter includes its page as `guide.md`, so that its package has it.
    let guides: Vec<String> =
        adapters().iter().filter_map(|it| fs::read_to_string(root().join(it).join("guide.md")).ok()).collect();
    let book = read("src/book.rs");
    let documents = pages().into_iter().map(|page| format!("docs/{page}"));
    for path in documents.chain(["README.md".into(), "CONTRIBUTING.md".into()]) {
        let included = book.contains(&format!("../{path}\"")) || guides.contains(&read(&path));
        assert!(included, "src/book.rs, or an adapter, should include {path}");
    }
}

#[test]
fn links_lead_to_files_and_headings() {
    let documents = pages().into_iter().map(|page| PathBuf::from("docs").join(page));
    for document in documents.chain(["README.md", "CONTRIBUTING.md", "docs/SUMMARY.md"].map(PathBuf::from)) {
        for link in links(&read(&document)).into_iter().filter(|link| !link.contains("://")) {
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let folder = document.parent().expect("a file is in a folder");
            let target = if file.is_empty() { document.clone() } else { folder.join(file) };
            assert!(root().join(&target).exists(), "{}: {link} leads nowhere", document.display());
            let slug = |line: &str| {
                let kept = line.trim_start_matches(['#', ' ']).chars();
                let kept = kept.filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
                kept.collect::<String>().to_lowercase().replace(' ', "-")
            };
            let found = heading.is_empty()
                || read(&target).lines().filter(|line| line.starts_with('#')).any(|line| slug(line) == heading);
            assert!(found, "{}: {link} leads to no heading", document.display());
        }
    }
}

/// A name in code that is a link leads to a page that has it.
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
            if target.ends_with(".md") && !target.contains("://") && !name.is_empty() {
                names += 1;
                let has = read(Path::new("docs").join(target)).split(|c| !word(c)).any(|found| found == name);
                assert!(has, "docs/{page}: the link of `{name}` leads to {target}, which does not have it");
            }
        }
    }
    assert!(names > 10, "the links were found");
}

/// `transform` links to the page of each family, and no link of the documentation leads to a page that is not there.
#[test]
fn the_documentation_links_to_the_guide() {
    const GUIDE: &str = "https://docs.rs/crate/gradchain/latest/source/docs/";
    let mut files = vec![root().join("src")];
    let mut linked = 0;
    while let Some(file) = files.pop() {
        if file.is_dir() {
            files.extend(fs::read_dir(file).expect("a folder").map(|entry| entry.expect("readable").path()));
            continue;
        }
        for rest in read(&file).split(GUIDE).skip(1) {
            linked += 1;
            let page = rest.split([')', '#', '\n']).next().expect("a link ends");
            assert!(root().join("docs").join(page).exists(), "{}: {page} is not there", file.display());
        }
    }
    assert!(linked > 20, "the links were found");
    let families = read("src/transform/mod.rs");
    for entry in fs::read_dir(root().join("src/transform")).expect("the families") {
        let entry = entry.expect("readable");
        let family = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            assert!(families.contains(&format!("//! [{family}]: {GUIDE}")), "the page of {family}");
        }
    }
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

/// What the README says passes the tests is what CI runs.
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

/// The scripts that a file names: `ci/NAME` with anything but a path before it.
fn scripts(text: &str) -> BTreeSet<String> {
    let part = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
    let words = text.split(|c: char| !part(c) && c != '/').map(|word| word.trim_end_matches(['.', '/']));
    let named = words.filter(|word| {
        word.split_once('/').is_some_and(|(folder, name)| matches!(folder, "ci" | ".ci") && name.chars().all(part))
    });
    named.map(String::from).collect()
}

#[test]
fn scripts_that_are_named_exist() {
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
