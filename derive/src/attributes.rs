//! The arguments of `#[tree(...)]` and `#[state(...)]`.

use proc_macro::{Ident, Literal, Span, TokenStream, TokenTree};

use crate::input::Attribute;
use crate::tokens::{Error, Reader, Result, unwrapped};

#[derive(Default)]
pub(crate) struct Attributes {
    pub(crate) skip: bool,
    pub(crate) buffer: bool,
    pub(crate) read_only: bool,
    pub(crate) rename: Option<Name>,
    pub(crate) constraint: Option<TokenStream>,
}

/// A name in paths, and its span.
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) span: Span,
}

impl Attributes {
    /// Reads every `#[name(...)]`; keys outside `known` are errors.
    pub(crate) fn read(attributes: &[Attribute], name: &str, known: &[&str]) -> Result<Attributes> {
        let mut found = Attributes::default();
        for attribute in attributes.iter().filter(|attribute| attribute.name.to_string() == name) {
            let Some(arguments) = &attribute.arguments else {
                let problem = format!("expected attribute arguments in parentheses: #[{name}(...)]");
                return Err(Error::new(attribute.name.span(), problem));
            };
            let mut reader = Reader::new(arguments.stream());
            while let Some(token) = reader.next() {
                let key = known.iter().find(|key| token.to_string() == **key).ok_or_else(|| {
                    let problem = format!("no such attribute; `#[{name}(...)]` takes {} here", listed(known));
                    Error::new(token.span(), problem)
                })?;
                found.set(key, token.span(), &mut reader)?;
                let separated = reader.skip(',');
                if let Some(token) = reader.peek().filter(|_| !separated) {
                    return Err(Error::new(token.span(), "expected `,`"));
                }
            }
        }
        match &found {
            Attributes { skip: true, buffer: true, .. } => {
                Err(Error::new(Span::call_site(), "a skipped field is not a buffer: write `skip` or `buffer`"))
            }
            Attributes { buffer: true, constraint: Some(constraint), .. } => {
                Err(Error::new(span_of(constraint), "a buffer has no leaves to constrain"))
            }
            Attributes { skip: true, rename: Some(rename), .. } => {
                Err(Error::new(rename.span, "a skipped field has no name in paths"))
            }
            Attributes { skip: true, constraint: Some(constraint), .. } => {
                Err(Error::new(span_of(constraint), "a skipped field has no leaves to constrain"))
            }
            _ => Ok(found),
        }
    }

    fn set(&mut self, key: &str, span: Span, reader: &mut Reader) -> Result<()> {
        match key {
            "skip" => self.skip = true,
            "buffer" => self.buffer = true,
            "read_only" => self.read_only = true,
            "constraint" if self.constraint.is_some() => return Err(Error::new(span, "constrained twice")),
            "constraint" => self.constraint = Some(value(key, span, reader)?),
            _ if self.rename.is_some() => return Err(Error::new(span, "renamed twice")),
            _ => self.rename = Some(name(value(key, span, reader)?)?),
        }
        Ok(())
    }
}

/// Reads the value after `key =`.
fn value(key: &str, span: Span, reader: &mut Reader) -> Result<TokenStream> {
    let value = if reader.skip('=') { reader.expression() } else { TokenStream::new() };
    if value.is_empty() { Err(Error::new(span, format!("expected `{key} = ...`"))) } else { Ok(value) }
}

/// Returns the span of errors in these tokens.
pub(crate) fn span_of(tokens: &TokenStream) -> Span {
    tokens.clone().into_iter().next().map_or_else(Span::call_site, |token| token.span())
}

fn name(value: TokenStream) -> Result<Name> {
    let span = span_of(&value);
    let mut reader = Reader::new(unwrapped(value));
    let text = match (reader.next(), reader.is_at_end()) {
        (Some(TokenTree::Literal(literal)), true) => text_of(&literal),
        _ => None,
    };
    let problem = match text {
        None => "expected string literal",
        Some(text) if text.is_empty() => "a name in a path cannot be empty",
        Some(text) if text.contains('/') => "a name in a path cannot contain `/`, the separator",
        Some(text) if text.contains('\\') => "a name in a path cannot contain `\\`",
        Some(text) => return Ok(Name { text, span }),
    };
    Err(Error::new(span, problem))
}

/// Returns the text between a literal's quotes, with its escapes.
fn text_of(literal: &Literal) -> Option<String> {
    let literal = literal.to_string();
    let unraw = literal.strip_prefix('r').map_or(&*literal, |raw| raw.trim_matches('#'));
    Some(unraw.strip_prefix('"')?.strip_suffix('"')?.into())
}

/// Returns an identifier without the `r#` of a raw one.
pub(crate) fn unraw(ident: &Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").map_or(text.clone(), String::from)
}

fn listed(known: &[&str]) -> String {
    let shown = |key: &&str| match *key {
        "rename" => "`rename = \"...\"`".into(),
        "constraint" => "`constraint = ...`".into(),
        key => format!("`{key}`"),
    };
    let keys: Vec<String> = known.iter().map(shown).collect();
    if keys.is_empty() { "nothing".into() } else { keys.join(" or ") }
}
