//! What can be written in `#[tree(...)]` and `#[state(...)]`.

use syn::{Attribute, Expr, LitStr, meta::ParseNestedMeta, spanned::Spanned};

/// The attributes of one type, variant or field.
#[derive(Default)]
pub(crate) struct Attributes {
    pub(crate) skip: bool,
    pub(crate) read_only: bool,
    pub(crate) rename: Option<LitStr>,
    pub(crate) constraint: Option<Expr>,
}

impl Attributes {
    /// Reads every `#[name(...)]`, where only the keys in `known` have a meaning.
    pub(crate) fn read(attributes: &[Attribute], name: &str, known: &[&str]) -> syn::Result<Attributes> {
        let mut found = Attributes::default();
        for attribute in attributes.iter().filter(|a| a.path().is_ident(name)) {
            attribute.parse_nested_meta(|meta| match known.iter().find(|key| meta.path.is_ident(key)) {
                Some(key) => found.set(key, &meta),
                None => Err(meta.error(format!("no such attribute; `#[{name}(...)]` takes {} here", listed(known)))),
            })?;
        }
        match &found {
            Attributes { skip: true, rename: Some(rename), .. } => {
                Err(syn::Error::new(rename.span(), "what is skipped has no name in paths"))
            }
            Attributes { skip: true, constraint: Some(constraint), .. } => {
                Err(syn::Error::new(constraint.span(), "what is skipped has no leaves to constrain"))
            }
            _ => Ok(found),
        }
    }

    fn set(&mut self, key: &str, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        match key {
            "skip" => self.skip = true,
            "read_only" => self.read_only = true,
            "constraint" if self.constraint.is_some() => return Err(meta.error("constrained twice")),
            "constraint" => self.constraint = Some(meta.value()?.parse()?),
            _ if self.rename.is_some() => return Err(meta.error("renamed twice")),
            _ => self.rename = Some(path_segment(meta.value()?.parse()?)?),
        }
        Ok(())
    }
}

fn path_segment(name: LitStr) -> syn::Result<LitStr> {
    let problem = match name.value() {
        name if name.is_empty() => "a name in a path cannot be empty",
        name if name.contains('/') => "a name in a path cannot hold a `/`, which separates names",
        _ => return Ok(name),
    };
    Err(syn::Error::new(name.span(), problem))
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
