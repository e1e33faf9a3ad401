//! Projections and their departures: the nearest point, computed naively.

use gradchain::projection::*;
use gradchain::tree::DynTree;
use serde::Deserialize;
use serde_json::Value;

use super::kinds::{Given, read};
use super::transform::Stop;
use super::tree::{self, Leaves, Slack, Tolerance};
use super::{Departures, Verdict, verdict};

struct Projected<'a> {
    name: &'a str,
    given: Given<'a>,
    tree: Leaves,
    expected: Leaves,
    tolerance: Tolerance,
    /// The point, or the reason for none.
    found: Result<Leaves, String>,
}

pub(crate) fn run(case: &Value, departures: &Departures) -> Verdict {
    let case = match Projected::run(case) {
        Ok(case) => case,
        Err(stop) => return verdict(stop),
    };
    let difference = match case.differs_from(&case.expected) {
        Ok(()) => return Verdict::Passed,
        Err(difference) => difference,
    };
    for rule in departures.projection.iter().filter(|rule| rule.when.holds(&case)) {
        if rule.gives.agrees(&case) {
            return Verdict::Departed(vec![rule.name.clone()]);
        }
    }
    Verdict::Failed(difference)
}

impl Projected<'_> {
    fn run(case: &Value) -> Result<Projected<'_>, Stop> {
        let name = case["projection"].as_str().unwrap_or_default();
        let given = Given { trees: &Value::Null, args: &case["args"] };
        let mut x = read(&case["tree"])?;
        let tree = tree::leaves(&x);
        let found = project(name, &given, &mut x)?.map(|()| tree::leaves(&x)).map_err(|error| error.to_string());
        let expected = tree::read(&case["expected"]).map_err(Stop::Error)?;
        let tolerance = Tolerance::read(case).map_err(Stop::Error)?;
        Ok(Projected { name, given, tree, expected, tolerance, found })
    }

    fn differs_from(&self, expected: &Leaves) -> Result<(), String> {
        self.tolerance.compare("leaf", expected, self.found.as_ref().map_err(String::clone)?, &Slack::new())
    }

    fn elements(&self) -> Vec<f64> {
        self.tree.values().flat_map(|leaf| leaf.data.iter().copied()).collect()
    }

    fn scale(&self) -> f64 {
        self.given.number_or("scale", 1.0).unwrap_or(f64::NAN)
    }

    /// Returns a number's or a tree's elements, if present.
    fn operand(&self, argument: &str) -> Option<Vec<f64>> {
        match &self.given.args[argument]["tree"] {
            Value::Null => Some(vec![self.given.number(argument).ok()?; self.elements().len()]),
            tree => Some(tree::read(tree).ok()?.into_values().flat_map(|leaf| leaf.data).collect()),
        }
    }
}

fn project(name: &str, given: &Given<'_>, x: &mut DynTree) -> Result<gradchain::Result<()>, Stop> {
    let scale = || given.number_or("scale", 1.0);
    Ok(match name {
        "projection_box" => projection_box(x, given.operand("lower")?, given.operand("upper")?),
        "projection_halfspace" => projection_halfspace(x, given.operand("a")?, given.number("b")?),
        "projection_hypercube" if given.args["scale"].is_null() => projection_hypercube(x, 1.0),
        "projection_hypercube" => projection_hypercube(x, given.operand("scale")?),
        "projection_hyperplane" => projection_hyperplane(x, given.operand("a")?, given.number("b")?),
        "projection_l1_ball" => projection_l1_ball(x, scale()?),
        "projection_l1_sphere" => projection_l1_sphere(x, scale()?),
        "projection_l2_ball" => projection_l2_ball(x, scale()?),
        "projection_l2_sphere" => projection_l2_sphere(x, scale()?),
        "projection_linf_ball" => projection_linf_ball(x, scale()?),
        "projection_non_negative" => projection_non_negative(x),
        "projection_simplex" => projection_simplex(x, scale()?),
        "projection_vector" => projection_vector(x, given.operand("a")?),
        other => return Err(Stop::Error(format!("there is no `{other}`"))),
    })
}

/// Conditions, all required.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct When {
    /// One required; any if empty.
    #[serde(default)]
    uses_any: Vec<String>,
    situation: Situation,
}

/// A condition on the result.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Situation {
    /// All is finite, and Optax's result is outside the set.
    OffTheSet,
    /// All is finite, and a sum of squares or products overflows the dtype.
    ProductsOverflow,
    /// The arguments describe no set.
    NoSet,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Gives {
    /// The nearest point, in `f64`.
    NearestPoint,
    /// An error that names the problem.
    Refusal,
}

impl When {
    fn holds(&self, case: &Projected<'_>) -> bool {
        (self.uses_any.is_empty() || self.uses_any.iter().any(|name| name == case.name)) && self.situation.holds(case)
    }
}

impl Situation {
    fn holds(self, case: &Projected<'_>) -> bool {
        let x = case.elements();
        let finite = x.iter().all(|x| x.is_finite());
        match self {
            Situation::OffTheSet => finite && !holds(case.name, case.scale(), &case.expected, case.tolerance),
            Situation::ProductsOverflow => {
                let largest = |sum: f64| case.tree.values().any(|leaf| tree::round(leaf.dtype, sum).is_infinite());
                let a = case.operand("a").unwrap_or_default();
                let squares = |x: &[f64]| x.iter().map(|x| x * x).sum();
                let product: f64 = x.iter().zip(&a).map(|(x, a)| (x * a).abs()).sum();
                finite && [squares(&x), squares(&a), product].into_iter().any(largest)
            }
            Situation::NoSet => no_set(case).is_some(),
        }
    }
}

/// Returns true if a point is in the set.
fn holds(name: &str, scale: f64, point: &Leaves, tolerance: Tolerance) -> bool {
    let point: Vec<f64> = point.values().flat_map(|leaf| leaf.data.iter().copied()).collect();
    let sum = |f: fn(f64) -> f64| point.iter().map(|x| f(*x)).sum::<f64>();
    let near = Tolerance { atol: tolerance.atol * point.len() as f64, ..tolerance };
    match name {
        "projection_simplex" => near.agrees(scale, sum(|x| x)) && point.iter().all(|x| *x >= 0.0),
        "projection_l1_sphere" => near.agrees(scale, sum(f64::abs)),
        "projection_l2_sphere" => near.agrees(scale, sum(|x| x * x).sqrt()),
        "projection_l1_ball" => near.agrees(scale, sum(f64::abs).max(scale)) && point.iter().all(|x| x.is_finite()),
        "projection_l2_ball" => {
            near.agrees(scale, sum(|x| x * x).sqrt().max(scale)) && point.iter().all(|x| x.is_finite())
        }
        _ => true,
    }
}

/// Returns the problem that the error must name.
fn no_set(case: &Projected<'_>) -> Option<&'static str> {
    let number = |argument: &str| case.given.args[argument].as_f64();
    let zeros = |argument: &str| case.operand(argument).is_some_and(|a| a.iter().all(|a| *a == 0.0));
    let below = || {
        let [lower, upper] = [case.operand("lower")?, case.operand("upper")?];
        Some(lower.iter().zip(&upper).any(|(lower, upper)| upper < lower))
    };
    if number("scale").is_some_and(|scale| scale < 0.0) {
        Some("argument `scale` must be")
    } else if zeros("a") {
        Some("argument `a` must be not zero everywhere")
    } else {
        below()?.then_some("argument `upper` must be")
    }
}

impl Gives {
    fn agrees(self, case: &Projected<'_>) -> bool {
        match self {
            Gives::Refusal => {
                let what = no_set(case);
                case.found.as_ref().is_err_and(|said| what.is_some_and(|what| said.contains(what)))
            }
            Gives::NearestPoint => {
                let Some(nearest) = nearest(case) else { return false };
                let (mut nearest, mut point) = (nearest.into_iter(), case.tree.clone());
                for leaf in point.values_mut() {
                    leaf.data.iter_mut().zip(nearest.by_ref()).for_each(|(x, to)| *x = tree::round(leaf.dtype, to));
                }
                case.differs_from(&point).is_ok()
            }
        }
    }
}

/// Returns the nearest point; of several, with equal elements, or with the signs of zeros.
fn nearest(case: &Projected<'_>) -> Option<Vec<f64>> {
    let (x, scale) = (case.elements(), case.scale());
    let signed = |rests: Vec<f64>| x.iter().zip(rests).map(|(x, rest)| rest.copysign(*x)).collect();
    let sizes: Vec<f64> = x.iter().map(|x| x.abs()).collect();
    let largest = sizes.iter().copied().fold(0.0, f64::max);
    // Without overflow.
    let norm = sizes.iter().map(|x| x / largest.max(f64::MIN_POSITIVE)).map(|x| x * x).sum::<f64>().sqrt() * largest;
    let sphere = || match norm == 0.0 {
        true => vec![scale / (x.len() as f64).sqrt(); x.len()],
        false => x.iter().map(|x| x / norm * scale).collect(),
    };
    let along = |far: &dyn Fn(f64, f64) -> f64| {
        let a = case.operand("a")?;
        let dot = |x: &[f64], a: &[f64]| x.iter().zip(a).map(|(x, a)| x * a).sum::<f64>();
        let share = far(dot(&x, &a), case.given.number("b").unwrap_or(f64::NAN)) / dot(&a, &a);
        Some(a.into_iter().map(|a| share * a).collect::<Vec<f64>>())
    };
    let moved = |by: Vec<f64>| x.iter().zip(by).map(|(x, by)| x + by).collect();
    match case.name {
        "projection_simplex" => Some(simplex(&x, scale)),
        "projection_l1_ball" if sizes.iter().sum::<f64>() <= scale => Some(x),
        "projection_l1_ball" | "projection_l1_sphere" => Some(signed(simplex(&sizes, scale))),
        "projection_l2_ball" if norm <= scale => Some(x),
        "projection_l2_ball" | "projection_l2_sphere" => Some(sphere()),
        "projection_vector" => along(&|dot, _| dot),
        "projection_hyperplane" => along(&|dot, b| b - dot).map(moved),
        "projection_halfspace" => along(&|dot, b| (b - dot).min(0.0)).map(moved),
        _ => None,
    }
}

/// Sorts, and keeps as many of the largest as stay positive.
fn simplex(x: &[f64], scale: f64) -> Vec<f64> {
    let mut sorted = x.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let (mut sum, mut cut) = (0.0, f64::INFINITY);
    for (i, x) in sorted.into_iter().enumerate() {
        sum += x;
        let next = (sum - scale) / (i + 1) as f64;
        if x > next {
            cut = next;
        }
    }
    x.iter().map(|x| (x - cut).max(0.0)).collect()
}
