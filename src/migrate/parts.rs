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
            Verb::Take { from: part, .. } | Verb::Cast(part) => (Some(path.to_owned()), below(path, part).is_some()),
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
    ///
    /// # Errors
    ///
    /// In words, the first verb that speaks of a part that is not there.
    pub(crate) fn parts(&self, old: &[&str], more: &[Verb]) -> Result<Parts, String> {
        let to = old.iter().map(|field| vec![(*field).to_owned()]).collect();
        let mut parts = Parts { to, fresh: Vec::new(), asked: Vec::new(), cast: Vec::new(), in_vain: Vec::new() };
        for verb in self.0.iter().chain(more) {
            if let Verb::Insert(at) | Verb::Remove(at) = verb
                && member(at).is_none()
            {
                return Err(format!("`{at}` is no member of a chain: its path ends with a number"));
            }
            let mut meant = false;
            for to in &mut parts.to {
                if let Verb::Take { from, to: copy } = verb {
                    let copies: Vec<_> = to.iter().filter_map(|path| Some(joined(copy, below(path, from)?))).collect();
                    meant |= !copies.is_empty();
                    to.extend(copies);
                    continue;
                }
                let moved: Vec<_> = to.iter().map(|path| verb.moved(path)).collect();
                meant |= moved.iter().any(|(_, meant)| *meant);
                *to = moved.into_iter().filter_map(|(path, _)| path).collect();
            }
            if let (Some((verb, path)), false) = (verb.needs(), meant) {
                return Err(no_part(verb, path));
            }
            if let (Verb::Insert(at), false) = (verb, meant) {
                parts.in_vain.push(at.clone());
            }
            let asked = core::mem::take(&mut parts.asked).into_iter().filter_map(|at| verb.moved(&at).0);
            let own = if let Verb::Fresh(at) = verb { Some(at.clone()) } else { None };
            parts.asked = asked.chain(own).collect();
            let cast = core::mem::take(&mut parts.cast).into_iter().filter_map(|at| verb.moved(&at).0);
            let own = if let Verb::Cast(at) = verb { Some(at.clone()) } else { None };
            parts.cast = cast.chain(own).collect();
            let later = |(at, but): (String, Option<String>)| {
                Some((verb.moved(&at).0?, but.and_then(|but| verb.moved(&but).0)))
            };
            parts.fresh =
                core::mem::take(&mut parts.fresh).into_iter().filter_map(later).chain(verb.starts()).collect();
        }
        Ok(parts)
    }
}
