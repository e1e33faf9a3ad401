//! The leaves that a transformation acts on.

use core::ops::Not;
use std::sync::Arc;

use super::function::Function;
use super::pattern::Pattern;
use super::subtree;
use crate::error::Result;
use crate::recipe::{self, ConfigError, Entries, FromRecipe, Node, Recipe, ToRecipe};
use crate::tree::{LeafSpec, Structure};

/// The leaves that a transformation acts on.
///
/// # Example
///
/// Weight decay on matrices, but not on those of the embedding:
///
/// ```
/// use gradchain::select::Mask;
/// use gradchain::tree::{DynTree, Structure};
/// use ndarray::{Array1, Array2};
///
/// let mut params = DynTree::new();
/// params.insert("dense/b", Array1::<f32>::zeros(4));
/// params.insert("dense/w", Array2::<f32>::zeros((3, 4)));
/// params.insert("embedding/w", Array2::<f32>::zeros((9, 3)));
/// let structure = Structure::of(&params)?;
///
/// let mask = Mask::min_ndim(2).and(!Mask::path("embedding/**"));
/// assert_eq!(mask.resolve(&structure, "weight decay")?, [false, true, false]);
/// assert_eq!(mask, Mask::min_ndim(2).and(!Mask::path("embedding/**")));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax: the `mask` of `masked` and `add_decayed_weights`, a tree of bools or a function that returns one,
/// distinguished by callability. PyTorch: parameter groups. Differs: a type, see [above](super).
#[derive(Debug)]
#[must_use = "a mask does nothing until it is given to a transformation"]
pub struct Mask(Rule);

// Not derived: derived methods are compiled in each crate that calls them.
impl Clone for Mask {
    fn clone(&self) -> Mask {
        Mask(self.0.clone())
    }
}

impl PartialEq for Mask {
    fn eq(&self, other: &Mask) -> bool {
        self.0 == other.0
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Rule {
    Constant(bool),
    Paths(Vec<Pattern>),
    /// Patterns that may match nothing.
    AnyPaths(Vec<Pattern>),
    By(Function<bool>),
    MinNdim(usize),
    Tree(Vec<(String, bool)>),
    Not(Box<Rule>),
    And(Box<Rule>, Box<Rule>),
    Or(Box<Rule>, Box<Rule>),
}

impl Mask {
    /// Selects every leaf.
    ///
    /// ```
    /// # use gradchain::{select::Mask, tree::Structure};
    /// let structure = Structure::of(&[1.0_f32, 2.0])?;
    /// assert_eq!(Mask::all().resolve(&structure, "example")?, [true]);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn all() -> Mask {
        Mask(Rule::Constant(true))
    }

    /// Selects no leaf.
    ///
    /// ```
    /// # use gradchain::{select::Mask, tree::Structure};
    /// let structure = Structure::of(&[1.0_f32, 2.0])?;
    /// assert_eq!(Mask::none().resolve(&structure, "example")?, [false]);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn none() -> Mask {
        Mask(Rule::Constant(false))
    }

    /// Selects the leaves whose path matches a [pattern](super#patterns).
    ///
    /// ```
    /// # use gradchain::{select::Mask, tree::Structure};
    /// let layers = vec![(1.0_f32, 2.0_f32), (3.0, 4.0)];
    /// let structure = Structure::of(&layers)?;
    /// assert_eq!(structure.paths().collect::<Vec<_>>(), ["0/0", "0/1", "1/0", "1/1"]);
    ///
    /// assert_eq!(Mask::path("*/1").resolve(&structure, "example")?, [false, true, false, true]);
    ///
    /// let error = Mask::path("*/weight").resolve(&structure, "weight decay").unwrap_err();
    /// assert!(error.is_no_match());
    /// assert_eq!(
    ///     error.to_string(),
    ///     "weight decay: pattern `*/weight` matches none of the 4 leaves: `0/0`, `0/1`, `1/0`, `1/1`",
    /// );
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn path(pattern: impl Into<Arc<str>>) -> Mask {
        Mask::paths([pattern])
    }

    /// Selects the leaves whose path matches any of several [patterns](super#patterns); each must match a leaf.
    ///
    /// ```
    /// # use gradchain::{select::Mask, tree::Structure};
    /// let structure = Structure::of(&vec![(1.0_f32, 2.0_f32), (3.0, 4.0)])?;
    /// assert_eq!(Mask::paths(["0/*", "**/1"]).resolve(&structure, "example")?, [true, true, false, true]);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn paths<P: Into<Arc<str>>>(patterns: impl IntoIterator<Item = P>) -> Mask {
        Mask::of_patterns(&mut patterns.into_iter().map(Pattern::new))
    }

    /// As [`paths`](Mask::paths), compiled once.
    fn of_patterns(patterns: &mut dyn Iterator<Item = Pattern>) -> Mask {
        Mask(Rule::Paths(patterns.collect()))
    }

    /// Selects the leaves whose path matches any of several [patterns](super#patterns), which may match none.
    ///
    /// It is for defaults that suit many models. For patterns of one model use [`paths`](Mask::paths), which finds
    /// misspelt ones.
    ///
    /// ```
    /// # use gradchain::{select::Mask, tree::Structure};
    /// let structure = Structure::of(&vec![1.0_f32, 2.0])?;
    /// assert_eq!(Mask::any_paths(["*/bias", "**/scale"]).resolve(&structure, "example")?, [false]);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn any_paths<P: Into<Arc<str>>>(patterns: impl IntoIterator<Item = P>) -> Mask {
        Mask(Rule::AnyPaths(patterns.into_iter().map(Pattern::new).collect()))
    }

    /// Selects the leaves that are embeddings by their names.
    ///
    /// A key in their path contains `embed`, ends with `emb`, or is `wte` or `wpe`.
    ///
    /// ```
    /// # use gradchain::{select::Mask, tree::{DynTree, Structure}};
    /// # use ndarray::Array2;
    /// let mut params = DynTree::new();
    /// for path in ["head/weight", "model/embed_tokens/weight", "transformer/wte"] {
    ///     params.insert(path, Array2::<f32>::zeros((2, 2)));
    /// }
    /// let structure = Structure::of(&params)?;
    /// assert_eq!(Mask::embeddings().resolve(&structure, "example")?, [false, true, true]);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn embeddings() -> Mask {
        const NAMES: &str = "{*[eE]mbed*,*[eE]mb,wte,wpe}";
        Mask::any_paths([format!("**/{NAMES}"), format!("**/{NAMES}/**")])
    }

    /// Selects the leaves for which a function of path, shape and dtype returns true.
    ///
    /// ```
    /// # use gradchain::{DType, select::Mask, tree::Structure};
    /// let structure = Structure::of(&(1.0_f32, 2.0_f64))?;
    /// let mask = Mask::by(|leaf| leaf.dtype() == DType::F64);
    /// assert_eq!(mask.resolve(&structure, "example")?, [false, true]);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn by(predicate: impl Fn(&LeafSpec) -> bool + Send + Sync + 'static) -> Mask {
        Mask(Rule::By(Function::new(predicate)))
    }

    /// Selects the leaves with at least `ndim` axes: 2 for all but biases and the weights of norms.
    ///
    /// ```
    /// # use gradchain::{select::Mask, tree::Structure};
    /// let structure = Structure::of(&(1.0_f32, [1.0_f32, 2.0]))?;
    /// assert_eq!(Mask::min_ndim(1).resolve(&structure, "example")?, [false, true]);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn min_ndim(ndim: usize) -> Mask {
        Mask(Rule::MinNdim(ndim))
    }

    /// Sets the choice for each leaf or [subtree](super#subtrees). Every leaf must fall under exactly one entry.
    ///
    /// ```
    /// # use gradchain::{select::Mask, tree::Structure};
    /// let structure = Structure::of(&vec![(1.0_f32, 2.0_f32), (3.0, 4.0)])?;
    /// let mask = Mask::tree([("0", true), ("1/0", false), ("1/1", true)]);
    /// assert_eq!(mask.resolve(&structure, "example")?, [true, true, false, true]);
    ///
    /// let error = Mask::tree([("0", true), ("0/1", false), ("2", true)]).resolve(&structure, "example").unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "example: argument `tree` must be paths with at least one leaf each, such that each leaf is under exactly \
    ///      one, found \n  leaf `0/1` is under `0` and `0/1`\n  leaf `1/0` is under no entry\
    ///      \n  leaf `1/1` is under no entry\n  entry `2` has no leaf",
    /// );
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn tree<P: Into<String>>(entries: impl IntoIterator<Item = (P, bool)>) -> Mask {
        Mask(Rule::Tree(entries.into_iter().map(|(path, chosen)| (path.into(), chosen)).collect()))
    }

    /// Selects the leaves that both select.
    ///
    /// ```
    /// # use gradchain::{select::Mask, tree::Structure};
    /// let structure = Structure::of(&vec![(1.0_f32, 2.0_f32), (3.0, 4.0)])?;
    /// let mask = Mask::path("0/*").and(Mask::path("*/1"));
    /// assert_eq!(mask.resolve(&structure, "example")?, [false, true, false, false]);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn and(self, other: impl Into<Mask>) -> Mask {
        Mask(Rule::And(Box::new(self.0), Box::new(other.into().0)))
    }

    /// Selects the leaves that either selects.
    ///
    /// ```
    /// # use gradchain::{select::Mask, tree::Structure};
    /// let structure = Structure::of(&vec![(1.0_f32, 2.0_f32), (3.0, 4.0)])?;
    /// let mask = Mask::path("0/*").or(Mask::path("*/1"));
    /// assert_eq!(mask.resolve(&structure, "example")?, [true, true, false, true]);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn or(self, other: impl Into<Mask>) -> Mask {
        Mask(Rule::Or(Box::new(self.0), Box::new(other.into().0)))
    }

    /// Returns whether each leaf of a tree is selected, in the order of the leaves. `what` begins the error message.
    ///
    /// # Errors
    ///
    /// Fails if a pattern anywhere in the mask is malformed or matches no leaf, or the entries of a
    /// [`tree`](Mask::tree) do not name every leaf once; all offenders are listed.
    ///
    /// ```
    /// # use gradchain::{select::Mask, tree::Structure};
    /// let structure = Structure::of(&[1.0_f32])?;
    /// let error = Mask::path("layers/{0,1").resolve(&structure, "weight decay").unwrap_err();
    /// assert!(error.is_argument());
    /// assert!(error.to_string().contains("unclosed brace expansion at byte 7"));
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn resolve(&self, structure: &Structure, what: &str) -> Result<Vec<bool>> {
        self.0.resolve(structure, what)
    }
}

/// Selects the leaves that the mask does not.
///
/// ```
/// # use gradchain::{select::Mask, tree::Structure};
/// let structure = Structure::of(&vec![(1.0_f32, 2.0_f32), (3.0, 4.0)])?;
/// assert_eq!((!Mask::path("*/1")).resolve(&structure, "example")?, [true, false, true, false]);
/// # Ok::<(), gradchain::Error>(())
/// ```
impl Not for Mask {
    type Output = Mask;

    fn not(self) -> Mask {
        Mask(Rule::Not(Box::new(self.0)))
    }
}

impl Mask {
    #[doc(hidden)]
    pub fn is_all(&self) -> bool {
        matches!(self.0, Rule::Constant(true))
    }

    /// Returns true if selecting no leaf must be a mistake: patterns should match.
    ///
    /// Functions, `min_ndim` and `any_paths` also serve models without such leaves.
    pub(crate) fn must_match(&self) -> bool {
        self.0.must_match()
    }

    /// Returns true unless it contains a function.
    pub(crate) fn is_data(&self) -> bool {
        self.0.is_data()
    }
}

impl Rule {
    fn must_match(&self) -> bool {
        match self {
            Rule::Constant(_) | Rule::AnyPaths(_) | Rule::By(_) | Rule::MinNdim(_) | Rule::Tree(_) => false,
            Rule::Not(rule) => rule.must_match(),
            Rule::And(a, b) | Rule::Or(a, b) => a.must_match() && b.must_match(),
            Rule::Paths(_) => true,
        }
    }

    fn is_data(&self) -> bool {
        match self {
            Rule::By(_) => false,
            Rule::Not(rule) => rule.is_data(),
            Rule::And(a, b) | Rule::Or(a, b) => a.is_data() && b.is_data(),
            _ => true,
        }
    }

    fn resolve(&self, structure: &Structure, what: &str) -> Result<Vec<bool>> {
        let each = |taken: &dyn Fn(&LeafSpec) -> bool| Ok(structure.leaves().iter().map(taken).collect());
        match self {
            Rule::Constant(taken) => each(&|_| *taken),
            Rule::By(predicate) => each(&|leaf| predicate.of(leaf)),
            Rule::MinNdim(ndim) => each(&|leaf| leaf.ndim() >= *ndim),
            Rule::Paths(patterns) => patterns.iter().try_fold(vec![false; structure.len()], |taken, pattern| {
                Ok(zip(taken, pattern.resolve(structure, what)?, |a, b| a || b))
            }),
            Rule::AnyPaths(patterns) => patterns.iter().try_fold(vec![false; structure.len()], |taken, pattern| {
                Ok(zip(taken, pattern.any(structure, what)?, |a, b| a || b))
            }),
            Rule::Tree(entries) => {
                let paths: Vec<&str> = entries.iter().map(|(path, _)| &**path).collect();
                let assigned = subtree::assign(&paths, structure, true, what)?;
                Ok(assigned.into_iter().flatten().map(|entry| entries[entry].1).collect())
            }
            Rule::Not(rule) => Ok(rule.resolve(structure, what)?.into_iter().map(bool::not).collect()),
            // Both sides are resolved, so that misspelt patterns are found on either.
            Rule::And(a, b) => Ok(zip(a.resolve(structure, what)?, b.resolve(structure, what)?, |a, b| a && b)),
            Rule::Or(a, b) => Ok(zip(a.resolve(structure, what)?, b.resolve(structure, what)?, |a, b| a || b)),
        }
    }
}

fn zip(a: Vec<bool>, b: Vec<bool>, with: impl Fn(bool, bool) -> bool) -> Vec<bool> {
    a.into_iter().zip(b).map(|(a, b)| with(a, b)).collect()
}

/// Selects the leaves whose path matches a pattern, as [`Mask::path`].
impl From<&str> for Mask {
    fn from(pattern: &str) -> Mask {
        Mask::path(pattern)
    }
}

/// As from `&str`.
impl From<String> for Mask {
    fn from(pattern: String) -> Mask {
        Mask::path(pattern)
    }
}

/// Clones the mask.
impl From<&Mask> for Mask {
    fn from(mask: &Mask) -> Mask {
        mask.clone()
    }
}

impl ToRecipe for Mask {
    fn to_recipe(&self) -> Recipe {
        self.0.to_recipe()
    }
}

impl ToRecipe for Rule {
    fn to_recipe(&self) -> Recipe {
        match self {
            Rule::Constant(taken) => Recipe::Bool(*taken),
            Rule::By(_) => Recipe::Opaque("Mask::by(..)".into()),
            Rule::MinNdim(ndim) => Recipe::map([("min_ndim", ndim.to_recipe())]),
            Rule::Paths(patterns) => Recipe::map([("paths", texts(patterns))]),
            Rule::AnyPaths(patterns) => Recipe::map([("any_paths", texts(patterns))]),
            Rule::Tree(entries) => {
                let by_path = entries.iter().map(|(path, chosen)| (&**path, Recipe::Bool(*chosen)));
                Recipe::map([("by_path", Recipe::map(by_path))])
            }
            Rule::Not(rule) => Recipe::map([("not", rule.to_recipe())]),
            Rule::And(a, b) => Recipe::map([("and", Recipe::List(vec![a.to_recipe(), b.to_recipe()]))]),
            Rule::Or(a, b) => Recipe::map([("or", Recipe::List(vec![a.to_recipe(), b.to_recipe()]))]),
        }
    }
}

fn texts(patterns: &[Pattern]) -> Recipe {
    Recipe::List(patterns.iter().map(|pattern| Recipe::text(pattern.text())).collect())
}

/// Reads a mask; `null` selects every leaf.
impl FromRecipe for Mask {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<Mask> {
        const FORMS: &str = "null, true, false, a pattern, or one of {\"by_path\": ..}, {\"path\": ..}, {\"paths\": [..]}, \
                             {\"any_paths\": [..]}, {\"min_ndim\": ..}, {\"not\": ..}, {\"and\": [..]}, {\"or\": [..]}";
        match node.value() {
            _ if node.is_none() => return Ok(Mask::all()),
            Recipe::Bool(taken) => return Ok(Mask(Rule::Constant(*taken))),
            Recipe::Text(pattern) => return Ok(Mask::path(&**pattern)),
            _ => {}
        }
        let (name, inside) = node.single(FORMS)?;
        match name {
            "by_path" => inside.read().map(|Entries(entries)| Mask::tree(entries)),
            "path" => inside.text("a pattern").map(Mask::path),
            "paths" => inside.read::<Vec<String>>().map(Mask::paths),
            "any_paths" => inside.read::<Vec<String>>().map(Mask::any_paths),
            "not" => inside.read::<Mask>().map(|mask| !mask),
            "and" => inside.read().map(|(a, b): (Mask, Mask)| a.and(b)),
            "or" => inside.read().map(|(a, b): (Mask, Mask)| a.or(b)),
            "min_ndim" => inside.read().map(Mask::min_ndim),
            other => {
                let known = ["by_path", "path", "paths", "any_paths", "min_ndim", "not", "and", "or"];
                Err(ConfigError::unknown(node.place(), "kind of mask", other, known))
            }
        }
    }

    fn schema() -> String {
        r##"{"$ref": "#/$defs/mask"}"##.into()
    }
}
