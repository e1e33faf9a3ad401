//! Compares saved buffers with the model's.

use std::collections::HashSet;

use crate::element::DType;
use crate::error::MismatchReport;
use crate::migrate::{Model, Resolved};
use crate::state::Moves;
use crate::tree::{BufferSpec, LeafSpec};

/// Reports buffers that are missing, unexpected, or of another dtype or shape, unless the migration covers them.
///
/// A leaf may fill a buffer of its path, if the parameter has been frozen since; a buffer may fill a leaf that starts
/// afresh.
pub(super) fn compare(moves: &Resolved, there: Model<'_>, here: Model<'_>, mismatch_report: &mut MismatchReport) {
    let of_leaf = |leaf: &LeafSpec| BufferSpec::new(leaf.path(), leaf.dtype().name(), leaf.shape());
    let buffer = |path: &str| there.1.iter().find(|buffer| buffer.path() == path);
    let (mut taken, mut missing) = (HashSet::new(), Vec::new());
    let is_float = |spec: &BufferSpec| DType::from_name(spec.dtype()).is_some();
    let mut same = |expected: &BufferSpec, found: &BufferSpec| {
        let is_cast = moves.is_cast(expected.path()) && is_float(expected) && is_float(found);
        if is_cast && expected.shape() == found.shape() {
            return;
        }
        if (expected.dtype(), expected.shape()) != (found.dtype(), found.shape()) {
            let [expected_is, found_is] = [expected, found].map(|spec| format!("{} {:?}", spec.dtype(), spec.shape()));
            mismatch_report
                .lines
                .push(format!("buffers: {}: expected {expected_is}, found {found_is}", expected.path()));
        }
    };
    for expected in here.1.iter().filter(|buffer| !moves.is_kept(buffer.path())) {
        let old = moves.from(expected.path()).unwrap_or_default();
        let leaf = || there.0.leaves().iter().find(|leaf| leaf.path() == old).map(of_leaf);
        match buffer(old).cloned().or_else(leaf) {
            Some(found) => {
                same(expected, &found);
                taken.insert(old);
            }
            None => missing.push(expected),
        }
    }
    for leaf in here.0.leaves().iter().filter(|leaf| moves.is_fresh(leaf.path())) {
        let old = moves.from(leaf.path()).unwrap_or_default();
        if let Some(found) = buffer(old) {
            same(&of_leaf(leaf), found);
            taken.insert(old);
        }
    }
    mismatch_report.lines.extend(missing.iter().map(|expected| format!("buffers: missing {expected}")));
    let wanted = |buffer: &&BufferSpec| {
        moves.to(buffer.path()).is_some_and(|new| !moves.is_kept(new)) && !taken.contains(buffer.path())
    };
    mismatch_report.lines.extend(there.1.iter().filter(wanted).map(|found| format!("buffers: unexpected {found}")));
    if let [first, ..] = missing[..] {
        let verb = format!("`Migration::new().fresh({:?})`", first.path());
        mismatch_report.hints.push(format!("{verb} keeps the current values of an unsaved buffer"));
    }
}
