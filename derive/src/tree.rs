//! `#[derive(Tree)]`.

use proc_macro::{TokenStream, TokenTree};

use crate::attributes::{Attributes, unraw};
use crate::input::{Body, Input, InputVariant};
use crate::shape::{Field, Names, Variant, conditions, implement, visit_all};
use crate::tokens::{Error, Result, fill};

const VARIANT: &[&str] = &["skip", "rename"];
const FIELD: &[&str] = &["skip", "buffer", "rename", "constraint"];

pub(crate) fn expand(input: &Input) -> Result<TokenStream> {
    let read_only = Attributes::read(&input.attributes, "tree", &["read_only"])?.read_only;
    let variants = variants(input)?;
    // Only reading walks get the constraints.
    let read = "fn walk<'__tree>(&'__tree self, __walk: &mut ::gradchain::tree::Walk<'__tree, '_>) { $body }";
    let read = fill(read, &[("body", &visit_all(&variants, "::gradchain::tree::Walk", true))]);
    let mut both = implement(input, &conditions(input, &variants, "::gradchain::Tree"), "::gradchain::Tree", read);
    if !read_only {
        let write =
            "fn walk_mut<'__tree>(&'__tree mut self, __walk: &mut ::gradchain::tree::WalkMut<'__tree, '_>) { $body }";
        let write = fill(write, &[("body", &visit_all(&variants, "::gradchain::tree::WalkMut", false))]);
        let conditions = conditions(input, &variants, "::gradchain::TreeMut");
        both.extend(implement(input, &conditions, "::gradchain::TreeMut", write));
    }
    Ok(both)
}

fn variants(input: &Input) -> Result<Vec<Variant>> {
    match &input.body {
        Body::Struct(fields) => {
            let fields = Field::all(fields, "tree", FIELD)?;
            Ok(vec![Variant { pattern: fill("Self", &[]), prefix: None, fields }])
        }
        Body::Enum(variants) => {
            let mut names = Names::default();
            variants.iter().map(|variant| named(variant, &mut names)).collect()
        }
        Body::Union => Err(Error::new(input.keyword.span(), "a union cannot be a tree: its active field is unknown")),
    }
}

fn named(variant: &InputVariant, names: &mut Names) -> Result<Variant> {
    let name = TokenStream::from(TokenTree::from(variant.name.clone()));
    let pattern = fill("Self::$name", &[("name", &name)]);
    let attributes = Attributes::read(&variant.attributes, "tree", VARIANT)?;
    if attributes.skip {
        return Ok(Variant { pattern, prefix: None, fields: Vec::new() });
    }
    let (name, place) = match attributes.rename {
        Some(rename) => (rename.text, rename.span),
        None => (unraw(&variant.name), variant.name.span()),
    };
    names.add(name.clone(), place)?;
    Ok(Variant { pattern, prefix: Some(name), fields: Field::all(&variant.fields, "tree", FIELD)? })
}
