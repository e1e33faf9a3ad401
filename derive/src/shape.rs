//! What both derives see of a type: variants of fields with keys, and the walk over them.

use std::collections::HashSet;

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{DeriveInput, Expr, Fields, Generics, Ident, Member, Type, parse_quote};

use crate::attributes::Attributes;

/// A variant of an enum, or a struct, which is one variant without a name.
pub(crate) struct Variant {
    /// `Self` or `Self::Name`.
    pub(crate) pattern: TokenStream,
    /// What comes before the keys of the fields in paths: the name of the variant.
    pub(crate) prefix: Option<String>,
    /// The fields that are walked.
    pub(crate) fields: Vec<Field>,
}

/// A field that is walked.
pub(crate) struct Field {
    member: Member,
    ty: Type,
    renamed: Option<String>,
    constraint: Option<Expr>,
}

impl Field {
    /// The fields that are not skipped, where `#[attribute(...)]` on them takes the keys in `known`.
    pub(crate) fn all(fields: &Fields, attribute: &str, known: &[&str]) -> syn::Result<Vec<Field>> {
        let (mut walked, mut names) = (Vec::new(), Names::default());
        for (member, field) in fields.members().zip(fields) {
            let attributes = Attributes::read(&field.attrs, attribute, known)?;
            if attributes.skip {
                continue;
            }
            let place = attributes.rename.as_ref().map_or_else(|| span_of(&member), |name| name.span());
            let (ty, renamed) = (field.ty.clone(), attributes.rename.map(|name| name.value()));
            let field = Field { member, ty, renamed, constraint: attributes.constraint };
            names.add(field.key(), place)?;
            walked.push(field);
        }
        Ok(walked)
    }

    fn key(&self) -> String {
        match (&self.renamed, &self.member) {
            (Some(name), _) => name.clone(),
            (None, Member::Named(name)) => name.unraw().to_string(),
            (None, Member::Unnamed(index)) => index.index.to_string(),
        }
    }

    /// Says to a reading walk how the field's leaves are constrained, if they are.
    fn constrain(&self, prefix: Option<&str>) -> Option<TokenStream> {
        let constraint = self.constraint.as_ref()?;
        let key = prefix.map_or_else(|| self.key(), |prefix| format!("{prefix}/{}", self.key()));
        // The compiler points at the constraint if it is none.
        Some(quote_spanned! { constraint.span()=>
            #[allow(clippy::redundant_closure)]
            ::gradchain::tree::Walk::constraint(__walk, #key, || #constraint);
        })
    }

    /// Shows the field, bound to the variable `value`, to a walk of type `walk`.
    fn visit(&self, walk: &TokenStream, prefix: Option<&str>, value: &Ident) -> TokenStream {
        // The type is written out so that the compiler points at it if it is not a tree.
        let (ty, key) = (&self.ty, self.key());
        match (prefix, &self.member) {
            (Some(prefix), _) => {
                let key = format!("{prefix}/{key}");
                quote!(#walk::child::<#ty>(__walk, #key, #value);)
            }
            (None, Member::Unnamed(index)) if self.renamed.is_none() => {
                let index = index.index as usize;
                quote!(#walk::index::<#ty>(__walk, #index, #value);)
            }
            (None, _) => quote!(#walk::child::<#ty>(__walk, #key, #value);),
        }
    }
}

fn span_of(member: &Member) -> Span {
    match member {
        Member::Named(name) => name.span(),
        Member::Unnamed(index) => index.span,
    }
}

/// The names in use at one level of a path.
#[derive(Default)]
pub(crate) struct Names(HashSet<String>);

impl Names {
    pub(crate) fn add(&mut self, name: String, place: Span) -> syn::Result<()> {
        let problem = format!("the name `{name}` is taken already");
        if self.0.insert(name) { Ok(()) } else { Err(syn::Error::new(place, problem)) }
    }
}

/// The body of a walk, for reading or writing alike: `self` is a reference of either sort. If `constrain`, the walk is also
/// told how leaves are constrained.
pub(crate) fn visit_all(variants: &[Variant], walk: &TokenStream, constrain: bool) -> TokenStream {
    if variants.is_empty() {
        return quote!(match *self {});
    }
    let arms = variants.iter().map(|Variant { pattern, prefix, fields }| {
        let members = fields.iter().map(|field| &field.member);
        let values: Vec<_> = (0..fields.len()).map(|i| format_ident!("__value_{i}")).collect();
        let visits = fields.iter().zip(&values).map(|(field, value)| field.visit(walk, prefix.as_deref(), value));
        let told = fields.iter().filter(|_| constrain).filter_map(|field| field.constrain(prefix.as_deref()));
        quote!(#pattern { #(#members: #values,)* .. } => { #(#told)* #(#visits)* })
    });
    quote!(match self { #(#arms)* })
}

/// The generics of `input`, where each walked field whose type depends on a type parameter is bound by `bound`.
///
/// A field that holds the type itself would make the bound depend on itself; there the parameters are bound.
pub(crate) fn bounded(input: &DeriveInput, variants: &[Variant], bound: &TokenStream) -> Generics {
    let mut generics = input.generics.clone();
    let parameters: Vec<Ident> = generics.type_params().map(|parameter| parameter.ident.clone()).collect();
    let mut predicates = Vec::new();
    for ty in variants.iter().flat_map(|variant| &variant.fields).map(|field| &field.ty) {
        let used = parameters.iter().filter(|parameter| mentions(ty.to_token_stream(), parameter));
        if mentions(ty.to_token_stream(), &input.ident) || mentions(ty.to_token_stream(), &format_ident!("Self")) {
            predicates.extend(used.map(|parameter| parse_quote!(#parameter: #bound)));
        } else if used.count() > 0 {
            predicates.push(parse_quote!(#ty: #bound));
        }
    }
    if !predicates.is_empty() {
        generics.make_where_clause().predicates.extend::<Vec<syn::WherePredicate>>(predicates);
    }
    generics
}

fn mentions(tokens: TokenStream, name: &Ident) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == *name,
        TokenTree::Group(group) => mentions(group.stream(), name),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}
