//! Agreement of all ranks on what they run.

use core::hash::{Hash, Hasher};
use std::hash::DefaultHasher;

use crate::collective::{Collective, agree, is_same};
use crate::element::DType;
use crate::engine::leaf::TableLeaf;
use crate::engine::{StepContext, read_leaf};
use crate::error::Result;
use crate::state::{Entry, State, StateWalk};
use crate::tree::{LeafSpec, Structure};

pub(super) fn on_leaves(
    collective: &dyn Collective,
    [recipe, travel]: [String; 2],
    structure: &Structure,
    active: &[bool],
) -> Result<()> {
    let version = format!("version {}", env!("CARGO_PKG_VERSION"));
    agree(collective, "the optimizer", &[version, recipe, travel])?;
    let leaves = structure.leaves().iter().zip(active);
    let leaves = leaves.map(|(leaf, on)| {
        let acted_on = if *on { "" } else { ", not acted on" };
        format!("{leaf} in memory order {:?}{acted_on}", leaf.strides())
    });
    agree(collective, "the parameters' structure", &leaves.collect::<Vec<_>>())
}

pub(super) fn on_values(collective: &dyn Collective, at: &StepContext<'_>) -> Result<()> {
    fn sum<C>(values: &[C], bits: impl Fn(&C) -> u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        values.iter().for_each(|x| bits(x).hash(&mut hasher));
        hasher.finish()
    }
    let number = |(leaf, values): (&LeafSpec, &TableLeaf)| {
        let sum = match leaf.dtype().compute() {
            DType::F64 => {
                let mut here = vec![0.0_f64; leaf.len()];
                read_leaf(values, leaf, Some(&mut here));
                sum(&here, |x| x.to_bits())
            }
            _ => {
                let mut here = vec![0.0_f32; leaf.len()];
                read_leaf(values, leaf, Some(&mut here));
                sum(&here, |x| x.to_bits().into())
            }
        };
        format!("`{}` of checksum {sum:016x}", leaf.path())
    };
    let numbers = at.params.with(at.structure(), |params| {
        // An inactive leaf may have no array.
        let leaves =
            at.structure().leaves().iter().zip(params).filter(|(leaf, values)| values.data.len() == leaf.len());
        leaves.map(number).collect::<Vec<_>>()
    })?;
    agree(collective, "the parameters' values", &numbers)
}

/// Compares the kind of step, the loss if needed, and all single values of the state.
pub(super) fn on_step<S: State>(collective: &dyn Collective, state: &S, flush: bool, value: Option<f64>) -> Result<()> {
    let mut hasher = DefaultHasher::new();
    each_single(state, flush, value, &mut |_, bits| bits.hash(&mut hasher));
    if is_same(collective, hasher.finish())? {
        return Ok(());
    }
    let mut lines = Vec::new();
    each_single(state, flush, value, &mut |name, bits| lines.push(format!("`{name}` of bits {bits:#x}")));
    agree(collective, "the step", &lines)
}

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
