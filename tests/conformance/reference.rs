//! What accumulating gradients should do, said naively: the transformation inside is given the mean (or sum) of each
//! window's gradients, worked out from the list of them, and nothing is carried from one window to the next.

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

/// Runs a case whose accumulation is outermost, or in a chain that is.
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
            Node::Whole(..) => false,
            Node::Window(window) => window.poisoned || window.inner.is_poisoned(),
        }
    }

    fn flags(&self, paths: &[String], flags: &mut BTreeMap<String, Value>) {
        match self {
            Node::Chain(members) => members.iter().for_each(|member| member.flags(paths, flags)),
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
        let divisor = if self.mean { self.gradients.len() as f64 } else { 1.0 };
        map(&self.gradients[0], |path, i| self.gradients.iter().map(|g| g[path].data[i]).sum::<f64>() / divisor)
    }
}

/// Leaves like these, with other values, rounded to their types.
fn map(like: &Leaves, value: impl Fn(&str, usize) -> f64) -> Leaves {
    let each = |(path, leaf): (&String, &Leaf)| {
        let data = (0..leaf.data.len()).map(|i| tree::round(leaf.dtype, value(path, i))).collect();
        (path.clone(), Leaf { data, ..leaf.clone() })
    };
    like.iter().map(each).collect()
}
