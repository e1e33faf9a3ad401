//! `#[derive(Tree)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Data, DeriveInput, Error};

use crate::attributes::Attributes;
use crate::shape::{Field, Names, Variant, bounded, visit_all};

const VARIANT: &[&str] = &["skip", "rename"];
const FIELD: &[&str] = &["skip", "rename", "constraint"];

pub(crate) fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    let read_only = Attributes::read(&input.attrs, "tree", &["read_only"])?.read_only;
    let variants = variants(input)?;
    let read = implement(input, &variants, &quote!(::gradchain::Tree), &quote!(Walk), &quote!(walk), &quote!());
    if read_only {
        return Ok(read);
    }
    let bound = quote!(::gradchain::TreeMut);
    let write = implement(input, &variants, &bound, &quote!(WalkMut), &quote!(walk_mut), &quote!(mut));
    Ok(quote!(#read #write))
}

fn implement(
    input: &DeriveInput,
    variants: &[Variant],
    bound: &TokenStream,
    walk: &TokenStream,
    method: &TokenStream,
    mutable: &TokenStream,
) -> TokenStream {
    let walk = quote!(::gradchain::tree::#walk);
    // Reading walks are told; the ones that write show the same leaves.
    let (name, body) = (&input.ident, visit_all(variants, &walk, mutable.is_empty()));
    let generics = bounded(input, variants, bound);
    let (parameters, arguments, conditions) = generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #parameters #bound for #name #arguments #conditions {
            fn #method<'__tree>(&'__tree #mutable self, __walk: &mut #walk<'__tree, '_>) {
                #body
            }
        }
    }
}

fn variants(input: &DeriveInput) -> syn::Result<Vec<Variant>> {
    match &input.data {
        Data::Struct(data) => {
            let fields = Field::all(&data.fields, "tree", FIELD)?;
            Ok(vec![Variant { pattern: quote!(Self), prefix: None, fields }])
        }
        Data::Enum(data) => {
            let mut names = Names::default();
            data.variants.iter().map(|variant| named(variant, &mut names)).collect()
        }
        Data::Union(data) => Err(Error::new(data.union_token.span, "a union cannot be a tree: who knows its fields?")),
    }
}

fn named(variant: &syn::Variant, names: &mut Names) -> syn::Result<Variant> {
    let ident = &variant.ident;
    let pattern = quote!(Self::#ident);
    let attributes = Attributes::read(&variant.attrs, "tree", VARIANT)?;
    if attributes.skip {
        return Ok(Variant { pattern, prefix: None, fields: Vec::new() });
    }
    let (name, place) = match attributes.rename {
        Some(rename) => (rename.value(), rename.span()),
        None => (ident.unraw().to_string(), ident.span()),
    };
    names.add(name.clone(), place)?;
    Ok(Variant { pattern, prefix: Some(name), fields: Field::all(&variant.fields, "tree", FIELD)? })
}
