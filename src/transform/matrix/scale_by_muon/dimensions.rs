//! The axes of a leaf that are the rows and columns of matrices.

use std::sync::Arc;

use crate::internal::numeric::sort_axes;
use crate::internal::recipe::{Entries, OneOrMore};
use crate::internal::state::{Pattern, subtree};
use crate::part::prelude::*;
use crate::recipe::{self, FromRecipe, Node, Recipe, ToRecipe};
use crate::tree::{Layout, LeafSpec};

/// The axes of a leaf that, flattened together, are the rows and the columns of its matrices.
///
/// A layer sums over the rows and outputs the columns. Each index of the other axes has a matrix of its own. Negative
/// axes count from the end.
///
/// ```
/// use gradchain::transform::DimensionNumbers;
///
/// // The kernel of a convolution, [height, width, in, out], as one matrix.
/// let kernel = DimensionNumbers::new([0, 1, 2], [3]);
/// // Attention heads, [model, head, size]: a matrix for each head.
/// let heads = DimensionNumbers::new([0], [-1]);
/// # let _ = (kernel, heads);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DimensionNumbers {
    /// The axes of the rows.
    pub reduction_axis: Vec<isize>,
    /// The axes of the columns.
    pub output_axis: Vec<isize>,
}

impl DimensionNumbers {
    /// Returns the dimension numbers with these axes.
    pub fn new(reduction_axis: impl Into<Vec<isize>>, output_axis: impl Into<Vec<isize>>) -> DimensionNumbers {
        DimensionNumbers { reduction_axis: reduction_axis.into(), output_axis: output_axis.into() }
    }

    /// Returns the axes of rows and columns, if the leaf has them all and none twice.
    fn axes(&self, leaf: &LeafSpec) -> Option<[Vec<usize>; 2]> {
        let from_start = |&a: &isize| {
            let a = if a < 0 { a.checked_add_unsigned(leaf.ndim())? } else { a };
            usize::try_from(a).ok().filter(|a| *a < leaf.ndim())
        };
        let rows: Vec<usize> = self.reduction_axis.iter().map(from_start).collect::<Option<_>>()?;
        let cols: Vec<usize> = self.output_axis.iter().map(from_start).collect::<Option<_>>()?;
        let mut seen = vec![false; leaf.ndim()];
        let new = rows.iter().chain(&cols).all(|&a| !core::mem::replace(&mut seen[a], true));
        (new && !rows.is_empty() && !cols.is_empty()).then_some([rows, cols])
    }
}

/// Returns a weight as one matrix of outputs and all other axes.
fn numbers_of(layout: Layout, ndim: usize) -> Option<DimensionNumbers> {
    let last = ndim.checked_sub(1).filter(|last| *last > 0)? as isize;
    Some(match layout {
        Layout::InOut => DimensionNumbers::new((0..last).collect::<Vec<_>>(), [last]),
        Layout::OutIn => DimensionNumbers::new((1..=last).collect::<Vec<_>>(), [0]),
    })
}

/// The matrices of a leaf, as an entry of [`WeightDimensionNumbers`].
///
/// Converts from [`DimensionNumbers`], from a [`Layout`] and from `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MatrixAxes {
    /// The leaf is no matrix: an embedding or an output layer, better trained with Adam.
    NoMatrix,
    /// Rows and columns by their axes.
    Axes(DimensionNumbers),
    /// One matrix of all axes, in this layout: the kernel of a convolution, `[out, in, k, k]`, has `in·k·k` inputs.
    /// Fits leaves of two axes and more.
    Flattened(Layout),
}

impl From<DimensionNumbers> for MatrixAxes {
    fn from(numbers: DimensionNumbers) -> MatrixAxes {
        MatrixAxes::Axes(numbers)
    }
}

impl From<Option<DimensionNumbers>> for MatrixAxes {
    fn from(numbers: Option<DimensionNumbers>) -> MatrixAxes {
        numbers.map_or(MatrixAxes::NoMatrix, MatrixAxes::Axes)
    }
}

impl From<Layout> for MatrixAxes {
    fn from(layout: Layout) -> MatrixAxes {
        MatrixAxes::Flattened(layout)
    }
}

/// The leaves that are matrices, and their axes: by path, or by pattern.
///
/// An entry of [`tree`](Self::tree) comes first, then the first pattern of [`at`](Self::at) that matches. A leaf
/// without an entry is a matrix if it has two axes, and no matrix otherwise.
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::{DimensionNumbers, Layout, WeightDimensionNumbers};
/// use gradchain::tree::DynTree;
/// use ndarray::{Array1, Array2, Array4};
///
/// let mut params = DynTree::new();
/// params.insert("conv/bias", Array1::<f32>::zeros(8));
/// params.insert("conv/weight", Array4::<f32>::zeros((8, 3, 5, 5)));
/// params.insert("embedding/weight", Array2::<f32>::zeros((100, 16)));
/// params.insert("fc/weight", Array2::<f32>::zeros((4, 16)));
///
/// let numbers = WeightDimensionNumbers::default().at("embedding/**", None).at("conv/*", Layout::OutIn);
/// let optimizer = muon(0.02).layout(Layout::OutIn).muon_weight_dimension_numbers(numbers);
/// let state = optimizer.init(&params)?;
/// assert_eq!([0, 1, 2, 3].map(|leaf| state.member_of(leaf)), [Some(1), Some(0), Some(1), Some(0)]);
/// // A leaf that a pattern matches and does not fit is left to adam, and `plan` names it.
/// assert!(optimizer.plan(&params)?.warnings[0].reason.contains("`conv/bias`"));
/// # Ok::<(), gradchain::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WeightDimensionNumbers {
    by_path: Option<Vec<(String, MatrixAxes)>>,
    patterns: Vec<(Pattern, MatrixAxes)>,
}

impl WeightDimensionNumbers {
    /// Sets the axes of each leaf or [subtree](crate::select#subtrees).
    ///
    /// Each entry must match a leaf, no leaf may match two entries, and each leaf must have the axes.
    pub fn tree<P: Into<String>, A: Into<MatrixAxes>>(
        entries: impl IntoIterator<Item = (P, A)>,
    ) -> WeightDimensionNumbers {
        let entries = entries.into_iter().map(|(path, axes)| (path.into(), axes.into())).collect();
        WeightDimensionNumbers { by_path: Some(entries), patterns: Vec::new() }
    }

    /// Sets the axes of the leaves whose path matches a [pattern](crate::select#patterns) and no earlier one.
    ///
    /// Each pattern must match a leaf. A leaf without the axes is no matrix: `at("**/weight", Layout::OutIn)` selects
    /// matrices and kernels, and skips the scales of norms.
    #[must_use]
    pub fn at(mut self, pattern: impl Into<Arc<str>>, axes: impl Into<MatrixAxes>) -> WeightDimensionNumbers {
        self.patterns.push((Pattern::new(pattern), axes.into()));
        self
    }

    /// Returns a leaf's dimension numbers; `layout` decides without an entry.
    pub(crate) fn of(&self, leaf: &LeafSpec, layout: Layout) -> Option<DimensionNumbers> {
        let numbers = |axes: &MatrixAxes| match axes {
            MatrixAxes::NoMatrix => None,
            MatrixAxes::Axes(numbers) => Some(numbers.clone()),
            // Fewer axes get those of a matrix, which do not fit.
            MatrixAxes::Flattened(layout) => numbers_of(*layout, leaf.ndim().max(2)),
        };
        if let Some((_, axes)) = self.by_path.iter().flatten().find(|(path, _)| subtree::holds(path, leaf.path())) {
            return numbers(axes);
        }
        match self.pattern(leaf) {
            Some(axes) => numbers(axes).filter(|numbers| numbers.axes(leaf).is_some()),
            None => numbers_of(layout, leaf.ndim()).filter(|_| leaf.ndim() == 2),
        }
    }

    fn pattern(&self, leaf: &LeafSpec) -> Option<&MatrixAxes> {
        self.patterns.iter().find(|(pattern, _)| pattern.matches(leaf.path())).map(|(_, axes)| axes)
    }

    /// Returns true if a leaf could be a matrix and is none, although no entry says so.
    pub(crate) fn leaves_out(&self, leaf: &LeafSpec) -> bool {
        let named = self.by_path.iter().flatten().any(|(path, _)| subtree::holds(path, leaf.path()));
        let meant = match self.pattern(leaf) {
            Some(axes) => *axes != MatrixAxes::NoMatrix,
            None => leaf.ndim() > 2,
        };
        !named && meant && self.of(leaf, Layout::default()).is_none()
    }

    /// Checks that every path and pattern matches a leaf.
    pub(crate) fn check(&self, at: &InitContext<'_>, what: &str) -> Result<()> {
        let paths: Vec<&str> = self.by_path.iter().flatten().map(|(path, _)| path.as_str()).collect();
        subtree::assign(&paths, at.structure(), false, what)?;
        let what = format!("{what}: weight_dimension_numbers");
        self.patterns.iter().try_for_each(|(pattern, _)| pattern.resolve(at.structure(), &what).map(drop))
    }
}

/// Element `[i, j]` of a matrix at `m` is at `m + down[i] + along[j]`, with no more rows than columns.
#[derive(Clone, Debug, Hash)]
pub(super) struct MatrixOffsets {
    pub(super) matrices: Vec<usize>,
    pub(super) down: Vec<usize>,
    pub(super) along: Vec<usize>,
    /// Transpositions `[a, b, c, d]` to `[a, c, b, d]`, in turn, from memory order to row-major matrices.
    pub(super) transpositions: Vec<[usize; 4]>,
}

/// Returns the rows and columns of a leaf's matrices, if any.
pub(crate) fn matrix_shape(numbers: &WeightDimensionNumbers, leaf: &LeafSpec, layout: Layout) -> Option<[usize; 2]> {
    let axes = numbers.of(leaf, layout)?.axes(leaf)?;
    Some(axes.map(|axes| axes.iter().map(|&a| leaf.shape()[a]).product()))
}

pub(super) fn matrices_of(
    numbers: &WeightDimensionNumbers,
    at: &InitContext<'_>,
    what: &str,
) -> Result<Vec<Option<MatrixOffsets>>> {
    numbers.check(at, what)?;
    let leaves = at.structure().leaves().iter().zip(at.active());
    leaves
        .map(|(leaf, on)| {
            if !on {
                return Ok(None);
            }
            let axes = numbers.of(leaf, Layout::default()).and_then(|numbers| numbers.axes(leaf));
            let Some(axes) = axes else {
                let expected = "such that each leaf has axes for rows and others for columns";
                return Err(Error::argument(what, "weight_dimension_numbers", expected, format!("the leaf `{leaf}`")));
            };
            Ok(Some(offsets_of(leaf, axes)))
        })
        .collect()
}

fn offsets_of(leaf: &LeafSpec, [mut down, mut along]: [Vec<usize>; 2]) -> MatrixOffsets {
    let others: Vec<usize> = (0..leaf.ndim()).filter(|a| !down.contains(a) && !along.contains(a)).collect();
    if size(leaf, &down) > size(leaf, &along) {
        core::mem::swap(&mut down, &mut along);
    }
    let transpositions = transpositions(leaf, &[&others[..], &down, &along].concat());
    let [matrices, down, along] = [others, down, along].map(|axes| places(leaf, &axes));
    MatrixOffsets { matrices, down, along, transpositions }
}

/// Returns the places of rows and columns of a leaf's only matrix: element `[i, j]` is at their sum.
///
/// Returns `None` for no matrix, an error for several.
#[cfg(feature = "faer")]
pub(crate) fn one_matrix(
    numbers: &WeightDimensionNumbers,
    leaf: &LeafSpec,
    what: &str,
) -> Result<Option<[Vec<usize>; 2]>> {
    let Some(described) = numbers.of(leaf, Layout::default()) else { return Ok(None) };
    match described.axes(leaf) {
        Some(axes) if axes.iter().map(Vec::len).sum::<usize>() == leaf.ndim() => {
            Ok(Some(axes.map(|axes| places(leaf, &axes))))
        }
        _ => {
            let expected = "such that each axis of a matrix is one of its rows or one of its columns";
            Err(Error::argument(what, "weight_dimension_numbers", expected, format!("the leaf `{leaf}`")))
        }
    }
}

fn size(leaf: &LeafSpec, axes: &[usize]) -> usize {
    axes.iter().map(|&a| leaf.shape()[a]).product()
}

/// Returns the transpositions from memory order to this order of axes.
fn transpositions(leaf: &LeafSpec, order: &[usize]) -> Vec<[usize; 4]> {
    let mut lie: Vec<usize> = (0..leaf.ndim()).collect();
    sort_axes(&mut lie, &|a| leaf.strides()[a]);
    let mut transpositions = Vec::new();
    for (to, axis) in order.iter().enumerate() {
        let from = to + lie[to..].iter().position(|a| a == axis).expect("an order has each axis once");
        let shape =
            [size(leaf, &lie[..to]), size(leaf, &lie[to..from]), size(leaf, &[*axis]), size(leaf, &lie[from + 1..])];
        lie[to..=from].rotate_right(1);
        if shape[1] > 1 && shape[2] > 1 {
            transpositions.push(shape);
        }
    }
    transpositions
}

/// Returns the places along some axes, the last fastest; none for an empty leaf.
fn places(leaf: &LeafSpec, axes: &[usize]) -> Vec<usize> {
    if leaf.len() == 0 {
        return Vec::new();
    }
    axes.iter().fold(vec![0], |places, &a| {
        let stride = leaf.strides()[a] as usize;
        places.iter().flat_map(|place| (0..leaf.shape()[a]).map(move |i| place + i * stride)).collect()
    })
}

impl ToRecipe for DimensionNumbers {
    fn to_recipe(&self) -> Recipe {
        Recipe::map([
            ("reduction_axis", self.reduction_axis.to_recipe()),
            ("output_axis", self.output_axis.to_recipe()),
        ])
    }
}

impl ToRecipe for MatrixAxes {
    fn to_recipe(&self) -> Recipe {
        match self {
            MatrixAxes::NoMatrix => Recipe::Null,
            MatrixAxes::Axes(numbers) => numbers.to_recipe(),
            MatrixAxes::Flattened(layout) => layout.to_recipe(),
        }
    }
}

/// `null`, `"in_out"` or `"out_in"`, or `{"reduction_axis", "output_axis"}`.
impl FromRecipe for MatrixAxes {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<MatrixAxes> {
        if node.is_none() {
            return Ok(MatrixAxes::NoMatrix);
        }
        match node.value() {
            Recipe::Text(_) => node.read().map(MatrixAxes::Flattened),
            _ => node.read().map(MatrixAxes::Axes),
        }
    }
}

impl ToRecipe for WeightDimensionNumbers {
    fn to_recipe(&self) -> Recipe {
        let by_path = self
            .by_path
            .as_ref()
            .map(|entries| ("by_path", Recipe::map(entries.iter().map(|(path, axes)| (&**path, axes.to_recipe())))));
        let pair = |(pattern, axes): &(Pattern, MatrixAxes)| {
            Recipe::List(vec![Recipe::text(pattern.text()), axes.to_recipe()])
        };
        let patterns =
            (!self.patterns.is_empty()).then(|| ("paths", Recipe::List(self.patterns.iter().map(pair).collect())));
        if by_path.is_none() && patterns.is_none() {
            return Recipe::Null;
        }
        Recipe::map(by_path.into_iter().chain(patterns))
    }
}

/// Reads axes by path under `by_path`, a list of pairs of pattern and axes under `paths`, or both.
///
/// `null` selects the leaves with two axes.
impl FromRecipe for WeightDimensionNumbers {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<WeightDimensionNumbers> {
        if node.is_none() {
            return Ok(WeightDimensionNumbers::default());
        }
        let fields = node.fields(&["by_path", "paths"])?;
        let numbers = match fields.get("by_path") {
            Some(by_path) => {
                WeightDimensionNumbers::tree::<String, MatrixAxes>(by_path.read::<Entries<MatrixAxes>>()?.0)
            }
            None if fields.get("paths").is_none() => fields.required("by_path")?,
            None => WeightDimensionNumbers::default(),
        };
        let patterns = fields.or::<Vec<(String, MatrixAxes)>>("paths", Vec::new())?;
        Ok(patterns.into_iter().fold(numbers, |numbers, (pattern, axes)| numbers.at(pattern, axes)))
    }
}

impl FromRecipe for DimensionNumbers {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<DimensionNumbers> {
        let fields = node.fields(&["reduction_axis", "output_axis"])?;
        let axes = |name| fields.required::<OneOrMore<isize>>(name).map(|axes| axes.0);
        Ok(DimensionNumbers::new(axes("reduction_axis")?, axes("output_axis")?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Structure;
    use ndarray::{ArrayD, ShapeBuilder};

    fn transposed(x: &[usize], [a, b, c, d]: [usize; 4]) -> Vec<usize> {
        let at = |i: usize| {
            let (last, i) = (i % d, i / d);
            let (second, i) = (i % b, i / b);
            let (third, first) = (i % c, i / c);
            ((first * b + second) * c + third) * d + last
        };
        (0..a * b * c * d).map(|i| x[at(i)]).collect()
    }

    #[test]
    fn turns_bring_elements_into_the_order_of_their_places() {
        let shapes: [(&[usize], &[usize], &[usize]); 7] = [
            (&[3, 5], &[0], &[1]),
            (&[5, 3], &[0], &[1]),
            (&[6, 3, 8], &[0], &[2]),
            (&[2, 3, 4, 5], &[0, 1, 2], &[3]),
            (&[2, 3, 4, 5], &[3, 1], &[0]),
            (&[4, 1, 3], &[2], &[1]),
            (&[1, 1], &[0], &[1]),
        ];
        for (shape, rows, columns) in shapes {
            for leaf in [ArrayD::<f32>::zeros(shape), ArrayD::zeros(shape.f())] {
                let structure = Structure::of(&leaf).unwrap();
                let places = offsets_of(&structure.leaves()[0], [rows.into(), columns.into()]);
                let lie: Vec<usize> = (0..leaf.len()).collect();
                let original = places.transpositions.iter().fold(lie, |x, shape| transposed(&x, *shape));
                let MatrixOffsets { matrices, down, along, .. } = &places;
                let rows_of = |at: &usize| down.iter().map(move |i| at + i).collect::<Vec<_>>();
                let places = matrices.iter().flat_map(rows_of).flat_map(|at| along.iter().map(move |j| at + j));
                assert_eq!(original, places.collect::<Vec<_>>(), "{shape:?}, {rows:?}, {columns:?}");
            }
        }
    }
}
