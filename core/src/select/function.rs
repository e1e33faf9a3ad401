//! A comparable function of a leaf.

use core::any::TypeId;
use core::fmt;
use std::sync::Arc;

use crate::tree::LeafSpec;

#[derive(Clone)]
pub(super) struct Function<T> {
    call: Arc<dyn Fn(&LeafSpec) -> T + Send + Sync>,
    /// The type of a function without captures; all its values are equal.
    stateless: Option<TypeId>,
}

impl<T> Function<T> {
    pub(super) fn new<F: Fn(&LeafSpec) -> T + Send + Sync + 'static>(call: F) -> Function<T> {
        Function { call: Arc::new(call), stateless: (size_of::<F>() == 0).then(TypeId::of::<F>) }
    }

    pub(super) fn of(&self, leaf: &LeafSpec) -> T {
        (self.call)(leaf)
    }
}

/// Functions are equal if they share an `Arc`, or have the same type and no captures.
impl<T> PartialEq for Function<T> {
    fn eq(&self, other: &Function<T>) -> bool {
        Arc::ptr_eq(&self.call, &other.call) || self.stateless.is_some() && self.stateless == other.stateless
    }
}

impl<T> fmt::Debug for Function<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}
