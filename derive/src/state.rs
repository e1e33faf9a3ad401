//! `#[derive(State)]`.

use proc_macro::TokenStream;

use crate::attributes::Attributes;
use crate::input::{Body, Input};
use crate::shape::{Field, Variant, conditions, implement, visit_all};
use crate::tokens::{Error, Result, fill};

pub(crate) fn expand(input: &Input) -> Result<TokenStream> {
    Attributes::read(&input.attributes, "state", &[])?;
    let Body::Struct(fields) = &input.body else {
        let problem = "only a struct can be a state: the fields of a state may not depend on its values";
        return Err(Error::new(input.keyword.span(), problem));
    };
    let fields = Field::all(fields, "state", &["skip"])?;
    let variants = [Variant { pattern: fill("Self", &[]), prefix: None, fields }];
    let mut conditions = conditions(input, &variants, "::gradchain::state::State");
    if input.generics.types().next().is_some() {
        // The supertraits of `State`, which a skipped field's type parameter might lack.
        let all =
            "Self: ::core::clone::Clone + ::core::fmt::Debug + ::core::marker::Send + ::core::marker::Sync + 'static";
        conditions.push(fill(all, &[]));
    }
    let methods = "
        fn walk<'__state>(&'__state self, __walk: &mut ::gradchain::state::StateWalk<'__state, '_>) {
            $read
        }
        fn walk_mut<'__state>(&'__state mut self, __walk: &mut ::gradchain::state::StateWalkMut<'__state, '_>) {
            $write
        }";
    let read = visit_all(&variants, "::gradchain::state::StateWalk", false);
    let write = visit_all(&variants, "::gradchain::state::StateWalkMut", false);
    let methods = fill(methods, &[("read", &read), ("write", &write)]);
    Ok(implement(input, &conditions, "::gradchain::state::State", methods))
}
