//! Comparison of saved data with the target: nothing changes before all agrees.

mod buffers;
mod compare;
mod data;
mod injected;

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use self::compare::Of;
use self::compare::as_json;
use crate::engine::Stage;
use crate::error::{Error, MismatchReport, Result};
use crate::migrate::{Migration, Model, Resolved, missing_heads};
use crate::recipe::json::too_deep;
use crate::state::{ItemSpec, Owner, SHARES, Source, State, StateWalk, counts_by_leaf, items_mut, sources};
use crate::transformation::OptState;
use crate::tree::{BufferSpec, Difference, Structure, Tree};

/// Saved data to restore a state from.
pub struct Saved<'a> {
    /// The name in messages.
    #[doc(hidden)]
    pub display_name: String,
    #[doc(hidden)]
    pub optimizer: &'a Value,
    #[doc(hidden)]
    pub structure: &'a Structure,
    #[doc(hidden)]
    pub buffer_specs: BufferSpecs<'a>,
    #[doc(hidden)]
    pub items: Vec<ItemSpec>,
    /// True if it includes the parameters.
    #[doc(hidden)]
    pub has_params: bool,
}

/// Saved buffers, and the model's.
#[derive(Clone, Copy, Default)]
pub struct BufferSpecs<'a> {
    #[doc(hidden)]
    pub there: &'a [BufferSpec],
    #[doc(hidden)]
    pub here: &'a [BufferSpec],
    /// True if they are loaded, and so must agree.
    #[doc(hidden)]
    pub loads: bool,
}

/// A fitting state, to be filled.
pub struct Fit<T: Stage> {
    #[doc(hidden)]
    pub state: OptState<T>,
    /// The source of each value of the state.
    #[doc(hidden)]
    pub sources: Vec<Source>,
    /// The saved arrays that become parameters.
    #[doc(hidden)]
    pub params: Vec<usize>,
    #[doc(hidden)]
    pub moves: Resolved,
    #[doc(hidden)]
    pub differed: Vec<String>,
}

impl Saved<'_> {
    /// Compares everything, and returns a state to fill. `may_differ` has the permitted arguments, if any.
    ///
    /// # Errors
    ///
    /// With every difference that is not permitted.
    #[doc(hidden)]
    pub fn fit<T: Stage, P: Tree + ?Sized>(
        &self,
        may_differ: Option<&[String]>,
        migration: &Migration,
        transformation: &T,
        params: &P,
    ) -> Result<Fit<T>> {
        transformation.validate()?;
        let here = Structure::of(params)?;
        let (mut mismatch_report, mut differed, mut meant) = (MismatchReport::default(), Vec::new(), BTreeSet::new());
        let (mut other_parts, mut only_said) = (BTreeSet::new(), false);
        let ours = as_json(&transformation.recipe());
        let (can_differ, may_differ) = (may_differ.is_some(), may_differ.unwrap_or_default());
        may_differ.iter().try_for_each(|allowed| exists(allowed, &[&ours, self.optimizer]))?;
        let mut allows = vec![false; may_differ.len()];
        compare::differences(&ours, self.optimizer, &mut |place, of, what| {
            // A migration of parts implies that the optimizer has others.
            let mut may = of == Of::Parts && migration.moves_parts();
            for (allowed, allows) in may_differ.iter().zip(&mut allows) {
                let is_it = compare::is_at(place, allowed);
                (may, *allows) = (may || is_it, *allows || is_it);
            }
            if may {
                differed.push(format!("{place}: {what}"));
            } else {
                mismatch_report.lines.push(format!("optimizer: {place}: {what}"));
                match argument_at(place) {
                    _ if of == Of::Parts => _ = other_parts.insert(place.to_owned()),
                    Some(argument) => _ = meant.insert(argument.to_owned()),
                    None => only_said = true,
                }
            }
        });
        // The suggested call includes the arguments already permitted.
        let already: Vec<_> =
            may_differ.iter().zip(&allows).filter(|(_, allows)| **allows).map(|(name, _)| name).collect();
        let goes_on = |meant: &BTreeSet<String>| {
            let each = already.iter().copied().chain(meant);
            let each: String = each.map(|argument| format!(".may_differ({argument:?})")).collect();
            let state = if meant.contains("$") { ", with a `Migration` where its state differs" } else { "" };
            (!meant.is_empty()).then(|| format!("`Load::strict(){each}` resumes with the current optimizer{state}"))
        };
        let without_effect = may_differ.iter().zip(allows).filter(|(_, allows)| !allows).map(|(allowed, _)| allowed);
        mismatch_report
            .hints
            .extend(without_effect.map(|allowed| format!("`may_differ({allowed:?})` matches no difference")));
        let BufferSpecs { there, here: buffers, loads } = self.buffer_specs;
        let moves = moves(migration, (self.structure, there), (&here, buffers), loads, &mut mismatch_report)?;
        let by_leaf = moves.starts_leaves() || counts_by_leaf(&self.items);
        let mut state = match OptState::new_counting(transformation, params, by_leaf) {
            // The known problems explain more than the error of a mask that fits other leaves.
            Err(_) if !mismatch_report.lines.is_empty() => {
                return Err(Error::mismatch_report(&self.display_name, mismatch_report));
            }
            made => made?,
        };
        let shared = is_shared(&*state);
        let new: Vec<_> = items_mut(&mut *state, &here).iter().map(ItemSpec::of_mut).collect();
        // Leaves that other ranks have whole are absent here.
        let names: HashSet<_> = new.iter().filter(|_| shared).map(|new| &new.name).collect();
        let is_here =
            |item: &ItemSpec| !shared || !matches!(item.name.of, Owner::Leaf(_)) || names.contains(&item.name);
        let (numbers, old): (Vec<_>, Vec<_>) =
            self.items.iter().cloned().enumerate().filter(|(_, item)| is_here(item)).unzip();
        let more = match sources(&old, &new, &moves, self.has_params.then_some(self.structure)) {
            Ok(sources) if mismatch_report.lines.is_empty() => {
                let kept = injected::overruled(&mut *state, &transformation.recipe(), may_differ);
                let values = sources.values.into_iter().zip(&new);
                let values = values.map(|(source, new)| match source {
                    Source::Item(_) if kept.contains(&new.name.field) => Source::Own,
                    Source::Item(i) => Source::Item(numbers[i]),
                    source => source,
                });
                let params = sources.params.into_iter().map(|i| numbers[i]).collect();
                return Ok(Fit { state, sources: values.collect(), params, moves, differed });
            }
            Ok(_) => MismatchReport::default(),
            Err(more) => more,
        };
        // All proposals together make it fit. A migration permits added and removed parts, but none in place of
        // another.
        let state_fits = more.lines.is_empty();
        if can_differ && !only_said {
            if state_fits && !migration.moves_parts() {
                meant.extend(other_parts);
            }
            if state_fits || !more.proposed.is_empty() || meant.contains("$") {
                mismatch_report.hints.splice(0..0, goes_on(&meant));
            }
            mismatch_report.proposed = more.proposed;
        }
        mismatch_report.lines.extend(more.lines.into_iter().map(|line| format!("state: {line}")));
        mismatch_report.hints.extend(more.hints);
        Err(Error::mismatch_report(&self.display_name, mismatch_report))
    }
}

/// Converts a transformation to JSON.
///
/// # Errors
///
/// If it is nested too deeply to be read again.
pub fn as_data<T: Stage>(transformation: &T) -> Result<Value> {
    let data = as_json(&transformation.recipe());
    too_deep(&data).map_or(Ok(()), |problem| Err(Error::state("the optimizer as data", problem)))?;
    Ok(data)
}

/// Returns whether a state is one rank's shard.
pub fn is_shared<S: State>(state: &S) -> bool {
    let mut shared = false;
    state.walk(&mut StateWalk::of_facts(&mut |path, _, _| shared |= path.rsplit('.').next() == Some(SHARES)));
    shared
}

/// Checks that a permitted argument exists in either optimizer: another name would permit nothing.
fn exists(allowed: &str, optimizers: &[&Value]) -> Result<()> {
    let (mut is_there, mut known, mut seen) = (false, Vec::new(), HashSet::new());
    for optimizer in optimizers {
        compare::places("$", optimizer, &mut |place| {
            is_there |= compare::is_at(place, allowed);
            let name = place.rsplit('.').next().and_then(|name| name.split('[').next()).unwrap_or(place);
            if seen.insert(name.to_owned()) {
                known.push(name.to_owned());
            }
        });
    }
    if is_there { Ok(()) } else { Err(Error::unknown_name("may_differ", "argument", allowed, known)) }
}

/// Resolves the fate of leaves. Reports unexplained ones, and omits them from the state.
pub fn moves(
    migration: &Migration,
    there: Model<'_>,
    here: Model<'_>,
    loads_buffers: bool,
    mismatch_report: &mut MismatchReport,
) -> Result<Resolved> {
    let moves = migration.resolve_with_buffers(there, here)?;
    let differences = moves.differences(there.0, here.0);
    if loads_buffers {
        buffers::compare(&moves, there, here, mismatch_report);
    }
    mismatch_report.lines.extend(differences.iter().map(|difference| format!("parameters: {difference}")));
    if differences.is_empty() {
        return Ok(moves);
    }
    let is_cast = |difference: &Difference| matches!(difference, Difference::DType { .. });
    if differences.iter().any(|difference| !is_cast(difference)) {
        mismatch_report.hints.push("changes of leaves need a `Migration`: `fresh`, `drop`, `rename`".into());
    }
    if differences.iter().any(is_cast) {
        let hint = "`Migration::new().cast(Mask::all())` rounds values and state to the dtypes of these leaves";
        mismatch_report.hints.push(hint.into());
    }
    let (mut missing, mut strange) = (Vec::new(), Vec::new());
    differences.iter().for_each(|difference| match difference {
        Difference::Missing { expected } => missing.push((expected.path(), expected.shape())),
        Difference::Unexpected { found } => strange.push((found.path(), found.shape())),
        _ => {}
    });
    // Paths are already the new ones, but verbs take the old.
    let heads = if migration.renames() { Vec::new() } else { missing_heads(&missing, &strange) };
    let renames: String = heads.iter().map(|(from, to)| format!(".rename({from:?}, {to:?})")).collect();
    if !renames.is_empty() {
        mismatch_report.hints.push(format!("`Migration::new(){renames}` renames leaves to their paths here"));
    }
    Ok(moves.without(&differences))
}

/// Returns a place's argument, for `may_differ`. Differing chain members are explained elsewhere.
fn argument_at(place: &str) -> Option<&str> {
    let last = place.rsplit('.').next()?.split('[').next()?;
    (last != "chain").then_some(last)
}
