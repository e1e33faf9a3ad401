//! The listed optimizers without a line in a family's file, with learning rate 0.1, as `ELEMENT`.

use gradchain::arguments::{Argument, Arguments, required};
use gradchain::needs::{Includes, ValueAndGradFn};
use gradchain::optimizer::*;
use gradchain::schedule::IntoHyperparam;

use super::{ELEMENT, Subject};
use crate::common::extra_inputs::Registered;
use crate::common::subject::{Entry, Named as _};

pub fn add_unlisted(entries: &mut Vec<Box<dyn Subject>>) {
    let mut to = UnlistedOptimizers(entries);
    include!("../../../src/optimizer/list.rs");
}

struct UnlistedOptimizers<'a>(&'a mut Vec<Box<dyn Subject>>);

impl UnlistedOptimizers<'_> {
    fn part<T: Registered + Arguments>(&mut self, make: impl Fn() -> T)
    where
        ValueAndGradFn: Includes<T::Needs>,
    {
        let name = <T as Arguments>::NAME;
        if self.0.iter().all(|entry| entry.name() != name) {
            let transformation = with_rate(make(), 0.1);
            self.0.push(Entry { name: name.into(), locality: ELEMENT, transformation }.subject());
        }
    }

    fn boxed_members<T: Registered + Arguments>(&mut self, make: impl Fn() -> T)
    where
        ValueAndGradFn: Includes<T::Needs>,
    {
        self.part(make);
    }
}

pub fn with_rate<T: Arguments>(mut optimizer: T, rate: impl IntoHyperparam) -> T {
    let rate = rate.into();
    optimizer.arguments(&mut |name, argument| {
        if let ("learning_rate", Argument::Hyperparam(learning_rate)) = (name, argument) {
            *learning_rate = rate.clone();
        }
    });
    optimizer
}
