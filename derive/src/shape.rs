//! The common part of both derives: variants of fields with keys, and the walk over them.

use std::collections::HashSet;

use proc_macro::{Ident, Literal, Span, TokenStream, TokenTree};

use crate::attributes::{Attributes, span_of, unraw};
use crate::input::{Input, InputField};
use crate::tokens::{Error, Result, fill, fill_with_span, mentions};

/// A variant of an enum; a struct is one variant without a name.
pub(crate) struct Variant {
    /// `Self` or `Self::Name`.
    pub(crate) pattern: TokenStream,
    /// The variant's name, before the keys of the fields.
    pub(crate) prefix: Option<String>,
    pub(crate) fields: Vec<Field>,
}

/// A field that is walked.
pub(crate) struct Field {
    member: Member,
    ty: TokenStream,
    renamed: Option<String>,
    buffer: bool,
    constraint: Option<TokenStream>,
}

enum Member {
    Named(Ident),
    Unnamed(usize),
}

impl Field {
    /// Returns the fields not skipped; `known` are the keys of their `#[attribute(...)]`.
    pub(crate) fn all(fields: &[InputField], attribute: &str, known: &[&str]) -> Result<Vec<Field>> {
        let (mut walked, mut names) = (Vec::new(), Names::default());
        for (index, field) in fields.iter().enumerate() {
            let attributes = Attributes::read(&field.attributes, attribute, known)?;
            if attributes.skip {
                continue;
            }
            let member = field.name.clone().map_or(Member::Unnamed(index), Member::Named);
            let place = match (&attributes.rename, &member) {
                (Some(name), _) => name.span,
                (None, Member::Named(name)) => name.span(),
                (None, Member::Unnamed(_)) => span_of(&field.ty),
            };
            let (ty, renamed) = (field.ty.clone(), attributes.rename.as_ref().map(|name| name.text.clone()));
            let Attributes { buffer, constraint, .. } = attributes;
            let field = Field { member, ty, renamed, buffer, constraint };
            names.add(field.key(), place)?;
            walked.push(field);
        }
        Ok(walked)
    }

    fn key(&self) -> String {
        match (&self.renamed, &self.member) {
            (Some(name), _) => name.clone(),
            (None, Member::Named(name)) => unraw(name),
            (None, Member::Unnamed(index)) => index.to_string(),
        }
    }

    /// Returns the name or number in a pattern.
    fn member(&self) -> TokenStream {
        TokenStream::from(match &self.member {
            Member::Named(name) => TokenTree::from(name.clone()),
            Member::Unnamed(index) => Literal::usize_unsuffixed(*index).into(),
        })
    }

    /// Returns code that tells a reading walk the leaves' constraint, if any.
    fn constrain(&self, prefix: Option<&str>) -> Option<TokenStream> {
        let constraint = self.constraint.as_ref()?;
        let key = prefix.map_or_else(|| self.key(), |prefix| format!("{prefix}/{}", self.key()));
        let text = format!(
            "#[allow(clippy::redundant_closure)] ::gradchain::tree::Walk::constraint(__walk, {key:?}, || $constraint);"
        );
        // The span points errors at an expression that is no constraint.
        Some(fill_with_span(span_of(constraint), &text, &[("constraint", constraint)]))
    }

    /// Returns code that shows the field, bound to `value`, to a walk of type `walk`.
    fn visit(&self, walk: &str, prefix: Option<&str>, value: &str) -> TokenStream {
        let key = self.key();
        let call = match (prefix, &self.member) {
            (prefix, _) if self.buffer => {
                let key = prefix.map_or_else(|| key.clone(), |prefix| format!("{prefix}/{key}"));
                format!("buffer(__walk, {key:?}, {value})")
            }
            (Some(prefix), _) => format!("child::<$ty>(__walk, {:?}, {value})", format!("{prefix}/{key}")),
            (None, Member::Unnamed(index)) if self.renamed.is_none() => {
                format!("index::<$ty>(__walk, {index}, {value})")
            }
            (None, _) => format!("child::<$ty>(__walk, {key:?}, {value})"),
        };
        // Type and span point errors at a field that is no tree.
        fill_with_span(span_of(&self.ty), &format!("{walk}::{call};"), &[("ty", &self.ty)])
    }
}

/// The names in use at one level.
#[derive(Default)]
pub(crate) struct Names(HashSet<String>);

impl Names {
    pub(crate) fn add(&mut self, name: String, place: Span) -> Result<()> {
        let problem = format!("duplicate name `{name}`");
        if self.0.insert(name) { Ok(()) } else { Err(Error::new(place, problem)) }
    }
}

/// Returns a walk's body, reading or writing by the reference type of `self`.
///
/// `constrain` adds the leaves' constraints.
pub(crate) fn visit_all(variants: &[Variant], walk: &str, constrain: bool) -> TokenStream {
    if variants.is_empty() {
        return fill("match *self {}", &[]);
    }
    let mut arms = TokenStream::new();
    for Variant { pattern, prefix, fields } in variants {
        let (mut members, mut told, mut visits) = (TokenStream::new(), TokenStream::new(), TokenStream::new());
        for (i, field) in fields.iter().enumerate() {
            let value = format!("__value_{i}");
            members.extend(fill(&format!("$member: {value},"), &[("member", &field.member())]));
            told.extend(field.constrain(prefix.as_deref()).filter(|_| constrain));
            visits.extend(field.visit(walk, prefix.as_deref(), &value));
        }
        let gaps = [("pattern", pattern), ("members", &members), ("told", &told), ("visits", &visits)];
        arms.extend(fill("$pattern { $members .. } => { $told $visits }", &gaps));
    }
    fill("match self { $arms }", &[("arms", &arms)])
}

/// Returns the conditions of the `impl`: `bound` for each walked field of a generic type.
///
/// A field that holds the type itself would make the bound depend on itself; its type parameters are bound instead.
pub(crate) fn conditions(input: &Input, variants: &[Variant], bound: &str) -> Vec<TokenStream> {
    let own = &input.generics.conditions;
    let mut conditions = if own.is_empty() { Vec::new() } else { vec![own.clone()] };
    for field in variants.iter().flat_map(|variant| &variant.fields) {
        let (ty, bound) = (&field.ty, if field.buffer { "::gradchain::tree::Buffer" } else { bound });
        let bind = |ty: &TokenStream| fill(&format!("$ty: {bound}"), &[("ty", ty)]);
        let mut used = input.generics.types().filter(|parameter| mentions(ty, &parameter.to_string())).peekable();
        if mentions(ty, &input.name.to_string()) || mentions(ty, "Self") {
            conditions.extend(used.map(bind));
        } else if used.peek().is_some() {
            conditions.push(bind(ty));
        }
    }
    conditions
}

pub(crate) fn implement(input: &Input, conditions: &[TokenStream], name: &str, method: TokenStream) -> TokenStream {
    let mut list = TokenStream::new();
    for condition in conditions {
        let ends = condition.clone().into_iter().last().is_some_and(|last| crate::tokens::is_punct(&last, ','));
        list.extend(fill(if ends { "$condition" } else { "$condition," }, &[("condition", condition)]));
    }
    let gaps = [
        ("parameters", &input.generics.parameters()),
        ("type", &TokenStream::from(TokenTree::from(input.name.clone()))),
        ("arguments", &input.generics.arguments()),
        ("where", &if list.is_empty() { list } else { fill("where $list", &[("list", &list)]) }),
        ("method", &method),
    ];
    fill(&format!("#[automatically_derived] impl $parameters {name} for $type $arguments $where {{ $method }}"), &gaps)
}
