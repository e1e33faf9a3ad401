//! Which axes of a leaf are the rows and columns of matrices.

use crate::layout::sort_axes;
use crate::part::prelude::*;
use crate::recipe::{self, Entries, FromRecipe, Node, OneOrMore, Recipe, ToRecipe};
use crate::select::subtree;
use crate::tree::LeafSpec;

/// Which axes of a leaf, flattened together, are the rows (what a layer sums over) and the columns (what it puts out)
/// of its matrices. For each index of the other axes there is a matrix of its own. Negative axes count from the end.
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
pub struct DimensionNumbers {
    /// The axes of the rows.
    pub reduction_axis: Vec<isize>,
    /// The axes of the columns.
    pub output_axis: Vec<isize>,
}

impl DimensionNumbers {
    /// Rows and columns by their axes.
    pub fn new(reduction_axis: impl Into<Vec<isize>>, output_axis: impl Into<Vec<isize>>) -> DimensionNumbers {
        DimensionNumbers { reduction_axis: reduction_axis.into(), output_axis: output_axis.into() }
    }

    /// The axes of rows and columns, counted from the start, if the leaf has them all and none twice.
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

/// The [`DimensionNumbers`] of the leaves at some paths, and of leaves below them; `None` where they are no matrices.
///
/// Leaves that no path names have those of a matrix, if they have two axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WeightDimensionNumbers(Option<Vec<(String, Option<DimensionNumbers>)>>);

impl WeightDimensionNumbers {
    /// Says it for each path.
    pub fn tree<P: Into<String>>(
        entries: impl IntoIterator<Item = (P, Option<DimensionNumbers>)>,
    ) -> WeightDimensionNumbers {
        WeightDimensionNumbers(Some(entries.into_iter().map(|(path, numbers)| (path.into(), numbers)).collect()))
    }

    /// The dimension numbers of a leaf.
    pub(crate) fn of(&self, leaf: &LeafSpec) -> Option<DimensionNumbers> {
        let entry = self.0.iter().flatten().find(|(path, _)| subtree::holds(path, leaf.path()));
        match entry {
            Some((_, numbers)) => numbers.clone(),
            None => (leaf.ndim() == 2).then(|| DimensionNumbers::new([0], [1])),
        }
    }

    /// Checks that every path names a leaf.
    pub(crate) fn check(&self, at: &InitContext<'_>, what: &str) -> Result<()> {
        let paths: Vec<&str> = self.0.iter().flatten().map(|(path, _)| path.as_str()).collect();
        subtree::assign(&paths, at.structure(), false, what).map(drop)
    }
}

/// Where the matrices of a leaf lie: element `[i, j]` of the matrix at `m` at `m + down[i] + along[j]`, with no more
/// rows than columns.
#[derive(Clone, Debug, Hash)]
pub(super) struct Layout {
    pub(super) matrices: Vec<usize>,
    pub(super) down: Vec<usize>,
    pub(super) along: Vec<usize>,
    /// What brings the leaf's elements, as they lie, into the order matrix by matrix and row by row: one after the
    /// other, arrays `[a, b, c, d]` that become `[a, c, b, d]`.
    pub(super) turns: Vec<[usize; 4]>,
}

/// How many rows and columns the matrices of a leaf have, in that order, if it has any.
pub(crate) fn fans(numbers: &WeightDimensionNumbers, leaf: &LeafSpec) -> Option<[usize; 2]> {
    let axes = numbers.of(leaf)?.axes(leaf)?;
    Some(axes.map(|axes| axes.iter().map(|&a| leaf.shape()[a]).product()))
}

/// The layouts of the leaves that a transformation acts on.
pub(super) fn layouts(
    numbers: &WeightDimensionNumbers,
    at: &InitContext<'_>,
    what: &str,
) -> Result<Vec<Option<Layout>>> {
    numbers.check(at, what)?;
    let leaves = at.structure().leaves().iter().zip(at.active());
    leaves
        .map(|(leaf, on)| {
            if !on {
                return Ok(None);
            }
            let axes = numbers.of(leaf).and_then(|numbers| numbers.axes(leaf));
            let Some(axes) = axes else {
                let expected = "such that each leaf has axes for rows and others for columns";
                return Err(Error::argument(what, "weight_dimension_numbers", expected, format!("the leaf `{leaf}`")));
            };
            Ok(Some(layout(leaf, axes)))
        })
        .collect()
}

fn layout(leaf: &LeafSpec, [mut down, mut along]: [Vec<usize>; 2]) -> Layout {
    let others: Vec<usize> = (0..leaf.ndim()).filter(|a| !down.contains(a) && !along.contains(a)).collect();
    if size(leaf, &down) > size(leaf, &along) {
        core::mem::swap(&mut down, &mut along);
    }
    let turns = turns(leaf, &[&others[..], &down, &along].concat());
    let [matrices, down, along] = [others, down, along].map(|axes| places(leaf, &axes));
    Layout { matrices, down, along, turns }
}

/// Where the rows and the columns of a leaf that is one matrix lie: element `[i, j]` at the sum of both places. `None`
/// if the leaf is no matrix, an error if it is described as several.
#[cfg(feature = "faer")]
pub(crate) fn one_matrix(
    numbers: &WeightDimensionNumbers,
    leaf: &LeafSpec,
    what: &str,
) -> Result<Option<[Vec<usize>; 2]>> {
    let Some(described) = numbers.of(leaf) else { return Ok(None) };
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

/// How the axes of a leaf, as they lie, come into another order.
fn turns(leaf: &LeafSpec, order: &[usize]) -> Vec<[usize; 4]> {
    let mut lie: Vec<usize> = (0..leaf.ndim()).collect();
    sort_axes(&mut lie, &|a| leaf.strides()[a]);
    let mut turns = Vec::new();
    for (to, axis) in order.iter().enumerate() {
        let from = to + lie[to..].iter().position(|a| a == axis).expect("an order has each axis once");
        let shape =
            [size(leaf, &lie[..to]), size(leaf, &lie[to..from]), size(leaf, &[*axis]), size(leaf, &lie[from + 1..])];
        lie[to..=from].rotate_right(1);
        if shape[1] > 1 && shape[2] > 1 {
            turns.push(shape);
        }
    }
    turns
}

/// Where the elements along some axes lie, the last axis fastest. None, however long the axes are, of a leaf without
/// elements.
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

impl ToRecipe for WeightDimensionNumbers {
    fn to_recipe(&self) -> Recipe {
        let Some(entries) = &self.0 else { return Recipe::Null };
        let by_path = entries.iter().map(|(path, numbers)| (&**path, numbers.to_recipe()));
        Recipe::map([("by_path", Recipe::map(by_path))])
    }
}

/// `null` takes the leaves with two axes; else `{"by_path": {path: null | {"reduction_axis", "output_axis"}}}`.
impl FromRecipe for WeightDimensionNumbers {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<WeightDimensionNumbers> {
        if node.is_none() {
            return Ok(WeightDimensionNumbers::default());
        }
        node.fields(&["by_path"])?
            .required("by_path")
            .map(|Entries(numbers)| WeightDimensionNumbers::tree::<String>(numbers))
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

    fn turned(x: &[usize], [a, b, c, d]: [usize; 4]) -> Vec<usize> {
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
                let layout = layout(&structure.leaves()[0], [rows.into(), columns.into()]);
                let lie: Vec<usize> = (0..leaf.len()).collect();
                let made = layout.turns.iter().fold(lie, |x, shape| turned(&x, *shape));
                let Layout { matrices, down, along, .. } = &layout;
                let rows_of = |at: &usize| down.iter().map(move |i| at + i).collect::<Vec<_>>();
                let places = matrices.iter().flat_map(rows_of).flat_map(|at| along.iter().map(move |j| at + j));
                assert_eq!(made, places.collect::<Vec<_>>(), "{shape:?}, {rows:?}, {columns:?}");
            }
        }
    }
}
