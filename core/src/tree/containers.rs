//! Containers of trees: tuples, sequences, options, boxes, maps.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Tree, TreeMut, Walk, WalkMut};

impl<T: Tree> Tree for [T] {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        T::walk_slice(self, walk);
    }
}

impl<T: TreeMut> TreeMut for [T] {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        T::walk_slice_mut(self, walk);
    }
}

impl<T: Tree> Tree for Vec<T> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        T::walk_slice(self, walk);
    }
}

impl<T: TreeMut> TreeMut for Vec<T> {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        T::walk_slice_mut(self, walk);
    }
}

impl<T: Tree, const N: usize> Tree for [T; N] {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        T::walk_slice(self, walk);
    }
}

impl<T: TreeMut, const N: usize> TreeMut for [T; N] {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        T::walk_slice_mut(self, walk);
    }
}

impl<T: Tree> Tree for Option<T> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        if let Some(tree) = self {
            tree.walk(walk);
        }
    }
}

impl<T: TreeMut> TreeMut for Option<T> {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        if let Some(tree) = self {
            tree.walk_mut(walk);
        }
    }
}

impl<T: Tree + ?Sized> Tree for Box<T> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        (**self).walk(walk);
    }
}

impl<T: TreeMut + ?Sized> TreeMut for Box<T> {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        (**self).walk_mut(walk);
    }
}

impl<T: Tree + ?Sized> Tree for Arc<T> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        (**self).walk(walk);
    }
}

/// Writes through [`Arc::make_mut`]: shared values are copied first.
impl<T: TreeMut + Clone> TreeMut for Arc<T> {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        if walk.asks_for_handles() {
            // Nothing is written yet, so nothing is copied.
            return Arc::get_mut(self).into_iter().for_each(|tree| tree.walk_mut(walk));
        }
        Arc::make_mut(self).walk_mut(walk);
    }
}

impl<T: Tree + ?Sized> Tree for &T {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        (**self).walk(walk);
    }
}

impl<T: Tree + ?Sized> Tree for &mut T {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        (**self).walk(walk);
    }
}

impl<T: TreeMut + ?Sized> TreeMut for &mut T {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        (**self).walk_mut(walk);
    }
}

/// Shows the values in the order of their keys, which are the paths.
impl<T: Tree> Tree for BTreeMap<String, T> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        self.iter().for_each(|(name, tree)| walk.child(name, tree));
    }
}

impl<T: TreeMut> TreeMut for BTreeMap<String, T> {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        self.iter_mut().for_each(|(name, tree)| walk.child(name, tree));
    }
}

macro_rules! tuples {
    ($($T:ident $i:tt),*) => {
        impl<$($T: Tree),*> Tree for ($($T,)*) {
            fn walk<'a>(&'a self, _walk: &mut Walk<'a, '_>) {
                $(_walk.index($i, &self.$i);)*
            }
        }
        impl<$($T: TreeMut),*> TreeMut for ($($T,)*) {
            fn walk_mut<'a>(&'a mut self, _walk: &mut WalkMut<'a, '_>) {
                $(_walk.index($i, &mut self.$i);)*
            }
        }
    };
}
crate::tuples::up_to_twelve!(tuples);
