//! Suggestions for unknown names.

use core::fmt;

/// Names in other libraries, in lower case, and here; only known ones are suggested.
const ALIASES: &[(&str, &[&str])] = &[
    ("alpha", &["decay", "learning_rate"]),
    ("base_lr", &["learning_rate", "init_value"]),
    ("beta", &["decay", "b1"]),
    ("beta1", &["b1"]),
    ("beta2", &["b2"]),
    ("beta_1", &["b1"]),
    ("beta_2", &["b2"]),
    ("betas", &["b1", "b2"]),
    ("clip_grad_norm_", &["clip_by_global_norm"]),
    ("clip_grad_value_", &["clip"]),
    ("clip_norm", &["max_norm"]),
    ("clip_value", &["max_delta"]),
    ("cosineannealinglr", &["cosine_decay"]),
    ("cosineannealingwarmrestarts", &["cosine_restarts"]),
    ("decay", &["weight_decay"]),
    ("epsilon", &["eps"]),
    ("eta_min", &["end_value", "alpha"]),
    ("exponentiallr", &["exponential_decay"]),
    ("gamma", &["decay_rate"]),
    ("gradient_accumulation_steps", &["every_k_schedule"]),
    ("initial_accumulator", &["initial_accumulator_value"]),
    ("l2", &["weight_decay"]),
    ("linearlr", &["linear"]),
    ("lr", &["learning_rate"]),
    ("max_lr", &["peak_value"]),
    ("momentum", &["decay", "b1"]),
    ("multisteplr", &["piecewise_constant"]),
    ("onecyclelr", &["cosine_onecycle"]),
    ("polynomiallr", &["polynomial"]),
    ("reducelronplateau", &["reduce_on_plateau"]),
    ("rho", &["decay", "b2"]),
    ("sequentiallr", &["join"]),
    ("steplr", &["piecewise_constant"]),
    ("t_max", &["decay_steps"]),
    ("total_iters", &["transition_steps"]),
    ("total_steps", &["transition_steps", "decay_steps"]),
    ("wd", &["weight_decay"]),
];

/// An unknown name, and the known ones to suggest.
pub(super) struct Suggestions<'a>(pub(super) &'a str, pub(super) &'a [String]);

impl<'a> Suggestions<'a> {
    /// Returns the known names, nearest first, and the number of good ones.
    fn nearest(&self) -> (Vec<&'a str>, usize) {
        let Suggestions(name, known) = self;
        let name = &*name.to_lowercase();
        // Optax's schedules have this suffix.
        let name = name.strip_suffix("_schedule").unwrap_or(name);
        let called = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(&[][..], |(_, names)| names);
        let is_called = |known: &str| called.contains(&known.rsplit('.').next().unwrap_or(known));
        let mut nearest: Vec<&str> = known.iter().map(|k| &**k).collect();
        nearest.sort_by_key(|k| (!is_called(k), !k.starts_with(name), distance(name, k), letters(name) != letters(k)));
        let suggestion = match nearest.iter().take_while(|k| is_called(k)).count() {
            0 => nearest
                .first()
                .map_or(0, |first| usize::from(first.starts_with(name) || distance(name, first) <= 1 + name.len() / 3)),
            called => called,
        };
        (nearest, suggestion)
    }
}

/// Returns true if an unknown name means only this known one.
pub(crate) fn is_suggestion(name: &str, known: &[&str], one: &str) -> bool {
    let known: Vec<String> = known.iter().map(|known| String::from(*known)).collect();
    let (nearest, suggestion) = Suggestions(name, &known).nearest();
    nearest[..suggestion] == [one]
}

impl fmt::Display for Suggestions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        let (nearest, suggestion) = self.nearest();
        if suggestion > 0 {
            let suggestion: Vec<String> = nearest[..suggestion].iter().map(|k| format!("`{k}`")).collect();
            write!(f, "; did you mean {}?", suggestion.join(", "))?;
        }
        match self.1.len() {
            0 => Ok(()),
            n if n <= SHOWN => write!(f, " (known: {})", self.1.join(", ")),
            n => write!(f, " (the nearest of {n}: {})", nearest[..SHOWN].join(", ")),
        }
    }
}

/// Returns the sorted letters, to detect transpositions.
fn letters(name: &str) -> Vec<char> {
    let mut letters: Vec<char> = name.chars().collect();
    letters.sort_unstable();
    letters
}

/// Returns the distance to a known name or the last levels of a dotted path.
fn distance(name: &str, known: &str) -> usize {
    let tails = known.match_indices('.').map(|(dot, _)| &known[dot + 1..]);
    tails.fold(edit_distance(name, known), |least, tail| least.min(edit_distance(name, tail)))
}

/// Returns the Levenshtein distance in characters.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn a_misspelt_name_gets_the_nearest_one() {
        let error = Error::unknown_name("inject_hyperparams", "hyperparameter", "weigth_decay", ["b1", "weight_decay"]);
        assert_eq!(
            error.to_string(),
            "inject_hyperparams: unknown hyperparameter `weigth_decay`; did you mean `weight_decay`? (known: b1, \
             weight_decay)"
        );
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(distance("lerning_rate", "descend.learning_rate"), 1);
        let known = ["dog", "sam", "sgd"].map(String::from);
        assert!(Suggestions("sdg", &known).to_string().starts_with("; did you mean `sgd`?"));
    }

    #[test]
    fn names_of_other_libraries_get_suggestions() {
        let known =
            ["b1", "b2", "eps", "learning_rate", "weight_decay", "adam", "adamw", "cosine_decay"].map(String::from);
        for (name, suggestion) in [
            ("lr", "`learning_rate`"),
            ("LR", "`learning_rate`"),
            ("betas", "`b1`, `b2`"),
            ("momentum", "`b1`"),
            ("wd", "`weight_decay`"),
            ("decay", "`weight_decay`"),
            ("epsilon", "`eps`"),
            ("AdamW", "`adamw`"),
            ("ADAM", "`adam`"),
            ("T_max", ""),
            ("CosineAnnealingLR", "`cosine_decay`"),
            ("cosine_decay_schedule", "`cosine_decay`"),
        ] {
            let said = Suggestions(name, &known).to_string();
            let expected =
                if suggestion.is_empty() { " (the nearest".into() } else { format!("; did you mean {suggestion}? (") };
            assert!(said.starts_with(&expected), "{name}: {said}");
        }
        // By the last level of a path.
        let known = ["inner.learning_rate", "inner.b1"].map(String::from);
        assert!(Suggestions("lr", &known).to_string().starts_with("; did you mean `inner.learning_rate`?"));
        assert!(ALIASES.is_sorted() && ALIASES.iter().all(|(alias, _)| *alias == alias.to_lowercase()));
    }
}
