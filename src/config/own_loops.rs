//! Optimizers that are often the whole config: with passes that end in the parameters, as for static types. Others are
//! members of chains, and run tile by tile.

use core::any::Any;

use crate::GradientTransformation;
use crate::needs::Includes;
use crate::needs::ValueAndGradFn;
use crate::optimizer::{Adam, Adamw, Lion, Sgd};
use crate::part::{Named, Optimizer, Part};
use crate::recipe::Recipe;
use crate::transform::Trace;
use crate::wrapper::Boxed;

type Member = Boxed<ValueAndGradFn>;

/// Gives a whole config its own passes, if it is one of these optimizers.
pub(super) fn with_own_loops(member: Member) -> Member {
    let common = common::<Adamw>(&member)
        .or_else(|| common::<Adam>(&member))
        .or_else(|| common::<Sgd>(&member))
        .or_else(|| common::<Sgd<Trace>>(&member))
        .or_else(|| common::<Lion>(&member));
    common.unwrap_or(member)
}

fn common<T: GradientTransformation>(member: &Member) -> Option<Member>
where
    ValueAndGradFn: Includes<T::Needs>,
{
    let member: &dyn Any = &**member;
    Some(Box::new(OwnLoops(member.downcast_ref::<T>()?.clone())))
}

#[derive(Clone, Debug)]
pub(super) struct OwnLoops<T>(T);

impl<T: GradientTransformation> Part for OwnLoops<T> {
    const NAME: &'static str = "alone";
    type Form = Named;

    fn recipe(&self) -> Recipe {
        self.0.recipe()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

impl<T: GradientTransformation> Optimizer for OwnLoops<T> {
    const HIDDEN: bool = true;
    type Chain = T;
    fn chain(&self) -> &T {
        &self.0
    }
}
