//! Injected hyperparameters whose arguments may differ from the saved ones.

use std::collections::HashSet;

use super::compare::is_at;
use crate::recipe::Recipe;
use crate::state::State;
use crate::wrappers::injected_hyperparams;

const INJECT_HYPERPARAMS: &str = "inject_hyperparams";

/// Returns the state fields of injected hyperparameters whose arguments may differ. These fields keep the value that
/// `init` gave them.
pub(super) fn overruled<S: State>(state: &mut S, transformation: &Recipe, may_differ: &[String]) -> HashSet<String> {
    let mut fields = HashSet::new();
    if may_differ.is_empty() {
        return fields;
    }
    let mut calls = Vec::new();
    injections("$", transformation, &mut |place, inner| calls.push((place.to_owned(), inner.to_string(), inner)));
    for (path, hyperparams) in injected_hyperparams(state) {
        // Fields and calls are both in the order of parts, and an optimizer may hide some calls.
        let of = hyperparams.of().map(|of| of.to_string());
        let Some(call) = calls.iter().position(|(_, inner, _)| of.as_ref() == Some(inner)) else { continue };
        let (place, _, inner) = calls.remove(call);
        for (name, _) in hyperparams.iter() {
            let argument = argument(&place, inner, name);
            if argument.is_some_and(|argument| may_differ.iter().any(|allowed| is_at(&argument, allowed))) {
                fields.insert(format!("{path}.{name}"));
            }
        }
    }
    fields
}

fn injections<'a>(place: &str, value: &'a Recipe, show: &mut dyn FnMut(&str, &'a Recipe)) {
    if let Some((INJECT_HYPERPARAMS, arguments)) = value.as_call()
        && let Some(inner) = arguments.get("inner")
    {
        show(&format!("{place}.{INJECT_HYPERPARAMS}.inner"), inner);
    }
    match value {
        Recipe::List(items) => {
            items.iter().enumerate().for_each(|(i, item)| injections(&format!("{place}[{i}]"), item, show));
        }
        Recipe::Map(entries) => {
            entries.iter().for_each(|(key, item)| injections(&format!("{place}.{key}"), item, show));
        }
        _ => {}
    }
}

/// Returns the place of an argument: in the call, or, if a wrapper passes its arguments on, in that of its inner
/// transformation.
fn argument(place: &str, call: &Recipe, name: &str) -> Option<String> {
    let (display_name, arguments) = call.as_call()?;
    let place = format!("{place}.{display_name}");
    match arguments.get(name) {
        Some(_) => Some(format!("{place}.{name}")),
        None => argument(&format!("{place}.inner"), arguments.get("inner")?, name),
    }
}
