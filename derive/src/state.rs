//! `#[derive(State)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, parse_quote};

use crate::attributes::Attributes;
use crate::shape::{Field, Variant, bounded, visit_all};

pub(crate) fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    Attributes::read(&input.attrs, "state", &[])?;
    let place = match &input.data {
        Data::Struct(data) => return implement(input, Field::all(&data.fields, "state", &["skip"])?),
        Data::Enum(data) => data.enum_token.span,
        Data::Union(data) => data.union_token.span,
    };
    Err(Error::new(place, "only a struct can be a state: what a state consists of may not depend on its values"))
}

fn implement(input: &DeriveInput, fields: Vec<Field>) -> syn::Result<TokenStream> {
    let variants = [Variant { pattern: quote!(Self), prefix: None, fields }];
    let read = visit_all(&variants, &quote!(::gradchain::state::StateWalk), false);
    let write = visit_all(&variants, &quote!(::gradchain::state::StateWalkMut), false);
    let mut generics = bounded(input, &variants, &quote!(::gradchain::state::State));
    if generics.type_params().next().is_some() {
        // What `State` asks of every state, and what a parameter in a skipped field might lack.
        let all: syn::WherePredicate = parse_quote! {
            Self: ::core::clone::Clone + ::core::fmt::Debug + ::core::marker::Send + ::core::marker::Sync + 'static
        };
        generics.make_where_clause().predicates.push(all);
    }
    let (name, (parameters, arguments, conditions)) = (&input.ident, generics.split_for_impl());
    Ok(quote! {
        #[automatically_derived]
        impl #parameters ::gradchain::state::State for #name #arguments #conditions {
            fn walk<'__state>(&'__state self, __walk: &mut ::gradchain::state::StateWalk<'__state, '_>) {
                #read
            }
            fn walk_mut<'__state>(&'__state mut self, __walk: &mut ::gradchain::state::StateWalkMut<'__state, '_>) {
                #write
            }
        }
    })
}
