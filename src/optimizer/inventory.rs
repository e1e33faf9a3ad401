//! The list of the named optimizers that are made of other transformations: the configs and the tests loop over it.

use core::any::Any;

use crate::arguments::Arguments;
use crate::engine::Stage;
use crate::needs::{Includes, ValueAndGradFn};
use crate::part::Optimizer;
use crate::wrapper::Boxed;

type Member = Boxed<ValueAndGradFn>;

/// Receives each optimizer of the list. A number that must be given is
/// [`required`](crate::arguments::required()) in what `make` returns.
pub trait Inventory {
    /// Receives an optimizer that keeps its type in configs, and with it a loop of its own.
    fn typed<T: Arguments + Stage>(&mut self, make: fn() -> T)
    where
        ValueAndGradFn: Includes<T::Needs>;

    /// Receives an optimizer that is a chain of boxes in configs, which compiles no loop.
    fn in_parts<T: Arguments + Optimizer<Chain: Boxes> + Stage>(&mut self, make: fn() -> T)
    where
        ValueAndGradFn: Includes<T::Needs>;
}

/// A chain whose members can be put into boxes.
pub trait Boxes {
    /// Puts a copy of each member into its box. Reuses boxes that hold a member of the same type, so that a step that
    /// sets arguments allocates nothing.
    fn put_into(&self, boxes: &mut Vec<Member>);
}

macro_rules! boxes {
    ($($M:ident $number:tt),*) => {
        impl<$($M: Stage),*> Boxes for ($($M,)*)
        where
            $(ValueAndGradFn: Includes<$M::Needs>,)*
        {
            fn put_into(&self, boxes: &mut Vec<Member>) {
                boxes.resize_with([$($number),*].len(), || Box::new(()));
                $(put(&self.$number, &mut boxes[$number]);)*
            }
        }
    };
}
boxes!(A 0, B 1);
boxes!(A 0, B 1, C 2);
boxes!(A 0, B 1, C 2, D 3);
boxes!(A 0, B 1, C 2, D 3, E 4);
boxes!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);

fn put<T: Stage>(member: &T, into: &mut Member)
where
    ValueAndGradFn: Includes<T::Needs>,
{
    let inside: &mut dyn Any = &mut **into;
    match inside.downcast_mut::<T>() {
        Some(inside) => inside.clone_from(member),
        None => *into = Box::new(member.clone()),
    }
}
