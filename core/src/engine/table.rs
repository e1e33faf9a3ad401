//! Collects the leaves of a step's trees and checks that they match the state.

use super::leaf::{Table, TableLeaf};
use super::rows::{Rows, differences};
use crate::element::DType;
use crate::error::{Error, Result};
use crate::tree::{Difference, LeafMut, LeafParts, LeafSpec, Structure, Tree, TreeMut, Walk, WalkMut};

const GRADIENTS: &str = "gradients";
const PARAMS: &str = "parameters";

/// Advice of errors about missing gradients, if no leaf can be skipped.
pub(super) const ZEROS: &str = "; this optimizer cannot skip leaves: pass zeros for a missing gradient";
/// Advice of errors about gradients without leaves.
const NO_LEAVES: &str = "; they have no leaves (integers are not leaves: write `1.0` for `1`)";
/// Advice on gradients of a wider dtype.
const LITERALS: &str = "; a number without a suffix is `f64`, write `1.0_f32` for `f32`";
/// Advice of errors about gradients that cannot hold updates.
const IN_PLACE: &str = "; updates overwrite gradients, so gradients must have the dtypes of the parameters";
/// Advice of errors about parameters that do not match the state.
const ANOTHER_STATE: &str = "; make a state for these with `init`, or convert this one with `OptState::migrate`";

/// Compares leaves during the walk: a matching tree is walked once, without allocation.
struct Check<'s> {
    what: &'static str,
    structure: &'s Structure,
    fits: fn(DType, DType) -> bool,
    /// Receives missing leaves, if they may be missing; empty if all are present.
    absent: Option<&'s mut Vec<bool>>,
    advice: &'s dyn Fn() -> String,
    /// Advice on leaves of another dtype.
    on_types: &'static str,
    same: bool,
}

/// Compares paths. A short path byte by byte: its last byte was just written, and a wide load would wait for that store
/// to leave the store buffer.
#[inline]
fn same_path(ours: &str, theirs: &str) -> bool {
    match ours.len() {
        0..=16 if ours.len() == theirs.len() => ours.bytes().zip(theirs.bytes()).all(|(ours, theirs)| ours == theirs),
        _ => ours == theirs,
    }
}

/// Compares one or two axes without the calls of slice comparison.
#[inline]
fn same_axes(ours: (&[usize], &[isize]), theirs: (&[usize], &[isize])) -> bool {
    let axes = ours.0.len();
    let same = |axis: usize| ours.0[axis] == theirs.0[axis] && ours.1[axis] == theirs.1[axis];
    ours.1.len() == axes && theirs.0.len() == axes && theirs.1.len() == axes && (0..axes).all(same)
}

impl<'s> Check<'s> {
    fn of(what: &'static str, structure: &'s Structure) -> Check<'s> {
        Check {
            what,
            structure,
            fits: |ours, theirs| ours == theirs,
            absent: None,
            advice: &|| ZEROS.into(),
            on_types: "",
            same: true,
        }
    }

    fn leaf(&mut self, table: &mut Table, path: &str, parts: &LeafParts) {
        if self.absent.is_some() {
            self.mark_missing_before(table, path);
        }
        let Some(spec) = self.structure.leaves().get(table.len()) else {
            self.same = false;
            return;
        };
        let (ours, theirs) = (spec.dtype(), parts.data.dtype());
        self.same &= same_path(spec.path(), path) && (ours == theirs || (self.fits)(ours, theirs));
        table.push(TableLeaf::EMPTY);
        // In place, because a move would copy the inline array of strides.
        if let Some(leaf) = table.last_mut() {
            leaf.data = parts.data;
        }
        // Most leaves have the state's strides.
        if !same_axes((spec.shape(), spec.strides()), (&parts.shape, &parts.strides)) {
            self.record_other_axes(table, spec, parts);
        }
    }

    /// Records the last leaf if it has another shape or other strides than the state's.
    fn record_other_axes(&mut self, table: &mut Table, spec: &LeafSpec, parts: &LeafParts) {
        self.same &= spec.shape() == &*parts.shape;
        if self.same
            && let Some(leaf) = table.last_mut()
        {
            leaf.set_strided(parts.strides_unless(spec.strides()));
        }
    }

    fn rows(&mut self, table: &mut Table, path: &str, parts: &LeafParts, indices: &[usize], rows: &mut Rows) {
        if self.absent.is_some() {
            self.mark_missing_before(table, path);
        }
        let spec = self.structure.leaves().get(table.len());
        let fits = |spec: &&LeafSpec| {
            let dtype = (self.fits)(spec.dtype(), parts.data.dtype());
            spec.path() == path && dtype && differences(spec, parts, indices).is_empty()
        };
        match spec.filter(fits) {
            Some(spec) => table.push(rows.add_leaf(table.len(), spec, parts, indices)),
            None => self.same = false,
        }
    }

    /// Marks leaves before `path` as missing, if they may be.
    fn mark_missing_before(&mut self, table: &mut Table, path: &str) {
        let ahead = &self.structure.leaves()[table.len()..];
        self.mark_missing(table, ahead.iter().position(|spec| spec.path() == path).unwrap_or(0));
    }

    fn mark_missing(&mut self, table: &mut Table, leaves: usize) {
        let Some(absent) = self.absent.as_deref_mut().filter(|_| leaves > 0) else { return };
        absent.resize(self.structure.len(), false);
        for spec in &self.structure.leaves()[table.len()..][..leaves] {
            absent[table.len()] = true;
            table.push(TableLeaf::none(spec.dtype()));
        }
    }

    /// Completes the check of a tree, given its walk.
    fn finish<'a>(mut self, table: &mut Table, tree: &dyn Fn(&mut Walk<'a, '_>)) -> Result<()> {
        if self.absent.is_some() {
            self.mark_missing(table, self.structure.len() - table.len());
        }
        if self.same && table.len() == self.structure.len() { Ok(()) } else { Err(self.mismatch_report(tree)) }
    }

    /// Describes the differences of a tree.
    #[cold]
    fn mismatch_report<'a>(&self, tree: &dyn Fn(&mut Walk<'a, '_>)) -> Error {
        let (mut leaves, mut of_rows) = (Vec::new(), Vec::new());
        tree(&mut Walk::of_rows(&mut String::new(), &mut |path, leaf| {
            let whole = self.structure.index_of(path).map(|leaf| &self.structure.leaves()[leaf]);
            leaves.push(match (leaf.rows, whole) {
                // Matching rows stand for their leaf; `of_rows` collects differences.
                (Some(indices), Some(whole)) => {
                    of_rows.extend(differences(whole, &leaf.parts, indices));
                    whole.standing_for(leaf.dtype(), Some(whole.shape().into()))
                }
                _ => LeafSpec::with_strides(path, leaf.dtype(), leaf.shape(), &leaf.parts.strides),
            });
        }));
        let found = Structure::from_leaves(leaves);
        let mut differences = self.structure.compare(&found, self.fits);
        if self.absent.is_some() {
            differences.retain(|difference| !matches!(difference, Difference::Missing { .. }));
        }
        differences.extend(of_rows);
        if differences.is_empty() {
            // A duplicate path, rows where none can be, or another order.
            match Structure::by(tree).unambiguous() {
                Ok(found) if self.absent.is_some() => differences.push(self.structure.order(&found)),
                Ok(found) => differences = self.structure.compare(&found, self.fits),
                Err(error) => return error,
            }
        }
        let mut what = format!("the {} do not fit the parameters that the state was made for", self.what);
        let mark_missing = |difference: &Difference| matches!(difference, Difference::Missing { .. });
        if self.what == GRADIENTS && differences.iter().all(mark_missing) {
            if found.is_empty() {
                what += NO_LEAVES;
            }
            what += &(self.advice)();
        }
        if self.what == PARAMS {
            what += ANOTHER_STATE;
        }
        if differences.iter().any(|difference| matches!(difference, Difference::DType { .. })) {
            what += self.on_types;
        }
        Error::structure(what, differences)
    }
}

pub(crate) fn params_mut<P: TreeMut + ?Sized>(
    tree: &mut P,
    structure: &Structure,
    table: &mut Table,
    path: &mut String,
) -> Result<()> {
    write(tree, table, path, Check::of(PARAMS, structure))
}

/// Fills a table with gradients that the updates replace: the dtypes must be the same.
pub(crate) fn grads_mut<G: TreeMut + ?Sized>(
    tree: &mut G,
    structure: &Structure,
    table: &mut Table,
    path: &mut String,
    absent: Option<&mut Vec<bool>>,
    advice: &dyn Fn() -> String,
) -> Result<()> {
    write(tree, table, path, Check { absent, advice, on_types: IN_PLACE, ..Check::of(GRADIENTS, structure) })
}

// Trees behind their walks: these functions are compiled once for all trees.

pub(crate) fn params<'a>(
    tree: &dyn Fn(&mut Walk<'a, '_>),
    structure: &Structure,
    table: &mut Table,
    path: &mut String,
) -> Result<()> {
    read(tree, table, path, Check::of(PARAMS, structure))
}

pub(crate) fn grads<'a>(
    tree: &dyn Fn(&mut Walk<'a, '_>),
    structure: &Structure,
    table: &mut Table,
    path: &mut String,
) -> Result<()> {
    read(tree, table, path, Check { fits: exact, on_types: LITERALS, ..Check::of(GRADIENTS, structure) })
}

fn read<'a>(
    tree: &dyn Fn(&mut Walk<'a, '_>),
    table: &mut Table,
    path: &mut String,
    mut check: Check<'_>,
) -> Result<()> {
    table.clear();
    tree(&mut Walk::new(path, &mut |path, leaf| check.leaf(table, path, &leaf.parts)));
    check.finish(table, tree)
}

/// Fills a table with gradients: some may be row-sparse, or missing if `absent` is given.
pub(crate) fn grads_or_rows<'a>(
    tree: &dyn Fn(&mut Walk<'a, '_>),
    structure: &Structure,
    table: &mut Table,
    rows: &mut Rows,
    path: &mut String,
    absent: Option<&mut Vec<bool>>,
    advice: &dyn Fn() -> String,
) -> Result<()> {
    table.clear();
    let mut check = Check { fits: exact, absent, advice, on_types: LITERALS, ..Check::of(GRADIENTS, structure) };
    tree(&mut Walk::of_rows(path, &mut |path, leaf| match leaf.rows {
        Some(indices) => check.rows(table, path, &leaf.parts, indices, rows),
        None => check.leaf(table, path, &leaf.parts),
    }));
    check.finish(table, tree)
}

/// Returns true if the compute type represents the gradients exactly.
fn exact(ours: DType, theirs: DType) -> bool {
    theirs.size() <= ours.compute().size()
}

fn write<T: TreeMut + ?Sized>(tree: &mut T, table: &mut Table, path: &mut String, mut check: Check<'_>) -> Result<()> {
    table.clear();
    tree.walk_mut(&mut WalkMut::new(path, &mut adds(&mut check, table)));
    check.finish(table, &|walk| tree.walk(walk))
}

/// Not a closure of [`write`], which is compiled for each tree.
fn adds<'a>(check: &mut Check<'_>, table: &mut Table) -> impl FnMut(&str, LeafMut<'a>) {
    |path, leaf| check.leaf(table, path, &leaf.parts)
}

#[cfg(test)]
mod tests {
    use super::{same_axes, same_path};

    #[test]
    fn paths_are_the_same_if_all_bytes_are() {
        let path: String = ('a'..='z').collect();
        for len in 0..path.len() {
            let ours = &path[..len];
            assert!(same_path(ours, &String::from(ours)));
            assert!(!same_path(ours, &path[..=len]) && !same_path(&path[..=len], ours));
            for at in 0..len {
                let theirs = format!("{}-{}", &ours[..at], &ours[at + 1..]);
                assert!(!same_path(ours, &theirs), "{theirs}");
            }
        }
    }

    #[test]
    fn axes_are_the_same_if_each_is() {
        let same = |theirs: (&[usize], &[isize])| same_axes((&[2, 3], &[3, 1]), theirs);
        assert!(same((&[2, 3], &[3, 1])) && same_axes((&[], &[]), (&[], &[])));
        for others in [[3, 3], [2, 2]] {
            assert!(!same((&others, &[3, 1])));
        }
        for others in [[1, 1], [3, 2]] {
            assert!(!same((&[2, 3], &others)));
        }
        assert!(!same((&[2], &[3])) && !same((&[2, 3, 1], &[3, 1, 1])) && !same((&[], &[])));
    }
}
