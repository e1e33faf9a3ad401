//! The tuple lengths, and the traits that a tuple has if each of its members has them.

use crate::schedule::{Schedule, Several};
use crate::state::{State, StateWalk, StateWalkMut};
use crate::tree::{Tree, TreeMut, Walk, WalkMut};
use crate::wrapper::chain::Members;
#[cfg(feature = "config")]
use crate::{
    config::Member,
    config::in_parts::{Boxes, put},
    engine::Stage,
    needs::{Includes, ValueAndGradFn},
};

/// Calls a macro for tuples of 0 to 12 members, with a type name and an index for each member.
macro_rules! up_to_twelve {
    ($each:ident) => {
        $each!();
        $each!(A 0);
        $each!(A 0, B 1);
        $each!(A 0, B 1, C 2);
        $each!(A 0, B 1, C 2, D 3);
        $each!(A 0, B 1, C 2, D 3, E 4);
        $each!(A 0, B 1, C 2, D 3, E 4, F 5);
        $each!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
        $each!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
        $each!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
        $each!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
        $each!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
        $each!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);
    };
}
pub(crate) use up_to_twelve;

/// Implements these traits for the tuples of one length.
macro_rules! by_members {
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

        impl<$($T: State),*> State for ($($T,)*) {
            fn walk<'a>(&'a self, _walk: &mut StateWalk<'a, '_>) {
                $(_walk.index($i, &self.$i);)*
            }
            fn walk_mut<'a>(&'a mut self, _walk: &mut StateWalkMut<'a, '_>) {
                $(_walk.index($i, &mut self.$i);)*
            }
        }

        impl<$($T: Into<Schedule>),*> Several for ($($T,)*) {
            fn into_schedules(self) -> Vec<Schedule> {
                vec![$(self.$i.into()),*]
            }
        }

        impl<$($T),*> Members<{ <[&str]>::len(&[$(stringify!($T)),*]) }> for ($($T,)*) {}

        #[cfg(feature = "config")]
        impl<$($T: Stage),*> Boxes for ($($T,)*)
        where
            $(ValueAndGradFn: Includes<$T::Needs>,)*
        {
            fn put_into(&self, _boxes: &mut Vec<Member>) {
                $(put(&self.$i, $i, _boxes);)*
            }
        }
    };
}
up_to_twelve!(by_members);
