//! Finding the leaves of the trees that a step is given, and making sure that they fit.

use super::rows::{Rows, misfits};
use crate::element::DType;
use crate::error::{Error, Result};
use crate::memory::RawSlice;
use crate::state::Moments;
use crate::tree::{Difference, LeafParts, LeafSpec, Strides, Structure, Tree, TreeMut, Walk, WalkMut};

/// Where a leaf's elements are, for the time of one step.
#[derive(Clone, Debug)]
pub(crate) struct TableLeaf {
    pub(crate) data: RawSlice,
    /// The strides, unless the elements lie as the state does.
    pub(crate) strides: Option<Strides>,
    /// Whether it is the engine's own, so that updates may be stored in its place: of gradients those of rows.
    pub(crate) own: bool,
}

impl TableLeaf {
    /// An array that lies as the state does.
    pub(crate) fn dense(data: RawSlice) -> TableLeaf {
        TableLeaf { data, strides: None, own: false }
    }

    /// An array of the engine's own.
    pub(crate) fn own(data: RawSlice) -> TableLeaf {
        TableLeaf { own: true, ..TableLeaf::dense(data) }
    }
}

/// The leaves of one tree. The allocation is kept from step to step, the pointers are not.
pub(crate) type Table = Vec<TableLeaf>;

/// Compares leaves with the structure as they come, so that a tree that fits is walked once and nothing is built.
struct Check<'s> {
    structure: &'s Structure,
    fits: fn(DType, DType) -> bool,
    same: bool,
}

impl Check<'_> {
    fn leaf(&mut self, table: &mut Table, path: &str, parts: LeafParts) {
        let Some(spec) = self.structure.leaves().get(table.len()) else {
            self.same = false;
            return;
        };
        self.same &= spec.path() == path
            && spec.shape() == parts.shape.as_slice()
            && (self.fits)(spec.dtype(), parts.data.dtype());
        let strides = if self.same { parts.strides_unless(spec.strides()) } else { None };
        table.push(TableLeaf { strides, ..TableLeaf::dense(parts.data) });
    }

    /// Some rows of a leaf.
    fn rows(&mut self, table: &mut Table, path: &str, parts: &LeafParts, indices: &[usize], rows: &mut Rows) {
        let spec = self.structure.leaves().get(table.len());
        let fits = |spec: &&LeafSpec| {
            let dtype = (self.fits)(spec.dtype(), parts.data.dtype());
            spec.path() == path && dtype && misfits(spec, parts, indices).is_empty()
        };
        match spec.filter(fits) {
            Some(spec) => table.push(rows.take(table.len(), spec, parts, indices)),
            None => self.same = false,
        }
    }

    fn done(&self, table: &Table) -> bool {
        self.same && table.len() == self.structure.len()
    }
}

fn same(ours: DType, theirs: DType) -> bool {
    ours == theirs
}

/// Gradients are converted to the type that the leaf's arithmetic is done in, as long as that loses nothing.
fn exact(ours: DType, theirs: DType) -> bool {
    theirs.size() <= ours.compute().size()
}

/// Fills a table with parameters to write.
pub(crate) fn params_mut<P: TreeMut + ?Sized>(
    tree: &mut P,
    structure: &Structure,
    table: &mut Table,
    path: &mut String,
) -> Result<()> {
    write(tree, structure, table, path, "parameters")
}

/// Fills a table with gradients in whose place the updates are written, so that they have to be of the same types.
pub(crate) fn grads_mut<G: TreeMut + ?Sized>(
    tree: &mut G,
    structure: &Structure,
    table: &mut Table,
    path: &mut String,
) -> Result<()> {
    write(tree, structure, table, path, "gradients")
}

/// Fills a table with parameters to read.
pub(crate) fn params<P: Tree + ?Sized>(
    tree: &P,
    structure: &Structure,
    table: &mut Table,
    path: &mut String,
) -> Result<()> {
    read(tree, structure, table, path, "parameters", same)
}

/// Fills a table with gradients of whole leaves.
pub(crate) fn grads<G: Tree + ?Sized>(
    tree: &G,
    structure: &Structure,
    table: &mut Table,
    path: &mut String,
) -> Result<()> {
    read(tree, structure, table, path, "gradients", exact)
}

/// Fills a table with gradients, of which those of some leaves may be rows.
pub(crate) fn grads_or_rows<G: Tree + ?Sized>(
    tree: &G,
    structure: &Structure,
    table: &mut Table,
    rows: &mut Rows,
    path: &mut String,
) -> Result<()> {
    table.clear();
    let mut check = Check { structure, fits: exact, same: true };
    tree.walk(&mut Walk::of_rows(path, &mut |path, leaf| match leaf.rows {
        Some(indices) => check.rows(table, path, &leaf.parts, indices, rows),
        None => check.leaf(table, path, leaf.parts),
    }));
    if check.done(table) { Ok(()) } else { Err(misfit_of_rows(tree, structure)) }
}

/// Fills a table with gradients that lie as the state does.
pub(crate) fn moments(gradient: &Moments, table: &mut Table) {
    table.clear();
    table.extend((0..gradient.len()).filter_map(|leaf| Some(TableLeaf::dense(gradient.raw(leaf)?))));
}

fn write<T: TreeMut + ?Sized>(
    tree: &mut T,
    structure: &Structure,
    table: &mut Table,
    path: &mut String,
    what: &str,
) -> Result<()> {
    table.clear();
    let mut check = Check { structure, fits: same, same: true };
    tree.walk_mut(&mut WalkMut::new(path, &mut |path, leaf| check.leaf(table, path, leaf.parts)));
    if check.done(table) { Ok(()) } else { Err(misfit(what, tree, structure, same)) }
}

fn read<T: Tree + ?Sized>(
    tree: &T,
    structure: &Structure,
    table: &mut Table,
    path: &mut String,
    what: &str,
    fits: fn(DType, DType) -> bool,
) -> Result<()> {
    table.clear();
    let mut check = Check { structure, fits, same: true };
    tree.walk(&mut Walk::new(path, &mut |path, leaf| check.leaf(table, path, leaf.parts)));
    if check.done(table) { Ok(()) } else { Err(misfit(what, tree, structure, fits)) }
}

#[cold]
fn misfit<T: Tree + ?Sized>(what: &str, tree: &T, structure: &Structure, fits: fn(DType, DType) -> bool) -> Error {
    match Structure::of(tree) {
        Ok(found) => differ(what, structure.compare(&found, fits)),
        Err(error) => error,
    }
}

#[cold]
fn misfit_of_rows<T: Tree + ?Sized>(tree: &T, structure: &Structure) -> Error {
    let (mut leaves, mut found) = (Vec::new(), Vec::new());
    tree.walk(&mut Walk::of_rows(&mut String::new(), &mut |path, leaf| {
        let whole = structure.index_of(path).map(|leaf| &structure.leaves()[leaf]);
        leaves.push(match (leaf.rows, whole) {
            // Rows that fit stand for their leaf; what else there is to say of them is said here.
            (Some(indices), Some(whole)) => {
                found.extend(misfits(whole, &leaf.parts, indices));
                whole.standing_for(leaf.dtype(), Some(whole.shape().into()))
            }
            _ => LeafSpec::with_strides(path, leaf.dtype(), leaf.shape(), &leaf.parts.strides),
        });
    }));
    let mut differences = structure.compare(&Structure::from_leaves(leaves), exact);
    differences.extend(found);
    if differences.is_empty() { misfit("gradients", tree, structure, exact) } else { differ("gradients", differences) }
}

fn differ(what: &str, differences: Vec<Difference>) -> Error {
    Error::structure(format!("the {what} do not fit the parameters that the state was made for"), differences)
}
