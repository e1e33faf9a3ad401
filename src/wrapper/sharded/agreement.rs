//! Whether all ranks do the same.

use core::hash::{Hash, Hasher};
use std::hash::DefaultHasher;

use crate::collective::{Collective, gather};
use crate::element::DType;
use crate::engine::{StepContext, read_leaf};
use crate::error::{Error, Result};
use crate::recipe::Recipe;
use crate::state::{Entry, State, StateWalk};
use crate::tree::Structure;

/// Whether a number is the same on all ranks.
fn is_same(collective: &dyn Collective, number: u64) -> Result<bool> {
    let (mut own, mut all) = (number.to_le_bytes().to_vec(), Vec::new());
    collective.all_gather(&mut own, &mut all, &vec![8; collective.size()])?;
    Ok(all.chunks_exact(8).all(|other| *other == all[..8]))
}

/// Compares what is said on each rank, line by line, if it differs at all.
fn same(collective: &dyn Collective, what: &str, lines: &[String]) -> Result<()> {
    let mut hasher = DefaultHasher::new();
    lines.hash(&mut hasher);
    if is_same(collective, hasher.finish())? {
        return Ok(());
    }
    let all = gather(collective, lines.join("\n").as_bytes())?;
    // All compare with the first, so that all come to the same end.
    let texts: Vec<_> = all.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
    let Some(other) = texts.iter().position(|text| *text != texts[0]) else { return Ok(()) };
    let [mut ours, mut theirs] = [&texts[0], &texts[other]].map(|text| text.lines());
    let problem = loop {
        match (ours.next(), theirs.next()) {
            (Some(ours), Some(theirs)) if ours == theirs => {}
            (ours, theirs) => {
                let [ours, theirs] = [ours, theirs].map(|line| line.unwrap_or("nothing more"));
                break format!("the ranks differ in {what}: rank 0 has {ours}; rank {other} has {theirs}");
            }
        }
    };
    Err(Error::collective(collective.rank(), problem))
}

/// Compares what is to be done, and to which leaves.
pub(super) fn on_leaves(
    collective: &dyn Collective,
    recipe: &Recipe,
    structure: &Structure,
    active: &[bool],
) -> Result<()> {
    let version = format!("version {}", env!("CARGO_PKG_VERSION"));
    same(collective, "the optimizer", &[version, format!("{recipe:?}")])?;
    let leaves = structure.leaves().iter().zip(active);
    let leaves = leaves.map(|(leaf, on)| {
        let acted_on = if *on { "" } else { ", not acted on" };
        format!("{leaf} in memory order {:?}{acted_on}", leaf.strides())
    });
    same(collective, "the parameters' structure", &leaves.collect::<Vec<_>>())
}

/// Compares the parameters, all elements of them.
pub(super) fn on_values(collective: &dyn Collective, at: &StepContext<'_>) -> Result<()> {
    fn number<C>(values: &[C], bits: impl Fn(&C) -> u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        values.iter().for_each(|x| bits(x).hash(&mut hasher));
        hasher.finish()
    }
    let leaves = at.structure().leaves().iter().zip(at.params).map(|(leaf, values)| {
        let number = match leaf.dtype().compute() {
            DType::F64 => {
                let mut here = vec![0.0_f64; leaf.len()];
                read_leaf(values, leaf, Some(&mut here));
                number(&here, |x| x.to_bits())
            }
            _ => {
                let mut here = vec![0.0_f32; leaf.len()];
                read_leaf(values, leaf, Some(&mut here));
                number(&here, |x| x.to_bits().into())
            }
        };
        format!("`{}` of check sum {number:016x}", leaf.path())
    });
    same(collective, "the parameters' values", &leaves.collect::<Vec<_>>())
}

/// Compares what is done in a step, the loss if it is needed, and all that there is one of in the state.
pub(super) fn on_step<S: State>(collective: &dyn Collective, state: &S, flush: bool, value: Option<f64>) -> Result<()> {
    let mut hasher = DefaultHasher::new();
    each_single(state, flush, value, &mut |_, bits| bits.hash(&mut hasher));
    if is_same(collective, hasher.finish())? {
        return Ok(());
    }
    let mut lines = Vec::new();
    each_single(state, flush, value, &mut |name, bits| lines.push(format!("`{name}` of bits {bits:#x}")));
    same(collective, "the step", &lines)
}

/// Shows the bits of every single value.
fn each_single<S: State>(state: &S, flush: bool, value: Option<f64>, show: &mut dyn FnMut(&str, u64)) {
    show("flush", flush.into());
    value.into_iter().for_each(|value| show("value", value.to_bits()));
    state.walk(&mut StateWalk::new(&mut |field, entry| match entry {
        Entry::Count(count) => show(field, count.get()),
        Entry::Flag(flag) => show(field, flag.get().into()),
        Entry::Scalar(scalar) => show(field, scalar.get().to_bits()),
        Entry::Key(key) => show(field, key.get()),
        _ => {}
    }));
}
