//! What is almost surely a mistake, found in the outline of a transformation.

use core::fmt;

use super::Outline;
use super::outline::{Turns, labelled, turned};
use crate::tree::Structure;

/// Something in a chain that is almost surely a mistake; see [`Plan::warnings`](super::Plan::warnings).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    /// Weight decay drives parameters away from zero: it is negative, or comes after what turns updates round.
    NegativeDecay,
    /// A mask or a group takes no leaf.
    EmptyGroup,
    /// Weight decay behind a [`freezable`](crate::wrapper::freezable) moves leaves that are frozen.
    DecayOnFrozen,
    /// [`muon`](crate::muon()) leaves leaves to adam that may be matrices.
    LeftToAdam,
}

/// The mistakes in a transformation, for parameters of this structure.
pub(super) fn lint(outline: &Outline, structure: &Structure) -> Vec<Warning> {
    let mut lint = Lint { structure, adapted: false, freezes: false, warnings: Vec::new() };
    lint.clips(outline, "$");
    lint.climbs(outline);
    let (everywhere, last) = (vec![true; structure.len()], vec![Some(1.0); structure.len()]);
    lint.decays(outline, "$", &everywhere, &last);
    lint.warnings
}

struct Lint<'a> {
    structure: &'a Structure,
    /// Whether updates have had a size of their own since some part before.
    adapted: bool,
    /// Whether there is a `freezable` before.
    freezes: bool,
    warnings: Vec<Warning>,
}

impl Lint<'_> {
    fn warn(&mut self, kind: WarningKind, place: &str, reason: String) {
        self.warnings.push(Warning { kind, place: place.into(), reason });
    }

    /// Finds leaves whose updates go along the gradient in the end.
    fn climbs(&mut self, outline: &Outline) {
        let turns = outline.turns(self.structure);
        let leaves = self.structure.leaves().iter().zip(turns);
        let climbing: Vec<_> = leaves.filter(|(_, turn)| turn.is_some_and(|turn| turn > 0.0)).collect();
        let Some((first, _)) = climbing.first() else { return };
        let (whose, what) = if climbing.len() == self.structure.len() {
            (String::new(), "")
        } else {
            let whose = format!(" of {} leaves, `{}` the first of them,", climbing.len(), first.path());
            (whose, ", or `freeze_others()` where a mask leaves leaves out")
        };
        let reason = format!(
            "the updates{whose} go along the gradient, so that the loss is climbed: end with `scale_by_learning_rate`, or \
             take away one of two parts that turn it round{what}"
        );
        self.warn(WarningKind::Climbs, "$", reason);
    }

    /// Finds clips behind what makes them pointless. Into named optimizers nobody looks: they are right.
    fn clips(&mut self, outline: &Outline, place: &str) {
        if let Some(name) = outline.limits().filter(|_| self.adapted) {
            let reason = format!(
                "`{name}` comes after a part whose updates have a size of their own, so that it does not clip gradients: put \
                 it before"
            );
            self.warn(WarningKind::ClipAfterAdaptive, &format!("{place}.{name}"), reason);
        }
        if !matches!(outline, Outline::Partition { .. }) {
            members(outline, place, &mut |_, member, place| self.clips(member, place));
        }
        self.adapted |= outline.has_own_size();
    }

    /// Finds weight decay that drives parameters away from zero, or is on leaves of fewer than two axes in a model that
    /// has matrices. `after` is what turns updates round after it.
    fn decays(&mut self, outline: &Outline, place: &str, active: &[bool], after: &Turns) {
        let both = |on: Vec<bool>| active.iter().zip(on).map(|(a, b)| *a && b).collect::<Vec<_>>();
        let own = |name: &str| format!("{place}.{name}");
        match outline {
            Outline::Part { name, .. } if outline.decay() != 0.0 => {
                let after = turned(&outline.turns(self.structure), after);
                self.decay(outline.decay(), &own(name), active, &after);
            }
            // What is inside stands where the optimizer does, and is said once.
            Outline::Optimizer { name, chain } => {
                let mut inside = Lint { adapted: false, warnings: Vec::new(), ..*self };
                inside.decays(chain, place, active, after);
                for warning in inside.warnings {
                    let warning = Warning { place: own(name), ..warning };
                    if !self.warnings.iter().any(|said| (said.kind, &said.place) == (warning.kind, &warning.place)) {
                        self.warnings.push(warning);
                    }
                }
            }
            // A mask that is a function may well be about this.
            Outline::Around { mask: Some(mask), .. } if !mask.is_data() => {}
            Outline::Around { name, key, inner, mask: Some(mask), .. } => {
                let Ok(on) = mask.resolve(self.structure, "mask") else { return };
                self.decays(inner, &format!("{place}.{name}.{key}"), &both(on), after);
            }
            Outline::Partition { groups, labels, names } => {
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
            _ => members(outline, place, &mut |behind, member, place| {
                let behind = behind.iter().map(|member| member.turns(self.structure));
                let after = behind.fold(after.clone(), |after, turns| turned(&turns, &after));
                self.decays(member, place, active, &after);
            }),
        }
        self.freezes |= freezes(outline);
    }

    fn decay(&mut self, decay: f64, place: &str, active: &[bool], after: &Turns) {
        if self.freezes {
            let reason = "weight decay behind a `freezable` moves the leaves that are frozen too: put it inside, \
                          `freezable(chain((.., add_decayed_weights(..), ..)))`";
            self.warn(WarningKind::DecayOnFrozen, place, reason.into());
        }
        // What cannot be told is taken to be turned round.
        let away = active.iter().zip(after).any(|(on, after)| *on && decay * after.unwrap_or(-1.0) > 0.0);
        if away {
            let why = if decay < 0.0 {
                "it is subtracted already"
            } else {
                "nothing after it turns it round: put it before the learning rate"
            };
            let reason = format!("a weight decay of {decay} drives parameters away from zero: {why}");
            return self.warn(WarningKind::NegativeDecay, place, reason);
        }
        let matrices = self.structure.leaves().iter().any(|leaf| leaf.ndim() >= 2);
        let leaves = self.structure.leaves().iter().zip(active);
        let vectors: Vec<_> = leaves.filter(|(leaf, on)| leaf.ndim() < 2 && **on).map(|(l, _)| l.path()).collect();
        if matrices && !vectors.is_empty() {
            let (count, first) = (vectors.len(), vectors[0]);
            let reason = format!(
                "weight decay pulls leaves of fewer than two axes to zero, {count} of them, `{first}` the first; biases and \
                 the scales of norms are better left out: `Mask::min_ndim(2)`"
            );
            self.warn(WarningKind::DecayOnVectors, place, reason);
        }
    }
}

/// Whether there is a `freezable` in it.
fn freezes(outline: &Outline) -> bool {
    let any = |outlines: &[Outline]| outlines.iter().any(freezes);
    match outline {
        Outline::Part { .. } => false,
        Outline::Chain(members) | Outline::NamedChain(members) => any(members),
        Outline::Optimizer { chain, .. } => freezes(chain),
        Outline::Around { name, inner, .. } => *name == "freezable" || freezes(inner),
        Outline::Partition { groups, .. } => any(groups),
    }
}

/// Shows the members of a chain, or what a wrapper holds, each with what stands behind it in the chain and its place.
fn members(outline: &Outline, place: &str, visit: &mut dyn FnMut(&[Outline], &Outline, &str)) {
    let mut row = |name: &str, members: &[Outline]| {
        for (i, member) in members.iter().enumerate() {
            visit(&members[i + 1..], member, &format!("{place}.{name}[{i}]"));
        }
    };
    match outline {
        Outline::Chain(members) => row("chain", members),
        Outline::NamedChain(members) => row("named_chain", members),
        Outline::Around { name, key, inner, .. } => visit(&[], inner, &format!("{place}.{name}.{key}")),
        Outline::Part { .. } | Outline::Optimizer { .. } | Outline::Partition { .. } => {}
    }
}
