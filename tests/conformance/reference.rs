//! What transformations that Optax has wrong should do, said naively.
//!
//! Accumulating gradients: the transformation inside is given the mean (or sum) of each window's gradients, worked out from
//! the list of them, and nothing is carried from one window to the next; `apply_every` likewise. Rprop: as Igel and Hüsken
//! write it. Unit norm: zero has no direction. Simplified AdEMAMix: a mean of squares with an infinite one in it is infinite.

use std::collections::BTreeMap;

use gradchain::prelude::*;
use gradchain::tree::DynTree;
use gradchain::{OptState, apply_updates, config, extra, needs};
use serde_json::{Value, json};

use super::transform::{self, Seen, Transform};
use super::tree::{self, Leaf, Leaves};

/// What should be seen, and from which step on because of a gradient that is not finite.
pub(crate) struct Windows {
    pub(crate) seen: Vec<Seen>,
    /// The first step in which a gradient was accumulated that is not finite.
    pub(crate) poisoned: Option<usize>,
}

/// Runs a case; what is naive here is so at the top, and in chains, masks, partitions and accumulation.
pub(crate) fn windows(case: &Transform) -> Option<Windows> {
    let mut params = tree::dynamic(&case.params);
    let mut node = Node::build(&case.config, &params)?;
    let (mut seen, mut poisoned) = (Vec::new(), None);
    for (number, step) in case.steps.iter().enumerate() {
        let (updates, _) = node.update(step.grads.clone(), step.value, &params)?;
        if poisoned.is_none() && node.is_poisoned() {
            poisoned = Some(number);
        }
        apply_updates(&mut params, &tree::dynamic(&updates)).ok()?;
        let mut flags = BTreeMap::new();
        node.flags(&case.params.keys().cloned().collect::<Vec<_>>(), &mut flags);
        seen.push(Seen { updates, params: tree::leaves(&params), flags, ..Seen::default() });
    }
    Some(Windows { seen, poisoned })
}

enum Node {
    Chain(Vec<Node>),
    /// Each of some leaves, by whether their paths are among these.
    Parts(Vec<(Vec<String>, Node)>),
    Rprop(Rprop),
    Sums(Sums),
    Unit,
    SimplifiedAdemamix(SimplifiedAdemamix),
    Whole(Boxed<needs::Value>, Box<OptState<Boxed<needs::Value>>>),
    Window(Box<Window>),
}

struct Window {
    inner: Node,
    every_k: Value,
    mean: bool,
    skip: Value,
    gradients: Vec<Leaves>,
    emitted: u64,
    /// Whether a gradient was accumulated that is not finite.
    poisoned: bool,
    flags: BTreeMap<String, Value>,
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
                emitted: 0,
                poisoned: false,
                flags: BTreeMap::new(),
            })));
        }
        if let Some((name @ ("rprop" | "scale_by_rprop"), args)) = single(config) {
            let default = |argument: &str, value: f64| args[argument].as_f64().unwrap_or(value);
            return Some(Node::Rprop(Rprop {
                sign: if name == "rprop" { -1.0 } else { 1.0 },
                start: args["learning_rate"].as_f64()?,
                eta: [default("eta_minus", 0.5), default("eta_plus", 1.2)],
                limits: [default("min_step_size", 1e-6), default("max_step_size", 50.0)],
                memory: BTreeMap::new(),
            }));
        }
        if let Some(("apply_every", args)) = single(config) {
            let k = args.get("k").map_or(Some(1), Value::as_u64)? as usize;
            return Some(Node::Sums(Sums { k, gradients: Vec::new(), poisoned: false }));
        }
        if config.get("normalize").is_some() {
            return Some(Node::Unit);
        }
        if let Some((name @ ("simplified_ademamix" | "scale_by_simplified_ademamix"), args)) = single(config) {
            return SimplifiedAdemamix::build(name, args, params);
        }
        if !mentions_naive(config) {
            return Node::whole(config, params);
        }
        let (name, args) = single(config)?;
        match name {
            "named_chain" => {
                let member = |member: &Value| Node::build(&member[1], params);
                Some(Node::Chain(args.as_array()?.iter().map(member).collect::<Option<_>>()?))
            }
            "inject_hyperparams" => Node::build(&args["inner"], params),
            // What works on each element alone does the same for leaves in one.
            "flatten" => {
                Node::build(&args["inner"], params).filter(|node| matches!(node, Node::Rprop(_) | Node::Sums(_)))
            }
            "masked" => {
                let on = chosen(&args["mask"], params)?;
                let inner = Node::build(&args["inner"], &some(params, &on))?;
                Some(Node::Parts(vec![(on, inner)]))
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

    /// The updates, and whether they are ones: not if something was held back or thrown away.
    fn update(&mut self, grads: Leaves, value: f64, params: &DynTree) -> Option<(Leaves, bool)> {
        match self {
            Node::Chain(members) => members.iter_mut().try_fold((grads, true), |(grads, emitted), member| {
                let (updates, also) = member.update(grads, value, params)?;
                Some((updates, emitted && also))
            }),
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
            Node::Rprop(rprop) => Some((rprop.update(&grads), true)),
            Node::Sums(sums) => Some((sums.update(grads), true)),
            Node::Unit => Some((unit(&grads), true)),
            Node::SimplifiedAdemamix(rule) => Some((rule.update(&grads), true)),
            Node::Whole(whole, state) => {
                let updates = whole.update_with(&tree::dynamic(&grads), extra::value(value), state, params).ok()?;
                Some((tree::leaves(&updates), updates.outcome().emitted()))
            }
            Node::Window(window) => window.update(grads, value, params),
        }
    }

    fn is_poisoned(&self) -> bool {
        match self {
            Node::Chain(members) => members.iter().any(Node::is_poisoned),
            Node::Parts(parts) => parts.iter().any(|(_, node)| node.is_poisoned()),
            Node::Rprop(_) | Node::Unit | Node::SimplifiedAdemamix(_) | Node::Whole(..) => false,
            Node::Sums(sums) => sums.poisoned,
            Node::Window(window) => window.poisoned || window.inner.is_poisoned(),
        }
    }

    fn flags(&self, paths: &[String], flags: &mut BTreeMap<String, Value>) {
        match self {
            Node::Chain(members) => members.iter().for_each(|member| member.flags(paths, flags)),
            Node::Parts(parts) => parts.iter().for_each(|(_, node)| node.flags(paths, flags)),
            Node::Rprop(_) | Node::Sums(_) | Node::Unit | Node::SimplifiedAdemamix(_) => {}
            Node::Whole(_, state) => flags.extend(transform::fields(&***state, paths)),
            Node::Window(window) => {
                window.inner.flags(paths, flags);
                flags.extend(window.flags.clone());
            }
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
        }
        let (updates, emitted) = if skip || self.gradients.len() < window {
            (nothing(), false)
        } else {
            self.emitted += 1;
            let total = self.total();
            self.gradients.clear();
            self.inner.update(total, value, params)?
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

    fn total(&self) -> Leaves {
        // The running mean: with an infinity in it, it is NaN after the next gradient.
        let add = |(mean, n): (f64, f64), g: f64| (mean + (g - mean) / (n + 1.0), n + 1.0);
        match self.mean {
            true => map(&self.gradients[0], |path, i| {
                self.gradients.iter().map(|g| g[path].data[i]).fold((0.0, 0.0), add).0
            }),
            false => sum(&self.gradients),
        }
    }
}

/// Every `k`-th update is the sum of the last `k` gradients, the others are zero.
struct Sums {
    k: usize,
    gradients: Vec<Leaves>,
    /// Whether a gradient was accumulated that is not finite.
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

/// Leaves like these, with other values, rounded to their types.
fn map(like: &Leaves, value: impl Fn(&str, usize) -> f64) -> Leaves {
    let each = |(path, leaf): (&String, &Leaf)| {
        let data = (0..leaf.data.len()).map(|i| tree::round(leaf.dtype, value(path, i))).collect();
        (path.clone(), Leaf { data, ..leaf.clone() })
    };
    like.iter().map(each).collect()
}

/// The one entry of an object.
fn single(config: &Value) -> Option<(&str, &Value)> {
    let mut entries = config.as_object()?.iter();
    entries.next().filter(|_| entries.next().is_none()).map(|(name, value)| (&**name, value))
}

fn mentions_naive(config: &Value) -> bool {
    const NAIVE: [&str; 6] =
        ["rprop", "scale_by_rprop", "apply_every", "normalize", "simplified_ademamix", "scale_by_simplified_ademamix"];
    let naive = |key: &str| NAIVE.contains(&key);
    match config {
        Value::Object(map) => map.iter().any(|(key, value)| naive(key) || mentions_naive(value)),
        Value::Array(values) => values.iter().any(mentions_naive),
        _ => false,
    }
}

/// The leaves with these paths.
fn some(params: &DynTree, paths: &[String]) -> DynTree {
    let mut leaves = tree::leaves(params);
    leaves.retain(|path, _| paths.contains(path));
    tree::dynamic(&leaves)
}

/// The paths that a mask takes.
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

/// What is said of a leaf, or of a subtree that it is in.
fn under<'a>(map: Option<&'a serde_json::Map<String, Value>>, path: &str) -> Option<&'a Value> {
    let holds = |key: &str| key.is_empty() || path == key || path.strip_prefix(key).is_some_and(|p| p.starts_with('/'));
    map?.iter().find(|(key, _)| holds(key)).map(|(_, value)| value)
}

/// iRprop⁻: where the sign of the gradient has changed, it is taken to be zero.
struct Rprop {
    sign: f64,
    start: f64,
    /// `η⁻` and `η⁺`.
    eta: [f64; 2],
    limits: [f64; 2],
    /// Step size and last gradient of each element.
    memory: BTreeMap<String, Vec<[f64; 2]>>,
}

impl Rprop {
    fn update(&mut self, grads: &Leaves) -> Leaves {
        let Rprop { sign, start, eta, limits: [least, most], memory } = self;
        let mut updates = grads.clone();
        for (path, leaf) in &mut updates {
            let memory = memory.entry(path.clone()).or_insert_with(|| vec![[*start, 0.0]; leaf.data.len()]);
            for (x, [step, last]) in leaf.data.iter_mut().zip(memory) {
                let mut gradient = *x;
                let agreement = gradient * *last;
                if agreement > 0.0 {
                    *step = (*step * eta[1]).clamp(*least, *most);
                } else if agreement != 0.0 {
                    // After NaN too, as in Optax.
                    *step = (*step * eta[0]).clamp(*least, *most);
                    gradient = if agreement < 0.0 { 0.0 } else { gradient };
                }
                *last = gradient;
                let direction = if gradient == 0.0 { 0.0 } else { gradient.signum() };
                *x = tree::round(leaf.dtype, *sign * direction * *step);
            }
        }
        updates
    }
}

/// Of norm 1, or zero.
fn unit(grads: &Leaves) -> Leaves {
    let norm = grads.values().flat_map(|leaf| &leaf.data).map(|g| g * g).sum::<f64>().sqrt();
    map(grads, |path, i| if norm == 0.0 { 0.0 } else { grads[path].data[i] / norm })
}

struct SimplifiedAdemamix {
    b1: f64,
    b2: f64,
    alpha: f64,
    /// Added to the root, and under it.
    eps: [f64; 2],
    steps: i32,
    /// Sum of gradients and mean of squares of each element.
    memory: BTreeMap<String, Vec<[f64; 2]>>,
}

impl SimplifiedAdemamix {
    /// If its arguments are numbers.
    fn build(name: &str, args: &Value, params: &DynTree) -> Option<Node> {
        let number = |argument: &str, default: f64| args.get(argument).map_or(Some(default), Value::as_f64);
        let rule = Node::SimplifiedAdemamix(SimplifiedAdemamix {
            b1: number("b1", 0.99)?,
            b2: number("b2", 0.95)?,
            alpha: number("alpha", 0.0)?,
            eps: [number("eps", 1e-8)?, number("eps_root", 0.0)?],
            steps: 0,
            memory: BTreeMap::new(),
        });
        if name.starts_with("scale_by") {
            return Some(rule);
        }
        let decay = json!({"weight_decay": args["weight_decay"].as_f64().unwrap_or(0.0), "mask": args["mask"]});
        let decay = Node::whole(&json!({"add_decayed_weights": decay}), params)?;
        let rate = json!({"learning_rate": args["learning_rate"]});
        Some(Node::Chain(vec![rule, decay, Node::whole(&json!({"scale_by_learning_rate": rate}), params)?]))
    }

    fn update(&mut self, grads: &Leaves) -> Leaves {
        self.steps += 1;
        let unbias = 1.0 - self.b2.powi(self.steps);
        let mut updates = grads.clone();
        for (path, leaf) in &mut updates {
            let memory = self.memory.entry(path.clone()).or_insert_with(|| vec![[0.0; 2]; leaf.data.len()]);
            for (x, [sum, mean]) in leaf.data.iter_mut().zip(memory) {
                let g = *x;
                *sum = self.b1 * *sum + g;
                *mean = self.b2 * *mean + (1.0 - self.b2) * tree::round(leaf.dtype, g * g);
                let root = (*mean / unbias + self.eps[1]).sqrt() + self.eps[0];
                *x = tree::round(leaf.dtype, (*sum + self.alpha * g) / root);
            }
        }
        updates
    }
}
