//! What becomes of parts of the state when the optimizer is another one.

use super::Migration;
use crate::state::{INNER, Parts, Verb, below, no_part};

/// The verbs, in order: each speaks of the state as those before it have left it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verbs(Vec<Verb>);

/// What the state of another optimizer is made of. A part is a field of the state with all that is below it, by the
/// path that [`schema`](crate::OptState::schema) shows: `1.mu` is the `mu` of a chain's second member, and the empty
/// path is the whole state. A verb speaks of the state as the verbs before it have left it. What none of them explains
/// is an error that lists it, and says by which verb it would be explained if there is only one.
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

    /// The part at `from` is at `to` now.
    pub fn rename_part(self, from: impl Into<String>, to: impl Into<String>) -> Migration {
        self.with(Verb::Rename { from: from.into(), to: to.into() })
    }

    /// There is a new member of a chain at this path, as `2` or `inner.0`, whose state starts as `init` makes it. The
    /// members from there on were one place before.
    pub fn insert_part(self, at: impl Into<String>) -> Migration {
        self.with(Verb::Insert(at.into()))
    }

    /// The member of a chain that was at this path is gone, with its state. Those after it are one place before.
    pub fn remove_part(self, at: impl Into<String>) -> Migration {
        self.with(Verb::Remove(at.into()))
    }

    /// The part at this path is the `inner` of a wrapper there now. The wrapper's own state starts as `init` makes it.
    pub fn wrap_part(self, at: impl Into<String>) -> Migration {
        self.with(Verb::Wrap { at: at.into(), inside: INNER.into() })
    }

    /// The part at this path is the member of this number in a chain there now. The state of the others starts as
    /// `init` makes it.
    pub fn wrap_in_chain(self, at: impl Into<String>, number: usize) -> Migration {
        self.with(Verb::Wrap { at: at.into(), inside: number.to_string() })
    }

    /// The wrapper at this path is gone, with its own state: its `inner` is there now.
    pub fn unwrap_part(self, at: impl Into<String>) -> Migration {
        self.with(Verb::Unwrap(at.into()))
    }

    /// The part at this path starts as `init` makes it, also where there was one before.
    pub fn fresh_part(self, at: impl Into<String>) -> Migration {
        self.with(Verb::Fresh(at.into()))
    }

    /// The part that was at this path is thrown away.
    pub fn drop_part(self, at: impl Into<String>) -> Migration {
        self.with(Verb::Drop(at.into()))
    }

    /// The arrays of the part at this path are of other types now: of [`quantized`](crate::quantized()) state, or with
    /// another `mu_dtype`. Each number is rounded to its new type once.
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
    pub fn cast_part(self, at: impl Into<String>) -> Migration {
        self.with(Verb::Cast(at.into()))
    }

    /// The part at `to` starts as a copy of the one at `from`, which stays where it is.
    pub fn take_part(self, from: impl Into<String>, to: impl Into<String>) -> Migration {
        self.with(Verb::Take { from: from.into(), to: to.into() })
    }

    /// The part at this path is a [`partition`](crate::partition) of these groups now.
    ///
    /// Each takes over the state of its leaves, and a copy of what there is one of.
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
    pub fn split_part(self, at: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Migration {
        self.with(Verb::Split { at: at.into(), groups: groups.into_iter().map(Into::into).collect() })
    }

    /// The groups of the [`partition`](crate::partition) at this path are one part there now.
    ///
    /// Single values must be the same in all of them: [`drop_part`](Migration::drop_part) says whose is not to
    /// count where it is not.
    ///
    /// See [`split_part`](Migration::split_part).
    pub fn join_parts(self, at: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Migration {
        self.with(Verb::Join { at: at.into(), groups: groups.into_iter().map(Into::into).collect() })
    }

    /// The arrays of the part at this path start as the parameters that were saved, with all their bits.
    ///
    /// `params_to_part("master")` fills the copies of [`master`](crate::wrapper::master) when a run in `f32` continues
    /// in 16 bits. It is understood where parameters are loaded, by [`Load::load`](crate::checkpoint::Load::load) and
    /// [`Import::load`](crate::checkpoint::Import::load).
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
    pub fn params_to_part(self, to: impl Into<String>) -> Migration {
        self.with(Verb::ParamsTo(to.into()))
    }

    /// The parameters are the arrays that were saved at this path, for leaves that have one there.
    ///
    /// They are rounded if [`cast`](Migration::cast) says so. `params_from_part("master").unwrap_part("")` continues a
    /// run of [`master`](crate::wrapper::master) in `f32`, with all bits of its copies.
    ///
    /// It is understood by [`Load::load`](crate::checkpoint::Load::load) and
    /// [`Load::load_params`](crate::checkpoint::Load::load_params).
    pub fn params_from_part(self, from: impl Into<String>) -> Migration {
        self.with(Verb::ParamsFrom(from.into()))
    }
}

/// As the call that adds it to a migration.
fn joined(part: &str, rest: &str) -> String {
    let between = if part.is_empty() || rest.is_empty() { "" } else { "." };
    format!("{part}{between}{rest}")
}

/// A chain's path and a number in it.
fn member(at: &str) -> Option<(&str, usize)> {
    let (chain, number) = at.rsplit_once('.').unwrap_or(("", at));
    Some((chain, number.parse().ok()?))
}

/// The path with the number in that chain changed, if it is of a member from `first` on.
fn shifted(path: &str, at: &str, first: usize, by: isize) -> Option<String> {
    let (chain, number) = member(at)?;
    let rest = below(path, chain)?;
    let (key, rest) = rest.split_once('.').unwrap_or((rest, ""));
    let key = key.parse::<usize>().ok().filter(|key| *key >= number + first)?;
    Some(joined(chain, &joined(&key.checked_add_signed(by)?.to_string(), rest)))
}

impl Verb {
    /// Where a field is after this; `None` if it is gone. And whether the verb has anything to do with it.
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
            // A path in many: see `copies`.
            Verb::Split { .. } | Verb::ParamsTo(_) => stays(),
        }
    }

    /// The paths at which there are copies of a field after this.
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

    /// What starts as `init` makes it: a part, but for what is in it.
    fn starts(&self) -> Option<(String, Option<String>)> {
        match self {
            Verb::Insert(at) | Verb::Fresh(at) => Some((at.clone(), None)),
            Verb::Wrap { at, inside } => Some((at.clone(), Some(joined(at, inside)))),
            _ => None,
        }
    }

    /// The path that must be there for the verb to mean anything.
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
            // What has no state may be inserted, removed and wrapped.
            _ => None,
        }
    }
}

impl Verbs {
    #[cfg(feature = "serde")]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where each field of the old state is in the new one, after these verbs and some more, and what of that is new.
    /// Without an old state a cast need not speak of a part of it.
    ///
    /// # Errors
    ///
    /// In words, the first verb that speaks of a part that is not there.
    pub(crate) fn parts(&self, old: &[&str], more: &[Verb]) -> Result<Parts, String> {
        let to = old.iter().map(|field| vec![(*field).to_owned()]).collect();
        let mut parts = Parts { to, ..Parts::default() };
        for verb in self.0.iter().chain(more) {
            if let Verb::Insert(at) | Verb::Remove(at) = verb
                && member(at).is_none()
            {
                return Err(format!("`{at}` is no member of a chain: its path ends with a number"));
            }
            let mut meant = false;
            for (i, to) in parts.to.iter_mut().enumerate() {
                let copies: Vec<_> = to.iter().flat_map(|path| verb.copies(path)).collect();
                let moved: Vec<_> = to.iter().map(|path| verb.moved(path)).collect();
                let is_meant = !copies.is_empty() || moved.iter().any(|(_, meant)| *meant);
                meant |= is_meant;
                match verb {
                    Verb::Split { .. } if is_meant => *to = copies,
                    _ => *to = moved.into_iter().filter_map(|(path, _)| path).chain(copies).collect(),
                }
                match verb {
                    Verb::ParamsFrom(_) if is_meant => parts.to_params.push(i),
                    Verb::Drop(_) if is_meant => _ = parts.dropped.insert(i),
                    _ => {}
                }
            }
            if let (Some((name, path)), false) = (verb.needs(), meant)
                && !(old.is_empty() && matches!(verb, Verb::Cast(_)))
            {
                return Err(no_part(name, path));
            }
            if let (Verb::Insert(at), false) = (verb, meant) {
                parts.in_vain.push(at.clone());
            }
            let Parts { asked, cast, groups, joined: one, of_params, .. } = &mut parts;
            for marked in [asked, cast, groups, one, of_params] {
                *marked = core::mem::take(marked).into_iter().filter_map(|at| verb.moved(&at).0).collect();
            }
            match verb {
                Verb::Fresh(at) => parts.asked.push(at.clone()),
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
