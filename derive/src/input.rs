//! The type that a derive macro is applied to.

use proc_macro::{Delimiter, Group, Ident, TokenStream, TokenTree};

use crate::tokens::{Reader, is_punct, unwrapped};

pub(crate) struct Input {
    pub(crate) attributes: Vec<Attribute>,
    /// `struct`, `enum` or `union`.
    pub(crate) keyword: Ident,
    pub(crate) name: Ident,
    pub(crate) generics: Generics,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    Struct(Vec<InputField>),
    Enum(Vec<InputVariant>),
    Union,
}

pub(crate) struct InputVariant {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) name: Ident,
    pub(crate) fields: Vec<InputField>,
}

pub(crate) struct InputField {
    pub(crate) attributes: Vec<Attribute>,
    /// `None` in a tuple.
    pub(crate) name: Option<Ident>,
    pub(crate) ty: TokenStream,
}

/// `#[name(arguments)]`.
pub(crate) struct Attribute {
    pub(crate) name: Ident,
    pub(crate) arguments: Option<Group>,
}

pub(crate) struct Generics {
    parameters: Vec<Parameter>,
    /// The predicates after `where`.
    pub(crate) conditions: TokenStream,
}

struct Parameter {
    /// The declaration with bounds, without the default.
    declared: TokenStream,
    /// The argument in the type.
    argument: TokenStream,
    is_type: bool,
}

impl Input {
    pub(crate) fn read(tokens: TokenStream) -> Input {
        let mut reader = Reader::new(tokens);
        let attributes = attributes(&mut reader);
        skip_visibility(&mut reader);
        let keyword = reader.ident().expect("a type begins with its sort");
        let name = reader.ident().expect("a type has a name");
        let parameters = if reader.skip('<') { parameters(&mut reader) } else { Vec::new() };
        let mut conditions = conditions(&mut reader);
        let body = match (&*keyword.to_string(), reader.next()) {
            ("struct", Some(TokenTree::Group(group))) => {
                let fields = fields(&group);
                if group.delimiter() == Delimiter::Parenthesis {
                    conditions = self::conditions(&mut reader);
                }
                Body::Struct(fields)
            }
            ("struct", _) => Body::Struct(Vec::new()),
            ("enum", Some(TokenTree::Group(group))) => Body::Enum(variants(&group)),
            _ => Body::Union,
        };
        Input { attributes, keyword, name, generics: Generics { parameters, conditions }, body }
    }
}

impl Generics {
    /// `<'a, T: Bound, const N: usize>`, as after `impl`.
    pub(crate) fn parameters(&self) -> TokenStream {
        bracketed(self.parameters.iter().map(|parameter| &parameter.declared))
    }

    /// `<'a, T, N>`, as after the type's name.
    pub(crate) fn arguments(&self) -> TokenStream {
        bracketed(self.parameters.iter().map(|parameter| &parameter.argument))
    }

    pub(crate) fn types(&self) -> impl Iterator<Item = &TokenStream> {
        self.parameters.iter().filter(|parameter| parameter.is_type).map(|parameter| &parameter.argument)
    }
}

fn bracketed<'a>(items: impl Iterator<Item = &'a TokenStream>) -> TokenStream {
    let mut list = TokenStream::new();
    items.for_each(|item| list.extend(crate::tokens::fill("$item,", &[("item", item)])));
    if list.is_empty() { list } else { crate::tokens::fill("<$list>", &[("list", &list)]) }
}

fn attributes(reader: &mut Reader) -> Vec<Attribute> {
    let mut found = Vec::new();
    while reader.skip('#') {
        let Some(TokenTree::Group(group)) = reader.next() else { continue };
        let mut inner = Reader::new(unwrapped(group.stream()));
        if let Some(name) = inner.ident() {
            found.push(Attribute { name, arguments: inner.group(Delimiter::Parenthesis) });
        }
    }
    found
}

fn skip_visibility(reader: &mut Reader) {
    let is_group = |reader: &Reader, holds: fn(Delimiter, &mut Reader) -> bool| match reader.peek() {
        Some(TokenTree::Group(group)) => holds(group.delimiter(), &mut Reader::new(group.stream())),
        _ => false,
    };
    // A macro's visibility arrives in a group without delimiters.
    if is_group(reader, |delimiter, inner| {
        delimiter == Delimiter::None && (inner.is_at_end() || inner.skip_word("pub"))
    }) {
        reader.next();
    } else if reader.skip_word("pub") {
        // Other parentheses begin a tuple type.
        let restricts = |delimiter, inner: &mut Reader| {
            let module = |inner: &mut Reader| ["crate", "self", "super"].iter().any(|word| inner.skip_word(word));
            delimiter == Delimiter::Parenthesis && (inner.skip_word("in") || module(inner) && inner.is_at_end())
        };
        if is_group(reader, restricts) {
            reader.next();
        }
    }
}

/// Reads the parameters after the opening angle bracket.
fn parameters(reader: &mut Reader) -> Vec<Parameter> {
    let mut found = Vec::new();
    while !reader.skip('>') && !reader.is_at_end() {
        attributes(reader);
        let declared = reader.ty(|token| [',', '>', '='].iter().any(|end| is_punct(token, *end)));
        if reader.skip('=') {
            reader.ty(|token| [',', '>'].iter().any(|end| is_punct(token, *end)));
        }
        reader.skip(',');
        let mut inner = Reader::new(declared.clone());
        let lifetime = inner.peek().is_some_and(|token| is_punct(token, '\''));
        let is_type = !lifetime && !inner.skip_word("const");
        let argument = (0..1 + usize::from(lifetime)).filter_map(|_| inner.next()).collect();
        found.push(Parameter { declared, argument, is_type });
    }
    found
}

fn conditions(reader: &mut Reader) -> TokenStream {
    if !reader.skip_word("where") {
        return TokenStream::new();
    }
    reader.ty(|token| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        token => is_punct(token, ';'),
    })
}

fn fields(group: &Group) -> Vec<InputField> {
    let (mut reader, mut found) = (Reader::new(group.stream()), Vec::new());
    while !reader.is_at_end() {
        let attributes = attributes(&mut reader);
        skip_visibility(&mut reader);
        let name = if group.delimiter() == Delimiter::Brace { reader.ident() } else { None };
        if name.is_some() {
            reader.skip(':');
        }
        let ty = reader.ty(|token| is_punct(token, ','));
        reader.skip(',');
        found.push(InputField { attributes, name, ty });
    }
    found
}

fn variants(group: &Group) -> Vec<InputVariant> {
    let (mut reader, mut found) = (Reader::new(group.stream()), Vec::new());
    while !reader.is_at_end() {
        let attributes = attributes(&mut reader);
        skip_visibility(&mut reader);
        let name = reader.ident().expect("a variant has a name");
        let fields = match reader.peek().cloned() {
            Some(TokenTree::Group(group)) => {
                reader.next();
                fields(&group)
            }
            _ => Vec::new(),
        };
        // The discriminant.
        reader.expression();
        reader.skip(',');
        found.push(InputVariant { attributes, name, fields });
    }
    found
}
