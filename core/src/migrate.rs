//! State for parameters of another structure: nothing is lost, moved or started afresh without a request.

mod parts;

#[cfg(feature = "serde")]
use std::collections::BTreeSet;
use std::collections::{HashMap, HashSet};

use crate::engine::Stage;
use crate::error::{Error, Result};
use crate::select::{Mask, subtree};
use crate::state::{
    ItemSpec, Moves, Owner, Parts, Source, State, Verb, assign_item, counts_by_leaf, items, items_mut, sources,
};
use crate::transformation::OptState;
use crate::tree::{BufferSpec, Difference, LeafSpec, Structure, Tree};

/// A description of changed leaves and parts, for their state: see [`OptState::migrate`](crate::OptState::migrate).
///
/// Leaves may be renamed, added or removed, and the optimizer may have other parts.
///
/// Without any verb the leaves are the same, in any order.
#[derive(Clone, Debug, Default)]
#[must_use = "a migration does nothing until it is given to `migrate`"]
pub struct Migration {
    renames: Vec<(String, String)>,
    fresh: Vec<Mask>,
    dropped: Vec<Mask>,
    cast: Vec<Mask>,
    parts: parts::Verbs,
}

impl Migration {
    /// Returns a migration for the same leaves, in any order.
    pub fn new() -> Migration {
        Migration::default()
    }

    /// Moves the leaf at `from`, or all leaves below it, to `to`.
    ///
    /// `rename("encoder", "backbone")` moves `encoder/0/weight` to `backbone/0/weight`.
    pub fn rename(mut self, from: impl Into<String>, to: impl Into<String>) -> Migration {
        self.renames.push((from.into(), to.into()));
        self
    }

    /// Starts the state of these new leaves as in `init`.
    ///
    /// An old leaf of that path, of any shape or dtype, has no effect. [Buffers](crate::tree::Buffer) of these paths
    /// keep their values.
    pub fn fresh(mut self, leaves: impl Into<Mask>) -> Migration {
        self.fresh.push(leaves.into());
        self
    }

    /// Drops the state of these old leaves, and the values of old [buffers](crate::tree::Buffer).
    pub fn drop(mut self, leaves: impl Into<Mask>) -> Migration {
        self.dropped.push(leaves.into());
        self
    }

    /// Permits another dtype of these leaves.
    ///
    /// Their state is rounded once to the new dtypes, and so are their values if values are loaded.
    ///
    /// ```
    /// use gradchain::Migration;
    /// use gradchain::prelude::*;
    ///
    /// let optimizer = adam(0.1);
    /// let mut params = vec![1.0_f32, 2.0];
    /// let mut state = optimizer.init(&params)?;
    /// optimizer.step(&mut params, &vec![0.5_f32, -0.5], &mut state)?;
    ///
    /// let params: Vec<f64> = params.into_iter().map(f64::from).collect();
    /// assert!(state.migrate(&optimizer, &params, &Migration::new()).is_err());
    /// let state = state.migrate(&optimizer, &params, &Migration::new().cast(Mask::all()))?;
    /// assert_eq!(state.0.count.get(), 1);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// Moments of 16-bit leaves are `f32` by default, so they keep all their bits on the way from `f32` to `bf16`.
    /// [`params_to_part`](Migration::params_to_part) keeps those of the parameters too.
    pub fn cast(mut self, leaves: impl Into<Mask>) -> Migration {
        self.cast.push(leaves.into());
        self
    }

    #[cfg(feature = "serde")]
    #[doc(hidden)]
    pub fn renames(&self) -> bool {
        !self.renames.is_empty()
    }

    #[cfg(feature = "serde")]
    #[doc(hidden)]
    pub fn moves_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    pub(crate) fn resolve(&self, old: &Structure, new: &Structure) -> Result<Resolved> {
        self.resolve_with_buffers((old, &[]), (new, &[]))
    }

    /// Resolves paths for two models; verbs also name [buffers](crate::tree::Buffer) by path.
    #[doc(hidden)]
    pub fn resolve_with_buffers(&self, (old, kept): Model<'_>, (new, wanted): Model<'_>) -> Result<Resolved> {
        let (there, here) = (old.with_buffers(kept), new.with_buffers(wanted));
        let dropped = any(&self.dropped, &there, "drop")?;
        let fresh = any(&self.fresh, &here, "fresh")?;
        let cast = any(&self.cast, &here, "cast")?;
        let from: Vec<&str> = self.renames.iter().map(|(from, _)| from.as_str()).collect();
        let renames = subtree::assign(&from, &there, false, "migrate: rename")?;
        let (mut to, mut values) = (HashMap::new(), HashMap::new());
        for (number, ((path, rename), dropped)) in there.paths().zip(renames).zip(&dropped).enumerate() {
            let new = rename.map_or_else(|| path.to_owned(), |i| moved(path, &self.renames[i]));
            // A dropped leaf loses its state; its value may become a buffer's.
            if !dropped || number < old.len() {
                values.insert(new.clone(), path.to_owned());
            }
            if !dropped {
                to.insert(path.to_owned(), new);
            }
        }
        let none = |taken: &[bool], leaves: usize| !taken[..leaves].contains(&true);
        let same = none(&dropped, old.len()) && none(&fresh, new.len());
        let same = same && self.renames.is_empty();
        let identity = same && old.compare(new, |a, b| a == b).is_empty();
        let retyped = same && !self.cast.is_empty() && old.compare(new, |_, _| true).is_empty();
        let cast = here.paths().zip(cast).filter(|(_, cast)| *cast).map(|(path, _)| path.to_owned()).collect();
        let taken = here.paths().zip(fresh).filter(|(_, fresh)| *fresh).map(|(path, _)| path.to_owned());
        let (fresh, kept) = taken.partition(|path| new.index_of(path).is_some());
        Ok(Resolved { to, fresh, cast, kept, values, identity, retyped, parts: self.parts.clone() })
    }
}

/// The leaves and buffers of a model.
#[cfg_attr(not(feature = "serde"), expect(unreachable_pub, reason = "restoring needs serde"))]
pub type Model<'m> = (&'m Structure, &'m [BufferSpec]);

/// Returns the union of the masks; each must select a leaf.
fn any(masks: &[Mask], structure: &Structure, verb: &str) -> Result<Vec<bool>> {
    let what = format!("migrate: {verb}");
    let mut all = vec![false; structure.len()];
    for mask in masks {
        let taken = mask.resolve(structure, &what)?;
        if !taken.contains(&true) {
            let paths = structure.paths().map(String::from).collect();
            return Err(Error::no_match(what, format!("{mask:?}"), paths, None));
        }
        all.iter_mut().zip(taken).for_each(|(all, taken)| *all |= taken);
    }
    Ok(all)
}

/// Returns a path at or below `from`, moved to `to`; either may be the root.
fn moved(path: &str, (from, to): &(String, String)) -> String {
    let rest = path[from.len()..].trim_start_matches('/');
    let between = if to.is_empty() || rest.is_empty() { "" } else { "/" };
    format!("{to}{between}{rest}")
}

/// A [`Migration`] between two known structures.
pub struct Resolved {
    to: HashMap<String, String>,
    fresh: HashSet<String>,
    /// Leaves whose dtype may change.
    cast: HashSet<String>,
    /// Buffers that keep their values.
    #[cfg_attr(not(feature = "serde"), expect(dead_code, reason = "only saved states have buffers"))]
    kept: HashSet<String>,
    /// Old paths by new ones, also of dropped leaves.
    values: HashMap<String, String>,
    identity: bool,
    /// True if only dtypes of leaves differ.
    retyped: bool,
    parts: parts::Verbs,
}

impl Moves for Resolved {
    fn to(&self, old: &str) -> Option<&str> {
        self.to.get(old).map(String::as_str)
    }
    fn from(&self, new: &str) -> Option<&str> {
        self.values.get(new).map(String::as_str)
    }
    fn is_fresh(&self, new: &str) -> bool {
        self.fresh.contains(new)
    }
    fn is_cast(&self, new: &str) -> bool {
        self.cast.contains(new)
    }
    fn is_identity(&self) -> bool {
        self.identity
    }
    fn is_retyped(&self) -> bool {
        self.retyped
    }
    fn parts(&self, old: &[&str], more: &[Verb]) -> Result<Parts, String> {
        self.parts.parts(old, more)
    }
}

impl Resolved {
    #[cfg(feature = "serde")]
    #[doc(hidden)]
    pub fn is_kept(&self, new: &str) -> bool {
        self.kept.contains(new)
    }

    /// Returns true if some leaves begin later and so count their updates separately.
    #[doc(hidden)]
    pub fn starts_leaves(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Starts afresh or drops the leaves with these differences.
    #[cfg(feature = "serde")]
    pub(crate) fn without(mut self, differences: &[Difference]) -> Resolved {
        (self.identity, self.retyped) = (false, false);
        for difference in differences {
            match difference {
                Difference::Unexpected { found } => _ = self.to.remove(found.path()),
                Difference::Missing { expected } => _ = self.fresh.insert(expected.path().to_owned()),
                Difference::Shape { path, .. } | Difference::DType { path, .. } | Difference::Duplicate { path } => {
                    self.fresh.insert(path.clone());
                }
                _ => {}
            }
        }
        self
    }

    /// Returns the unexplained differences; old leaves count as found, under their new names.
    pub(crate) fn differences(&self, old: &Structure, new: &Structure) -> Vec<Difference> {
        let (mut found, numbers) = (Vec::new(), new.numbers());
        let mut taken: HashMap<&str, &LeafSpec> = HashMap::new();
        for leaf in old.leaves() {
            let Some(path) = self.to(leaf.path()).filter(|path| !self.is_fresh(path)) else { continue };
            if taken.insert(path, leaf).is_some() {
                found.push(Difference::Duplicate { path: path.into() });
            }
            let Some(theirs) = numbers.get(path).map(|number| &new.leaves()[*number]) else {
                found.push(Difference::Unexpected { found: leaf.clone() });
                continue;
            };
            if leaf.shape() != theirs.shape() {
                let (expected, found_) = (theirs.shape().to_vec(), leaf.shape().to_vec());
                found.push(Difference::Shape { path: path.into(), expected, found: found_ });
            }
            if leaf.dtype() != theirs.dtype() && !self.is_cast(path) {
                let (expected, found_) = (theirs.dtype(), leaf.dtype());
                found.push(Difference::DType { path: path.into(), expected, found: found_ });
            }
        }
        let new = new.leaves().iter().filter(|leaf| !self.is_fresh(leaf.path()) && !taken.contains_key(leaf.path()));
        found.extend(new.map(|leaf| Difference::Missing { expected: leaf.clone() }));
        found
    }
}

impl<T: Stage> OptState<T> {
    /// Returns the state for parameters of another structure.
    ///
    /// The state of each leaf moves with its path; counts and other single values stay. If some leaves are
    /// [fresh](Migration::fresh), updates are counted for each leaf from then on, so that bias corrections restart for
    /// those. This state is not changed.
    ///
    /// `transformation` is that of the state, or another, for which the migration describes the parts of the state:
    /// [`insert_part`](Migration::insert_part), [`wrap_part`](Migration::wrap_part) and the like. Masks and labels are
    /// resolved again.
    ///
    /// ```
    /// use gradchain::prelude::*;
    /// use gradchain::{Migration, tree::DynTree};
    /// use ndarray::array;
    ///
    /// let optimizer = adam(0.1);
    /// let mut params = DynTree::new();
    /// params.insert("encoder/w", array![1.0_f32, 2.0]);
    /// params.insert("head/w", array![3.0_f32]);
    /// let mut state = optimizer.init(&params)?;
    /// let gradients = params.clone();
    /// optimizer.step(&mut params, &gradients, &mut state)?;
    ///
    /// // Fine-tuning: the same encoder under another name, and a larger head.
    /// let mut tuned = DynTree::new();
    /// tuned.insert("backbone/w", array![1.0_f32, 2.0]);
    /// tuned.insert("head/w", array![0.0_f32, 0.0, 0.0]);
    /// let error = state.migrate(&optimizer, &tuned, &Migration::new()).unwrap_err();
    /// assert_eq!(error.differences().len(), 3); // what is missing, what is unexpected, what has another shape
    ///
    /// let migration = Migration::new().rename("encoder", "backbone").fresh("head/*");
    /// let mut state = state.migrate(&optimizer, &tuned, &migration)?;
    /// let gradients = tuned.clone();
    /// optimizer.step(&mut tuned, &gradients, &mut state)?;
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if a leaf was added, removed, renamed, reshaped or has another dtype, and `migration` does not explain it;
    /// every such leaf is listed. Fails if a verb matches no leaf, or if part of the state belongs to all leaves
    /// together, as that of [`flatten`], and they are not all the same. Fails if a panic left
    /// this state half written.
    ///
    /// [`flatten`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.flatten.html
    pub fn migrate<U: Stage, P: Tree + ?Sized>(
        &self,
        transformation: &U,
        params: &P,
        migration: &Migration,
    ) -> Result<OptState<U>> {
        self.usable()?;
        let here = Structure::of(params)?;
        let moves = migration.resolve(self.structure(), &here)?;
        let differences = moves.differences(self.structure(), &here);
        if !differences.is_empty() {
            let is_cast = |difference: &Difference| matches!(difference, Difference::DType { .. });
            let what = match differences.iter().any(is_cast) {
                false => "the state does not fit the parameters, and the migration lacks a `rename`, `drop` or `fresh`",
                true => {
                    "the state does not fit the parameters, and the migration lacks a verb, such as `cast` for another \
                     dtype"
                }
            };
            return Err(Error::structure(what, differences));
        }
        let mut new = OptState::new_counting(transformation, params, moves.starts_leaves() || self.counts_by_leaf())?;
        new.take_over(&**self, self.structure(), &moves)?;
        Ok(new)
    }

    /// Resets the state of the chosen leaves to that of `init`; single values, such as the count of steps, stay.
    ///
    /// ```
    /// use gradchain::prelude::*;
    /// use ndarray::array;
    ///
    /// let optimizer = sgd(1.0).momentum(0.5);
    /// let mut params = vec![array![0.0], array![0.0]];
    /// let mut state = optimizer.init(&params)?;
    /// optimizer.step(&mut params, &vec![array![1.0], array![1.0]], &mut state)?;
    /// state.reset(&optimizer, &params, "1")?;
    /// optimizer.step(&mut params, &vec![array![0.0], array![0.0]], &mut state)?;
    /// assert_eq!(params, [array![-1.5], array![-1.0]]);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the parameters do not have the structure of the state, the mask matches no leaf, or part of the state
    /// belongs to all leaves together.
    pub fn reset<P>(&mut self, transformation: &T, params: &P, leaves: impl Into<Mask>) -> Result<()>
    where
        P: Tree + ?Sized,
    {
        self.usable()?;
        let fresh = OptState::new_counting(transformation, params, self.counts_by_leaf())?;
        let differences = self.structure().compare(fresh.structure(), |a, b| a == b);
        if !differences.is_empty() {
            return Err(Error::structure(
                "reset: the parameters are not those that the state was made for",
                differences,
            ));
        }
        let chosen = leaves.into().resolve(self.structure(), "reset")?;
        let structure = self.shared_structure();
        let numbers = structure.numbers();
        let is_chosen = |owner: &Owner| match owner {
            Owner::Leaf(path) => numbers.get(&**path).is_some_and(|leaf| chosen[*leaf]),
            _ => false,
        };
        let from = items(&*fresh, &structure);
        if let Some((name, _)) = from.iter().find(|(name, _)| matches!(name.of, Owner::OtherTree(_))) {
            return Err(Error::state("reset", format!("`{name}` combines all leaves, so it cannot be reset for some")));
        }
        let into = items_mut(&mut **self, &structure);
        let same = into.len() == from.len()
            && into.iter().zip(&from).all(|(a, b)| ItemSpec::of_mut(a).is_like(&ItemSpec::of(b)));
        if !same {
            return Err(Error::state("reset", "the state was made by another transformation"));
        }
        for ((name, into), (_, from)) in into.into_iter().zip(&from).filter(|((name, _), _)| is_chosen(&name.of)) {
            assign_item(into, from).ok_or_else(|| Error::state("reset", format!("`{name}` is of another kind")))?;
        }
        Ok(())
    }

    fn counts_by_leaf(&self) -> bool {
        counts_by_leaf(&items(&**self, self.structure()).iter().map(ItemSpec::of).collect::<Vec<_>>())
    }

    fn take_over<S: State>(&mut self, from: &S, structure: &Structure, moves: &impl Moves) -> Result<()> {
        let from = items(from, structure);
        let own = self.shared_structure();
        let into = items_mut(&mut **self, &own);
        let old: Vec<_> = from.iter().map(ItemSpec::of).collect();
        let new: Vec<_> = into.iter().map(ItemSpec::of_mut).collect();
        let sources =
            sources(&old, &new, moves, None).map_err(|mismatch_report| Error::mismatch("migrate", mismatch_report))?;
        if !sources.params.is_empty() {
            let problem = "`params_from_part`: `migrate` writes no parameters; save them with the state, and load with \
                           `Load::migrating`";
            return Err(Error::state("migrate", problem));
        }
        for ((name, into), source) in into.into_iter().zip(sources.values) {
            if let Source::Item(source) = source {
                assign_item(into, &from[source].1)
                    .ok_or_else(|| Error::state("migrate", format!("`{name}` is of another kind")))?;
            }
        }
        Ok(())
    }
}

#[cfg(feature = "serde")]
type Leaf<'a> = (&'a str, &'a [usize]);

/// Returns renames of unexpected leaves to missing ones.
///
/// A rename adds or removes leading levels, or renames one level between leaves of the same shape. The result is one
/// rename for all, or one per missing leaf; none if ambiguous.
#[cfg(feature = "serde")]
pub fn missing_heads(missing: &[Leaf<'_>], strange: &[Leaf<'_>]) -> Vec<(String, String)> {
    /// Bounds the time for models with very many leaves.
    const MAX_CANDIDATES: usize = 16;
    const MAX_LEAVES: usize = 1000;
    let heads_of = |leaf: &Leaf<'_>| -> BTreeSet<_> { strange.iter().filter_map(|other| heads(other, leaf)).collect() };
    let all: HashMap<&str, &[usize]> = missing.iter().copied().collect();
    let explains = |head: &(String, String)| {
        let under = strange.iter().filter(|(path, _)| subtree::holds(&head.0, path));
        let here = under.filter(|(path, shape)| {
            all.get(&*moved(path, head)).is_some_and(|here| here == shape || !is_another_name(head))
        });
        here.count()
    };
    let candidates: BTreeSet<_> = missing.iter().take(MAX_CANDIDATES).flat_map(heads_of).collect();
    let of_all = |head: &&(String, String)| [missing.len(), strange.len()].contains(&explains(head));
    if let Some(head) = candidates.iter().find(of_all) {
        return vec![head.clone()];
    }
    if missing.len().max(strange.len()) > MAX_LEAVES {
        return Vec::new();
    }
    let by_path: Vec<BTreeSet<_>> = missing.iter().map(heads_of).collect();
    let one_each = by_path.iter().all(|heads| heads.len() == 1);
    let all: BTreeSet<_> = by_path.into_iter().flatten().collect();
    let other_tree = all.iter().all(|(a, _)| !all.iter().any(|(b, _)| a != b && subtree::holds(a, b)));
    if one_each && other_tree { all.into_iter().collect() } else { Vec::new() }
}

/// Returns the heads of two paths that differ in extra levels or one level's name only.
///
/// If a name differs, the leaves must have the same shape.
#[cfg(feature = "serde")]
fn heads((from, here): &Leaf<'_>, (to, there): &Leaf<'_>) -> Option<(String, String)> {
    let [from, to]: [Vec<&str>; 2] = [from, to].map(|path| path.split('/').collect());
    let same = from.iter().rev().zip(to.iter().rev()).take_while(|(a, b)| a == b).count();
    let (from, to) = (&from[..from.len() - same], &to[..to.len() - same]);
    let is_more = from != to && (from.starts_with(to) || to.starts_with(from));
    let head = (from.join("/"), to.join("/"));
    (same > 0 && (is_more || here == there && is_another_name(&head))).then_some(head)
}

#[cfg(feature = "serde")]
fn is_another_name((from, to): &(String, String)) -> bool {
    let split = |path: &'_ str| path.rsplit_once('/').map_or(String::new(), |(outer, _)| outer.to_owned());
    !from.is_empty() && !to.is_empty() && from != to && split(from) == split(to)
}
