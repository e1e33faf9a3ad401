//! The groups of leaves.

use std::borrow::Cow;
use std::sync::Arc;

use super::function::Function;
use super::pattern::Pattern;
use super::{Mask, subtree};
use crate::error::{Error, Result};
use crate::recipe::{self, Entries, FromRecipe, Node, Recipe, ToRecipe};
use crate::tree::{LeafSpec, Structure};

/// The group of each leaf, for `partition`.
///
/// # Example
///
/// ```
/// use gradchain::select::Labels;
/// use gradchain::tree::{DynTree, Structure};
/// use ndarray::{Array1, Array2};
///
/// let mut params = DynTree::new();
/// params.insert("dense/b", Array1::<f32>::zeros(4));
/// params.insert("dense/w", Array2::<f32>::zeros((3, 4)));
/// params.insert("embedding/w", Array2::<f32>::zeros((9, 3)));
/// let structure = Structure::of(&params)?;
///
/// let labels = Labels::paths([("embedding/**", "adam"), ("**/w", "muon")]).otherwise("adam");
/// assert_eq!(labels.resolve(&structure, &["adam", "muon"], "partition")?, [0, 1, 0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax: the `param_labels` of `partition`, a tree of labels or a function that returns one, distinguished by
/// callability. PyTorch: parameter groups. Differs: a type, see [above](super).
#[derive(Clone, Debug, PartialEq)]
#[must_use = "labels do nothing until they are given to a transformation"]
pub struct Labels {
    rule: Rule,
    otherwise: Option<Label>,
    /// A note of `plan`, and its leaves.
    note: Option<(&'static str, Mask)>,
}

type Label = Cow<'static, str>;

#[derive(Clone, Debug, PartialEq)]
enum Rule {
    Tree(Vec<(String, Label)>),
    Paths(Vec<(Pattern, Label)>),
    By(Function<Label>),
}

impl Labels {
    /// Sets the label of each leaf or [subtree](super#subtrees).
    ///
    /// Every leaf must fall under exactly one entry, or at most one if the rest goes [`otherwise`](Labels::otherwise).
    ///
    /// ```
    /// # use gradchain::{select::Labels, tree::Structure};
    /// let structure = Structure::of(&vec![(1.0_f32, 2.0_f32), (3.0, 4.0)])?;
    /// let labels = Labels::tree([("0", "slow"), ("1/0", "fast"), ("1/1", "slow")]);
    /// assert_eq!(labels.resolve(&structure, &["fast", "slow"], "example")?, [1, 1, 0, 1]);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn tree<P: Into<String>, L: Into<Cow<'static, str>>>(entries: impl IntoIterator<Item = (P, L)>) -> Labels {
        Labels::new(Rule::Tree(entries.into_iter().map(|(path, label)| (path.into(), label.into())).collect()))
    }

    /// Labels each leaf by a function of path, shape and dtype.
    ///
    /// ```
    /// # use gradchain::{select::Labels, tree::Structure};
    /// let structure = Structure::of(&(1.0_f32, [1.0_f32, 2.0]))?;
    /// let labels = Labels::by(|leaf| if leaf.ndim() == 0 { "scalar" } else { "array" });
    /// assert_eq!(labels.resolve(&structure, &["scalar", "array"], "example")?, [0, 1]);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn by<L: Into<Cow<'static, str>>>(function: impl Fn(&LeafSpec) -> L + Send + Sync + 'static) -> Labels {
        Labels::new(Rule::By(Function::new(move |leaf: &LeafSpec| function(leaf).into())))
    }

    /// Labels each leaf by the first [pattern](super#patterns) that its path matches.
    ///
    /// Each pattern must match a leaf, and each leaf a pattern, unless the rest goes [`otherwise`](Labels::otherwise).
    ///
    /// ```
    /// # use gradchain::{select::Labels, tree::Structure};
    /// let structure = Structure::of(&vec![(1.0_f32, 2.0_f32), (3.0, 4.0)])?;
    /// let labels = Labels::paths([("0/*", "first"), ("*/0", "weight")]);
    /// let groups = labels.clone().otherwise("bias").resolve(&structure, &["bias", "first", "weight"], "example")?;
    /// assert_eq!(groups, [1, 1, 2, 0]);
    ///
    /// let error = labels.resolve(&structure, &["first", "weight"], "example").unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "example: argument `paths` must be patterns that match every leaf, or have an `otherwise`, \
    ///      found no match for `1/1`",
    /// );
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn paths<P: Into<Arc<str>>, L: Into<Cow<'static, str>>>(patterns: impl IntoIterator<Item = (P, L)>) -> Labels {
        let rules = patterns.into_iter().map(|(pattern, label)| (Pattern::new(pattern), label.into()));
        Labels::new(Rule::Paths(rules.collect()))
    }

    /// Sets the label of the leaves without a pattern or entry; with [`by`](Labels::by) there are none.
    ///
    /// ```
    /// # use gradchain::{select::Labels, tree::Structure};
    /// let structure = Structure::of(&vec![(1.0_f32, 2.0_f32), (3.0, 4.0)])?;
    /// let labels = Labels::tree([("0", "frozen")]).otherwise("trained");
    /// assert_eq!(labels.resolve(&structure, &["frozen", "trained"], "example")?, [0, 0, 1, 1]);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn otherwise(mut self, label: impl Into<Cow<'static, str>>) -> Labels {
        self.otherwise = Some(label.into());
        self
    }

    /// Returns the index in `known` of each leaf's label, in the order of the leaves. `what` begins the error message.
    ///
    /// # Errors
    ///
    /// Fails if a label is not known, even one of no leaf; a pattern is malformed or matches no leaf; or a leaf has no
    /// label, or two. All offending leaves are listed.
    ///
    /// ```
    /// # use gradchain::{select::Labels, tree::Structure};
    /// let structure = Structure::of(&[1.0_f32])?;
    /// let error = Labels::tree([("", "adm")]).resolve(&structure, &["adam", "sgd"], "partition").unwrap_err();
    /// assert!(error.is_unknown_name());
    /// assert_eq!(error.to_string(), "partition: unknown label `adm`; did you mean `adam`? (known: adam, sgd)");
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn resolve(&self, structure: &Structure, known: &[&str], what: &str) -> Result<Vec<usize>> {
        let place = |label: &Label, whose: &str| {
            let unknown = || Error::unknown_name(whose, "label", &**label, known.iter().copied());
            known.iter().position(|name| name == label).ok_or_else(unknown)
        };
        let otherwise = self.otherwise.as_ref().map(|label| place(label, what)).transpose()?;
        match &self.rule {
            Rule::By(function) => {
                let labelled = structure.leaves().iter();
                labelled.map(|leaf| place(&function.of(leaf), &format!("{what}: leaf `{}`", leaf.path()))).collect()
            }
            Rule::Tree(entries) => {
                let places: Vec<usize> = entries.iter().map(|(_, label)| place(label, what)).collect::<Result<_>>()?;
                let paths: Vec<&str> = entries.iter().map(|(path, _)| &**path).collect();
                let assigned = subtree::assign(&paths, structure, otherwise.is_none(), what)?;
                Ok(assigned.into_iter().filter_map(|entry| entry.map(|i| places[i]).or(otherwise)).collect())
            }
            Rule::Paths(rules) => {
                let mut labelled = vec![None; structure.len()];
                for (pattern, label) in rules {
                    let label = place(label, what)?;
                    for (slot, matched) in labelled.iter_mut().zip(pattern.resolve(structure, what)?) {
                        if matched {
                            slot.get_or_insert(label);
                        }
                    }
                }
                complete(labelled, otherwise, structure, what)
            }
        }
    }

    #[doc(hidden)]
    pub fn noting(self, text: &'static str, of: impl Fn(&LeafSpec) -> bool + Send + Sync + 'static) -> Labels {
        Labels { note: Some((text, Mask::by(of))), ..self }
    }

    /// Returns the note, and its active leaves.
    pub(crate) fn note(&self, structure: &Structure, active: &[bool]) -> Option<(&'static str, Vec<String>)> {
        let (text, of) = self.note.as_ref()?;
        let noted = of.resolve(structure, "partition").ok()?;
        let leaves = structure.paths().zip(noted).zip(active).filter(|((_, noted), on)| *noted && **on);
        Some((*text, leaves.map(|((path, _), _)| path.into()).collect()))
    }

    /// Returns true if this group must have leaves, which are named singly or by patterns.
    pub(crate) fn must_match(&self, group: &str) -> bool {
        let named = match &self.rule {
            Rule::By(_) => false,
            Rule::Tree(entries) => entries.iter().any(|(_, label)| label == group),
            Rule::Paths(rules) => rules.iter().any(|(_, label)| label == group),
        };
        named && self.note.is_none()
    }

    /// Returns the distinct labels, and the index of each leaf's label.
    #[doc(hidden)]
    pub fn groups(&self, structure: &Structure, what: &str) -> Result<(Vec<Label>, Vec<usize>)> {
        let mut all: Vec<Label> = match &self.rule {
            Rule::By(function) => structure.leaves().iter().map(|leaf| function.of(leaf)).collect(),
            Rule::Tree(entries) => entries.iter().map(|(_, label)| label.clone()).collect(),
            Rule::Paths(rules) => rules.iter().map(|(_, label)| label.clone()).collect(),
        };
        all.extend(self.otherwise.clone());
        let mut known: Vec<Label> = Vec::new();
        all.into_iter().for_each(|label| {
            if !known.contains(&label) {
                known.push(label)
            }
        });
        let names: Vec<&str> = known.iter().map(|label| &**label).collect();
        let which = self.resolve(structure, &names, what)?;
        Ok((known, which))
    }

    fn new(rule: Rule) -> Labels {
        Labels { rule, otherwise: None, note: None }
    }
}

/// Returns the labels found, else `otherwise`, else an error.
fn complete(
    labelled: Vec<Option<usize>>,
    otherwise: Option<usize>,
    structure: &Structure,
    what: &str,
) -> Result<Vec<usize>> {
    let without = structure.paths().zip(&labelled).filter(|(_, label)| label.or(otherwise).is_none());
    let without: Vec<String> = without.map(|(path, _)| format!("`{path}`")).collect();
    if without.is_empty() {
        return Ok(labelled.into_iter().filter_map(|label| label.or(otherwise)).collect());
    }
    let expected = "patterns that match every leaf, or have an `otherwise`";
    Err(Error::argument(what, "paths", expected, format_args!("no match for {}", without.join(", "))))
}

impl ToRecipe for Labels {
    fn to_recipe(&self) -> Recipe {
        let label = |label: &Label| Recipe::text(&**label);
        let rule = match &self.rule {
            Rule::By(_) => return Recipe::Opaque("Labels::by(..)".into()),
            Rule::Tree(entries) => ("by_path", Recipe::map(entries.iter().map(|(path, l)| (&**path, label(l))))),
            Rule::Paths(rules) => {
                let pairs = rules.iter().map(|(pattern, l)| Recipe::List(vec![Recipe::text(pattern.text()), label(l)]));
                ("paths", Recipe::List(pairs.collect()))
            }
        };
        Recipe::map([Some(rule), self.otherwise.as_ref().map(|l| ("otherwise", label(l)))].into_iter().flatten())
    }
}

/// Reads a map from path (of a leaf or a subtree) to label, the same under `by_path`, or pairs under `paths`.
///
/// The latter is a list of pairs of pattern and label. Both take the label of the rest under `otherwise`.
impl FromRecipe for Labels {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<Labels> {
        let is = |name: &str, list: bool| match node.value().get(name) {
            Some(Recipe::List(_)) => list,
            Some(Recipe::Map(_)) => !list,
            _ => false,
        };
        if !is("paths", true) && !is("by_path", false) {
            return node.read().map(|Entries(entries)| Labels::tree::<String, String>(entries));
        }
        let fields = node.fields(&[if is("paths", true) { "paths" } else { "by_path" }, "otherwise"])?;
        let labels = match fields.get("paths") {
            Some(paths) => Labels::paths(paths.read::<Vec<(String, String)>>()?),
            None => Labels::tree::<String, String>(fields.required::<Entries<String>>("by_path")?.0),
        };
        let otherwise = fields.or::<Option<String>>("otherwise", None)?;
        Ok(otherwise.into_iter().fold(labels, Labels::otherwise))
    }

    fn schema() -> String {
        r##"{"$ref": "#/$defs/labels"}"##.into()
    }
}
