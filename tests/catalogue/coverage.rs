//! Every transformation that a config can name is in the registry, so that the laws run over it.
#![cfg(feature = "config")]

use std::collections::BTreeSet;

use crate::common::given::recipe;
use gradchain::recipe::Recipe;

use crate::common::registry::{chosen, only_these, registry};

/// Names that no recipe has, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("freeze", "it is a `masked`"),
    ("nadam", "it is an `adam`"),
    ("nadamw", "it is an `adamw`"),
    ("selective_transform", "it is a `masked`"),
    ("snapshot", "it is a `monitor`"),
];

/// The names of all transformations in a recipe.
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
        all.into_iter().filter(|name| chosen(name) && !found.contains(*name)).map(String::from).collect();
    only_these(&missing, EXCEPTIONS, "are in no recipe of the registry");
}
