//! Reference results for transformations that Optax has wrong, of naive parts and this crate's.
//!
//! Accumulation: the inner transformation gets the mean (or sum) of each window's gradients and losses, and nothing is
//! carried between windows; `apply_every` likewise. Rounds of `sam` skip computations without an effect.

use std::collections::BTreeMap;

use gradchain::prelude::*;
use gradchain::tree::DynTree;
use gradchain::{OptState, apply_updates, config, extra, needs};
use serde_json::{Value, json};

use super::naive::{Acprop, Ademamix, Adopt, FactoredRms, Naive, Plateau, Rprop, SimplifiedAdemamix, Stddev, Unit};
use super::transform::{self, Seen, Transform};
use super::tree::{self, Leaf, Leaves};

/// Expected results, and the steps from which departures apply.
pub(crate) struct Windows {
    pub(crate) seen: Vec<Seen>,
    /// The first step that accumulated a gradient that is not finite.
    pub(crate) poisoned: Option<usize>,
    /// The first complete window whose loss differs from its last mini-step's.
    pub(crate) averaged: Option<usize>,
}

/// Runs naive parts at the top, and in chains, masks, partitions, conditions, `sam` and accumulation.
pub(crate) fn windows(case: &Transform) -> Option<Windows> {
    leaning(case, 0.0)
}

/// Rounds decisions by the maximal error, up (1) or down (−1).
pub(crate) fn leaning(case: &Transform, lean: f64) -> Option<Windows> {
    let mut params = tree::dynamic(&case.params);
    let mut node = Node::build(&case.config, &params)?;
    node.each(&mut |node| {
        if let Node::Rule(rule) = node {
            rule.lean(lean);
        }
    });
    let (mut seen, mut poisoned, mut averaged) = (Vec::new(), None, None);
    for (number, step) in case.steps.iter().enumerate() {
        let (updates, _) = node.update(step.grads.clone(), step.value, &params)?;
        let [mut is_poisoned, mut is_averaged] = [false; 2];
        node.each(&mut |node| match node {
            Node::Sums(sums) => is_poisoned |= sums.poisoned,
            Node::Window(window) => {
                is_poisoned |= window.poisoned;
                is_averaged |= window.averaged;
            }
            _ => {}
        });
        poisoned = poisoned.or(is_poisoned.then_some(number));
        averaged = averaged.or(is_averaged.then_some(number));
        apply_updates(&mut params, &tree::dynamic(&updates)).ok()?;
        let mut flags = BTreeMap::new();
        node.flags(&case.params.keys().cloned().collect::<Vec<_>>(), &mut flags);
        seen.push(Seen { updates, params: tree::leaves(&params), flags, ..Seen::default() });
    }
    Some(Windows { seen, poisoned, averaged })
}

enum Node {
    Chain(Vec<Node>),
    Parts(Vec<(Vec<String>, Node)>),
    Rule(Box<dyn Naive>),
    Plateau(Box<Plateau>),
    Sums(Sums),
    Whole(Boxed<needs::Value>, Box<OptState<Boxed<needs::Value>>>),
    Window(Box<Window>),
    /// All leaves as one.
    Flat(Box<Node>),
    Sometimes(Box<Sometimes>),
    IfFinite(Box<IfFinite>),
    Sam(Box<Sam>),
}

struct Window {
    inner: Node,
    every_k: Value,
    mean: bool,
    skip: Value,
    gradients: Vec<Leaves>,
    losses: Vec<f64>,
    emitted: u64,
    /// True if a gradient that is not finite was accumulated.
    poisoned: bool,
    /// A window's loss differed from its last mini-step's.
    averaged: bool,
    flags: BTreeMap<String, Value>,
}

/// Runs in some steps; in others updates are zero, or pass.
struct Sometimes {
    inner: Node,
    condition: Value,
    zero: bool,
    steps: u64,
}

/// Runs if gradients are finite, or have not been for too many steps; in others updates are zero.
struct IfFinite {
    inner: Node,
    most: u64,
    in_a_row: u64,
    in_all: u64,
}

/// Adversarial steps, then one of the optimizer.
struct Sam {
    optimizer: Node,
    adversary: Node,
    /// Rebuilds the adversary after each round.
    reset: Option<Value>,
    period: u64,
    done: u64,
    /// The round's start.
    start: DynTree,
}

impl Node {
    fn build(config: &Value, params: &DynTree) -> Option<Node> {
        if let Some(members) = config["chain"].as_array() {
            return Some(Node::Chain(members.iter().map(|m| Node::build(m, params)).collect::<Option<_>>()?));
        }
        if let Some(args) = config.get("multi_steps") {
            return Some(Node::Window(Box::new(Window {
                inner: Node::build(&args["inner"], params)?,
                every_k: args["every_k_schedule"].clone(),
                mean: args["use_grad_mean"] != false,
                skip: args["should_skip_update_fn"].clone(),
                gradients: Vec::new(),
                losses: Vec::new(),
                emitted: 0,
                poisoned: false,
                averaged: false,
                flags: BTreeMap::new(),
            })));
        }
        if !mentions_naive(config) {
            return Node::whole(config, params);
        }
        let (name, args) = single(config)?;
        let rule = |rule: Box<dyn Naive>| Some(Node::Rule(rule));
        let decayed = |rule: Box<dyn Naive>| {
            let decay = json!({"weight_decay": args["weight_decay"].as_f64().unwrap_or(0.0), "mask": args["mask"]});
            Some(Node::Chain(vec![
                Node::Rule(rule),
                Node::whole(&json!({"add_decayed_weights": decay}), params)?,
                Node::whole(&json!({"scale_by_learning_rate": {"learning_rate": args["learning_rate"]}}), params)?,
            ]))
        };
        match name {
            "rprop" | "scale_by_rprop" => rule(Box::new(Rprop::build(name, args)?)),
            "normalize" => rule(Box::new(Unit)),
            "scale_by_simplified_ademamix" => rule(Box::new(SimplifiedAdemamix::build(args)?)),
            "simplified_ademamix" => decayed(Box::new(SimplifiedAdemamix::build(args)?)),
            "scale_by_ademamix" => rule(Box::new(Ademamix::build(name, args)?)),
            "ademamix" => decayed(Box::new(Ademamix::build(name, args)?)),
            "acprop" => decayed(Box::new(Acprop::build(args)?)),
            "scale_by_acprop" => rule(Box::new(Acprop::build(args)?)),
            "adopt" => Some(Node::Chain(vec![
                Node::Rule(Box::new(Adopt::build(args)?)),
                Node::whole(&json!({"scale_by_learning_rate": {"learning_rate": args["learning_rate"]}}), params)?,
            ])),
            "scale_by_adopt" => rule(Box::new(Adopt::build(args)?)),
            "reduce_on_plateau" => Some(Node::Plateau(Box::new(Plateau::build(args)?))),
            "scale_by_factored_rms" => rule(Box::new(FactoredRms::build(args)?)),
            "scale_by_stddev" => rule(Box::new(Stddev::build(args)?)),
            "rmsprop" => {
                let rate = json!({"scale_by_learning_rate": {"learning_rate": args["learning_rate"]}});
                let mut members = vec![Node::Rule(Box::new(Stddev::build(args)?)), Node::whole(&rate, params)?];
                if !args["momentum"].is_null() {
                    let trace = json!({"decay": args["momentum"], "nesterov": args["nesterov"] == true});
                    members.push(Node::whole(&json!({"trace": trace}), params)?);
                }
                Some(Node::Chain(members))
            }
            "apply_every" => {
                let k = args.get("k").map_or(Some(1), Value::as_u64)? as usize;
                Some(Node::Sums(Sums { k, gradients: Vec::new(), poisoned: false }))
            }
            "sam" => {
                let build = |argument: &str| Node::build(&args[argument], params);
                Some(Node::Sam(Box::new(Sam {
                    optimizer: build("optimizer")?,
                    adversary: build("adv_optimizer")?,
                    reset: (args["reset_state"] != false).then(|| args["adv_optimizer"].clone()),
                    period: args.get("sync_period").map_or(Some(2), Value::as_u64)?,
                    done: 0,
                    start: params.clone(),
                })))
            }
            "conditionally_transform" | "conditionally_mask" => Some(Node::Sometimes(Box::new(Sometimes {
                inner: Node::build(&args["inner"], params)?,
                condition: args["should_transform_fn"].clone(),
                zero: name == "conditionally_mask",
                steps: 0,
            }))),
            "apply_if_finite" => Some(Node::IfFinite(Box::new(IfFinite {
                inner: Node::build(&args["inner"], params)?,
                most: args["max_consecutive_errors"].as_u64()?,
                in_a_row: 0,
                in_all: 0,
            }))),
            "named_chain" => {
                let member = |member: &Value| Node::build(&member[1], params);
                Some(Node::Chain(args.as_array()?.iter().map(member).collect::<Option<_>>()?))
            }
            "inject_hyperparams" => Node::build(&args["inner"], params),
            "flatten" => {
                Some(Node::Flat(Box::new(Node::build(&args["inner"], &tree::dynamic(&flat(&tree::leaves(params))?))?)))
            }
            "masked" => {
                let on = chosen(&args["mask"], params)?;
                let inner = Node::build(&args["inner"], &some(params, &on))?;
                Some(Node::Parts(vec![(on, inner)]))
            }
            "selective_transform" => {
                let frozen = chosen(&args["freeze_mask"], params)?;
                let free: Vec<_> = params.names().map(String::from).filter(|path| !frozen.contains(path)).collect();
                let inner = Node::build(&args["optimizer"], &some(params, &free))?;
                let nothing = Node::whole(&json!({"set_to_zero": {}}), &some(params, &frozen))?;
                Some(Node::Parts(vec![(free, inner), (frozen, nothing)]))
            }
            "partition" => {
                let of_label = |(label, inner): (&String, &Value)| {
                    let named = |path: &&str| under(args["labels"].as_object(), path) == Some(&json!(label));
                    let paths: Vec<_> = params.names().filter(named).map(String::from).collect();
                    let node = Node::build(inner, &some(params, &paths))?;
                    Some((paths, node))
                };
                Some(Node::Parts(args["transforms"].as_object()?.iter().map(of_label).collect::<Option<_>>()?))
            }
            _ => None,
        }
    }

    fn whole(config: &Value, params: &DynTree) -> Option<Node> {
        let whole = config::build_with::<needs::Value>(config).ok()?;
        let state = whole.init(params).ok()?;
        Some(Node::Whole(whole, Box::new(state)))
    }

    fn update(&mut self, grads: Leaves, value: f64, params: &DynTree) -> Option<(Leaves, bool)> {
        match self {
            Node::Chain(members) => {
                let (mut grads, mut emitted) = (grads, true);
                for member in members {
                    let (updates, also) = member.update(grads, value, params)?;
                    (grads, emitted) = (updates, emitted && also);
                    // Later members do not run.
                    if !also && member.holds_back() {
                        break;
                    }
                }
                Some((grads, emitted))
            }
            Node::Parts(parts) => {
                let mut grads = grads;
                let mut emitted = true;
                for (paths, node) in parts {
                    let (ours, others) = grads.into_iter().partition(|(path, _)| paths.contains(path));
                    grads = others;
                    let (updates, also) = node.update(ours, value, &some(params, paths))?;
                    grads.extend(updates);
                    emitted &= also;
                }
                Some((grads, emitted))
            }
            Node::Rule(rule) => Some((rule.update(&grads), true)),
            Node::Plateau(plateau) => Some((plateau.update(&grads, value), true)),
            Node::Sums(sums) => Some((sums.update(grads), true)),
            Node::Whole(whole, state) => {
                let updates = whole.update_with(&tree::dynamic(&grads), extra::value(value), state, params).ok()?;
                Some((tree::leaves(&updates), updates.outcome().emitted()))
            }
            Node::Window(window) => window.update(grads, value, params),
            Node::Flat(inner) => {
                let params = tree::dynamic(&flat(&tree::leaves(params))?);
                let (one, emitted) = inner.update(flat(&grads)?, value, &params)?;
                let mut elements = one.into_values().flat_map(|leaf| leaf.data);
                let mut updates = grads;
                for x in updates.values_mut().flat_map(|leaf| &mut leaf.data) {
                    *x = elements.next()?;
                }
                Some((updates, emitted))
            }
            Node::Sometimes(sometimes) => sometimes.update(grads, value, params),
            Node::IfFinite(if_finite) => if_finite.update(grads, value, params),
            Node::Sam(sam) => sam.update(grads, value, params),
        }
    }

    /// Returns true if it may emit nothing.
    fn holds_back(&self) -> bool {
        match self {
            Node::Chain(members) => members.iter().any(Node::holds_back),
            Node::Flat(inner) => inner.holds_back(),
            Node::Window(_) | Node::IfFinite(_) => true,
            _ => false,
        }
    }

    /// Visits the node and all inside.
    fn each(&mut self, see: &mut dyn FnMut(&mut Node)) {
        see(self);
        match self {
            Node::Chain(members) => members.iter_mut().for_each(|member| member.each(see)),
            Node::Parts(parts) => parts.iter_mut().for_each(|(_, node)| node.each(see)),
            Node::Rule(_) | Node::Plateau(_) | Node::Sums(_) | Node::Whole(..) => {}
            Node::Window(window) => window.inner.each(see),
            Node::Flat(inner) => inner.each(see),
            Node::Sometimes(sometimes) => sometimes.inner.each(see),
            Node::IfFinite(if_finite) => if_finite.inner.each(see),
            Node::Sam(sam) => [&mut sam.optimizer, &mut sam.adversary].into_iter().for_each(|node| node.each(see)),
        }
    }

    fn flags(&self, paths: &[String], flags: &mut BTreeMap<String, Value>) {
        match self {
            Node::Chain(members) => members.iter().for_each(|member| member.flags(paths, flags)),
            Node::Parts(parts) => parts.iter().for_each(|(_, node)| node.flags(paths, flags)),
            Node::Rule(_) | Node::Sums(_) => {}
            Node::Plateau(plateau) => flags.extend(plateau.flags().map(|(name, value)| (name.into(), value))),
            Node::Whole(_, state) => flags.extend(transform::fields(&***state, paths)),
            Node::Window(window) => {
                window.inner.flags(paths, flags);
                flags.extend(window.flags.clone());
            }
            Node::Flat(inner) => inner.flags(paths, flags),
            Node::Sometimes(sometimes) => sometimes.inner.flags(paths, flags),
            Node::IfFinite(if_finite) => {
                if_finite.inner.flags(paths, flags);
                flags.insert("notfinite_count".into(), if_finite.in_a_row.into());
                flags.insert("last_finite".into(), (if_finite.in_a_row == 0).into());
                flags.insert("total_notfinite".into(), if_finite.in_all.into());
            }
            Node::Sam(sam) => [&sam.optimizer, &sam.adversary].into_iter().for_each(|node| node.flags(paths, flags)),
        }
    }
}

impl Window {
    fn update(&mut self, grads: Leaves, value: f64, params: &DynTree) -> Option<(Leaves, bool)> {
        let nothing = || map(&grads, |_, _| 0.0);
        let all = || grads.values().flat_map(|leaf| &leaf.data);
        let not_finite = all().filter(|g| !g.is_finite()).count();
        let norm_squared: f64 = all().map(|g| g * g).sum();
        let skip = match self.skip["skip_large_updates"]["max_squared_norm"].as_f64() {
            Some(limit) => norm_squared.is_nan() || norm_squared >= limit,
            None => self.skip == "skip_not_finite" && not_finite > 0,
        };
        let window = self.window()?;
        if !skip {
            self.poisoned |= not_finite > 0;
            self.gradients.push(grads.clone());
            self.losses.push(value);
        }
        let (updates, emitted) = if skip || self.gradients.len() < window {
            (nothing(), false)
        } else {
            self.emitted += 1;
            let (total, loss) = (self.total(), self.loss());
            self.averaged |= loss != value && !(loss.is_nan() && value.is_nan());
            self.gradients.clear();
            self.losses.clear();
            self.inner.update(total, loss, params)?
        };
        let mini_step = self.gradients.len();
        self.flags = BTreeMap::from([
            ("mini_step".into(), mini_step.into()),
            ("gradient_step".into(), self.emitted.into()),
            ("has_updated".into(), emitted.into()),
            ("should_skip".into(), skip.into()),
            ("num_not_finite".into(), not_finite.into()),
            ("norm_squared".into(), json!(norm_squared)),
        ]);
        Some((updates, emitted))
    }

    fn window(&self) -> Option<usize> {
        match &self.every_k["schedule"] {
            Value::Null => self.every_k.as_u64().map(|k| k as usize),
            schedule => Some(config::schedule(schedule).ok()?.at(self.emitted).round() as usize),
        }
    }

    fn loss(&self) -> f64 {
        let sum: f64 = self.losses.iter().sum();
        if self.mean { sum / self.losses.len() as f64 } else { sum }
    }

    fn total(&self) -> Leaves {
        // A running mean that includes infinity is NaN after the next gradient.
        let add = |(mean, n): (f64, f64), g: f64| (mean + (g - mean) / (n + 1.0), n + 1.0);
        match self.mean {
            true => map(&self.gradients[0], |path, i| {
                self.gradients.iter().map(|g| g[path].data[i]).fold((0.0, 0.0), add).0
            }),
            false => sum(&self.gradients),
        }
    }
}

impl Sometimes {
    fn update(&mut self, grads: Leaves, value: f64, params: &DynTree) -> Option<(Leaves, bool)> {
        let (step, condition) = (self.steps, &self.condition);
        self.steps += 1;
        let runs = match single(condition)? {
            ("step_lt", n) => step < n.as_u64()?,
            ("step_ge", n) => step >= n.as_u64()?,
            ("step_mod", mod_of) => step % mod_of[0].as_u64()? == mod_of[1].as_u64()?,
            ("value_lt", x) => value < x.as_f64()?,
            _ => return None,
        };
        match (runs, self.zero) {
            (true, _) => self.inner.update(grads, value, params),
            (false, true) => Some((map(&grads, |_, _| 0.0), true)),
            (false, false) => Some((grads, true)),
        }
    }
}

impl IfFinite {
    fn update(&mut self, grads: Leaves, value: f64, params: &DynTree) -> Option<(Leaves, bool)> {
        if grads.values().flat_map(|leaf| &leaf.data).all(|g| g.is_finite()) {
            self.in_a_row = 0;
        } else {
            self.in_a_row += 1;
            self.in_all += 1;
        }
        match self.in_a_row == 0 || self.in_a_row > self.most {
            true => self.inner.update(grads, value, params),
            false => Some((map(&grads, |_, _| 0.0), false)),
        }
    }
}

impl Sam {
    fn update(&mut self, grads: Leaves, value: f64, params: &DynTree) -> Option<(Leaves, bool)> {
        if self.done == 0 {
            self.start = params.clone();
        }
        self.done += 1;
        if self.done < self.period {
            let (updates, emitted) = self.adversary.update(grads, value, params)?;
            return Some((map(&updates, |path, i| -updates[path].data[i]), emitted));
        }
        self.done = 0;
        if let Some(config) = &self.reset {
            self.adversary = Node::build(config, params)?;
        }
        // The step starts from the start of the round.
        let (updates, emitted) = self.optimizer.update(grads, value, &self.start)?;
        let [start, here] = [&self.start, params].map(tree::leaves);
        let back = |path: &str, i: usize| start[path].data[i] - here[path].data[i];
        Some((map(&updates, |path, i| back(path, i) + updates[path].data[i]), emitted))
    }
}

/// Emits the sum of `k` gradients in every `k`-th step, zero in others.
struct Sums {
    k: usize,
    gradients: Vec<Leaves>,
    poisoned: bool,
}

impl Sums {
    fn update(&mut self, grads: Leaves) -> Leaves {
        self.poisoned |= grads.values().flat_map(|leaf| &leaf.data).any(|g| !g.is_finite());
        self.gradients.push(grads);
        if self.gradients.len() < self.k {
            map(&self.gradients[0], |_, _| 0.0)
        } else {
            sum(&std::mem::take(&mut self.gradients))
        }
    }
}

fn sum(gradients: &[Leaves]) -> Leaves {
    map(&gradients[0], |path, i| gradients.iter().map(|g| g[path].data[i]).sum())
}

/// Returns the same shapes with other values, rounded.
pub(crate) fn map(like: &Leaves, value: impl Fn(&str, usize) -> f64) -> Leaves {
    let each = |(path, leaf): (&String, &Leaf)| {
        let data = (0..leaf.data.len()).map(|i| tree::round(leaf.dtype, value(path, i))).collect();
        (path.clone(), Leaf { data, ..leaf.clone() })
    };
    like.iter().map(each).collect()
}

fn single(config: &Value) -> Option<(&str, &Value)> {
    let mut entries = config.as_object()?.iter();
    entries.next().filter(|_| entries.next().is_none()).map(|(name, value)| (&**name, value))
}

fn mentions_naive(config: &Value) -> bool {
    const NAIVE: [&str; 15] = [
        "acprop",
        "adopt",
        "apply_if_finite",
        "apply_every",
        "multi_steps",
        "normalize",
        "reduce_on_plateau",
        "rprop",
        "sam",
        "scale_by_acprop",
        "scale_by_adopt",
        "scale_by_rprop",
        "scale_by_simplified_ademamix",
        "scale_by_stddev",
        "simplified_ademamix",
    ];
    let naive = |name: &str, args: &Value| match name {
        "rmsprop" => args["centered"] == true,
        "scale_by_factored_rms" => args["factored"] == false && !args["step_offset"].is_null(),
        "ademamix" | "scale_by_ademamix" => !args["mu_dtype"].is_null(),
        _ => NAIVE.contains(&name),
    };
    match config {
        Value::Object(map) => map.iter().any(|(name, args)| naive(name, args) || mentions_naive(args)),
        Value::Array(values) => values.iter().any(mentions_naive),
        _ => false,
    }
}

/// Returns one leaf, if all have one dtype.
fn flat(leaves: &Leaves) -> Option<Leaves> {
    let dtype = leaves.values().next()?.dtype;
    let data: Vec<f64> = leaves.values().flat_map(|leaf| leaf.data.iter().copied()).collect();
    let of_one_type = leaves.values().all(|leaf| leaf.dtype == dtype);
    of_one_type.then(|| Leaves::from([(String::new(), Leaf { dtype, shape: vec![data.len()], data })]))
}

fn some(params: &DynTree, paths: &[String]) -> DynTree {
    let mut leaves = tree::leaves(params);
    leaves.retain(|path, _| paths.contains(path));
    tree::dynamic(&leaves)
}

/// Returns the paths that a mask selects.
fn chosen(mask: &Value, params: &DynTree) -> Option<Vec<String>> {
    let takes = |path: &str| match mask {
        Value::Null => Some(true),
        Value::Bool(all) => Some(*all),
        _ if mask["min_ndim"].is_u64() => {
            let least = mask["min_ndim"].as_u64()? as usize;
            Some(tree::leaves(params).get(path)?.shape.len() >= least)
        }
        _ => under(mask["by_path"].as_object(), path)?.as_bool(),
    };
    let paths = params.names().map(|path| Some(takes(path)?.then(|| path.into())));
    Some(paths.collect::<Option<Vec<Option<String>>>>()?.into_iter().flatten().collect())
}

/// Returns the value for a leaf, or for a subtree around it.
fn under<'a>(map: Option<&'a serde_json::Map<String, Value>>, path: &str) -> Option<&'a Value> {
    let holds = |key: &str| key.is_empty() || path == key || path.strip_prefix(key).is_some_and(|p| p.starts_with('/'));
    map?.iter().find(|(key, _)| holds(key)).map(|(_, value)| value)
}
