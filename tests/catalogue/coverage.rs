//! The registry has every transformation that a config can name.
#![cfg(feature = "config")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::common::extra_inputs::recipe;
use gradchain::recipe::Recipe;

use crate::common::registry::{assert_exceptions, is_selected, registry};

/// Names in no recipe, with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("freeze", "it is a `masked`"),
    ("nadam", "it is an `adam`"),
    ("nadamw", "it is an `adamw`"),
    ("selective_transform", "it is a `masked`"),
    ("snapshot", "it is a `monitor`"),
];

pub(crate) fn names(recipe: &Recipe, found: &mut BTreeSet<String>) {
    if let Some((name, _)) = recipe.as_call() {
        found.insert(name.into());
    }
    recipe.items().iter().for_each(|item| names(item, found));
    if let Recipe::Map(entries) = recipe {
        entries.iter().for_each(|(_, value)| names(value, found));
    }
}

#[test]
fn every_transformation_of_the_configs_is_in_the_registry() {
    let mut found = BTreeSet::new();
    registry().iter().for_each(|entry| names(&recipe(&entry.boxed()), &mut found));
    let all = gradchain::config::transformations();
    let missing: Vec<_> =
        all.into_iter().filter(|name| is_selected(name) && !found.contains(*name)).map(String::from).collect();
    assert_exceptions(&missing, EXCEPTIONS, "are in no recipe of the registry");
}

/// An optimizer is named as its file.
#[test]
fn every_optimizer_is_in_the_configs() {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/optimizer")];
    let (mut optimizers, mut missing) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let source = fs::read_to_string(path).expect("a source file");
            if ['(', '<'].iter().any(|next| source.contains(&format!("\npub fn {name}{next}"))) {
                optimizers += 1;
                if !gradchain::config::transformations().contains(&&*name) {
                    missing.push(name);
                }
            }
        }
    }
    assert!(optimizers > 40, "{optimizers} optimizers");
    // It takes per-example gradients. The others need the feature `faer`.
    missing.retain(|name| {
        name != "dpsgd" && (cfg!(feature = "faer") || !["galore", "shampoo", "soap"].contains(&&**name))
    });
    assert_eq!(missing, [] as [String; 0], "are neither in src/optimizer/list.rs nor in src/config/families");
}
