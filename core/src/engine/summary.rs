//! The structure of a transformation and its effect on updates, for the mistakes that `plan` finds.

use crate::recipe::words;
use crate::schedule::Hyperparam;
use crate::select::{Labels, Mask};
use crate::tree::Structure;

/// The mistakes that [`plan`](crate::GradientTransformation::plan) finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WarningKind {
    /// Gradients are clipped after they were divided by their own size.
    ClipAfterAdaptive,
    /// No part or two parts reverse the gradients: the steps increase the loss.
    Climbs,
    /// Weight decay pulls biases and the scales of norms to zero.
    DecayOnVectors,
    /// A learning rate is negative.
    NegativeRate,
    /// Weight decay moves parameters away from zero: it is negative, or follows a part that reverses updates.
    NegativeDecay,
    /// A mask or a group matches no leaf.
    EmptyGroup,
    /// Weight decay behind a [`freezable`] moves frozen leaves.
    ///
    /// [`freezable`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.freezable.html
    DecayOnFrozen,
    /// [`muon`] gives leaves that may be matrices to adam.
    ///
    /// [`muon`]: https://docs.rs/gradchain/latest/gradchain/optimizer/fn.muon.html
    LeftToAdam,
    /// The learning rate schedule is 0 in the first step, which then changes state and counts but no parameter.
    NoFirstStep,
    /// A later part rescales the step of a line search.
    RescaledLineSearch,
    /// Both [`schedule_free`] and its base have momentum.
    ///
    /// [`schedule_free`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.schedule_free.html
    MomentumTwice,
    /// Gradients are clipped before they are accumulated, or before the loss scale is removed.
    ClipOutside,
    /// A running mean follows the learning rate, so that it retains earlier rates.
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

/// The effect of a part on updates, from which [`plan`](crate::GradientTransformation::plan) finds mistakes in a chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// The factor of the direction: 1, -1, or 0 for no update.
    sign: Option<f64>,
    scale_invariant: bool,
    limits: bool,
    decay: f64,
    rate: bool,
    /// The learning rate, if negative.
    negative: Option<f64>,
    /// True if a schedule factor is 0 in the first step.
    starts_at_zero: bool,
    /// True if updates are multiplied by a number other than ±1.
    rescales: bool,
    /// True for a factor that is not a learning rate.
    factor: bool,
    /// True for a mean of past updates.
    momentum: bool,
    /// True if the step length is final: the loss was evaluated at its end.
    has_final_length: bool,
}

impl Effect {
    /// An unknown effect, for which `plan` has no warnings.
    pub const UNKNOWN: Effect = Effect {
        sign: None,
        scale_invariant: false,
        limits: false,
        decay: 0.0,
        rate: false,
        negative: None,
        starts_at_zero: false,
        rescales: false,
        factor: false,
        momentum: false,
        has_final_length: false,
    };
    /// Updates keep their direction, along the gradient or against it.
    pub const SAME_DIRECTION: Effect = Effect { sign: Some(1.0), ..Effect::UNKNOWN };
    /// Updates are reversed.
    pub const REVERSED: Effect = Effect { sign: Some(-1.0), ..Effect::UNKNOWN };
    /// Updates are zero.
    pub const ZERO: Effect = Effect { sign: Some(0.0), ..Effect::UNKNOWN };
    /// The size of updates is independent of that of the gradients, so that gradients must be limited before this part.
    pub const SCALE_INVARIANT: Effect = Effect { scale_invariant: true, ..Effect::SAME_DIRECTION };
    /// As [`SCALE_INVARIANT`](Self::SCALE_INVARIANT), and updates are reversed: a whole optimizer.
    pub const STEP: Effect = Effect { scale_invariant: true, ..Effect::REVERSED };
    /// A limit on the size of gradients, such as [`clip`].
    ///
    /// [`plan`](crate::GradientTransformation::plan) warns of a limit on rescaled gradients: behind a part with
    /// [`SCALE_INVARIANT`](Self::SCALE_INVARIANT), behind a line search ([`FINAL_LENGTH`](Self::FINAL_LENGTH)), and
    /// before `multi_steps` or `dynamic_loss_scale`.
    ///
    /// ```
    /// use gradchain::WarningKind;
    /// use gradchain::part::{Effect, Part};
    /// use gradchain::prelude::*;
    /// use gradchain::transform::zero_nans;
    ///
    /// assert_eq!((clip(1.0).effect(), zero_nans().effect()), (Effect::LIMITS, Effect::SAME_DIRECTION));
    /// let params = vec![0.0_f32; 8];
    /// let warnings = chain((adam(0.1), clip(1.0))).plan(&params)?.warnings;
    /// assert_eq!(warnings[0].kind, WarningKind::ClipAfterAdaptive);
    /// let warnings = chain((clip(1.0), multi_steps(adam(0.1), 4))).plan(&params)?.warnings;
    /// assert_eq!(warnings[0].kind, WarningKind::ClipOutside);
    /// assert!(chain((clip(1.0), adam(0.1))).plan(&params)?.warnings.is_empty());
    /// assert!(chain((adam(0.1), zero_nans())).plan(&params)?.warnings.is_empty());
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// [`clip`]: https://docs.rs/gradchain/latest/gradchain/transform/fn.clip.html
    pub const LIMITS: Effect = Effect { limits: true, ..Effect::SAME_DIRECTION };

    /// The length of the step is final: the loss was evaluated at its end.
    pub const FINAL_LENGTH: Effect = Effect { has_final_length: true, ..Effect::SAME_DIRECTION };

    /// Returns the effect of a factor, which may be negative. Of a schedule, only its value at step 0 counts.
    pub fn times(factor: &Hyperparam) -> Effect {
        match factor {
            Hyperparam::Number(factor) if !factor.is_nan() => {
                let sign = if *factor == 0.0 { 0.0 } else { factor.signum() };
                Effect { sign: Some(sign), rescales: factor.abs() != 1.0, factor: true, ..Effect::UNKNOWN }
            }
            _ => Effect { rescales: true, factor: true, starts_at_zero: factor.at(0) == 0.0, ..Effect::UNKNOWN },
        }
    }

    /// Returns this effect, times a learning rate. A schedule counts as positive.
    pub fn at_rate(self, rate: &Hyperparam) -> Effect {
        let by = Effect::times(rate);
        let negative = if let Hyperparam::Number(rate) = rate { Some(*rate).filter(|rate| *rate < 0.0) } else { None };
        let sign = match (self.sign, by.sign) {
            (Some(sign), Some(factor)) if !rate.is_scheduled() => Some(sign * factor),
            _ => self.sign,
        };
        Effect { sign, negative, rate: true, rescales: by.rescales, starts_at_zero: by.starts_at_zero, ..self }
    }

    pub(super) fn negative_rate(&self) -> Option<f64> {
        self.negative
    }

    pub(super) fn starts_at_zero(&self) -> bool {
        self.starts_at_zero
    }

    /// Returns true if a factor other than a learning rate reverses updates.
    pub(super) fn is_reversal(&self) -> bool {
        self.factor && self.sign == Some(-1.0)
    }

    /// Returns this effect, with a mean of past updates that has this decay.
    pub fn with_momentum(self, decay: &Hyperparam) -> Effect {
        Effect { momentum: !matches!(decay, Hyperparam::Number(0.0)), ..self }
    }

    /// Returns this effect, with weight decay.
    pub fn decays(self, weight_decay: &Hyperparam) -> Effect {
        let decay = if let Hyperparam::Number(decay) = weight_decay { *decay } else { 1.0 };
        Effect { decay, ..self }
    }
}

/// Each leaf's direction, where known: 1, -1 or 0.
pub(super) type Directions = Vec<Option<f64>>;

pub(super) fn compose(first: &Directions, then: &Directions) -> Directions {
    first.iter().zip(then).map(|(first, then)| Some((*first)? * (*then)?)).collect()
}

/// Returns each leaf's group, if the labels match the leaves.
pub(super) fn labelled(labels: &Labels, names: &[String], structure: &Structure) -> Option<Vec<usize>> {
    let known: Vec<&str> = names.iter().map(|name| &**name).collect();
    labels.resolve(structure, &known, "partition").ok()
}

/// The structure of a transformation.
#[derive(Clone, Debug)]
pub enum Summary {
    Part {
        name: &'static str,
        effect: Effect,
    },
    Chain(Vec<Summary>),
    NamedChain(Vec<Summary>),
    Optimizer {
        name: &'static str,
        chain: Box<Summary>,
    },
    Around {
        name: &'static str,
        key: &'static str,
        inner: Box<Summary>,
        mask: Option<Mask>,
        zero: bool,
    },
    Partition {
        groups: Vec<Summary>,
        labels: Labels,
        names: Vec<String>,
    },
    /// These mistakes are allowed inside.
    Allowed {
        kinds: Vec<WarningKind>,
        inner: Box<Summary>,
    },
}

impl Summary {
    pub(crate) fn part(name: &'static str, effect: Effect) -> Summary {
        Summary::Part { name, effect }
    }

    pub(crate) fn around(name: &'static str, key: &'static str, inner: Summary) -> Summary {
        Summary::Around { name, key, inner: Box::new(inner), mask: None, zero: false }
    }

    /// Returns the factor of the direction, if known.
    #[doc(hidden)]
    pub fn sign(&self) -> Option<f64> {
        match self {
            Summary::Part { effect, .. } => effect.sign,
            Summary::Chain(members) | Summary::NamedChain(members) => {
                members.iter().try_fold(1.0, |sign, member| Some(sign * member.sign()?))
            }
            Summary::Optimizer { chain, .. } => chain.sign(),
            // A mask passes other leaves unmodified, so later parts decide.
            Summary::Around { inner, mask: Some(mask), zero: false, .. } if !mask.is_all() => {
                inner.sign().filter(|sign| *sign > 0.0)
            }
            Summary::Around { inner, .. } => inner.sign(),
            Summary::Allowed { kinds, .. } if kinds.contains(&WarningKind::Climbs) => None,
            Summary::Allowed { inner, .. } => inner.sign(),
            // The directions of all groups must be known; one that increases the loss suffices.
            Summary::Partition { groups, .. } => {
                let directions = groups.iter().map(Summary::sign).collect::<Option<Vec<_>>>()?;
                Some(if directions.iter().any(|sign| *sign > 0.0) { 1.0 } else { -1.0 })
            }
        }
    }

    /// Returns each leaf's direction. Outside a mask updates are unmodified or zero.
    pub(super) fn directions(&self, structure: &Structure) -> Directions {
        let unknown = || vec![None; structure.len()];
        match self {
            Summary::Part { effect, .. } => vec![effect.sign; structure.len()],
            Summary::Chain(members) | Summary::NamedChain(members) => {
                let along = vec![Some(1.0); structure.len()];
                members.iter().fold(along, |directions, member| compose(&directions, &member.directions(structure)))
            }
            Summary::Optimizer { chain, .. } => chain.directions(structure),
            Summary::Around { inner, mask: None, .. } => inner.directions(structure),
            Summary::Allowed { kinds, .. } if kinds.contains(&WarningKind::Climbs) => unknown(),
            Summary::Allowed { inner, .. } => inner.directions(structure),
            Summary::Around { inner, mask: Some(mask), zero, .. } => {
                let Ok(on) = mask.resolve(structure, "mask") else { return unknown() };
                let outside = Some(if *zero { 0.0 } else { 1.0 });
                on.into_iter()
                    .zip(inner.directions(structure))
                    .map(|(on, sign)| if on { sign } else { outside })
                    .collect()
            }
            Summary::Partition { groups, labels, names } => {
                let Some(labelled) = labelled(labels, names, structure) else { return unknown() };
                let of_groups: Vec<Directions> = groups.iter().map(|group| group.directions(structure)).collect();
                labelled.into_iter().enumerate().map(|(leaf, group)| of_groups[group][leaf]).collect()
            }
        }
    }

    pub(super) fn any(&self, does: &dyn Fn(&Effect) -> bool) -> bool {
        let any = |outlines: &[Summary]| outlines.iter().any(|summary| summary.any(does));
        match self {
            Summary::Part { effect, .. } => does(effect),
            Summary::Chain(members) | Summary::NamedChain(members) => any(members),
            Summary::Optimizer { chain, .. } => chain.any(does),
            Summary::Around { inner, .. } | Summary::Allowed { inner, .. } => inner.any(does),
            Summary::Partition { groups, .. } => any(groups),
        }
    }

    pub(super) fn is_scale_invariant(&self) -> bool {
        self.any(&|effect| effect.scale_invariant)
    }

    /// Returns true if it rescales updates, so that the step length is not final.
    pub(super) fn rescales(&self) -> bool {
        self.any(&|effect| effect.rescales || effect.scale_invariant || effect.limits)
    }

    pub(super) fn has_final_length(&self) -> bool {
        self.any(&|effect| effect.has_final_length)
    }

    pub(super) fn has_momentum(&self) -> bool {
        self.any(&|effect| effect.momentum)
    }

    pub(super) fn has_rate(&self) -> bool {
        self.any(&|effect| effect.rate)
    }

    /// Returns how often a learning rate turns each leaf's updates against the gradient.
    pub(super) fn descents(&self, structure: &Structure) -> Vec<u32> {
        let none = || vec![0; structure.len()];
        match self {
            Summary::Part { effect, .. } => {
                let descends = (effect.rate || effect.scale_invariant) && effect.sign == Some(-1.0);
                vec![descends.into(); structure.len()]
            }
            Summary::Chain(members) | Summary::NamedChain(members) => members.iter().fold(none(), |sum, member| {
                sum.iter().zip(member.descents(structure)).map(|(sum, times)| sum + times).collect()
            }),
            Summary::Optimizer { chain, .. } => {
                chain.directions(structure).iter().map(|sign| (*sign == Some(-1.0)).into()).collect()
            }
            Summary::Around { inner, mask: None, .. } => inner.descents(structure),
            Summary::Around { inner, mask: Some(mask), .. } => match mask.resolve(structure, "mask") {
                Ok(on) => inner.descents(structure).iter().zip(on).map(|(times, on)| times * u32::from(on)).collect(),
                Err(_) => none(),
            },
            Summary::Allowed { inner, .. } => inner.descents(structure),
            Summary::Partition { groups, labels, names } => {
                let Some(labelled) = labelled(labels, names, structure) else { return none() };
                let groups: Vec<Vec<u32>> = groups.iter().map(|group| group.descents(structure)).collect();
                labelled.into_iter().enumerate().map(|(leaf, group)| groups[group][leaf]).collect()
            }
        }
    }

    pub(crate) fn negatives(&self) -> Vec<(WarningKind, &'static str, f64)> {
        let all = |outlines: &[Summary]| outlines.iter().flat_map(Summary::negatives).collect();
        match self {
            Summary::Part { name, effect } => {
                let rate = effect.negative.map(|rate| (WarningKind::NegativeRate, *name, rate));
                let decay = Some(effect.decay).filter(|decay| *decay < 0.0);
                rate.into_iter().chain(decay.map(|decay| (WarningKind::NegativeDecay, *name, decay))).collect()
            }
            Summary::Chain(members) | Summary::NamedChain(members) => all(members),
            Summary::Optimizer { chain, .. } => chain.negatives(),
            Summary::Around { inner, .. } => inner.negatives(),
            Summary::Allowed { kinds, inner } => {
                inner.negatives().into_iter().filter(|(kind, ..)| !kinds.contains(kind)).collect()
            }
            Summary::Partition { groups, .. } => all(groups),
        }
    }

    pub(super) fn limits(&self) -> Option<&'static str> {
        match self {
            Summary::Part { name, effect } if effect.limits => Some(name),
            _ => None,
        }
    }

    pub(super) fn decay(&self) -> f64 {
        if let Summary::Part { effect, .. } = self { effect.decay } else { 0.0 }
    }
}
