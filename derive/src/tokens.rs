//! Tokens one after the other, and tokens from a text with gaps.

use proc_macro::{Delimiter, Group, Ident, Spacing, Span, TokenStream, TokenTree};

/// A mistake of the caller, which the compiler shows at a place in their code.
pub(crate) struct Error {
    pub(crate) place: Span,
    pub(crate) message: String,
}

pub(crate) type Result<T> = core::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(place: Span, message: impl Into<String>) -> Error {
        Error { place, message: message.into() }
    }

    pub(crate) fn into_compile_error(self) -> TokenStream {
        fill_at(self.place, &format!("::core::compile_error! {{ {:?} }}", self.message), &[])
    }
}

/// Reads tokens from the first to the last. What is read has been parsed by the compiler, but for the arguments of
/// attributes.
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

    /// Goes past the next token if it is this character.
    pub(crate) fn skip(&mut self, character: char) -> bool {
        let found = self.peek().is_some_and(|token| is_punct(token, character));
        self.at += usize::from(found);
        found
    }

    /// The next token if it is a word, for keywords too.
    pub(crate) fn ident(&mut self) -> Option<Ident> {
        let Some(TokenTree::Ident(ident)) = self.peek().cloned() else { return None };
        self.at += 1;
        Some(ident)
    }

    /// Goes past the next token if it is this word.
    pub(crate) fn skip_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(TokenTree::Ident(ident)) if ident.to_string() == word);
        self.at += usize::from(found);
        found
    }

    /// The next token if it is a group with these delimiters.
    pub(crate) fn group(&mut self, delimiter: Delimiter) -> Option<Group> {
        match self.peek().cloned() {
            Some(TokenTree::Group(group)) if group.delimiter() == delimiter => {
                self.at += 1;
                Some(group)
            }
            _ => None,
        }
    }

    /// The tokens of a type, of bounds or of conditions: all up to one that `ends` them. The compiler gives no groups
    /// for angle brackets, so it is here that they are seen to hold together what is in them.
    pub(crate) fn ty(&mut self, ends: impl Fn(&TokenTree) -> bool) -> TokenStream {
        self.until(ends, |_| true)
    }

    /// The tokens of an expression, up to a comma. Here `<` opens a bracket only where a path goes on, as in `f::<A,
    /// B>()`, or begins.
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

/// What is in the groups without delimiters that macros put around what they were given.
pub(crate) fn unwrapped(tokens: TokenStream) -> TokenStream {
    let mut reader = Reader::new(tokens.clone());
    match reader.group(Delimiter::None) {
        Some(group) if reader.is_at_end() => unwrapped(group.stream()),
        _ => tokens,
    }
}

/// Whether a word occurs anywhere.
pub(crate) fn mentions(tokens: &TokenStream, word: &str) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident.to_string() == word,
        TokenTree::Group(group) => mentions(&group.stream(), word),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// The tokens of a text, with those under a name in `gaps` where the text has `$name`: these keep their places, at
/// which the compiler then points.
pub(crate) fn fill(text: &str, gaps: &[(&str, &TokenStream)]) -> TokenStream {
    fill_at(Span::call_site(), text, gaps)
}

/// The same, where the tokens of the text get a place too.
pub(crate) fn fill_at(place: Span, text: &str, gaps: &[(&str, &TokenStream)]) -> TokenStream {
    fill_tokens(place, text.parse().expect("texts here are Rust"), gaps)
}

fn fill_tokens(place: Span, text: TokenStream, gaps: &[(&str, &TokenStream)]) -> TokenStream {
    let (mut reader, mut filled) = (Reader::new(text), TokenStream::new());
    while let Some(mut token) = reader.next() {
        if is_punct(&token, '$') {
            let name = reader.ident().expect("a gap has a name").to_string();
            let (_, tokens) = gaps.iter().find(|(gap, _)| *gap == name).expect("each gap is filled");
            filled.extend((*tokens).clone());
            continue;
        }
        if let TokenTree::Group(group) = token {
            token = Group::new(group.delimiter(), fill_tokens(place, group.stream(), gaps)).into();
        }
        token.set_span(place);
        filled.extend([token]);
    }
    filled
}
