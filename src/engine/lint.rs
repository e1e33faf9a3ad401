//! What is almost surely a mistake, found in the recipe of a transformation.

use core::fmt;

use crate::recipe::Recipe;
use crate::select::Mask;
use crate::tree::Structure;

/// Something in a chain that is almost surely a mistake; see [`Plan::warnings`](super::Plan::warnings).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Which of the mistakes it is.
    pub kind: WarningKind,
    /// Where in the recipe: `$.chain[1]`.
    pub place: String,
    /// Why it is one, and what to do.
    pub reason: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

/// The mistakes that [`plan`](crate::GradientTransformation::plan) knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WarningKind {
    /// Gradients are clipped after they have been divided by their own size.
    ClipAfterAdaptive,
    /// Nothing turns the gradients round, or two parts do: the loss is climbed.
    Climbs,
    /// Weight decay pulls biases and the scales of norms to zero.
    DecayOnVectors,
    /// A mask or a group takes no leaf.
    EmptyGroup,
}

/// Optimizers: what ends with a step against the gradient.
#[rustfmt::skip]
const OPTIMIZERS: &[&str] = &[
    "acprop", "adabelief", "adadelta", "adafactor", "adagrad", "adam", "adam_mini", "adamax", "adamaxw", "adamw",
    "adan", "ademamix", "adopt", "amsgrad", "cautious_adamw", "cautious_lion", "cocob", "dadapt_adamw", "dog", "dowg",
    "dpsgd", "fromage", "galore", "lamb", "lars", "lbfgs", "lion", "madgrad", "mars", "momo", "momo_adam", "muon",
    "nadam", "nadamw", "noisy_sgd", "novograd", "optimistic_adam", "optimistic_adam_v2", "optimistic_gradient_descent",
    "polyak_sgd", "prodigy", "radam", "rmsprop", "rprop", "schedule_free_adamw", "schedule_free_sgd", "sgd", "shampoo",
    "sign_sgd", "signum", "simplified_ademamix", "sm3", "soap", "sophia", "stable_adamw", "yogi",
];

/// Parts whose updates have a size of their own, whatever that of the gradients.
#[rustfmt::skip]
const ADAPTIVE: &[&str] = &[
    "normalize", "scale_by_acprop", "scale_by_adadelta", "scale_by_adam", "scale_by_adam_mini", "scale_by_adamax",
    "scale_by_adan", "scale_by_ademamix", "scale_by_adopt", "scale_by_amsgrad", "scale_by_belief",
    "scale_by_factored_rms", "scale_by_lion", "scale_by_muon", "scale_by_novograd", "scale_by_radam", "scale_by_rms",
    "scale_by_rss", "scale_by_shampoo", "scale_by_sign", "scale_by_simplified_ademamix", "scale_by_sm3",
    "scale_by_soap", "scale_by_stable_adam", "scale_by_stddev", "scale_by_yogi",
];

/// Optimizers that are linear in the gradient.
const LINEAR: &[&str] = &["sgd", "noisy_sgd", "dpsgd", "optimistic_gradient_descent", "polyak_sgd", "lbfgs", "momo"];

const CLIPS: &[&str] = &["adaptive_grad_clip", "clip", "clip_by_block_norm", "clip_by_global_norm"];

/// Wrappers, and the argument under which what is inside stands.
const WRAPPERS: &[(&str, &str)] = &[
    ("apply_if_finite", "inner"),
    ("cautious", "inner"),
    ("conditionally_mask", "inner"),
    ("conditionally_transform", "inner"),
    ("flatten", "inner"),
    ("freezable", "inner"),
    ("inject_hyperparams", "inner"),
    ("lookahead", "fast_optimizer"),
    ("masked", "inner"),
    ("mechanize", "base_optimizer"),
    ("multi_steps", "inner"),
    ("params_ema", "inner"),
    ("params_swa", "inner"),
    ("sam", "optimizer"),
    ("schedule_free", "base_optimizer"),
    ("skip_on_spike", "inner"),
];

/// The mistakes in a recipe, for parameters of this structure.
pub(super) fn lint(recipe: &Recipe, structure: &Structure) -> Vec<Warning> {
    let mut warnings = Vec::new();
    clips(recipe, "$", &mut false, &mut warnings);
    if turns(recipe) == Some(Turn::Along) {
        let reason = "the updates go along the gradient, so that the loss is climbed: end with `scale_by_learning_rate`, \
                      or take away one of two parts that turn it round";
        warnings.push(Warning { kind: WarningKind::Climbs, place: "$".into(), reason: reason.into() });
    }
    if structure.leaves().iter().any(|leaf| leaf.ndim() >= 2) {
        decays(recipe, "$", &vec![true; structure.len()], structure, &mut warnings);
    }
    warnings
}

/// Finds clips behind what makes them pointless.
fn clips(recipe: &Recipe, place: &str, adapted: &mut bool, warnings: &mut Vec<Warning>) {
    let Some((name, arguments)) = recipe.as_call() else { return };
    if *adapted && CLIPS.contains(&name) {
        let reason = format!(
            "`{name}` comes after a part whose updates have a size of their own, so that it does not clip gradients: put \
             it before"
        );
        warnings.push(Warning { kind: WarningKind::ClipAfterAdaptive, place: format!("{place}.{name}"), reason });
    }
    members(name, arguments, place, &mut |member, place| clips(member, place, adapted, warnings));
    *adapted |= ADAPTIVE.contains(&name) || (OPTIMIZERS.contains(&name) && !LINEAR.contains(&name));
}

/// Shows the members of a chain, or what a wrapper holds.
fn members(name: &str, arguments: &Recipe, place: &str, visit: &mut dyn FnMut(&Recipe, &str)) {
    match name {
        "chain" => arguments.items().iter().enumerate().for_each(|(i, m)| visit(m, &format!("{place}.chain[{i}]"))),
        "named_chain" => {
            for (i, pair) in arguments.items().iter().enumerate() {
                pair.items().iter().skip(1).for_each(|m| visit(m, &format!("{place}.named_chain[{i}]")));
            }
        }
        _ => {
            let Some((_, key)) = WRAPPERS.iter().find(|(wrapper, _)| *wrapper == name) else { return };
            arguments.get(key).into_iter().for_each(|inner| visit(inner, &format!("{place}.{name}.{key}")));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Turn {
    /// The update goes against the gradient.
    Against,
    /// It goes along it.
    Along,
    /// There is none.
    Zero,
}

impl Turn {
    fn of(factor: f64) -> Turn {
        match factor {
            x if x > 0.0 => Turn::Along,
            x if x < 0.0 => Turn::Against,
            _ => Turn::Zero,
        }
    }

    fn then(self, next: Turn) -> Turn {
        match (self, next) {
            (Turn::Zero, _) | (_, Turn::Zero) => Turn::Zero,
            (a, b) if a == b => Turn::Along,
            _ => Turn::Against,
        }
    }
}

/// Which way the updates of what has this recipe go, if that can be told: 1 along the gradient, −1 against it, 0 nowhere.
pub(crate) fn direction(recipe: &Recipe) -> Option<i32> {
    turns(recipe).map(|turn| match turn {
        Turn::Along => 1,
        Turn::Against => -1,
        Turn::Zero => 0,
    })
}

/// Which way updates go, if that can be told.
fn turns(recipe: &Recipe) -> Option<Turn> {
    let (name, arguments) = recipe.as_call()?;
    let number = |key: &str| arguments.get(key).and_then(Recipe::as_number);
    match name {
        "chain" => arguments.items().iter().try_fold(Turn::Along, |turn, m| Some(turn.then(turns(m)?))),
        "named_chain" => {
            let mut pairs = arguments.items().iter();
            pairs.try_fold(Turn::Along, |turn, pair| Some(turn.then(turns(pair.items().get(1)?)?)))
        }
        // One group that climbs is enough; a group that cannot be told about is not.
        "partition" => match arguments.get("transforms")? {
            Recipe::Map(groups) => {
                let turns = groups.iter().map(|(_, group)| turns(group)).collect::<Option<Vec<_>>>()?;
                Some(if turns.contains(&Turn::Along) { Turn::Along } else { Turn::Against })
            }
            _ => None,
        },
        "scale" => number("step_size").map(Turn::of),
        "scale_by_learning_rate" => {
            let against = arguments.get("flip_sign") != Some(&Recipe::Bool(false));
            let factor = number("learning_rate").unwrap_or(1.0);
            Some(Turn::of(if against { -factor } else { factor }))
        }
        // What a schedule gives is not looked into.
        "scale_by_schedule" => None,
        "set_to_zero" => Some(Turn::Zero),
        // The gradient of part of the leaves goes on as it was: whatever follows decides.
        "masked" if arguments.get("freeze_others").is_none() => match turns(arguments.get("inner")?)? {
            Turn::Along => Some(Turn::Along),
            _ => None,
        },
        _ if OPTIMIZERS.contains(&name) => {
            let rate = number("learning_rate").or_else(|| number("max_learning_rate")).unwrap_or(1.0);
            Some(Turn::of(-rate))
        }
        _ if WRAPPERS.iter().any(|(wrapper, _)| *wrapper == name) => {
            let mut inside = None;
            members(name, arguments, "", &mut |inner, _| inside = turns(inner));
            inside
        }
        _ if PLAIN.contains(&name) || ADAPTIVE.contains(&name) || CLIPS.contains(&name) => Some(Turn::Along),
        _ => None,
    }
}

/// Other parts that leave the direction as it is.
#[rustfmt::skip]
const PLAIN: &[&str] = &[
    "add_decayed_weights", "add_noise", "apply_every", "centralize", "clip_by_block_rms", "ema", "identity",
    "normalize_by_update_norm", "reduce_variance", "scale_by_distance_over_gradients", "scale_by_lbfgs",
    "scale_by_param_block_norm", "scale_by_param_block_rms", "scale_by_shape", "scale_by_trust_ratio", "trace",
    "zero_nans",
];

/// The arguments that are weight decay, with the mask that belongs to each.
const DECAYS: &[(&str, &str)] =
    &[("weight_decay", "mask"), ("weight_decay", "weight_decay_mask"), ("weight_decay_rate", "weight_decay_mask")];

/// Finds weight decay on leaves of fewer than two axes.
fn decays(recipe: &Recipe, place: &str, active: &[bool], structure: &Structure, warnings: &mut Vec<Warning>) {
    let Some((name, arguments)) = recipe.as_call() else { return };
    if name == "masked" {
        // A mask that is a function may well be about this.
        let Some(on) = resolve(arguments.get("mask"), structure) else { return };
        let active: Vec<bool> = active.iter().zip(on).map(|(a, b)| *a && b).collect();
        let place = format!("{place}.masked.inner");
        return arguments.get("inner").into_iter().for_each(|m| decays(m, &place, &active, structure, warnings));
    }
    // Its decay is for matrices only.
    let known = name == "add_decayed_weights" || (OPTIMIZERS.contains(&name) && name != "muon");
    for (decay, mask) in DECAYS.iter().filter(|_| known) {
        let decays = match arguments.get(decay) {
            Some(Recipe::Null) | None => false,
            Some(value) => value.as_number() != Some(0.0),
        };
        let other_mask = arguments.get(mask).is_none() && DECAYS.iter().any(|(_, m)| arguments.get(m).is_some());
        let Some(on) = resolve(arguments.get(mask), structure).filter(|_| decays && !other_mask) else { continue };
        let leaves = structure.leaves().iter().zip(active.iter().zip(on));
        let vectors: Vec<_> =
            leaves.filter(|(leaf, (a, b))| leaf.ndim() < 2 && **a && *b).map(|(l, _)| l.path()).collect();
        if !vectors.is_empty() {
            let (count, first) = (vectors.len(), vectors[0]);
            let reason = format!(
                "`{decay}` pulls {count} leaves of fewer than two axes to zero, `{first}` the first of them; biases and \
                 the scales of norms are better left out: `Mask::min_ndim(2)`"
            );
            warnings.push(Warning { kind: WarningKind::DecayOnVectors, place: format!("{place}.{name}"), reason });
            break;
        }
    }
    members(name, arguments, place, &mut |member, place| decays(member, place, active, structure, warnings));
}

/// The leaves that a mask takes: all without one, nothing known if it is a function or does not fit.
fn resolve(mask: Option<&Recipe>, structure: &Structure) -> Option<Vec<bool>> {
    match mask {
        None => Some(vec![true; structure.len()]),
        Some(mask) => Mask::from_recipe(mask)?.resolve(structure, "mask").ok(),
    }
}
