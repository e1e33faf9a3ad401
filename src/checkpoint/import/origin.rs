//! Names in foreign files, and transformations with equal state.

use crate::internal::state::{INNER, below};
use crate::recipe::Recipe;

/// The library whose names the tensors of a file have: see [`Import`](super::Import).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// PyTorch.
    Torch,
    /// Optax.
    Optax,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Param,
    Buffer,
    /// An array, by its name in the file.
    Array(String),
    Step,
}

impl Origin {
    pub(super) fn name(self) -> &'static str {
        match self {
            Origin::Torch => "PyTorch",
            Origin::Optax => "Optax",
        }
    }

    pub(super) fn counts_leaves(self) -> bool {
        self == Origin::Torch
    }

    pub(super) fn tensor(self, role: &Role, path: &str) -> String {
        let path = if self == Origin::Torch { path.replace('/', ".") } else { path.into() };
        match (role, self) {
            (Role::Param, _) => format!("params/{path}"),
            (Role::Buffer, _) => format!("buffers/{path}"),
            (Role::Array(key), Origin::Torch) => format!("state/{path}/{key}"),
            (Role::Array(key), Origin::Optax) => format!("{key}/{path}"),
            (Role::Step, Origin::Torch) => format!("state/{path}/step"),
            (Role::Step, Origin::Optax) => "count".into(),
        }
    }

    /// Returns the role of a tensor, and its leaf's path; a count of Optax has none. `names` are those of PyTorch's
    /// parameters, for state by number.
    ///
    /// # Errors
    ///
    /// With the defect of the name.
    pub(super) fn parse(self, tensor: &str, names: &[String]) -> Result<(Role, String), String> {
        let unexpected = || format!("unexpected tensor `{tensor}`");
        if self == Origin::Optax && tensor == "count" {
            return Ok((Role::Step, String::new()));
        }
        let (key, rest) = tensor.split_once('/').ok_or_else(unexpected)?;
        let path = |name: &str| if self == Origin::Torch { name.replace('.', "/") } else { name.to_owned() };
        match (key, self) {
            ("params", _) => Ok((Role::Param, path(rest))),
            ("buffers", _) => Ok((Role::Buffer, path(rest))),
            (key, Origin::Optax) => Ok((Role::Array(key.into()), rest.into())),
            ("state", Origin::Torch) => {
                let (name, key) = rest.rsplit_once('/').ok_or_else(unexpected)?;
                let role = if key == "step" { Role::Step } else { Role::Array(key.into()) };
                if names.is_empty() {
                    return Ok((role, path(name)));
                }
                let number = name.parse().ok().and_then(|number: usize| names.get(number));
                let problem = || format!("`{tensor}`: expected an index into the {} `names`", names.len());
                Ok((role, path(number.ok_or_else(problem)?)))
            }
            _ => Err(unexpected()),
        }
    }
}

/// A field of a part's state, and its names in PyTorch's and Optax's files.
type Array = (&'static str, [Option<&'static str>; 2]);

const MU: Array = ("mu", [Some("exp_avg"), Some("mu")]);
const NU: Array = ("nu", [Some("exp_avg_sq"), Some("nu")]);
const TRACE: Array = ("trace", [Some("momentum_buffer"), Some("trace")]);
const MEAN_SQUARE: Array = ("nu", [Some("square_avg"), Some("nu")]);
const MEAN: Array = ("mu", [Some("grad_avg"), Some("mu")]);

/// Transformations with foreign counterparts.
const PARTS: [(&str, &[Array]); 14] = [
    ("adam", &[MU, NU]),
    ("adamw", &[MU, NU]),
    ("scale_by_adam", &[MU, NU]),
    ("amsgrad", AMSGRAD),
    ("scale_by_amsgrad", AMSGRAD),
    ("sgd", &[TRACE]),
    ("trace", &[TRACE]),
    // Here, momentum accumulates updates times the learning rate; in PyTorch, without it.
    ("rmsprop", &[MEAN_SQUARE, MEAN, ("trace", [None, Some("trace")])]),
    ("scale_by_rms", &[MEAN_SQUARE]),
    ("scale_by_stddev", &[MEAN_SQUARE, MEAN]),
    ("adagrad", RSS),
    ("scale_by_rss", RSS),
    ("muon", &[("muon.0.mu", MUON), ("adam.0.mu", MU.1), ("adam.0.nu", NU.1)]),
    ("scale_by_muon", &[("mu", MUON)]),
];
const AMSGRAD: &[Array] = &[MU, NU, ("nu_max", [Some("max_exp_avg_sq"), Some("nu_max")])];
const RSS: &[Array] = &[("sum_of_squares", [Some("sum"), Some("sum_of_squares")])];
const MUON: [Option<&str>; 2] = [Some("momentum_buffer"), Some("mu")];

/// PyTorch's arrays without a step count.
const WITHOUT_COUNT: &str = "momentum_buffer";

/// Transformations whose state is empty or a step count.
const WITHOUT_ARRAYS: [&str; 15] = [
    "identity",
    "scale",
    "scale_by_learning_rate",
    "scale_by_schedule",
    "scale_by_shape",
    "scale_by_sign",
    "scale_by_trust_ratio",
    "add_decayed_weights",
    "clip",
    "clip_by_block_norm",
    "clip_by_block_rms",
    "clip_by_global_norm",
    "adaptive_grad_clip",
    "centralize",
    "keep_params_nonnegative",
];

/// Wrappers without memory of past steps, after a step that `multi_steps` has emitted.
const WRAPPERS: [&str; 5] = ["masked", "freezable", "inject_hyperparams", "multi_steps", "skip_absent"];

/// Arguments of wrappers that are the inner transformation.
const INNER_KEYS: [&str; 3] = [INNER, "fast_optimizer", "base_optimizer"];

/// The parts of a state that foreign files can hold.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Arrays of parts, by their states' paths; none for a wrapper.
    tensors_by_role: Vec<(String, &'static [Array])>,
    /// States that no such file can hold.
    unexpected: Vec<String>,
    /// Messages about these and arguments, and hints.
    pub(super) lines: Vec<String>,
    pub(super) hints: Vec<String>,
}

pub(super) enum Filled {
    From(Role),
    /// The value of `init`.
    Fresh,
    /// The file lacks it.
    Nothing,
}

impl Parts {
    /// `fresh` are the parts that start as in `init`, each with an optional exception inside.
    pub(super) fn of(origin: Origin, recipe: &Recipe, fresh: &[(String, Option<String>)]) -> Parts {
        let mut parts = Parts::default();
        parts.scan(origin, recipe, "$", String::new(), fresh);
        parts
    }

    fn scan(&mut self, origin: Origin, recipe: &Recipe, at: &str, path: String, fresh: &[(String, Option<String>)]) {
        if fresh.iter().any(|(part, but)| but.is_none() && below(&path, part).is_some()) {
            return;
        }
        let Some((name, arguments)) = recipe.as_call() else {
            return self.unsupported(origin, at, &recipe.to_string(), path);
        };
        let inside = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        let number = |i: usize| i.to_string();
        match name {
            "chain" => {
                for (i, member) in arguments.items().iter().enumerate() {
                    self.scan(origin, member, &format!("{at}.chain[{i}]"), inside(&number(i)), fresh);
                }
                return;
            }
            "named_chain" => {
                for (i, pair) in arguments.items().iter().enumerate() {
                    if let [Recipe::Text(called), member] = pair.items() {
                        self.scan(origin, member, &format!("{at}.named_chain[{i}]"), inside(called), fresh);
                    }
                }
                return;
            }
            "partition" => {
                if let Some(Recipe::Map(groups)) = arguments.get("transforms") {
                    for (label, member) in groups {
                        let at = format!("{at}.partition.transforms.{label}");
                        self.scan(origin, member, &at, inside(label), fresh);
                    }
                }
                return;
            }
            _ => {}
        }
        if let Some((key, inner)) = INNER_KEYS.iter().find_map(|key| Some((key, arguments.get(key)?))) {
            let state = inside(INNER);
            let is_wrapped = |(part, but): &(String, Option<String>)| *part == path && but.as_ref() == Some(&state);
            if WRAPPERS.contains(&name) || fresh.iter().any(is_wrapped) {
                self.tensors_by_role.push((path, &[]));
                return self.scan(origin, inner, &format!("{at}.{name}.{key}"), state, fresh);
            }
            let copies = match name {
                "master" => {
                    format!(
                        "; then `params_to_part({:?})` fills its copies with the file's unrounded parameters",
                        inside(name)
                    )
                }
                _ => String::new(),
            };
            self.hints
                .push(format!("`Migration::new().wrap_part({path:?})` initializes the own state of {name}{copies}"));
        }
        if let Some((_, arrays)) = PARTS.iter().find(|(part, _)| *part == name) {
            self.differs(origin, name, arguments, at);
            self.tensors_by_role.push((path, arrays));
        } else if !WITHOUT_ARRAYS.contains(&name) {
            self.unsupported(origin, at, name, path);
        }
    }

    fn unsupported(&mut self, origin: Origin, at: &str, name: &str, path: String) {
        self.unexpected.push(path);
        self.lines.push(format!("optimizer: {at}: {} has no equivalent of the state of {name}", origin.name()));
    }

    /// Reports arguments that change the meaning of arrays.
    fn differs(&mut self, origin: Origin, name: &str, arguments: &Recipe, at: &str) {
        let is = |argument: &str, value: bool| arguments.get(argument) == Some(&Recipe::Bool(value));
        let problem = match (origin, name) {
            (Origin::Torch, "amsgrad" | "scale_by_amsgrad") if !is("bias_correction_nu", false) => {
                "PyTorch takes the maximum of second moments before bias correction: use `bias_correction_nu(false)`, \
                 with the learning rate and `eps` of `docs/from-pytorch.md`"
            }
            (Origin::Torch, "rmsprop") if arguments.get("momentum").is_some() => {
                "PyTorch multiplies by the learning rate after the momentum: use `chain((scale_by_rms(), \
                 trace(momentum), scale_by_learning_rate(rate)))`, or `scale_by_stddev` if centered"
            }
            _ => return,
        };
        self.lines.push(format!("optimizer: {at}: {problem}"));
    }

    /// Returns whether a field or unused tensor needs no message, because its part is reported.
    pub(super) fn is_reported(&self, field: Option<&str>) -> bool {
        self.unexpected.iter().any(|part| field.is_none_or(|field| below(field, part).is_some()))
    }

    /// Returns the source of an array, or of a wrapper's own value.
    pub(super) fn filled(&self, origin: Origin, field: &str) -> Filled {
        let part =
            self.tensors_by_role.iter().filter_map(|(path, arrays)| Some((path.len(), below(field, path)?, arrays)));
        let Some((_, rest, arrays)) = part.max_by_key(|(len, ..)| *len) else { return Filled::Nothing };
        if arrays.is_empty() {
            return Filled::Fresh;
        }
        let is_it = |name: &str| rest == name || rest.strip_suffix(name).is_some_and(|before| before.ends_with('.'));
        let key = arrays.iter().find(|(name, _)| is_it(name)).and_then(|(_, keys)| keys[origin as usize]);
        key.map_or(Filled::Nothing, |key| Filled::From(Role::Array(key.into())))
    }
}

impl Role {
    /// Returns whether PyTorch counts steps with such an array.
    pub(super) fn is_counted(&self) -> bool {
        matches!(self, Role::Array(key) if key != WITHOUT_COUNT)
    }
}
