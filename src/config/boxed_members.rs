//! Optimizers as chains of boxes.
//!
//! An optimizer's own loop takes as long to compile as any other, and a config can name about fifty optimizers. Their
//! members can be named too, so their loops exist already: here each member is boxed, as if the config had named the
//! chain. State, paths, recipe and results are those of the optimizer, bitwise identical.

use core::any::Any;
use core::fmt;

use super::registry::{Member, Registry, Unconfigured, placeholder};
use crate::GradientTransformation;
use crate::arguments::{self, Arguments, Visit};
use crate::needs::Includes;
use crate::needs::ValueAndGradFn;
use crate::part::Named;
use crate::part::{Optimizer, Part};
use crate::recipe::Recipe;

/// Returns an optimizer with settable arguments and boxed members.
pub(super) fn boxed_members(optimizer: impl Template) -> Unconfigured {
    let mut members = Vec::new();
    optimizer.copy_members(&mut members);
    Unconfigured::named(BoxedMembers { optimizer: Box::new(optimizer), members })
}

impl Registry {
    /// Adds an optimizer as a chain of boxes, in place of any entry of its name.
    pub(super) fn boxed_members<T: Arguments + Template>(
        &mut self,
        make: impl Fn() -> T + Send + Sync + 'static,
    ) -> &mut Registry {
        self.named(T::NAME, move || boxed_members(make()))
    }
}

struct BoxedMembers {
    optimizer: Box<dyn Template>,
    members: Vec<Member>,
}

/// An optimizer without its members.
pub(super) trait Template: fmt::Debug + Send + Sync + 'static {
    fn copy(&self) -> Box<dyn Template>;
    fn name(&self) -> &'static str;
    fn describe(&self) -> String;
    fn arguments(&mut self, visit: &mut Visit<'_>);
    /// Copies each member into its box, reusing filled boxes to avoid allocation in steps.
    fn copy_members(&self, boxes: &mut Vec<Member>);
}

impl<T: Arguments + Optimizer<Chain: Boxes>> Template for T {
    fn copy(&self) -> Box<dyn Template> {
        Box::new(self.clone())
    }
    fn name(&self) -> &'static str {
        Arguments::name(self)
    }
    fn describe(&self) -> String {
        Part::describe(self)
    }
    fn arguments(&mut self, visit: &mut Visit<'_>) {
        Arguments::arguments(self, visit);
    }
    fn copy_members(&self, boxes: &mut Vec<Member>) {
        self.chain().copy_members(boxes);
    }
}

impl fmt::Debug for BoxedMembers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.optimizer.fmt(f)
    }
}

impl Clone for BoxedMembers {
    fn clone(&self) -> BoxedMembers {
        BoxedMembers { optimizer: self.optimizer.copy(), members: self.members.clone() }
    }
}

impl Arguments for BoxedMembers {
    /// A placeholder: the name is known at run time only.
    const NAME: &'static str = "optimizer";

    fn name(&self) -> &'static str {
        self.optimizer.name()
    }

    fn arguments(&mut self, visit: &mut Visit<'_>) {
        self.optimizer.arguments(visit);
        // The visit may have set arguments.
        self.optimizer.copy_members(&mut self.members);
    }
}

impl Part for BoxedMembers {
    const NAME: &'static str = "optimizer";
    type Form = Named;

    fn own_arguments(&mut self, visit: &mut Visit<'_>) {
        Arguments::arguments(self, visit);
    }

    fn recipe(&self) -> Recipe {
        arguments::recipe_of(self.optimizer.name(), &mut |visit| self.optimizer.copy().arguments(visit))
    }

    fn describe(&self) -> String {
        self.optimizer.describe()
    }
}

impl Optimizer for BoxedMembers {
    type Chain = Vec<Member>;
    fn chain(&self) -> &Vec<Member> {
        &self.members
    }
    fn current_name(&self) -> &'static str {
        self.optimizer.name()
    }
}

pub(super) trait Boxes {
    /// As [`Template::copy_members`].
    fn copy_members(&self, boxes: &mut Vec<Member>);
}

macro_rules! boxes {
    ($($M:ident $number:tt),*) => {
        impl<$($M: GradientTransformation),*> Boxes for ($($M,)*)
        where
            $(ValueAndGradFn: Includes<$M::Needs>,)*
        {
            fn copy_members(&self, boxes: &mut Vec<Member>) {
                boxes.resize_with([$($number),*].len(), placeholder);
                $(copy_member(&self.$number, &mut boxes[$number]);)*
            }
        }
    };
}
boxes!(A 0, B 1);
boxes!(A 0, B 1, C 2);
boxes!(A 0, B 1, C 2, D 3);
boxes!(A 0, B 1, C 2, D 3, E 4);
boxes!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);

fn copy_member<T: GradientTransformation>(member: &T, into: &mut Member)
where
    ValueAndGradFn: Includes<T::Needs>,
{
    let inside: &mut dyn Any = &mut **into;
    match inside.downcast_mut::<T>() {
        Some(inside) => inside.clone_from(member),
        None => *into = Box::new(member.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GradientTransformation;
    use crate::arguments::Argument;
    use crate::macros::describe;
    use crate::optimizer::adamax;
    use crate::recipe::Node;
    use crate::transform::{ScaleByAdamax, ScaleByLearningRate};

    fn recipe<T: GradientTransformation>(transformation: &T) -> Recipe {
        transformation.recipe()
    }

    fn summary<T: GradientTransformation>(transformation: &T) -> String {
        format!("{:?}", transformation.summary())
    }

    #[test]
    fn members_have_boxes_and_nothing_tells_them_from_the_optimizer() {
        let typed = adamax(0.5).b1(0.25);
        let config = recipe(&typed);
        let registry = Registry::new();
        let built = registry.read(&Node::root(&config, &registry)).expect("a config");
        assert!((&*built as &dyn Any).is::<BoxedMembers>());
        assert_eq!((built.recipe(), built.describe()), (config, describe(&typed)));
        assert_eq!(format!("{built:?}"), format!("{typed:?}"));
        assert_eq!(format!("{:?}", built.summary()), summary(&typed));
    }

    #[test]
    fn arguments_are_set_in_the_existing_boxes() {
        let mut members = Vec::new();
        let optimizer: Box<dyn Template> = Box::new(adamax(0.5));
        optimizer.copy_members(&mut members);
        let mut parts = BoxedMembers { optimizer, members };
        let address = |parts: &BoxedMembers| &raw const *parts.members[0] as *const u8;
        let before = address(&parts);
        Arguments::arguments(&mut parts, &mut |name, argument| match (name, argument) {
            ("b1", Argument::Hyperparam(b1)) => *b1 = 0.125.into(),
            ("learning_rate", Argument::Hyperparam(rate)) => *rate = 2.0.into(),
            _ => {}
        });
        assert_eq!(address(&parts), before);
        let [first, last]: [&dyn Any; 2] = [&*parts.members[0], &*parts.members[1]];
        assert_eq!(first.downcast_ref::<ScaleByAdamax>().expect("the first member").b1.at(0), 0.125);
        assert_eq!(last.downcast_ref::<ScaleByLearningRate>().expect("the last").learning_rate.at(0), 2.0);
    }

    #[test]
    fn states_of_others_of_the_same_schema_are_refused() {
        let registry = Registry::new();
        let build = |name: &str| registry.build(&serde_json::json!({name: {"learning_rate": 0.5}})).expect("a config");
        let (one, other) = (build("adabelief"), build("yogi"));
        let mut params = 1.0_f64;
        let mut state = other.init(&params).expect("a state");
        let error = one.step(&mut params, &1.0, &mut state).expect_err("it is of another");
        assert!(error.to_string().contains("made by another transformation"), "{error}");
        assert_eq!(params, 1.0);
    }
}
