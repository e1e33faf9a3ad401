//! What a tree shows its leaves to.

use core::fmt::{Display, Write};

use super::{LeafMut, LeafRef, Tree, TreeMut};

/// A walk over the leaves of a tree, for reading; see [`Tree::walk`].
pub struct Walk<'a, 'w> {
    path: &'w mut String,
    sink: &'w mut dyn FnMut(&str, LeafRef<'a>),
}

impl<'a, 'w> Walk<'a, 'w> {
    pub(crate) fn new(path: &'w mut String, sink: &'w mut dyn FnMut(&str, LeafRef<'a>)) -> Self {
        path.clear();
        Walk { path, sink }
    }

    /// Walks a child under a name.
    pub fn child<T: Tree + ?Sized>(&mut self, name: &str, tree: &'a T) {
        let parent = enter(self.path, name);
        tree.walk(self);
        self.path.truncate(parent);
    }

    /// Walks a child under a number.
    pub fn index<T: Tree + ?Sized>(&mut self, index: usize, tree: &'a T) {
        let parent = enter(self.path, index);
        tree.walk(self);
        self.path.truncate(parent);
    }

    /// Shows a leaf at the current path.
    pub fn leaf(&mut self, leaf: LeafRef<'a>) {
        (self.sink)(self.path, leaf);
    }

    /// Shows a leaf under a path.
    pub(crate) fn leaf_at(&mut self, path: &str, leaf: LeafRef<'a>) {
        let parent = enter(self.path, path);
        self.leaf(leaf);
        self.path.truncate(parent);
    }
}

/// A walk over the leaves of a tree, for writing; see [`TreeMut::walk_mut`].
pub struct WalkMut<'a, 'w> {
    path: &'w mut String,
    sink: &'w mut dyn FnMut(&str, LeafMut<'a>),
}

impl<'a, 'w> WalkMut<'a, 'w> {
    pub(crate) fn new(path: &'w mut String, sink: &'w mut dyn FnMut(&str, LeafMut<'a>)) -> Self {
        path.clear();
        WalkMut { path, sink }
    }

    /// Walks a child under a name.
    pub fn child<T: TreeMut + ?Sized>(&mut self, name: &str, tree: &'a mut T) {
        let parent = enter(self.path, name);
        tree.walk_mut(self);
        self.path.truncate(parent);
    }

    /// Walks a child under a number.
    pub fn index<T: TreeMut + ?Sized>(&mut self, index: usize, tree: &'a mut T) {
        let parent = enter(self.path, index);
        tree.walk_mut(self);
        self.path.truncate(parent);
    }

    /// Shows a leaf at the current path.
    pub fn leaf(&mut self, leaf: LeafMut<'a>) {
        (self.sink)(self.path, leaf);
    }

    /// Shows a leaf under a path.
    pub(crate) fn leaf_at(&mut self, path: &str, leaf: LeafMut<'a>) {
        let parent = enter(self.path, path);
        self.leaf(leaf);
        self.path.truncate(parent);
    }
}

/// Appends a key and returns the length to go back to. The text is reused from walk to walk, so that walking a tree
/// allocates nothing once it has seen the longest path.
fn enter(path: &mut String, key: impl Display) -> usize {
    let parent = path.len();
    if parent > 0 {
        path.push('/');
    }
    write!(path, "{key}").expect("writing to a String succeeds");
    parent
}
