//! What a transformation is made of, and what each part does to updates: what mistakes are found in.

use super::Stage;
use crate::schedule::Hyperparam;
use crate::select::{Labels, Mask};
use crate::tree::Structure;

/// What a part does to updates, as far as [`plan`](crate::GradientTransformation::plan) looks for mistakes in a chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// What the direction is multiplied by: 1 or -1, or 0 for no update at all.
    turn: Option<f64>,
    own_size: bool,
    limits: bool,
    /// How much of the parameters is taken away.
    decay: f64,
}

impl Effect {
    /// Nothing is known, and nothing warned of.
    pub const UNKNOWN: Effect = Effect { turn: None, own_size: false, limits: false, decay: 0.0 };
    /// Updates go on along the gradient, or against it, as they did.
    pub const ALONG: Effect = Effect { turn: Some(1.0), ..Effect::UNKNOWN };
    /// Updates are turned round.
    pub const AGAINST: Effect = Effect { turn: Some(-1.0), ..Effect::UNKNOWN };
    /// There are no updates.
    pub const ZERO: Effect = Effect { turn: Some(0.0), ..Effect::UNKNOWN };
    /// Updates are given a size of their own, whatever that of the gradients: limits on gradients come before.
    pub const OWN_SIZE: Effect = Effect { own_size: true, ..Effect::ALONG };
    /// The same, and they are turned round: a whole optimizer.
    pub const STEP: Effect = Effect { own_size: true, ..Effect::AGAINST };
    /// Gradients are kept from being too large.
    pub const LIMITS: Effect = Effect { limits: true, ..Effect::ALONG };

    /// Updates are multiplied by a number, which may be negative; what a schedule gives is not looked into.
    pub fn times(factor: &Hyperparam) -> Effect {
        match factor {
            Hyperparam::Number(factor) if !factor.is_nan() => {
                let turn = if *factor == 0.0 { 0.0 } else { factor.signum() };
                Effect { turn: Some(turn), ..Effect::UNKNOWN }
            }
            _ => Effect::UNKNOWN,
        }
    }

    /// The same for a rate, of which a schedule is taken to be positive.
    pub fn at_rate(self, rate: &Hyperparam) -> Effect {
        match (self.turn, Effect::times(rate).turn) {
            (Some(turn), Some(sign)) if !rate.is_scheduled() => Effect { turn: Some(turn * sign), ..self },
            _ => self,
        }
    }

    /// And parameters are drawn to zero.
    pub fn decays(self, weight_decay: &Hyperparam) -> Effect {
        let decay = if let Hyperparam::Number(decay) = weight_decay { *decay } else { 1.0 };
        Effect { decay, ..self }
    }
}

/// What the directions of leaves are multiplied by, where that can be told: 1, -1 or 0.
pub(super) type Turns = Vec<Option<f64>>;

/// One after the other.
pub(super) fn turned(first: &Turns, then: &Turns) -> Turns {
    first.iter().zip(then).map(|(first, then)| Some((*first)? * (*then)?)).collect()
}

/// The number of each leaf's group, if the labels fit the leaves.
pub(super) fn labelled(labels: &Labels, names: &[String], structure: &Structure) -> Option<Vec<usize>> {
    let known: Vec<&str> = names.iter().map(|name| &**name).collect();
    labels.resolve(structure, &known, "partition").ok()
}

/// What a transformation is made of.
#[derive(Clone, Debug)]
pub enum Outline {
    Part { name: &'static str, effect: Effect },
    Chain(Vec<Outline>),
    NamedChain(Vec<Outline>),
    Optimizer { name: &'static str, chain: Box<Outline> },
    Around { name: &'static str, key: &'static str, inner: Box<Outline>, mask: Option<Mask>, zero: bool },
    Partition { groups: Vec<Outline>, labels: Labels, names: Vec<String> },
}

impl Outline {
    /// What is known of a part without looking further.
    pub(crate) fn part(name: &'static str, effect: Effect) -> Outline {
        Outline::Part { name, effect }
    }

    /// A wrapper that leaves it to what is inside.
    pub(crate) fn around(name: &'static str, key: &'static str, inner: &impl Stage) -> Outline {
        Outline::Around { name, key, inner: Box::new(inner.outline()), mask: None, zero: false }
    }

    /// What the direction of updates is multiplied by, if that can be told: 1, -1 or 0.
    pub(crate) fn turn(&self) -> Option<f64> {
        match self {
            Outline::Part { effect, .. } => effect.turn,
            Outline::Chain(members) | Outline::NamedChain(members) => {
                members.iter().try_fold(1.0, |turn, member| Some(turn * member.turn()?))
            }
            Outline::Optimizer { chain, .. } => chain.turn(),
            // The updates of part of the leaves go on as they were: whatever follows decides.
            Outline::Around { inner, mask: Some(mask), zero: false, .. } if !mask.is_all() => {
                inner.turn().filter(|turn| *turn > 0.0)
            }
            Outline::Around { inner, .. } => inner.turn(),
            // One group that climbs is enough; a group that cannot be told about is not.
            Outline::Partition { groups, .. } => {
                let turns = groups.iter().map(Outline::turn).collect::<Option<Vec<_>>>()?;
                Some(if turns.iter().any(|turn| *turn > 0.0) { 1.0 } else { -1.0 })
            }
        }
    }

    /// The same for each leaf. Outside a mask updates go on as they came, or there are none.
    pub(super) fn turns(&self, structure: &Structure) -> Turns {
        let unknown = || vec![None; structure.len()];
        match self {
            Outline::Part { effect, .. } => vec![effect.turn; structure.len()],
            Outline::Chain(members) | Outline::NamedChain(members) => {
                let along = vec![Some(1.0); structure.len()];
                members.iter().fold(along, |turns, member| turned(&turns, &member.turns(structure)))
            }
            Outline::Optimizer { chain, .. } => chain.turns(structure),
            Outline::Around { inner, mask: None, .. } => inner.turns(structure),
            Outline::Around { inner, mask: Some(mask), zero, .. } => {
                let Ok(on) = mask.resolve(structure, "mask") else { return unknown() };
                let outside = Some(if *zero { 0.0 } else { 1.0 });
                on.into_iter().zip(inner.turns(structure)).map(|(on, turn)| if on { turn } else { outside }).collect()
            }
            Outline::Partition { groups, labels, names } => {
                let Some(labelled) = labelled(labels, names, structure) else { return unknown() };
                let of_groups: Vec<Turns> = groups.iter().map(|group| group.turns(structure)).collect();
                labelled.into_iter().enumerate().map(|(leaf, group)| of_groups[group][leaf]).collect()
            }
        }
    }

    /// Whether updates have a size of their own after it.
    pub(super) fn has_own_size(&self) -> bool {
        let any = |outlines: &[Outline]| outlines.iter().any(Outline::has_own_size);
        match self {
            Outline::Part { effect, .. } => effect.own_size,
            Outline::Chain(members) | Outline::NamedChain(members) => any(members),
            Outline::Optimizer { chain, .. } => chain.has_own_size(),
            Outline::Around { inner, .. } => inner.has_own_size(),
            Outline::Partition { groups, .. } => any(groups),
        }
    }

    /// Whether it keeps gradients from being too large.
    pub(super) fn limits(&self) -> Option<&'static str> {
        match self {
            Outline::Part { name, effect } if effect.limits => Some(name),
            _ => None,
        }
    }

    /// How much of the parameters it takes away itself.
    pub(super) fn decay(&self) -> f64 {
        if let Outline::Part { effect, .. } = self { effect.decay } else { 0.0 }
    }
}
