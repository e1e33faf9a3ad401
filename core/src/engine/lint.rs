//! Finding likely mistakes in the outline of a transformation.

use core::fmt;

use super::erased::View;
use super::summary::{Directions, Effect, Summary, WarningKind, compose, labelled};
use crate::error::{Error, Result};
use crate::tree::Structure;

/// A likely mistake in a chain; see [`Plan::warnings`](super::Plan::warnings).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// The kind of mistake.
    pub kind: WarningKind,
    /// The path in the recipe: `$.chain[1]`.
    pub place: String,
    /// The explanation, with a remedy.
    pub reason: String,
    /// True if it is certainly a mistake: [`init`](crate::GradientTransformation::init) refuses it, unless
    /// [`allow`] permits it.
    ///
    /// [`allow`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.allow.html
    pub refused: bool,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

/// Returns the likely mistakes in a transformation that made this state.
pub(super) fn mistakes(original: &dyn View<'_>, structure: &Structure) -> Vec<Warning> {
    let mut warnings = lint(&original.transform().summary(), structure);
    original.unused(&mut |what, refused| {
        let reason = format!("{what} selects no leaf of these parameters");
        warnings.push(Warning { kind: WarningKind::EmptyGroup, place: "$".into(), reason, refused });
    });
    warnings
}

pub(crate) fn refuse_mistakes(original: &dyn View<'_>, structure: &Structure) -> Result<()> {
    let (refused, others): (Vec<_>, Vec<_>) =
        mistakes(original, structure).into_iter().partition(|warning| warning.refused);
    #[cfg(feature = "tracing")]
    others.iter().for_each(|warning| tracing::warn!(target: "gradchain", kind = ?warning.kind, "{warning}"));
    drop(others);
    if refused.is_empty() {
        return Ok(());
    }
    let mut kinds: Vec<String> = refused.iter().map(|warning| format!("WarningKind::{:?}", warning.kind)).collect();
    kinds.dedup();
    let found: Vec<String> = refused.iter().map(Warning::to_string).collect();
    let problem = format!("{}; if intended, use `wrapper::allow(optimizer, [{}])`", found.join("; "), kinds.join(", "));
    Err(Error::state("init", problem))
}

fn lint(summary: &Summary, structure: &Structure) -> Vec<Warning> {
    let mut lint = {
        let rated = summary.has_rate();
        Lint { structure, allowed: Vec::new(), adapted: false, freezes: false, rated, warnings: Vec::new() }
    };
    lint.rates(summary, "$");
    lint.clips(summary, "$");
    lint.climbs(summary);
    lint.order(summary, "$");
    let (everywhere, last) = (vec![true; structure.len()], vec![Some(1.0); structure.len()]);
    lint.decays(summary, "$", &everywhere, &last);
    lint.warnings
}

struct Lint<'a> {
    structure: &'a Structure,
    allowed: Vec<WarningKind>,
    /// True after a part that sets the size of updates.
    adapted: bool,
    /// True after a `freezable`.
    freezes: bool,
    /// True with a learning rate; without one, other code continues with the updates.
    rated: bool,
    warnings: Vec<Warning>,
}

impl Lint<'_> {
    fn warn(&mut self, kind: WarningKind, place: &str, reason: String) {
        self.push_warning(kind, place, reason, false);
    }

    fn push_warning(&mut self, kind: WarningKind, place: &str, reason: String, refused: bool) {
        if !self.allowed.contains(&kind) {
            self.warnings.push(Warning { kind, place: place.into(), reason, refused });
        }
    }

    fn allowing(&mut self, kinds: &[WarningKind], inside: impl FnOnce(&mut Self)) {
        let outer = self.allowed.len();
        self.allowed.extend(kinds);
        inside(self);
        self.allowed.truncate(outer);
    }

    /// Finds learning rates that are negative, or initially 0.
    fn rates(&mut self, summary: &Summary, place: &str) {
        match summary {
            Summary::Part { name, effect } => {
                let own = format!("{place}.{name}");
                if let Some(rate) = effect.negative_rate() {
                    let reason = format!("a learning rate of {rate} ascends the gradient");
                    self.push_warning(WarningKind::NegativeRate, &own, reason, true);
                }
                if effect.starts_at_zero() {
                    let reason = "the schedule is 0 in the first step, which counts but moves no parameter: begin \
                                  above 0";
                    self.warn(WarningKind::NoFirstStep, &own, reason.into());
                }
            }
            // The optimizer's place stands for its chain.
            Summary::Optimizer { name, chain } => {
                let before = self.warnings.len();
                self.rates(chain, place);
                self.warnings[before..].iter_mut().for_each(|warning| warning.place = format!("{place}.{name}"));
            }
            _ => self.visit_inner(summary, place, Lint::rates),
        }
    }

    /// Finds parts in an unintended order. Skips named optimizers, which are correct.
    fn order(&mut self, summary: &Summary, place: &str) {
        match summary {
            Summary::Optimizer { name: name @ "schedule_free", chain } => {
                if let Summary::Chain(members) = &**chain
                    && members.first().is_some_and(Summary::has_momentum)
                {
                    let reason = "the base optimizer has momentum, which `b1` of `schedule_free` replaces: build the \
                                  base with `b1` 0, or without momentum";
                    self.warn(WarningKind::MomentumTwice, &format!("{place}.{name}"), reason.into());
                }
            }
            Summary::Chain(all) | Summary::NamedChain(all) => {
                for (i, member) in all.iter().enumerate() {
                    let kind = if matches!(summary, Summary::Chain(_)) { "chain" } else { "named_chain" };
                    let own = format!("{place}.{kind}[{i}]");
                    self.pair(&all[..i], member, &all[i + 1..], &own);
                    self.order(member, &own);
                }
            }
            _ => self.visit_inner(summary, place, Lint::order),
        }
    }

    fn visit_inner(&mut self, summary: &Summary, place: &str, check: fn(&mut Self, &Summary, &str)) {
        match summary {
            Summary::Allowed { kinds, inner } => {
                self.allowing(kinds, |lint| check(lint, inner, &format!("{place}.allow.inner")));
            }
            Summary::Partition { groups, names, .. } => {
                for (group, name) in groups.iter().zip(names) {
                    check(self, group, &format!("{place}.partition.transforms.{name}"));
                }
            }
            _ => members(summary, place, &mut |_, member, place| check(self, member, place)),
        }
    }

    /// Compares a member with those before and behind it.
    fn pair(&mut self, before: &[Summary], member: &Summary, behind: &[Summary], place: &str) {
        let holder = |summary: &Summary| match summary {
            Summary::Around { name: name @ ("multi_steps" | "dynamic_loss_scale"), .. } => Some(*name),
            _ => None,
        };
        if let (Some(name), Some(holder)) = (member.limits(), behind.iter().find_map(holder)) {
            let reason = match holder {
                "multi_steps" => format!("`{name}` clips the gradient of each mini-step, not their mean"),
                _ => format!("`{name}` clips gradients scaled by the loss scale"),
            };
            let reason = format!("{reason}: put it inside `{holder}`");
            self.warn(WarningKind::ClipOutside, &format!("{place}.{name}"), reason);
        }
        if before.iter().any(Summary::has_final_length) && member.rescales() {
            let reason = "it rescales the step of a line search: scale by the learning rate before the search, or \
                          remove it";
            self.warn(WarningKind::RescaledLineSearch, place, reason.into());
        }
        if let Summary::Part { name: name @ "ema", .. } = member
            && before.iter().any(Summary::has_rate)
        {
            let reason = "it averages updates already scaled by the learning rate, so earlier rates persist: put it \
                          before the learning rate";
            self.warn(WarningKind::MeanAfterRate, &format!("{place}.{name}"), reason.into());
        }
    }

    /// Finds leaves whose updates point along the gradient, so that steps increase the loss.
    fn climbs(&mut self, summary: &Summary) {
        // Negative rates are already reported, or intended.
        if summary.any(&|effect| effect.negative_rate().is_some()) {
            return;
        }
        let directions = summary.directions(self.structure).into_iter().zip(summary.descents(self.structure));
        let leaves = self.structure.leaves().iter().zip(directions);
        let climbing: Vec<_> = leaves.filter(|(_, (sign, _))| sign.is_some_and(|sign| sign > 0.0)).collect();
        let Some((first, _)) = climbing.first() else { return };
        // A part without a rate can be useful, and one reversal can maximize; two learning rates make no sense.
        let refused = climbing.iter().any(|(_, (_, descents))| *descents > 1) && !summary.any(&Effect::is_reversal);
        let (whose, what) = if climbing.len() == self.structure.len() {
            (String::new(), "")
        } else {
            let whose = format!(" of {} leaves (first `{}`)", climbing.len(), first.path());
            (whose, ", or use `freeze_others()` where a mask excludes leaves")
        };
        let reason = format!(
            "the updates{whose} ascend the gradient, so the loss increases: end with `scale_by_learning_rate`, or \
             remove one of two parts that flip the sign{what}"
        );
        self.push_warning(WarningKind::Climbs, "$", reason, refused);
    }

    /// Finds clips behind parts that make them pointless. Skips named optimizers, which are correct.
    fn clips(&mut self, summary: &Summary, place: &str) {
        if let Some(name) = summary.limits().filter(|_| self.adapted) {
            let reason = format!(
                "`{name}` follows an adaptive part, whose updates do not scale with gradients, so it does not clip \
                 gradients: put it before that part"
            );
            self.warn(WarningKind::ClipAfterAdaptive, &format!("{place}.{name}"), reason);
        }
        if let Summary::Allowed { kinds, inner } = summary {
            self.allowing(kinds, |lint| lint.clips(inner, &format!("{place}.allow.inner")));
        } else if !matches!(summary, Summary::Partition { .. }) {
            members(summary, place, &mut |_, member, place| self.clips(member, place));
        }
        self.adapted |= summary.is_scale_invariant();
    }

    /// Finds weight decay that moves parameters away from zero, and in a model with matrices, decay of leaves of fewer
    /// than two axes. `after` is the direction of later parts.
    fn decays(&mut self, summary: &Summary, place: &str, active: &[bool], after: &Directions) {
        let both = |on: Vec<bool>| active.iter().zip(on).map(|(a, b)| *a && b).collect::<Vec<_>>();
        let own = |name: &str| format!("{place}.{name}");
        match summary {
            Summary::Part { name, .. } if summary.decay() != 0.0 => {
                let after = compose(&summary.directions(self.structure), after);
                self.decay(summary.decay(), &own(name), active, &after);
            }
            // The optimizer's place stands for its chain; each mistake is reported once.
            Summary::Optimizer { name, chain } => {
                let mut inside = Lint { warnings: Vec::new(), allowed: self.allowed.clone(), ..*self };
                inside.decays(chain, place, active, after);
                for warning in inside.warnings {
                    let warning = Warning { place: own(name), ..warning };
                    if !self.warnings.iter().any(|said| (said.kind, &said.place) == (warning.kind, &warning.place)) {
                        self.warnings.push(warning);
                    }
                }
            }
            Summary::Allowed { kinds, inner } => {
                self.allowing(kinds, |lint| lint.decays(inner, &format!("{place}.allow.inner"), active, after));
            }
            // A mask that is a function may exclude these leaves.
            Summary::Around { mask: Some(mask), .. } if !mask.is_data() => {}
            Summary::Around { name, key, inner, mask: Some(mask), .. } => {
                let Ok(on) = mask.resolve(self.structure, "mask") else { return };
                self.decays(inner, &format!("{place}.{name}.{key}"), &both(on), after);
            }
            Summary::Partition { groups, labels, names } => {
                let Some(labelled) = labelled(labels, names, self.structure) else { return };
                if let Some((text, leaves)) =
                    labels.note(self.structure, active).filter(|(_, leaves)| !leaves.is_empty())
                {
                    self.warn(WarningKind::LeftToAdam, place, format!("{text}: `{}`", leaves.join("`, `")));
                }
                let before = self.freezes;
                for (i, group) in groups.iter().enumerate() {
                    self.freezes = before;
                    let on = labelled.iter().map(|label| *label == i).collect();
                    let place = format!("{place}.partition.transforms.{}", names[i]);
                    self.decays(group, &place, &both(on), after);
                }
            }
            _ => members(summary, place, &mut |behind, member, place| {
                let behind = behind.iter().map(|member| member.directions(self.structure));
                let after = behind.fold(after.clone(), |after, directions| compose(&directions, &after));
                self.decays(member, place, active, &after);
            }),
        }
        self.freezes |= freezes(summary);
    }

    fn decay(&mut self, decay: f64, place: &str, active: &[bool], after: &Directions) {
        if self.freezes {
            let reason = "weight decay after a `freezable` also moves frozen leaves: put it inside, \
                          `freezable(chain((.., add_decayed_weights(..), ..)))`";
            self.warn(WarningKind::DecayOnFrozen, place, reason.into());
        }
        // An unknown direction counts as reversed.
        let away = active.iter().zip(after).any(|(on, after)| *on && decay * after.unwrap_or(-1.0) > 0.0);
        if away {
            let why = if decay < 0.0 {
                "weight decay is already subtracted"
            } else {
                "no later part flips its sign: put it before the learning rate"
            };
            let reason = format!("a weight decay of {decay} drives parameters away from zero: {why}");
            let known = |(on, after): (&bool, &Option<f64>)| *on && after.is_some_and(|after| decay * after > 0.0);
            let sure = self.rated && active.iter().zip(after).any(known);
            return self.push_warning(WarningKind::NegativeDecay, place, reason, sure);
        }
        let matrices = self.structure.leaves().iter().any(|leaf| leaf.ndim() >= 2);
        let leaves = self.structure.leaves().iter().zip(active);
        let vectors: Vec<_> = leaves.filter(|(leaf, on)| leaf.ndim() < 2 && **on).map(|(l, _)| l.path()).collect();
        if matrices && !vectors.is_empty() {
            let (count, first) = (vectors.len(), vectors[0]);
            let reason = format!(
                "weight decay acts on {count} leaves with fewer than two axes (first `{first}`); exclude biases and \
                 the scales of norms with `Mask::min_ndim(2)`"
            );
            self.warn(WarningKind::DecayOnVectors, place, reason);
        }
    }
}

fn freezes(summary: &Summary) -> bool {
    let any = |outlines: &[Summary]| outlines.iter().any(freezes);
    match summary {
        Summary::Part { .. } => false,
        Summary::Chain(members) | Summary::NamedChain(members) => any(members),
        Summary::Optimizer { chain, .. } => freezes(chain),
        Summary::Around { name, inner, .. } => *name == "freezable" || freezes(inner),
        Summary::Allowed { inner, .. } => freezes(inner),
        Summary::Partition { groups, .. } => any(groups),
    }
}

/// Visits members, with those behind and their place.
fn members(summary: &Summary, place: &str, visit: &mut dyn FnMut(&[Summary], &Summary, &str)) {
    let mut row = |name: &str, members: &[Summary]| {
        for (i, member) in members.iter().enumerate() {
            visit(&members[i + 1..], member, &format!("{place}.{name}[{i}]"));
        }
    };
    match summary {
        Summary::Chain(members) => row("chain", members),
        Summary::NamedChain(members) => row("named_chain", members),
        Summary::Around { name, key, inner, .. } => visit(&[], inner, &format!("{place}.{name}.{key}")),
        Summary::Allowed { inner, .. } => visit(&[], inner, &format!("{place}.allow.inner")),
        Summary::Part { .. } | Summary::Optimizer { .. } | Summary::Partition { .. } => {}
    }
}
