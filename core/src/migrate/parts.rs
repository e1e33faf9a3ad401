//! Migration of parts of the state to another optimizer.

use super::Migration;
use crate::state::{INNER, Parts, Verb, below, no_part};

#[derive(Clone, Debug, Default)]
pub(crate) struct Verbs(Vec<Verb>);

/// Verbs on parts of the state.
///
/// A part is a field of the state with everything below it, by the path in the [`schema`](crate::OptState::schema):
/// `1.mu` is the `mu` of a chain's second member, and the empty path is the whole state. A verb sees the state as its
/// predecessors left it. Unexplained differences are an error that lists them, and proposes the verb if it is unique.
///
/// ```
/// use gradchain::Migration;
/// use gradchain::prelude::*;
///
/// let (before, after) = (adam(0.1), chain((zero_nans(), inject_hyperparams(adam(0.1)))));
/// let mut params = vec![1.0_f32, 2.0];
/// let mut state = before.init(&params)?;
/// before.step(&mut params, &vec![0.5_f32, -0.5], &mut state)?;
///
/// assert!(state.migrate(&after, &params, &Migration::new()).is_err());
/// let migration = Migration::new().wrap_part("").wrap_in_chain("", 1);
/// let mut state = state.migrate(&after, &params, &migration)?;
/// after.step(&mut params, &vec![0.5_f32, -0.5], &mut state)?;
/// # Ok::<(), gradchain::Error>(())
/// ```
impl Migration {
    fn with(mut self, verb: Verb) -> Migration {
        self.parts.0.push(verb);
        self
    }

    /// Moves the part at `from` to `to`.
    pub fn rename_part(self, from: impl Into<String>, to: impl Into<String>) -> Migration {
        self.with(Verb::Rename { from: from.into(), to: to.into() })
    }

    /// Inserts a new member of a chain at this path, as `2` or `inner.0`, whose state starts as in `init`. The members
    /// from there on move up by one.
    pub fn insert_part(self, at: impl Into<String>) -> Migration {
        self.with(Verb::Insert(at.into()))
    }

    /// Removes the member of a chain at this path, with its state. The members after it move down by one.
    pub fn remove_part(self, at: impl Into<String>) -> Migration {
        self.with(Verb::Remove(at.into()))
    }

    /// Wraps the part at this path: it becomes the `inner` of a wrapper, whose own state starts as in `init`.
    pub fn wrap_part(self, at: impl Into<String>) -> Migration {
        self.with(Verb::Wrap { at: at.into(), inside: INNER.into() })
    }

    /// Puts the part at this path into a chain, as the member with this number. The state of the others starts as in
    /// `init`.
    pub fn wrap_in_chain(self, at: impl Into<String>, number: usize) -> Migration {
        self.with(Verb::Wrap { at: at.into(), inside: number.to_string() })
    }

    /// Removes the wrapper at this path, with its own state: its `inner` takes its place.
    pub fn unwrap_part(self, at: impl Into<String>) -> Migration {
        self.with(Verb::Unwrap(at.into()))
    }

    /// Starts the part at this path as in `init`, even if it existed before.
    pub fn fresh_part(self, at: impl Into<String>) -> Migration {
        self.with(Verb::Fresh(at.into()))
    }

    /// Drops the part that was at this path.
    pub fn drop_part(self, at: impl Into<String>) -> Migration {
        self.with(Verb::Drop(at.into()))
    }

    /// Permits arrays of other dtypes in the part at this path: [quantized] state, or another
    /// `mu_dtype`. Each number is rounded to its new dtype once.
    ///
    /// ```
    /// use gradchain::Migration;
    /// use gradchain::prelude::*;
    ///
    /// let (before, after) = (adam(0.1), quantized(adam(0.1)).min_elements(0));
    /// let mut params = vec![1.0_f32, -2.0];
    /// let mut state = before.init(&params)?;
    /// before.step(&mut params, &vec![0.5_f32, -0.5], &mut state)?;
    ///
    /// let migration = Migration::new().wrap_part("").cast_part("inner");
    /// let mut state = state.migrate(&after, &params, &migration)?;
    /// after.step(&mut params, &vec![0.5_f32, -0.5], &mut state)?;
    /// let state = state.migrate(&before, &params, &Migration::new().unwrap_part("").cast_part(""))?;
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// [quantized]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.quantized.html
    pub fn cast_part(self, at: impl Into<String>) -> Migration {
        self.with(Verb::Cast(at.into()))
    }

    /// Starts the part at `to` as a copy of that at `from`, which stays in place.
    pub fn take_part(self, from: impl Into<String>, to: impl Into<String>) -> Migration {
        self.with(Verb::Take { from: from.into(), to: to.into() })
    }

    /// Splits the part at this path into a [`partition`] of these groups.
    ///
    /// Each group takes the state of its leaves, and a copy of single values.
    ///
    /// ```
    /// use gradchain::Migration;
    /// use gradchain::prelude::*;
    /// use gradchain::tree::DynTree;
    /// use ndarray::array;
    ///
    /// let before = adamw(0.1);
    /// let mut params = DynTree::new();
    /// params.insert("body/w", array![1.0_f32, 2.0]);
    /// params.insert("head/w", array![3.0_f32]);
    /// let mut state = before.init(&params)?;
    /// let gradients = params.clone();
    /// before.step(&mut params, &gradients, &mut state)?;
    ///
    /// let labels = Labels::tree([("body", "body"), ("head", "head")]);
    /// let after = partition((("body", adamw(0.01)), ("head", adamw(0.1))), labels);
    /// let mut state = state.migrate(&after, &params, &Migration::new().split_part("", ["body", "head"]))?;
    /// after.step(&mut params, &gradients, &mut state)?;
    /// // And back, since both groups have done the same number of steps.
    /// let state = state.migrate(&before, &params, &Migration::new().join_parts("", ["body", "head"]))?;
    /// assert_eq!(state.0.count.get(), 2);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// [`partition`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.partition.html
    pub fn split_part(self, at: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Migration {
        self.with(Verb::Split { at: at.into(), groups: groups.into_iter().map(Into::into).collect() })
    }

    /// Joins the groups of the [`partition`] at this path into one part there.
    ///
    /// Single values must be the same in all groups; first discard those that differ with
    /// [`drop_part`](Migration::drop_part).
    ///
    /// See [`split_part`](Migration::split_part).
    ///
    /// [`partition`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.partition.html
    pub fn join_parts(self, at: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Migration {
        self.with(Verb::Join { at: at.into(), groups: groups.into_iter().map(Into::into).collect() })
    }

    /// Starts the arrays of the part at this path as the saved parameters, in full precision.
    ///
    /// `params_to_part("master")` fills the copies of [`master`] when an `f32` run continues
    /// with 16-bit parameters. It is supported where parameters are loaded, by
    /// [`Load::load`] and [`Import::load`].
    ///
    /// ```
    /// # #[cfg(all(feature = "checkpoint", feature = "half"))] {
    /// use gradchain::Migration;
    /// use gradchain::checkpoint::{Checkpoint, Load, Save};
    /// use gradchain::prelude::*;
    /// use gradchain::wrapper::master;
    /// use half::bf16;
    ///
    /// let before = adamw(0.1);
    /// let mut params = vec![1.0_f32, 2.0];
    /// let mut state = before.init(&params)?;
    /// before.step(&mut params, &vec![0.3_f32, -0.3], &mut state)?;
    /// let mut file = std::io::Cursor::new(Vec::new());
    /// Save::new(&before, &state).params(&params).to_writer(&mut file)?;
    /// let file = Checkpoint::from_bytes(file.into_inner())?;
    ///
    /// let (after, mut rounded) = (master(adamw(0.1)), vec![bf16::ZERO; 2]);
    /// let migration = Migration::new().cast(Mask::all()).wrap_part("").params_to_part("master");
    /// let (state, _) = Load::strict().migrating(migration).load(&file, &after, &mut rounded)?;
    /// assert_eq!(state.master().get::<f32>(0), Some(&params[..]));
    /// assert_eq!(rounded, [bf16::from_f32(params[0]), bf16::from_f32(params[1])]);
    /// # }
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// [`master`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.master.html
    /// [`Load::load`]: https://docs.rs/gradchain/latest/gradchain/checkpoint/struct.Load.html#method.load
    /// [`Import::load`]: https://docs.rs/gradchain/latest/gradchain/checkpoint/struct.Import.html#method.load
    pub fn params_to_part(self, to: impl Into<String>) -> Migration {
        self.with(Verb::ParamsTo(to.into()))
    }

    /// Loads the parameters from the arrays saved at this path, for leaves with an array there.
    ///
    /// They are rounded if [`cast`](Migration::cast) permits it. `params_from_part("master").unwrap_part("")` continues
    /// a run of [`master`] in `f32`, in the full precision of its copies.
    ///
    /// It is supported by [`Load::load`] and
    /// [`Load::load_params`].
    ///
    /// [`master`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.master.html
    /// [`Load::load`]: https://docs.rs/gradchain/latest/gradchain/checkpoint/struct.Load.html#method.load
    /// [`Load::load_params`]: https://docs.rs/gradchain/latest/gradchain/checkpoint/struct.Load.html#method.load_params
    pub fn params_from_part(self, from: impl Into<String>) -> Migration {
        self.with(Verb::ParamsFrom(from.into()))
    }
}

fn joined(part: &str, rest: &str) -> String {
    let between = if part.is_empty() || rest.is_empty() { "" } else { "." };
    format!("{part}{between}{rest}")
}

/// Splits a member's path into the chain's path and the index.
fn member(at: &str) -> Option<(&str, usize)> {
    let (chain, number) = at.rsplit_once('.').unwrap_or(("", at));
    Some((chain, number.parse().ok()?))
}

/// Shifts the index in the chain, if the path belongs to a member from `first` on.
fn shifted(path: &str, at: &str, first: usize, by: isize) -> Option<String> {
    let (chain, number) = member(at)?;
    let rest = below(path, chain)?;
    let (key, rest) = rest.split_once('.').unwrap_or((rest, ""));
    let key = key.parse::<usize>().ok().filter(|key| *key >= number + first)?;
    Some(joined(chain, &joined(&key.checked_add_signed(by)?.to_string(), rest)))
}

impl Verb {
    /// Returns the field's new place, unless dropped, and true if the verb concerns it.
    fn moved(&self, path: &str) -> (Option<String>, bool) {
        let stays = || (Some(path.to_owned()), false);
        match self {
            Verb::Rename { from, to } => below(path, from).map_or_else(stays, |rest| (Some(joined(to, rest)), true)),
            Verb::Insert(at) => shifted(path, at, 0, 1).map_or_else(stays, |path| (Some(path), true)),
            Verb::Remove(at) if below(path, at).is_some() => (None, true),
            Verb::Remove(at) => shifted(path, at, 1, -1).map_or_else(stays, |path| (Some(path), true)),
            Verb::Wrap { at, inside } => {
                below(path, at).map_or_else(stays, |rest| (Some(joined(&joined(at, inside), rest)), true))
            }
            Verb::Unwrap(at) => match below(path, &joined(at, INNER)) {
                Some(rest) => (Some(joined(at, rest)), true),
                None if below(path, at).is_some() => (None, true),
                None => stays(),
            },
            Verb::Fresh(at) | Verb::Drop(at) if below(path, at).is_some() => (None, true),
            Verb::Fresh(_) | Verb::Drop(_) => stays(),
            Verb::Take { from: part, .. } | Verb::Cast(part) | Verb::ParamsFrom(part) => {
                (Some(path.to_owned()), below(path, part).is_some())
            }
            Verb::Join { at, groups } => {
                let rest = groups.iter().find_map(|group| below(path, &joined(at, group)));
                rest.map_or_else(stays, |rest| (Some(joined(at, rest)), true))
            }
            // A path becomes several: see `copies`.
            Verb::Split { .. } | Verb::ParamsTo(_) => stays(),
        }
    }

    /// Returns the paths of a field's copies.
    fn copies(&self, path: &str) -> Vec<String> {
        match self {
            Verb::Take { from, to } => below(path, from).map(|rest| joined(to, rest)).into_iter().collect(),
            Verb::Split { at, groups } => match below(path, at) {
                Some(rest) => groups.iter().map(|group| joined(&joined(at, group), rest)).collect(),
                None => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// Returns the part that starts as in `init`, and an exception inside.
    fn starts(&self) -> Option<(String, Option<String>)> {
        match self {
            Verb::Insert(at) | Verb::Fresh(at) => Some((at.clone(), None)),
            Verb::Wrap { at, inside } => Some((at.clone(), Some(joined(at, inside)))),
            _ => None,
        }
    }

    /// Returns the verb's name and the path that must exist.
    fn needs(&self) -> Option<(&'static str, &str)> {
        match self {
            Verb::Rename { from, .. } => Some(("rename_part", from)),
            Verb::Unwrap(at) => Some(("unwrap_part", at)),
            Verb::Drop(at) => Some(("drop_part", at)),
            Verb::Take { from, .. } => Some(("take_part", from)),
            Verb::Cast(at) => Some(("cast_part", at)),
            Verb::Split { at, .. } => Some(("split_part", at)),
            Verb::Join { at, .. } => Some(("join_parts", at)),
            Verb::ParamsFrom(at) => Some(("params_from_part", at)),
            // Parts without state may be inserted, removed and wrapped.
            _ => None,
        }
    }
}

impl Verbs {
    #[cfg(feature = "serde")]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the old fields' new places and the new parts after all verbs, or a message on a missing part.
    ///
    /// Without an old state a cast need not concern a part.
    pub(crate) fn parts(&self, old: &[&str], more: &[Verb]) -> Result<Parts, String> {
        let to = old.iter().map(|field| vec![(*field).to_owned()]).collect();
        let mut parts = Parts { to, ..Parts::default() };
        for verb in self.0.iter().chain(more) {
            if let Verb::Insert(at) | Verb::Remove(at) = verb
                && member(at).is_none()
            {
                return Err(format!("`{at}` is not a member of a chain, whose path ends with a number"));
            }
            let mut meant = false;
            for (i, to) in parts.to.iter_mut().enumerate() {
                let copies: Vec<_> = to.iter().flat_map(|path| verb.copies(path)).collect();
                let moved: Vec<_> = to.iter().map(|path| verb.moved(path)).collect();
                let is_suggestion = !copies.is_empty() || moved.iter().any(|(_, meant)| *meant);
                meant |= is_suggestion;
                match verb {
                    Verb::Split { .. } if is_suggestion => *to = copies,
                    _ => *to = moved.into_iter().filter_map(|(path, _)| path).chain(copies).collect(),
                }
                match verb {
                    Verb::ParamsFrom(_) if is_suggestion => parts.to_params.push(i),
                    Verb::Drop(_) if is_suggestion => _ = parts.dropped.insert(i),
                    _ => {}
                }
            }
            if let (Some((name, path)), false) = (verb.needs(), meant)
                && !(old.is_empty() && matches!(verb, Verb::Cast(_)))
            {
                return Err(no_part(name, path));
            }
            if let (Verb::Insert(at), false) = (verb, meant) {
                parts.without_effect.push(at.clone());
            }
            let Parts { must_exist, cast, groups, joined: one, of_params, .. } = &mut parts;
            for marked in [must_exist, cast, groups, one, of_params] {
                *marked = core::mem::take(marked).into_iter().filter_map(|at| verb.moved(&at).0).collect();
            }
            match verb {
                Verb::Fresh(at) => parts.must_exist.push(at.clone()),
                Verb::Cast(at) => parts.cast.push(at.clone()),
                Verb::Split { at, groups } => parts.groups.extend(groups.iter().map(|group| joined(at, group))),
                Verb::Join { at, .. } => parts.joined.push(at.clone()),
                Verb::ParamsTo(to) => parts.of_params.push(to.clone()),
                _ => {}
            }
            let later = |(at, but): (String, Option<String>)| {
                Some((verb.moved(&at).0?, but.and_then(|but| verb.moved(&but).0)))
            };
            parts.fresh =
                core::mem::take(&mut parts.fresh).into_iter().filter_map(later).chain(verb.starts()).collect();
        }
        Ok(parts)
    }
}
