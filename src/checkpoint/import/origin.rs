//! How files of others name what they hold, and which transformations have the same state as theirs.

use crate::recipe::Recipe;

/// Whose names the tensors of a file have: see [`Import`](super::Import).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// PyTorch.
    Torch,
    /// Optax.
    Optax,
}

/// What a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Param,
    Buffer,
    Mu,
    Nu,
    Trace,
    Step,
}

/// The arrays of a state, by the last part of their field.
pub(super) const ARRAYS: [(&str, Role); 3] = [("mu", Role::Mu), ("nu", Role::Nu), ("trace", Role::Trace)];

impl Origin {
    /// As messages call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Origin::Torch => "PyTorch",
            Origin::Optax => "Optax",
        }
    }

    /// Whether there is a count of steps for each leaf, and not one for all.
    pub(super) fn counts_leaves(self) -> bool {
        self == Origin::Torch
    }

    /// The name of what there is one of for each leaf, and of the count.
    fn key(self, role: Role) -> &'static str {
        match (self, role) {
            (_, Role::Param) => "params",
            (_, Role::Buffer) => "buffers",
            (Origin::Torch, Role::Mu) => "exp_avg",
            (Origin::Torch, Role::Nu) => "exp_avg_sq",
            (Origin::Torch, Role::Trace) => "momentum_buffer",
            (Origin::Torch, Role::Step) => "step",
            (Origin::Optax, Role::Mu) => "mu",
            (Origin::Optax, Role::Nu) => "nu",
            (Origin::Optax, Role::Trace) => "trace",
            (Origin::Optax, Role::Step) => "count",
        }
    }

    /// The name of a tensor.
    pub(super) fn tensor(self, role: Role, path: &str) -> String {
        let key = self.key(role);
        match (self, role) {
            (Origin::Torch, Role::Param | Role::Buffer) => format!("{key}/{}", path.replace('/', ".")),
            (Origin::Torch, _) => format!("state/{}/{key}", path.replace('/', ".")),
            (Origin::Optax, Role::Step) => key.into(),
            (Origin::Optax, _) => format!("{key}/{path}"),
        }
    }

    /// What the tensor of a name is, and the path of its leaf; a count of Optax's belongs to none.
    pub(super) fn parse(self, tensor: &str) -> Option<(Role, String)> {
        let role = |key: &str, roles: &[Role]| roles.iter().copied().find(|role| self.key(*role) == key);
        let states = [Role::Mu, Role::Nu, Role::Trace];
        match self {
            Origin::Torch => {
                let dotted = |name: &str| name.replace('.', "/");
                if let Some((key, name)) = tensor.split_once('/')
                    && let Some(role) = role(key, &[Role::Param, Role::Buffer])
                {
                    return Some((role, dotted(name)));
                }
                let (name, key) = tensor.strip_prefix("state/")?.rsplit_once('/')?;
                Some((role(key, &states).or_else(|| role(key, &[Role::Step]))?, dotted(name)))
            }
            Origin::Optax if tensor == self.key(Role::Step) => Some((Role::Step, String::new())),
            Origin::Optax => {
                let (key, path) = tensor.split_once('/')?;
                Some((role(key, &states).or_else(|| role(key, &[Role::Param, Role::Buffer]))?, path.into()))
            }
        }
    }
}

/// Transformations whose arrays are those of Adam or of momentum.
const SAME: [&str; 5] = ["adam", "adamw", "sgd", "scale_by_adam", "trace"];

/// Transformations that remember a count of steps, or nothing.
const WITHOUT_ARRAYS: [&str; 14] = [
    "identity",
    "scale",
    "scale_by_learning_rate",
    "scale_by_schedule",
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

/// Shows the place and the name of every transformation whose state no file of this kind can hold.
pub(super) fn strangers(recipe: &Recipe, place: &str, show: &mut dyn FnMut(&str, &str)) {
    let Some((name, arguments)) = recipe.as_call() else { return show(place, &recipe.to_string()) };
    match name {
        "chain" => {
            for (i, member) in arguments.items().iter().enumerate() {
                strangers(member, &format!("{place}.chain[{i}]"), show);
            }
        }
        "named_chain" => {
            for (i, pair) in arguments.items().iter().enumerate() {
                pair.items().iter().skip(1).for_each(|member| {
                    strangers(member, &format!("{place}.named_chain[{i}]"), show);
                });
            }
        }
        "masked" => {
            if let Some(inner) = arguments.get("inner") {
                strangers(inner, &format!("{place}.masked.inner"), show);
            }
        }
        name if SAME.contains(&name) || WITHOUT_ARRAYS.contains(&name) => {}
        name => show(place, name),
    }
}
