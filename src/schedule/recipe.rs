//! Schedules as data.

use super::*;
use crate::recipe::{Recipe, ToRecipe};

impl ToRecipe for Schedule {
    fn to_recipe(&self) -> Recipe {
        let number = |x: f64| Recipe::Number(x);
        let steps = |n: u64| n.to_recipe();
        match self {
            Schedule::Constant(s) => Recipe::call("constant", [("value", number(s.value))]),
            Schedule::Linear(s) => Recipe::call(
                "linear",
                [
                    ("init_value", number(s.init_value)),
                    ("end_value", number(s.end_value)),
                    ("transition_steps", steps(s.transition_steps)),
                    ("transition_begin", steps(s.transition_begin)),
                ],
            ),
            Schedule::Polynomial(s) => Recipe::call(
                "polynomial",
                [
                    ("init_value", number(s.init_value)),
                    ("end_value", number(s.end_value)),
                    ("power", number(s.power)),
                    ("transition_steps", steps(s.transition_steps)),
                    ("transition_begin", steps(s.transition_begin)),
                ],
            ),
            Schedule::ExponentialDecay(s) => Recipe::call(
                "exponential_decay",
                [
                    ("init_value", number(s.init_value)),
                    ("transition_steps", steps(s.transition_steps)),
                    ("decay_rate", number(s.decay_rate)),
                    ("transition_begin", steps(s.transition_begin)),
                    ("staircase", s.staircase.to_recipe()),
                    ("end_value", s.end_value.to_recipe()),
                ],
            ),
            Schedule::CosineDecay(s) => Recipe::call(
                "cosine_decay",
                [
                    ("init_value", number(s.init_value)),
                    ("decay_steps", steps(s.decay_steps)),
                    ("alpha", number(s.alpha)),
                    ("exponent", number(s.exponent)),
                ],
            ),
            Schedule::PiecewiseConstant(s) => Recipe::call(
                "piecewise_constant",
                [
                    ("init_value", number(s.init_value())),
                    ("boundaries_and_scales", s.boundaries_and_scales().to_recipe()),
                ],
            ),
            Schedule::PiecewiseInterpolate(s) => Recipe::call(
                "piecewise_interpolate",
                [
                    (
                        "interpolate_type",
                        Recipe::text(match s.interpolate_type() {
                            InterpolateType::Linear => "linear",
                            InterpolateType::Cosine => "cosine",
                        }),
                    ),
                    ("init_value", number(s.init_value())),
                    ("boundaries_and_scales", s.boundaries_and_scales().to_recipe()),
                ],
            ),
            Schedule::WarmupConstant(s) => Recipe::call(
                "warmup_constant",
                [
                    ("init_value", number(s.init_value)),
                    ("peak_value", number(s.peak_value)),
                    ("warmup_steps", steps(s.warmup_steps)),
                ],
            ),
            Schedule::WarmupCosineDecay(s) => Recipe::call("warmup_cosine_decay", warmup_cosine(s)),
            Schedule::WarmupExponentialDecay(s) => Recipe::call(
                "warmup_exponential_decay",
                [
                    ("init_value", number(s.init_value)),
                    ("peak_value", number(s.decay.init_value)),
                    ("warmup_steps", steps(s.warmup_steps)),
                    ("transition_steps", steps(s.decay.transition_steps)),
                    ("decay_rate", number(s.decay.decay_rate)),
                    ("transition_begin", steps(s.decay.transition_begin)),
                    ("staircase", s.decay.staircase.to_recipe()),
                    ("end_value", s.decay.end_value.to_recipe()),
                ],
            ),
            Schedule::LinearOnecycle(s) => Recipe::call(
                "linear_onecycle",
                [
                    ("transition_steps", steps(s.transition_steps)),
                    ("peak_value", number(s.peak_value)),
                    ("pct_start", number(s.pct_start)),
                    ("pct_final", number(s.pct_final)),
                    ("div_factor", number(s.div_factor)),
                    ("final_div_factor", number(s.final_div_factor)),
                ],
            ),
            Schedule::CosineOnecycle(s) => Recipe::call(
                "cosine_onecycle",
                [
                    ("transition_steps", steps(s.transition_steps)),
                    ("peak_value", number(s.peak_value)),
                    ("pct_start", number(s.pct_start)),
                    ("div_factor", number(s.div_factor)),
                    ("final_div_factor", number(s.final_div_factor)),
                ],
            ),
            Schedule::Sgdr(s) => {
                let cycles = s.cycles.iter().map(|cycle| Recipe::map(warmup_cosine(cycle)));
                Recipe::call("sgdr", [("cosine_kwargs", Recipe::List(cycles.collect()))])
            }
            Schedule::Join(s) => {
                Recipe::call("join", [("schedules", s.schedules.to_recipe()), ("boundaries", s.boundaries.to_recipe())])
            }
            Schedule::WarmupStableDecay(s) => Recipe::call(
                "warmup_stable_decay",
                [
                    ("peak_value", number(s.peak_value)),
                    ("warmup_steps", steps(s.warmup_steps)),
                    ("stable_steps", steps(s.stable_steps)),
                    ("decay_steps", steps(s.decay_steps)),
                    ("init_value", number(s.init_value)),
                    ("end_value", number(s.end_value)),
                    (
                        "shape",
                        Recipe::text(match s.shape {
                            DecayShape::Linear => "linear",
                            DecayShape::OneMinusSqrt => "one_minus_sqrt",
                            DecayShape::Cosine => "cosine",
                        }),
                    ),
                ],
            ),
            Schedule::InverseSqrt(s) => Recipe::call(
                "inverse_sqrt",
                [("peak_value", number(s.peak_value)), ("warmup_steps", steps(s.warmup_steps))],
            ),
            Schedule::Rex(s) => {
                Recipe::call("rex", [("init_value", number(s.init_value)), ("decay_steps", steps(s.decay_steps))])
            }
            Schedule::CosineRestarts(s) => Recipe::call(
                "cosine_restarts",
                [
                    ("init_value", number(s.init_value)),
                    ("cycle_steps", steps(s.cycle_steps)),
                    ("steps_factor", steps(s.steps_factor)),
                    ("value_factor", number(s.value_factor)),
                    ("alpha", number(s.alpha)),
                ],
            ),
            Schedule::Table(s) => Recipe::call("table", [("values", s.values.to_recipe()), ("every", steps(s.every))]),
            Schedule::Clamp(s) => Recipe::call(
                "clamp",
                [
                    ("schedule", s.schedule.to_recipe()),
                    ("min_value", number(s.min_value)),
                    ("max_value", number(s.max_value)),
                ],
            ),
            Schedule::Sum(s) => Recipe::call("sum", [("schedules", s.schedules.to_recipe())]),
            Schedule::Product(s) => Recipe::call("product", [("schedules", s.schedules.to_recipe())]),
            Schedule::FromFn(s) => Recipe::Opaque(s.to_string()),
        }
    }
}

fn warmup_cosine(s: &WarmupCosineDecay) -> [(&'static str, Recipe); 6] {
    [
        ("init_value", s.init_value.to_recipe()),
        ("peak_value", s.peak_value.to_recipe()),
        ("warmup_steps", s.warmup_steps.to_recipe()),
        ("decay_steps", s.decay_steps.to_recipe()),
        ("end_value", s.end_value.to_recipe()),
        ("exponent", s.exponent.to_recipe()),
    ]
}

impl ToRecipe for Hyperparam {
    fn to_recipe(&self) -> Recipe {
        match self {
            Hyperparam::Number(number) => Recipe::Number(*number),
            Hyperparam::Schedule(schedule) => Recipe::map([("schedule", schedule.to_recipe())]),
        }
    }
}
