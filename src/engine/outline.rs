//! What a transformation is made of, and what each part does to updates: what mistakes are found in.

use crate::recipe::words;
use crate::schedule::Hyperparam;
use crate::select::{Labels, Mask};
use crate::tree::Structure;

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
    /// A learning rate is negative.
    NegativeRate,
    /// Weight decay drives parameters away from zero: it is negative, or comes after what turns updates round.
    NegativeDecay,
    /// A mask or a group takes no leaf.
    EmptyGroup,
    /// Weight decay behind a [`freezable`](crate::wrapper::freezable) moves leaves that are frozen.
    DecayOnFrozen,
    /// [`muon`](crate::muon()) leaves leaves to adam that may be matrices.
    LeftToAdam,
    /// A schedule of the learning rate is 0 in the first step, which changes state and counts and no parameter.
    NoFirstStep,
    /// The step of a line search is made longer or shorter afterwards.
    RescaledLineSearch,
    /// The base of a [`schedule_free`](crate::wrapper::schedule_free()) has momentum, and so has the wrapper.
    MomentumTwice,
    /// Gradients are clipped before they are accumulated, or before the loss scale is taken away.
    ClipOutside,
    /// A running mean comes after the learning rate: it goes on with earlier rates.
    MeanAfterRate,
}

words!(WarningKind {
    ClipAfterAdaptive = "clip_after_adaptive",
    Climbs = "climbs",
    DecayOnVectors = "decay_on_vectors",
    NegativeRate = "negative_rate",
    NegativeDecay = "negative_decay",
    EmptyGroup = "empty_group",
    DecayOnFrozen = "decay_on_frozen",
    LeftToAdam = "left_to_adam",
    NoFirstStep = "no_first_step",
    RescaledLineSearch = "rescaled_line_search",
    MomentumTwice = "momentum_twice",
    ClipOutside = "clip_outside",
    MeanAfterRate = "mean_after_rate",
});

/// What a part does to updates, as far as [`plan`](crate::GradientTransformation::plan) looks for mistakes in a chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// What the direction is multiplied by: 1 or -1, or 0 for no update at all.
    turn: Option<f64>,
    own_size: bool,
    limits: bool,
    /// How much of the parameters is taken away.
    decay: f64,
    /// True if updates are multiplied by a learning rate.
    rate: bool,
    /// The learning rate, if it is a negative number.
    negative: Option<f64>,
    /// True if a schedule that updates are multiplied by is 0 in the first step.
    starts_at_zero: bool,
    /// True if updates are multiplied by something else than 1 and -1.
    resizes: bool,
    /// True if it multiplies by a factor that is no learning rate.
    factor: bool,
    /// True if it keeps a mean of past updates: momentum.
    momentum: bool,
    /// True if the length of the step is final, since the loss has been evaluated at its end.
    settles: bool,
}

impl Effect {
    /// Nothing is known, and nothing warned of.
    pub const UNKNOWN: Effect = Effect {
        turn: None,
        own_size: false,
        limits: false,
        decay: 0.0,
        rate: false,
        negative: None,
        starts_at_zero: false,
        resizes: false,
        factor: false,
        momentum: false,
        settles: false,
    };
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
    /// A limit on the size of gradients, as of [`clip`](crate::transform::clip()).
    ///
    /// [`plan`](crate::GradientTransformation::plan) warns of a limit that sees other sizes: behind a part with
    /// [`OWN_SIZE`](Self::OWN_SIZE), behind a line search ([`SETTLED`](Self::SETTLED)), and before `multi_steps` or
    /// `dynamic_loss_scale`.
    ///
    /// ```
    /// use gradchain::WarningKind;
    /// use gradchain::part::{Effect, Part};
    /// use gradchain::prelude::*;
    /// use gradchain::transform::zero_nans;
    ///
    /// assert_eq!((clip(1.0).effect(), zero_nans().effect()), (Effect::LIMITS, Effect::ALONG));
    /// let params = vec![0.0_f32; 8];
    /// let warnings = chain((adam(0.1), clip(1.0))).plan(&params)?.warnings;
    /// assert_eq!(warnings[0].kind, WarningKind::ClipAfterAdaptive);
    /// let warnings = chain((clip(1.0), multi_steps(adam(0.1), 4))).plan(&params)?.warnings;
    /// assert_eq!(warnings[0].kind, WarningKind::ClipOutside);
    /// assert!(chain((clip(1.0), adam(0.1))).plan(&params)?.warnings.is_empty());
    /// assert!(chain((adam(0.1), zero_nans())).plan(&params)?.warnings.is_empty());
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub const LIMITS: Effect = Effect { limits: true, ..Effect::ALONG };

    /// The length of the step is final: the loss has been evaluated at its end.
    pub const SETTLED: Effect = Effect { settles: true, ..Effect::ALONG };

    /// Updates are multiplied by a number, which may be negative; of a schedule only the first value is looked at.
    pub fn times(factor: &Hyperparam) -> Effect {
        match factor {
            Hyperparam::Number(factor) if !factor.is_nan() => {
                let turn = if *factor == 0.0 { 0.0 } else { factor.signum() };
                Effect { turn: Some(turn), resizes: factor.abs() != 1.0, factor: true, ..Effect::UNKNOWN }
            }
            _ => Effect { resizes: true, factor: true, starts_at_zero: factor.at(0) == 0.0, ..Effect::UNKNOWN },
        }
    }

    /// The same for a rate, of which a schedule is taken to be positive.
    pub fn at_rate(self, rate: &Hyperparam) -> Effect {
        let by = Effect::times(rate);
        let negative = if let Hyperparam::Number(rate) = rate { Some(*rate).filter(|rate| *rate < 0.0) } else { None };
        let turn = match (self.turn, by.turn) {
            (Some(turn), Some(sign)) if !rate.is_scheduled() => Some(turn * sign),
            _ => self.turn,
        };
        Effect { turn, negative, rate: true, resizes: by.resizes, starts_at_zero: by.starts_at_zero, ..self }
    }

    /// The learning rate, if it is a negative number.
    pub(super) fn negative_rate(&self) -> Option<f64> {
        self.negative
    }

    /// Returns whether a schedule leaves nothing of the first step.
    pub(super) fn starts_at_zero(&self) -> bool {
        self.starts_at_zero
    }

    /// Returns whether it turns updates round by a factor, not by a learning rate.
    pub(super) fn is_reversal(&self) -> bool {
        self.factor && self.turn == Some(-1.0)
    }

    /// And past updates are kept in a mean with this decay.
    pub fn with_momentum(self, decay: &Hyperparam) -> Effect {
        Effect { momentum: !matches!(decay, Hyperparam::Number(0.0)), ..self }
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
    Part {
        name: &'static str,
        effect: Effect,
    },
    Chain(Vec<Outline>),
    NamedChain(Vec<Outline>),
    Optimizer {
        name: &'static str,
        chain: Box<Outline>,
    },
    Around {
        name: &'static str,
        key: &'static str,
        inner: Box<Outline>,
        mask: Option<Mask>,
        zero: bool,
    },
    Partition {
        groups: Vec<Outline>,
        labels: Labels,
        names: Vec<String>,
    },
    /// A transformation in which mistakes of these kinds are allowed.
    Allowed {
        kinds: Vec<WarningKind>,
        inner: Box<Outline>,
    },
}

impl Outline {
    /// What is known of a part without looking further.
    pub(crate) fn part(name: &'static str, effect: Effect) -> Outline {
        Outline::Part { name, effect }
    }

    /// A wrapper that leaves it to what is inside.
    pub(crate) fn around(name: &'static str, key: &'static str, inner: Outline) -> Outline {
        Outline::Around { name, key, inner: Box::new(inner), mask: None, zero: false }
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
            Outline::Allowed { kinds, .. } if kinds.contains(&WarningKind::Climbs) => None,
            Outline::Allowed { inner, .. } => inner.turn(),
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
            Outline::Allowed { kinds, .. } if kinds.contains(&WarningKind::Climbs) => unknown(),
            Outline::Allowed { inner, .. } => inner.turns(structure),
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

    /// Returns whether any part of it does this to updates.
    pub(super) fn any(&self, does: &dyn Fn(&Effect) -> bool) -> bool {
        let any = |outlines: &[Outline]| outlines.iter().any(|outline| outline.any(does));
        match self {
            Outline::Part { effect, .. } => does(effect),
            Outline::Chain(members) | Outline::NamedChain(members) => any(members),
            Outline::Optimizer { chain, .. } => chain.any(does),
            Outline::Around { inner, .. } | Outline::Allowed { inner, .. } => inner.any(does),
            Outline::Partition { groups, .. } => any(groups),
        }
    }

    /// Returns whether updates have a size of their own after it.
    pub(super) fn has_own_size(&self) -> bool {
        self.any(&|effect| effect.own_size)
    }

    /// Returns whether it multiplies updates, or gives them a size, so that a step that was settled is no longer.
    pub(super) fn resizes(&self) -> bool {
        self.any(&|effect| effect.resizes || effect.own_size || effect.limits)
    }

    /// Returns whether the length of the step is final after it.
    pub(super) fn settles(&self) -> bool {
        self.any(&|effect| effect.settles)
    }

    /// Returns whether it has momentum.
    pub(super) fn has_momentum(&self) -> bool {
        self.any(&|effect| effect.momentum)
    }

    /// Returns whether it multiplies by a learning rate.
    pub(super) fn has_rate(&self) -> bool {
        self.any(&|effect| effect.rate)
    }

    /// Returns whether it goes against the gradient by a learning rate, how often, for each leaf.
    pub(super) fn descents(&self, structure: &Structure) -> Vec<u32> {
        let none = || vec![0; structure.len()];
        match self {
            Outline::Part { effect, .. } => {
                let descends = (effect.rate || effect.own_size) && effect.turn == Some(-1.0);
                vec![descends.into(); structure.len()]
            }
            Outline::Chain(members) | Outline::NamedChain(members) => members.iter().fold(none(), |sum, member| {
                sum.iter().zip(member.descents(structure)).map(|(sum, times)| sum + times).collect()
            }),
            Outline::Optimizer { chain, .. } => {
                chain.turns(structure).iter().map(|turn| (*turn == Some(-1.0)).into()).collect()
            }
            Outline::Around { inner, mask: None, .. } => inner.descents(structure),
            Outline::Around { inner, mask: Some(mask), .. } => match mask.resolve(structure, "mask") {
                Ok(on) => inner.descents(structure).iter().zip(on).map(|(times, on)| times * u32::from(on)).collect(),
                Err(_) => none(),
            },
            Outline::Allowed { inner, .. } => inner.descents(structure),
            Outline::Partition { groups, labels, names } => {
                let Some(labelled) = labelled(labels, names, structure) else { return none() };
                let groups: Vec<Vec<u32>> = groups.iter().map(|group| group.descents(structure)).collect();
                labelled.into_iter().enumerate().map(|(leaf, group)| groups[group][leaf]).collect()
            }
        }
    }

    /// The learning rates and decays that are negative numbers, each with the part's name.
    pub(crate) fn negatives(&self) -> Vec<(WarningKind, &'static str, f64)> {
        let all = |outlines: &[Outline]| outlines.iter().flat_map(Outline::negatives).collect();
        match self {
            Outline::Part { name, effect } => {
                let rate = effect.negative.map(|rate| (WarningKind::NegativeRate, *name, rate));
                let decay = Some(effect.decay).filter(|decay| *decay < 0.0);
                rate.into_iter().chain(decay.map(|decay| (WarningKind::NegativeDecay, *name, decay))).collect()
            }
            Outline::Chain(members) | Outline::NamedChain(members) => all(members),
            Outline::Optimizer { chain, .. } => chain.negatives(),
            Outline::Around { inner, .. } => inner.negatives(),
            Outline::Allowed { kinds, inner } => {
                inner.negatives().into_iter().filter(|(kind, ..)| !kinds.contains(kind)).collect()
            }
            Outline::Partition { groups, .. } => all(groups),
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
