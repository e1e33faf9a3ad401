//! A reader of tokens, and a template that produces them.

use proc_macro::{Delimiter, Group, Ident, Spacing, Span, TokenStream, TokenTree};

/// An error with its span in the caller's code.
pub(crate) struct Error {
    pub(crate) span: Span,
    pub(crate) message: String,
}

pub(crate) type Result<T> = core::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(span: Span, message: impl Into<String>) -> Error {
        Error { span, message: message.into() }
    }

    pub(crate) fn into_compile_error(self) -> TokenStream {
        fill_with_span(self.span, &format!("::core::compile_error! {{ {:?} }}", self.message), &[])
    }
}

/// A cursor over tokens, which the compiler has parsed except in attributes.
pub(crate) struct Reader {
    tokens: Vec<TokenTree>,
    at: usize,
}

impl Reader {
    pub(crate) fn new(tokens: TokenStream) -> Reader {
        Reader { tokens: tokens.into_iter().collect(), at: 0 }
    }

    pub(crate) fn peek(&self) -> Option<&TokenTree> {
        self.tokens.get(self.at)
    }

    pub(crate) fn next(&mut self) -> Option<TokenTree> {
        let token = self.peek().cloned();
        self.at += usize::from(token.is_some());
        token
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.peek().is_none()
    }

    pub(crate) fn skip(&mut self, character: char) -> bool {
        let found = self.peek().is_some_and(|token| is_punct(token, character));
        self.at += usize::from(found);
        found
    }

    pub(crate) fn ident(&mut self) -> Option<Ident> {
        let Some(TokenTree::Ident(ident)) = self.peek().cloned() else { return None };
        self.at += 1;
        Some(ident)
    }

    pub(crate) fn skip_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(TokenTree::Ident(ident)) if ident.to_string() == word);
        self.at += usize::from(found);
        found
    }

    pub(crate) fn group(&mut self, delimiter: Delimiter) -> Option<Group> {
        match self.peek().cloned() {
            Some(TokenTree::Group(group)) if group.delimiter() == delimiter => {
                self.at += 1;
                Some(group)
            }
            _ => None,
        }
    }

    /// Reads a type, bounds or predicates up to a token that `ends` them.
    ///
    /// Angle brackets form no group, so the reader counts them.
    pub(crate) fn ty(&mut self, ends: impl Fn(&TokenTree) -> bool) -> TokenStream {
        self.until(ends, |_| true)
    }

    /// Reads an expression up to a comma.
    ///
    /// Here `<` opens a bracket only where it begins or continues a path, as in `f::<A, B>()`.
    pub(crate) fn expression(&mut self) -> TokenStream {
        self.until(|token| is_punct(token, ','), |before| before.is_none_or(|token| is_punct(token, ':')))
    }

    fn until(&mut self, ends: impl Fn(&TokenTree) -> bool, opens: impl Fn(Option<&TokenTree>) -> bool) -> TokenStream {
        let (start, mut depth) = (self.at, 0_usize);
        while let Some(token) = self.tokens.get(self.at) {
            let before = self.tokens[start..self.at].last();
            let arrow = is_punct(token, '>') && before.is_some_and(is_begin_of_arrow);
            if !arrow {
                if depth == 0 && ends(token) {
                    break;
                }
                if is_punct(token, '<') && (depth > 0 || opens(before)) {
                    depth += 1;
                } else if is_punct(token, '>') {
                    depth = depth.saturating_sub(1);
                }
            }
            self.at += 1;
        }
        self.tokens[start..self.at].iter().cloned().collect()
    }
}

pub(crate) fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

fn is_begin_of_arrow(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == '-' && punct.spacing() == Spacing::Joint)
}

/// Removes the delimiterless groups that macros put around arguments.
pub(crate) fn unwrapped(tokens: TokenStream) -> TokenStream {
    let mut reader = Reader::new(tokens.clone());
    match reader.group(Delimiter::None) {
        Some(group) if reader.is_at_end() => unwrapped(group.stream()),
        _ => tokens,
    }
}

/// Returns true if the tokens contain a word at any depth.
pub(crate) fn mentions(tokens: &TokenStream, word: &str) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident.to_string() == word,
        TokenTree::Group(group) => mentions(&group.stream(), word),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// Parses `text` with each `$name` replaced by its tokens in `gaps`, which keep their spans.
pub(crate) fn fill(text: &str, gaps: &[(&str, &TokenStream)]) -> TokenStream {
    fill_with_span(Span::call_site(), text, gaps)
}

/// As [`fill`], with a span for the text's tokens.
pub(crate) fn fill_with_span(span: Span, text: &str, gaps: &[(&str, &TokenStream)]) -> TokenStream {
    fill_tokens(span, text.parse().expect("texts here are Rust"), gaps)
}

fn fill_tokens(span: Span, text: TokenStream, gaps: &[(&str, &TokenStream)]) -> TokenStream {
    let (mut reader, mut filled) = (Reader::new(text), TokenStream::new());
    while let Some(mut token) = reader.next() {
        if is_punct(&token, '$') {
            let name = reader.ident().expect("a gap has a name").to_string();
            let (_, tokens) = gaps.iter().find(|(gap, _)| *gap == name).expect("each gap is filled");
            filled.extend((*tokens).clone());
            continue;
        }
        if let TokenTree::Group(group) = token {
            token = Group::new(group.delimiter(), fill_tokens(span, group.stream(), gaps)).into();
        }
        token.set_span(span);
        filled.extend([token]);
    }
    filled
}
