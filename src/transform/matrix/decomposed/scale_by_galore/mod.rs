use core::any::Any;
use core::fmt;
use core::hash::{Hash, Hasher};
use std::sync::Arc;

use super::super::WeightDimensionNumbers;
use super::super::scale_by_muon::one_matrix;
use crate::GradientTransformation;
use crate::arguments::{Argument, Arguments, Visit};
use crate::internal::engine::{Arrays, Nested};
use crate::internal::numeric::{Svd, matmul, matrix};
use crate::internal::state::state_fields;
use crate::part::prelude::*;
use crate::state::StateWalk;
use crate::transform::adaptive::{ScaleByAdam, scale_by_adam};
use crate::tree::{LeafSpec, Structure};

/// Runs a transformation on gradients projected to a low-rank subspace, and projects its updates back.
///
/// The state of a matrix is as small as that space. Needs the feature `faer`.
///
/// # Arithmetic
///
/// For each matrix `G` of `n × m`, with `r = min(rank, n, m)`:
///
/// ```text
/// every update_proj_gap steps, from the first on:   P = the first r left singular vectors of G      if n ≥ m
///                                                   P = the first r right singular vectors of G     else
/// R = PᵀG, or G·P
/// R ← base_optimizer(R)                   scale_by_adam() by default
/// u ← scale·P·R, or scale·R·Pᵀ
/// ```
///
/// Other leaves go through the base optimizer unprojected, and are not multiplied by `scale`. One base optimizer
/// handles all leaves. It must not read parameters: that space has none.
///
/// A singular vector has no sign of its own. That does not matter to a base optimizer that is odd and remembers no
/// signs. Adam's first moment does remember them, so a new vector takes the sign that gives it a non-negative inner
/// product with its predecessor. Singular vectors are computed in `f64` by the crate faer. Results do not depend on the
/// number of threads; between CPU models the last bits differ.
///
/// # Cost
///
/// For a matrix with sides `a ≥ b`: `a·r` floats of state and the base optimizer's for `r·b` elements, and in memory
/// two copies of those, one of the matrix, and one in `f64`. One more pass; between the two, two products of `a·b·r`
/// multiplications, and every `update_proj_gap` steps about `10·a·b²` operations for the singular vectors: for large
/// matrices choose a long gap. Each product allocates some 2 MB for its factors.
///
/// # Errors
///
/// `init` fails if `rank` or `update_proj_gap` is 0, `scale` is not finite, the base optimizer reads parameters, or a
/// leaf's entry of `weight_dimension_numbers` does not describe it as one matrix.
///
/// # Example
///
/// Of a diagonal matrix, rank 1 keeps the largest element:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::{identity, scale_by_galore};
/// use ndarray::array;
///
/// let optimizer = scale_by_galore().rank(1).base_optimizer(identity());
/// let params = array![[0.0_f64, 0.0], [0.0, 0.0]];
/// let updates = optimizer.update(&array![[3.0, 0.0], [0.0, 1.0]], &mut optimizer.init(&params)?, &params)?;
/// assert_eq!(updates.to_vec::<f64>("").unwrap(), [3.0, 0.0, 0.0, 0.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Zhao, Zhang, Chen, Wang, Anandkumar and Tian, [GaLore: memory-efficient LLM training by gradient low-rank
/// projection](https://arxiv.org/abs/2403.03507), 2024, algorithm 2; Demmel and Veselić, [Jacobi's method is more
/// accurate than QR](https://doi.org/10.1137/0613074), 1992. Optax,
/// [`contrib.scale_by_galore`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: singular vectors are
/// computed in `f64`, in Optax in `f32`, with the signs that LAPACK happens to give them; a base optimizer that reads
/// parameters is refused.
pub fn scale_by_galore() -> ScaleByGalore {
    ScaleByGalore {
        rank: 128,
        update_proj_gap: 200,
        scale: 1.0.into(),
        base_optimizer: scale_by_adam(),
        weight_dimension_numbers: WeightDimensionNumbers::default(),
    }
}

/// See [`scale_by_galore`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
#[non_exhaustive]
pub struct ScaleByGalore<T = ScaleByAdam> {
    /// Largest dimension of the space that a matrix is projected to; at least 1.
    pub rank: usize,
    /// Number of steps that a projection is kept; at least 1.
    pub update_proj_gap: u64,
    /// Multiplies the updates of matrices: any finite number.
    pub scale: Hyperparam,
    /// The transformation run in that space.
    pub base_optimizer: T,
    /// Axes of a leaf that form the rows and columns of a matrix; by default, a leaf with two axes is one.
    pub weight_dimension_numbers: WeightDimensionNumbers,
}

impl<T> ScaleByGalore<T> {
    /// Sets [`rank`](struct@ScaleByGalore).
    pub fn rank(mut self, rank: usize) -> Self {
        self.rank = rank;
        self
    }

    /// Sets [`update_proj_gap`](struct@ScaleByGalore).
    pub fn update_proj_gap(mut self, update_proj_gap: u64) -> Self {
        self.update_proj_gap = update_proj_gap;
        self
    }

    /// Sets [`scale`](struct@ScaleByGalore).
    pub fn scale(mut self, scale: impl IntoHyperparam) -> Self {
        self.scale = scale.into();
        self
    }

    /// Sets [`weight_dimension_numbers`](struct@ScaleByGalore).
    pub fn weight_dimension_numbers(mut self, weight_dimension_numbers: impl Into<WeightDimensionNumbers>) -> Self {
        self.weight_dimension_numbers = weight_dimension_numbers.into();
        self
    }

    /// Sets [`base_optimizer`](struct@ScaleByGalore).
    pub fn base_optimizer<B: GradientTransformation<Needs = Nothing>>(self, base_optimizer: B) -> ScaleByGalore<B> {
        let ScaleByGalore { rank, update_proj_gap, scale, weight_dimension_numbers, .. } = self;
        ScaleByGalore { rank, update_proj_gap, scale, base_optimizer, weight_dimension_numbers }
    }
}

impl<T: GradientTransformation<Needs = Nothing>> Arguments for ScaleByGalore<T> {
    const NAME: &'static str = "scale_by_galore";

    fn arguments(&mut self, visit: &mut Visit<'_>) {
        visit("scale", Argument::Hyperparam(&mut self.scale));
        visit("rank", Argument::Static(&mut self.rank));
        visit("update_proj_gap", Argument::Static(&mut self.update_proj_gap));
        visit("base_optimizer", Argument::Static(&mut crate::part::Inner(&mut self.base_optimizer)));
        visit("weight_dimension_numbers", Argument::Static(&mut self.weight_dimension_numbers));
    }
}

/// The state of [`scale_by_galore`]; `S` is the state of the base optimizer.
#[derive(Clone, Debug)]
pub struct ScaleByGaloreState<S> {
    /// Steps done.
    pub count: Count,
    /// The projections, per matrix: the longer side by the rank.
    pub projector: Moments,
    /// The state of the base optimizer.
    pub base_optimizer_state: S,
    inside: BaseInputs,
    matrices: Vec<Option<MatrixOffsets>>,
}

state_fields!(
    ScaleByGaloreState<S: State> { count, projector, base_optimizer_state } facts { inside } means { matrices }
);

/// The inputs of the base optimizer.
struct BaseInputs {
    matrices: Arc<[Option<MatrixOffsets>]>,
    structure: Arc<Structure>,
    active: Arc<[bool]>,
    nested: Nested,
    /// Zeros in place of parameters.
    zeros: Moments,
    gradients: Moments,
    updates: Moments,
    scratch: ScratchByType,
    svd: Svd,
}

/// A clone has its own scratch space.
impl Clone for BaseInputs {
    fn clone(&self) -> BaseInputs {
        BaseInputs {
            matrices: self.matrices.clone(),
            structure: self.structure.clone(),
            active: self.active.clone(),
            nested: self.nested.clone(),
            zeros: self.zeros.clone(),
            gradients: self.gradients.clone(),
            updates: self.updates.clone(),
            scratch: ScratchByType::default(),
            svd: Svd::default(),
        }
    }
}

impl Hash for BaseInputs {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.matrices, &self.nested).hash(hasher);
    }
}

impl fmt::Debug for BaseInputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BaseInputs").finish_non_exhaustive()
    }
}

impl BaseInputs {
    fn new(
        matrices: Arc<[Option<MatrixOffsets>]>,
        structure: Arc<Structure>,
        active: Arc<[bool]>,
        nested: Nested,
    ) -> Result<BaseInputs> {
        let zeros = Moments::like(&structure, &active, 0.0, LeafSpec::dtype)?;
        let [gradients, updates] = [(); 2].map(|()| zeros.clone());
        Ok(BaseInputs {
            nested,
            zeros,
            gradients,
            updates,
            scratch: ScratchByType::default(),
            svd: Svd::default(),
            matrices,
            structure,
            active,
        })
    }
}

/// A matrix's places in its leaf, longer side first, or rows if square.
#[derive(Clone, Debug, Hash)]
struct MatrixOffsets {
    long: Vec<usize>,
    short: Vec<usize>,
    tall: bool,
    rank: usize,
}

#[derive(Debug, Default)]
struct ScratchByType {
    single: Vec<f32>,
    double: Vec<f64>,
}

impl<T: GradientTransformation<Needs = Nothing>> ScaleByGalore<T> {
    fn places(&self, leaf: &LeafSpec) -> Result<Option<MatrixOffsets>> {
        let matrix = one_matrix(&self.weight_dimension_numbers, leaf, <Self as Arguments>::NAME)?;
        Ok(matrix.map(|[rows, cols]| {
            let (tall, rank) = (rows.len() >= cols.len(), self.rank.min(rows.len()).min(cols.len()));
            let [long, short] = if tall { [rows, cols] } else { [cols, rows] };
            MatrixOffsets { long, short, tall, rank }
        }))
    }
}

impl MatrixOffsets {
    fn projected(&self) -> Vec<usize> {
        if self.tall { vec![self.rank, self.short.len()] } else { vec![self.short.len(), self.rank] }
    }
}

impl<T: GradientTransformation<Needs = Nothing>> crate::part::Part for ScaleByGalore<T> {
    const NAME: &'static str = "scale_by_galore";
    type Form = crate::part::Whole<Nothing, Projected>;

    fn validate(&self) -> Result<()> {
        let name = <Self as Arguments>::NAME;
        if self.rank == 0 {
            return Err(Error::argument(name, "rank", "at least 1", 0));
        }
        if self.update_proj_gap == 0 {
            return Err(Error::argument(name, "update_proj_gap", "at least 1", 0));
        }
        if self.base_optimizer.shape().reads_params != 0 {
            let found = format!("`{}`, which reads parameters", self.base_optimizer.describe());
            return Err(Error::argument(name, "base_optimizer", "one that reads gradients only", found));
        }
        self.scale.validate(name, "scale", "finite", f64::is_finite)?;
        self.base_optimizer.validate()
    }

    fn changed_argument(&self, original: &Self) -> Option<&'static str> {
        let own = (differs(&self.rank, &original.rank).then_some("rank")).or_else(|| {
            let numbers = differs(&self.weight_dimension_numbers, &original.weight_dimension_numbers);
            numbers.then_some("weight_dimension_numbers")
        });
        own.or_else(|| self.base_optimizer.changed(&original.base_optimizer))
    }

    fn effect(&self) -> crate::part::Effect {
        crate::part::Effect::SCALE_INVARIANT
    }

    fn own_arguments(&mut self, visit: &mut crate::arguments::Visit<'_>) {
        crate::arguments::Arguments::arguments(self, visit);
    }

    fn recipe(&self) -> crate::recipe::Recipe {
        crate::part::own_recipe(self)
    }
}

impl<T: GradientTransformation<Needs = Nothing>> crate::part::WholeTreeTransformation for ScaleByGalore<T> {
    type State = ScaleByGaloreState<T::State>;

    fn start(&self, at: &InitContext<'_>) -> Result<Self::State> {
        let name = <Self as Arguments>::NAME;
        self.weight_dimension_numbers.check(at, name)?;
        let leaves = || at.structure().leaves().iter().zip(at.active());
        let places = |(leaf, on): (&LeafSpec, &bool)| if *on { self.places(leaf) } else { Ok(None) };
        let in_row_major_order =
            |(leaf, on): (&LeafSpec, _)| places((&leaf.standing_for(leaf.dtype(), Some(leaf.shape().into())), on));
        let meant = leaves().map(in_row_major_order).collect::<Result<_>>()?;
        let matrices: Arc<[_]> = leaves().map(places).collect::<Result<_>>()?;
        let inside = leaves().zip(matrices.iter()).map(|((leaf, on), matrix)| {
            // An inactive leaf takes no memory.
            let shape = if *on { matrix.as_ref().map(MatrixOffsets::projected) } else { Some(vec![0]) };
            leaf.standing_for(leaf.dtype().compute(), shape)
        });
        let structure = Arc::new(Structure::from_leaves(inside.collect()));
        let sides = |leaf: &LeafSpec| {
            let places = self.places(leaf).ok().flatten()?;
            Some(vec![places.long.len(), places.rank])
        };
        let projector = Moments::with_shapes(at.structure(), at.active(), |leaf| leaf.dtype().compute(), sides)?;
        let nested = Nested::new(&structure, at.active(), &self.base_optimizer)?;
        let mut inside = BaseInputs::new(matrices, structure, at.active().into(), nested)?;
        let base_optimizer_state = inside.nested.init(&self.base_optimizer, at, &inside.zeros)?;
        Ok(ScaleByGaloreState { count: Count::default(), projector, base_optimizer_state, inside, matrices: meant })
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        let BaseInputs { structure, active, nested, .. } = &state.inside;
        let zeros = || Moments::like(structure, active, 0.0, LeafSpec::dtype);
        nested.check_on(&self.base_optimizer, &state.base_optimizer_state, at, &zeros)
    }

    fn transform(&self, state: &mut Self::State, at: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        let count = state.count.get();
        state.count.increment();
        let ScaleByGaloreState { projector, base_optimizer_state, inside, .. } = state;
        tree.visit(&mut Project { projector, inside, reinitialize: count.is_multiple_of(self.update_proj_gap) });
        let BaseInputs { nested, zeros, gradients, updates, .. } = &mut *inside;
        let arrays = Arrays::new(gradients, zeros, updates);
        nested.run_without_loss(&self.base_optimizer, base_optimizer_state, at, arrays);
        tree.visit(&mut ProjectBack { projector, inside, scale: self.scale.at(count) });
    }
}

/// The inner transformation in [`Whole`](crate::part::Whole): that of the projected gradients.
pub enum Projected {}

impl<T: GradientTransformation<Needs = Nothing>> crate::internal::engine::InnerRuns<ScaleByGalore<T>> for Projected {
    fn read<'a>(
        galore: &ScaleByGalore<T>,
        state: &'a ScaleByGaloreState<T::State>,
        walk: &mut StateWalk<'a, '_>,
    ) -> Result<()> {
        walk.child("count", &state.count);
        walk.within("base_optimizer_state", &mut |walk| galore.base_optimizer.read(&state.base_optimizer_state, walk))
    }
}

impl ScratchByType {
    fn of<C: Real>(&mut self) -> &mut Vec<C> {
        let buffers: &mut dyn Any = match C::DTYPE {
            DType::F64 => &mut self.double,
            _ => &mut self.single,
        };
        let Some(buffers) = buffers.downcast_mut() else { unreachable!("there is room for each compute type") };
        buffers
    }
}

struct Project<'a> {
    projector: &'a mut Moments,
    inside: &'a mut BaseInputs,
    /// If true, recomputes the subspace.
    reinitialize: bool,
}

impl LeafVisitor for Project<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let BaseInputs { matrices, gradients, scratch, svd, .. } = &mut *self.inside;
        let to = gradients.get_mut::<C>(leaf.index).unwrap_or_default();
        let (Some(places), Some(projector)) = (&matrices[leaf.index], self.projector.get_mut::<C>(leaf.index)) else {
            return to.copy_from_slice(leaf.u);
        };
        let MatrixOffsets { long, short, tall, rank } = places;
        let u = &*leaf.u;
        if self.reinitialize {
            let element = |i: usize, j: usize| u[long[i] + short[j]].as_f64();
            svd.left([long.len(), short.len()], *rank, element, |k, vector| {
                let column = || (k..projector.len()).step_by(*rank);
                let along: f64 = column().zip(vector).map(|(at, x)| projector[at].as_f64() * x).sum();
                let sign = if along < 0.0 { -1.0 } else { 1.0 };
                column().zip(vector).for_each(|(at, x)| projector[at] = C::of(sign * x));
            });
        }
        let buffers = scratch.of::<C>();
        // The longer side by the shorter.
        buffers.clear();
        buffers.extend(long.iter().flat_map(|i| short.iter().map(move |j| u[i + j])));
        let gradient = matrix(buffers, long.len(), short.len());
        let projector = matrix(projector, long.len(), *rank);
        match tall {
            true => matmul(projector.reversed_axes(), gradient, to),
            false => matmul(gradient.reversed_axes(), projector, to),
        }
    }
}

struct ProjectBack<'a> {
    projector: &'a Moments,
    inside: &'a mut BaseInputs,
    scale: f64,
}

impl LeafVisitor for ProjectBack<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let BaseInputs { matrices, updates, scratch, .. } = &mut *self.inside;
        let from = updates.get::<C>(leaf.index).unwrap_or_default();
        let (Some(places), Some(projector)) = (&matrices[leaf.index], self.projector.get::<C>(leaf.index)) else {
            return leaf.u.copy_from_slice(from);
        };
        let MatrixOffsets { long, short, tall, rank } = places;
        let from = match tall {
            true => matrix(from, *rank, short.len()),
            false => matrix(from, short.len(), *rank).reversed_axes(),
        };
        let buffers = scratch.of::<C>();
        buffers.resize(long.len() * short.len(), C::zero());
        let projector = matrix(projector, long.len(), *rank);
        matmul(projector, from, buffers);
        let scale = C::of(self.scale);
        for (i, row) in long.iter().zip(buffers.chunks_exact(short.len().max(1))) {
            short.iter().zip(row).for_each(|(j, x)| leaf.u[i + j] = scale * *x);
        }
    }
}
