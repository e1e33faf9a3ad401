//! Walks over the leaves of a tree.

use std::sync::Arc;

use super::constraint::Constraint;
use super::tied::Handle;
use super::{Buffer, Layout, LeafMut, LeafRef, Tree, TreeMut};

/// A walk over the leaves of a tree, for reading; see [`Tree::walk`].
pub struct Walk<'a, 'w> {
    path: &'w mut String,
    sink: &'w mut dyn FnMut(&str, LeafRef<'a>),
    constraints: Option<&'w mut ConstraintSink<'w>>,
    buffers: Option<&'w mut BufferSink<'a, 'w>>,
    layouts: Option<&'w mut LayoutSink<'w>>,
    rows: Rows<'a>,
}

#[derive(Clone, Copy)]
enum Rows<'a> {
    /// Shows rows as a tree with the child `values`.
    AsTree,
    /// Shows rows in the place of their leaf.
    AsLeaf,
    /// The walk is inside the rows with these indices.
    Of(&'a [usize]),
}

type ConstraintSink<'w> = dyn FnMut(&str, Arc<dyn Constraint>) + 'w;
type LayoutSink<'w> = dyn FnMut(&str, Layout) + 'w;

type BufferSink<'a, 'w> = dyn FnMut(&str, &'a dyn Buffer) + 'w;

impl<'a, 'w> Walk<'a, 'w> {
    #[doc(hidden)]
    pub fn new(path: &'w mut String, sink: &'w mut dyn FnMut(&str, LeafRef<'a>)) -> Self {
        path.clear();
        Walk { path, sink, constraints: None, buffers: None, layouts: None, rows: Rows::AsTree }
    }

    /// Returns a walk that shows rows in place of their leaf.
    pub(crate) fn of_rows(path: &'w mut String, sink: &'w mut dyn FnMut(&str, LeafRef<'a>)) -> Self {
        Walk { rows: Rows::AsLeaf, ..Walk::new(path, sink) }
    }

    #[doc(hidden)]
    pub fn of_constraints(
        path: &'w mut String,
        sink: &'w mut dyn FnMut(&str, LeafRef<'a>),
        constraints: &'w mut dyn FnMut(&str, Arc<dyn Constraint>),
    ) -> Self {
        path.clear();
        Walk { constraints: Some(constraints), ..Walk::new(path, sink) }
    }

    pub(crate) fn of_buffers(
        path: &'w mut String,
        sink: &'w mut dyn FnMut(&str, LeafRef<'a>),
        buffers: &'w mut dyn FnMut(&str, &'a dyn Buffer),
    ) -> Self {
        Walk { buffers: Some(buffers), ..Walk::new(path, sink) }
    }

    /// Shows a [buffer](Buffer) under a name.
    ///
    /// # Cost
    ///
    /// None in walks that do not request buffers, such as those of steps.
    pub fn buffer(&mut self, name: &str, buffer: &'a dyn Buffer) {
        if let Some(buffers) = &mut self.buffers {
            let parent = enter(self.path, name);
            buffers(self.path, buffer);
            self.path.truncate(parent);
        }
    }

    /// Returns a walk that also reports layouts, with the paths below which they hold.
    pub(crate) fn of_layouts(
        path: &'w mut String,
        sink: &'w mut dyn FnMut(&str, LeafRef<'a>),
        layouts: &'w mut dyn FnMut(&str, Layout),
    ) -> Self {
        path.clear();
        Walk { layouts: Some(layouts), ..Walk::new(path, sink) }
    }

    /// Sets the layout of the weights at and below the current path, until another call for some of them.
    ///
    /// `init` and [`Structure::of`](super::Structure::of) read it; other walks ignore it. The default is
    /// [`Layout::InOut`].
    ///
    /// ```
    /// use gradchain::tree::{Layout, Structure, Tree, Walk};
    /// use ndarray::Array2;
    ///
    /// /// `y = x·Wᵀ`
    /// struct Linear { weight: Array2<f32> }
    ///
    /// impl Tree for Linear {
    ///     fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
    ///         walk.layout(Layout::OutIn);
    ///         walk.child("weight", &self.weight);
    ///     }
    /// }
    ///
    /// let linear = Linear { weight: Array2::zeros((4, 3)) };
    /// assert_eq!(Structure::of(&linear)?.leaves()[0].layout(), Layout::OutIn);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn layout(&mut self, layout: Layout) {
        if let Some(layouts) = &mut self.layouts {
            layouts(self.path, layout);
        }
    }

    /// Constrains the leaves of the child of this name, as `#[tree(constraint = ...)]` does.
    ///
    /// [`Constraints::of`] reads it; other walks do not build the constraint.
    ///
    /// ```
    /// use gradchain::constraint::{Constraints, interval};
    /// use gradchain::tree::{Tree, TreeMut, Walk, WalkMut};
    ///
    /// #[derive(Clone)]
    /// struct Coin { heads: f64 }
    ///
    /// impl Tree for Coin {
    ///     fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
    ///         walk.constraint("heads", || interval(0.0, 1.0));
    ///         walk.child("heads", &self.heads);
    ///     }
    /// }
    /// # impl TreeMut for Coin {
    /// #     fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
    /// #         walk.child("heads", &mut self.heads);
    /// #     }
    /// # }
    ///
    /// let coin = Coin { heads: 1.5 };
    /// let error = Constraints::of(&coin).unconstrain(&coin).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "unconstrain: argument `heads` must be strictly between 0 and 1, found 1.5"
    /// );
    /// ```
    ///
    /// [`Constraints::of`]: https://docs.rs/gradchain/latest/gradchain/constraint/struct.Constraints.html#method.of
    pub fn constraint<C: Constraint>(&mut self, name: &str, constraint: impl FnOnce() -> C) {
        if let Some(told) = &mut self.constraints {
            let parent = enter(self.path, name);
            told(self.path, Arc::new(constraint()));
            self.path.truncate(parent);
        }
    }

    /// Walks a child under a name.
    pub fn child<T: Tree + ?Sized>(&mut self, name: &str, tree: &'a T) {
        let parent = enter(self.path, name);
        tree.walk(self);
        self.path.truncate(parent);
    }

    /// Walks a child under a number.
    pub fn index<T: Tree + ?Sized>(&mut self, index: usize, tree: &'a T) {
        let parent = enter_index(self.path, index);
        tree.walk(self);
        self.path.truncate(parent);
    }

    /// Walks a slice's elements, as children by number.
    pub(super) fn elements<T: Tree>(&mut self, slice: &'a [T]) {
        let mut numbers = Numbers::below(self.path);
        for tree in slice {
            numbers.enter(self.path);
            tree.walk(self);
        }
        numbers.leave(self.path);
    }

    pub(crate) fn rows<T: Tree + ?Sized>(&mut self, indices: &'a [usize], values: &'a T) {
        // Rows of rows belong to no leaf.
        let Rows::AsLeaf = self.rows else { return self.child("values", values) };
        self.rows = Rows::Of(indices);
        values.walk(self);
        self.rows = Rows::AsLeaf;
    }

    /// Shows a leaf at the current path.
    // Inlined, as below, to build a leaf in place: copying takes several cache lines.
    #[inline]
    pub fn leaf(&mut self, mut leaf: LeafRef<'a>) {
        if let Rows::Of(indices) = self.rows {
            leaf.rows = Some(indices);
        }
        (self.sink)(self.path, leaf);
    }

    pub(crate) fn leaf_at(&mut self, path: &str, leaf: LeafRef<'a>) {
        let parent = enter(self.path, path);
        self.leaf(leaf);
        self.path.truncate(parent);
    }

    /// Walks a tree, with `each` to pass leaves on.
    ///
    /// Its arguments: the receiver, the path, the path below the current one, the leaf.
    pub(crate) fn through<T: Tree + ?Sized>(&mut self, tree: &'a T, each: &mut Pass<'_, LeafRef<'a>>) {
        let (sink, here) = (&mut *self.sink, self.path.len());
        let mut each = |path: &str, leaf: LeafRef<'a>| each(sink, path, below(path, here), leaf);
        let buffers: Option<&mut BufferSink<'a, '_>> = match &mut self.buffers {
            Some(buffers) => Some(&mut **buffers),
            None => None,
        };
        let layouts: Option<&mut LayoutSink<'_>> = match &mut self.layouts {
            Some(layouts) => Some(&mut **layouts),
            None => None,
        };
        let rows = self.rows;
        tree.walk(&mut Walk { path: &mut *self.path, sink: &mut each, constraints: None, buffers, layouts, rows });
    }

    /// Walks a tree with other leaves in place of some.
    ///
    /// `parts` yields a numbered leaf's replacements in turn, with paths from here. Allocates only if the current path
    /// is not empty.
    #[doc(hidden)]
    pub fn instead<T: Tree + ?Sized>(&mut self, tree: &'a T, parts: &mut Parts<'_, LeafRef<'a>>) {
        let (here, mut replacing) = (self.path.len(), Replacing::default());
        self.through(tree, &mut |sink, path, _, leaf| replacing.next(parts, sink, (here, path), leaf));
    }
}

/// Passes leaves on; see [`Walk::through`].
pub(crate) type Pass<'p, L> = dyn FnMut(&mut dyn FnMut(&str, L), &str, &str, L) + 'p;

/// Replaces leaves; see [`Walk::instead`].
pub(crate) type Parts<'p, L> = dyn FnMut(usize) -> Option<(Arc<str>, L)> + 'p;

#[derive(Default)]
struct Replacing {
    scratch: String,
    number: usize,
}

impl Replacing {
    /// Passes on the next leaf, or its replacements at path `here`.
    fn next<L>(
        &mut self,
        parts: &mut Parts<'_, L>,
        sink: &mut dyn FnMut(&str, L),
        (here, path): (usize, &str),
        leaf: L,
    ) {
        let mut replaced = false;
        while let Some((name, part)) = parts(self.number) {
            replaced = true;
            sink(joined(&mut self.scratch, &path[..here], &name), part);
        }
        if !replaced {
            sink(path, leaf);
        }
        self.number += 1;
    }
}

/// Returns a path below its first `here` bytes.
fn below(path: &str, here: usize) -> &str {
    path[here..].strip_prefix('/').unwrap_or(&path[here..])
}

/// A walk over the leaves of a tree, for writing; see [`TreeMut::walk_mut`].
pub struct WalkMut<'a, 'w> {
    path: &'w mut String,
    sink: &'w mut dyn FnMut(&str, LeafMut<'a>),
    /// Receives arrays that can share elements, in place of leaves.
    handles: Option<&'w mut HandleSink<'w>>,
    buffers: Option<&'w mut BufferSinkMut<'w>>,
}

type BufferSinkMut<'w> = dyn FnMut(&str, &mut dyn Buffer) + 'w;

pub(super) type HandleSink<'w> = dyn FnMut(&str, &mut dyn Handle) + 'w;

impl<'a, 'w> WalkMut<'a, 'w> {
    #[doc(hidden)]
    pub fn new(path: &'w mut String, sink: &'w mut dyn FnMut(&str, LeafMut<'a>)) -> Self {
        path.clear();
        WalkMut { path, sink, handles: None, buffers: None }
    }

    /// Returns a walk that shows handles of arrays that can share elements, and no leaves.
    pub(super) fn of_handles(
        path: &'w mut String,
        sink: &'w mut dyn FnMut(&str, LeafMut<'a>),
        handles: &'w mut HandleSink<'w>,
    ) -> Self {
        WalkMut { handles: Some(handles), ..WalkMut::new(path, sink) }
    }

    #[doc(hidden)]
    pub fn of_buffers(
        path: &'w mut String,
        sink: &'w mut dyn FnMut(&str, LeafMut<'a>),
        buffers: &'w mut dyn FnMut(&str, &mut dyn Buffer),
    ) -> Self {
        WalkMut { buffers: Some(buffers), ..WalkMut::new(path, sink) }
    }

    /// Shows a [buffer](Buffer) under a name, as [`Walk::buffer`] does.
    pub fn buffer(&mut self, name: &str, buffer: &mut dyn Buffer) {
        if let Some(buffers) = &mut self.buffers {
            let parent = enter(self.path, name);
            buffers(self.path, buffer);
            self.path.truncate(parent);
        }
    }

    pub(super) fn asks_for_handles(&self) -> bool {
        self.handles.is_some()
    }

    pub(super) fn handle(&mut self, array: &mut dyn Handle) {
        if let Some(handles) = &mut self.handles {
            handles(self.path, array);
        }
    }

    /// Walks a child under a name.
    pub fn child<T: TreeMut + ?Sized>(&mut self, name: &str, tree: &'a mut T) {
        let parent = enter(self.path, name);
        tree.walk_mut(self);
        self.path.truncate(parent);
    }

    /// Walks a child under a number.
    pub fn index<T: TreeMut + ?Sized>(&mut self, index: usize, tree: &'a mut T) {
        let parent = enter_index(self.path, index);
        tree.walk_mut(self);
        self.path.truncate(parent);
    }

    /// As [`Walk::elements`].
    pub(super) fn elements<T: TreeMut>(&mut self, slice: &'a mut [T]) {
        let mut numbers = Numbers::below(self.path);
        for tree in slice {
            numbers.enter(self.path);
            tree.walk_mut(self);
        }
        numbers.leave(self.path);
    }

    /// Shows a leaf at the current path.
    #[inline]
    pub fn leaf(&mut self, leaf: LeafMut<'a>) {
        if self.handles.is_none() {
            (self.sink)(self.path, leaf);
        }
    }

    pub(crate) fn leaf_at(&mut self, path: &str, leaf: LeafMut<'a>) {
        let parent = enter(self.path, path);
        self.leaf(leaf);
        self.path.truncate(parent);
    }

    /// As [`Walk::through`].
    pub(crate) fn through<T: TreeMut + ?Sized>(&mut self, tree: &'a mut T, each: &mut Pass<'_, LeafMut<'a>>) {
        let (sink, here) = (&mut *self.sink, self.path.len());
        let mut each = |path: &str, leaf: LeafMut<'a>| each(sink, path, below(path, here), leaf);
        let handles: Option<&mut HandleSink<'_>> = match &mut self.handles {
            Some(handles) => Some(&mut **handles),
            None => None,
        };
        let buffers: Option<&mut BufferSinkMut<'_>> = match &mut self.buffers {
            Some(buffers) => Some(&mut **buffers),
            None => None,
        };
        tree.walk_mut(&mut WalkMut { path: &mut *self.path, sink: &mut each, handles, buffers });
    }

    /// As [`Walk::instead`].
    #[doc(hidden)]
    pub fn instead<T: TreeMut + ?Sized>(&mut self, tree: &'a mut T, parts: &mut Parts<'_, LeafMut<'a>>) {
        let (here, mut replacing) = (self.path.len(), Replacing::default());
        self.through(tree, &mut |sink, path, _, leaf| replacing.next(parts, sink, (here, path), leaf));
    }
}

fn joined<'s>(scratch: &'s mut String, path: &str, name: &'s str) -> &'s str {
    if path.is_empty() {
        return name;
    }
    scratch.clear();
    scratch.push_str(path);
    enter(scratch, name);
    scratch
}

/// Appends a key and returns the previous length. Walks reuse the text, so they allocate nothing after the longest
/// path.
fn enter(path: &mut String, key: &str) -> usize {
    let parent = path.len();
    if parent > 0 {
        path.push('/');
    }
    path.push_str(key);
    parent
}

/// As [`enter`], with a number. `write!` would cost a sixth of the time of a step on a small leaf.
fn enter_index(path: &mut String, index: usize) -> usize {
    let mut digits = [0; 20];
    let (mut rest, mut first) = (index, digits.len());
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let parent = enter(path, "");
    path.extend(digits[first..].iter().map(|digit| char::from(*digit)));
    parent
}

/// Increasing numbers as keys. Usually only the last digit is rewritten: rewriting all takes a sixth of the
/// instructions of a step on a list of small arrays.
struct Numbers {
    /// Length of the path without the number, and without its last digit.
    parent: usize,
    tens: usize,
    next: usize,
    digit: u8,
}

impl Numbers {
    fn below(path: &str) -> Numbers {
        Numbers { parent: path.len(), tens: path.len(), next: 0, digit: b'9' }
    }

    #[inline]
    fn enter(&mut self, path: &mut String) {
        if self.digit == b'9' {
            self.enter_ten(path);
        } else {
            self.digit += 1;
            path.truncate(self.tens);
        }
        path.push(char::from(self.digit));
    }

    /// As [`enter`](Self::enter), if other digits change.
    #[cold]
    fn enter_ten(&mut self, path: &mut String) {
        path.truncate(self.parent);
        enter_index(path, self.next);
        path.pop();
        (self.tens, self.digit, self.next) = (path.len(), b'0', self.next + 10);
    }

    fn leave(self, path: &mut String) {
        path.truncate(self.parent);
    }
}

#[cfg(test)]
mod tests {
    use crate::tree::Structure;

    #[test]
    fn elements_have_the_paths_of_their_numbers() {
        // With gaps, and nested lists with numbers of other lengths.
        let inner = |n: usize| (0..n % 13).map(|_| Some(1.0_f32)).collect::<Vec<_>>();
        let tree: Vec<(Option<f32>, Vec<Option<f32>>)> =
            (0..1012).map(|n| ((n % 3 > 0).then_some(0.0), inner(n))).collect();
        let mut expected = Vec::new();
        for n in 0..1012 {
            expected.extend((n % 3 > 0).then(|| format!("{n}/0")));
            expected.extend((0..n % 13).map(|i| format!("{n}/1/{i}")));
        }
        assert!(Structure::of(&tree).unwrap().paths().eq(&expected));
        assert!(Structure::of(&[[0.0_f32]; 11].map(Some)).unwrap().paths().eq((0..11).map(|n| n.to_string())));
        assert!(Structure::of(&Vec::<Option<f32>>::new()).unwrap().is_empty());
    }
}
