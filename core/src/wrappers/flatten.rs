use std::sync::Arc;

use crate::element::{Element, convert};
use crate::engine::leaf::Table;
use crate::engine::{Arrays, Bounds, EvaluateLoss, Nested, ParamSource};
use crate::needs::Level;
use crate::part::prelude::*;
use crate::state::{StateWalk, StateWalkMut};
use crate::tree::{LeafSpec, Structure};

/// Presents all leaves to a transformation as one: a vector of their elements, each leaf in row-major order.
///
/// It changes parts that work leaf by leaf: the trust ratio of [`lamb`] is then one for the whole tree,
/// as is the root mean square of [`clip_by_block_rms`]. Parts that work element by
/// element give the same numbers without it, in one pass: a chain is one loop over all leaves anyway. Optax uses it to
/// launch fewer kernels, which is no reason to use it here.
///
/// The vector has the common dtype of the leaves: their dtype, if they have the same; `f64`, if any has; else `f32`.
/// Inner masks and labels see one leaf with an empty path.
///
/// # Arithmetic
///
/// ```text
/// v = concat(u)
/// u ← split(inner(v))
/// ```
///
/// # Cost
///
/// Updates are stored in memory, copied into one vector and back, and so are the parameters if the inner transformation
/// reads them. The state belongs to the vector: as large as without `flatten`, except for values kept once per leaf.
///
/// # Example
///
/// The root mean square of the first leaf is 1 and of the second 7; of both together it is 5:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::clip_by_block_rms;
/// use gradchain::wrapper::flatten;
///
/// let optimizer = flatten(clip_by_block_rms(2.5));
/// let mut params = (0.0_f64, 0.0_f64);
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &(1.0, 7.0), &mut state)?;
/// assert_eq!(params, (0.5, 3.5));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`flatten`](https://optax.readthedocs.io/en/latest/api/optimizer_wrappers.html). Differs: an update has its
/// leaf's dtype, not the vector's; line searches can be inside.
///
/// [`lamb`]: https://docs.rs/gradchain/latest/gradchain/optimizer/fn.lamb.html
/// [`clip_by_block_rms`]: https://docs.rs/gradchain/latest/gradchain/transform/fn.clip_by_block_rms.html
pub fn flatten<T: Stage>(inner: T) -> Flatten<T> {
    Flatten::with(inner)
}

wrapper! {
    /// See [`flatten`].
    pub Flatten<T> as "flatten" around inner: Whole<T::Needs, Flattened> {}
    check Self::check_inner;
}

impl<T: Stage> Flatten<T> {
    fn check_inner(&self) -> Result<()> {
        self.inner.validate()
    }
}

/// The state of a [`flatten`], with the inner state.
#[derive(Clone, Debug)]
pub struct FlattenState<S> {
    inner: S,
    scratch: Scratch,
}

impl<S> FlattenState<S> {
    /// Returns the state of the inner transformation.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Returns the state of the inner transformation, to write.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

impl<S: State> State for FlattenState<S> {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.fact("vector", &(&self.scratch.nested, &self.scratch.leaves, &self.scratch.active));
        walk.other_tree(|walk| walk.nested("inner", &mut |walk| self.inner.walk(walk)));
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        walk.other_tree(|walk| walk.nested("inner", |walk| self.inner.walk_mut(walk)));
    }
}

#[derive(Clone, Debug)]
struct Scratch {
    leaves: Structure,
    active: Vec<bool>,
    nested: Nested,
    grads: Moments,
    params: Moments,
    updates: Moments,
    /// A point and its gradient, if the inner transformation evaluates the loss.
    evaluation: Option<[Moments; 2]>,
    outcome: Outcome,
}

impl Scratch {
    fn new<T: Stage>(at: &InitContext<'_>, inner: &T) -> Result<Scratch> {
        let leaves = || at.structure().leaves().iter().zip(at.active()).filter(|(_, on)| **on).map(|(leaf, _)| leaf);
        let dtype = leaves().map(LeafSpec::dtype).reduce(promoted).unwrap_or(DType::F32);
        let structure = Structure::flat(dtype, leaves().map(LeafSpec::len).sum());
        let vector = || Moments::like(&structure, &[true], 0.0, |leaf| leaf.dtype().compute());
        let [grads, params, updates] = [vector()?, vector()?, vector()?];
        let evaluation = if inner.needs() >= Level::ValueFn { Some([at.moments()?, at.moments()?]) } else { None };
        let nested = Nested::new(&structure, &[true], inner)?;
        let outcome = Outcome::GRADIENTS;
        let (leaves, active) = (at.structure().clone(), at.active().into());
        Ok(Scratch { leaves, active, nested, grads, params, updates, evaluation, outcome })
    }
}

fn promoted(a: DType, b: DType) -> DType {
    match (a, b) {
        (a, b) if a == b => a,
        (DType::F64, _) | (_, DType::F64) => DType::F64,
        _ => DType::F32,
    }
}

fn gather<C: Element, F: Element>(leaf: &LeafSpec, from: &[C], to: &mut [F]) {
    let mut to = to.iter_mut();
    leaf.each_place(|i| to.next().into_iter().for_each(|to| *to = convert(from[i])));
}

fn scatter<C: Element, F: Element>(leaf: &LeafSpec, from: &[F], to: &mut [C]) {
    let mut from = from.iter();
    leaf.each_place(|i| from.next().into_iter().for_each(|from| to[i] = convert(*from)));
}

/// Writes the vector leaf by leaf.
struct WriteVector<'a> {
    vector: &'a mut Moments,
    at: usize,
}

impl WriteVector<'_> {
    fn start(vector: &mut Moments) -> WriteVector<'_> {
        WriteVector { vector, at: 0 }
    }

    fn gather<C: Real>(&mut self, leaf: &LeafSpec, from: &[C]) {
        let range = self.at..self.at + leaf.len();
        self.at = range.end;
        if let Some(vector) = self.vector.get_mut::<f64>(0) {
            gather(leaf, from, &mut vector[range]);
        } else if let Some(vector) = self.vector.get_mut::<f32>(0) {
            gather(leaf, from, &mut vector[range]);
        }
    }

    /// Copies a leaf's array, if any, from the state's memory order.
    fn array(&mut self, i: usize, leaf: &LeafSpec, array: &Moments) {
        match array.dtype(i) {
            Some(DType::F64) => self.gather(leaf, array.get::<f64>(i).unwrap_or_default()),
            Some(_) => self.gather(leaf, array.get::<f32>(i).unwrap_or_default()),
            None => {}
        }
    }
}

fn join(leaves: &Structure, arrays: &Moments, vector: &mut Moments) {
    let mut along = WriteVector::start(vector);
    leaves.leaves().iter().enumerate().for_each(|(i, leaf)| along.array(i, leaf, arrays));
}

/// Reads a vector leaf by leaf.
struct ReadVector<'a> {
    vector: &'a Moments,
    at: usize,
}

impl ReadVector<'_> {
    fn scatter<C: Real>(&mut self, leaf: &LeafSpec, to: &mut [C]) {
        let range = self.at..self.at + leaf.len();
        self.at = range.end;
        if let Some(vector) = self.vector.get::<f64>(0) {
            scatter(leaf, &vector[range], to);
        } else if let Some(vector) = self.vector.get::<f32>(0) {
            scatter(leaf, &vector[range], to);
        }
    }

    fn array(&mut self, i: usize, leaf: &LeafSpec, array: &mut Moments) {
        match array.dtype(i) {
            Some(DType::F64) => self.scatter(leaf, array.get_mut::<f64>(i).unwrap_or_default()),
            Some(_) => self.scatter(leaf, array.get_mut::<f32>(i).unwrap_or_default()),
            None => {}
        }
    }
}

struct Gather<'a> {
    grads: WriteVector<'a>,
    params: Option<WriteVector<'a>>,
}

impl LeafVisitor for Gather<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        self.grads.gather(leaf.spec, leaf.u);
        if let Some(params) = &mut self.params {
            params.gather(leaf.spec, leaf.p);
        }
    }
}

impl LeafVisitor for ReadVector<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        self.scatter(leaf.spec, leaf.u);
    }
}

/// Evaluates the loss at a vector.
struct EvaluateFlat<'a> {
    evaluate_loss: &'a mut dyn EvaluateLoss,
    structure: &'a Structure,
    params: &'a Table,
    point: &'a mut Moments,
    gradient: &'a mut Moments,
    bounds: Option<Arc<Bounds>>,
}

impl EvaluateLoss for EvaluateFlat<'_> {
    fn failed(&self) -> bool {
        self.evaluate_loss.failed()
    }

    fn evaluate_loss(&mut self, _: &Structure, _: &Table, point: &Moments, gradient: Option<&mut Moments>) -> f64 {
        let leaves = || self.structure.leaves().iter().enumerate();
        let mut along = ReadVector { vector: point, at: 0 };
        leaves().for_each(|(i, leaf)| along.array(i, leaf, self.point));
        let Some(gradient) = gradient else {
            return self.evaluate_loss.evaluate_loss(self.structure, self.params, self.point, None);
        };
        let value =
            self.evaluate_loss.evaluate_loss(self.structure, self.params, self.point, Some(&mut *self.gradient));
        join(self.structure, self.gradient, gradient);
        value
    }

    fn bounds(&self) -> Option<Arc<Bounds>> {
        self.bounds.clone()
    }
}

impl<T: Stage> WholeTreeTransformation for Flatten<T> {
    type State = FlattenState<T::State>;

    fn start(&self, at: &InitContext<'_>) -> Result<Self::State> {
        let mut scratch = Scratch::new(at, &self.inner)?;
        join(at.structure(), &at.params_as_moments()?, &mut scratch.params);
        Ok(FlattenState { inner: scratch.nested.init(&self.inner, at, &scratch.params)?, scratch })
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        let Scratch { leaves, active, nested, params, .. } = &state.scratch;
        let vector = || {
            let mut vector = params.clone();
            join(leaves, &at.as_init(active, |at| at.params_as_moments())?, &mut vector);
            Ok(vector)
        };
        nested.check(&self.inner, &state.inner, at, ParamSource::OnDemand(&vector))
    }

    fn transform(&self, state: &mut Self::State, at: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        let FlattenState {
            inner,
            scratch: Scratch { active, nested, grads, params, updates, evaluation, outcome, .. },
        } = state;
        let shape = self.inner.shape();
        let reads = shape.reads_params != 0 || shape.materializes | shape.reads_updates != 0;
        let params_along = if reads { Some(WriteVector::start(params)) } else { None };
        tree.visit(&mut Gather { grads: WriteVector::start(grads), params: params_along });
        let structure = tree.structure;
        let bounds = tree.bounds().map(|bounds| {
            let of = |bound: &Moments| {
                let mut vector = grads.clone();
                let mut along = WriteVector::start(&mut vector);
                let leaves = structure.leaves().iter().enumerate().filter(|(i, _)| active[*i]);
                leaves.for_each(|(i, leaf)| along.array(i, leaf, bound));
                vector
            };
            Arc::new(Bounds { lower: of(&bounds.lower), upper: of(&bounds.upper) })
        });
        let mut evaluate_loss = match (&mut tree.objective, evaluation) {
            (Some(evaluate_loss), Some([point, gradient])) => Some(EvaluateFlat {
                evaluate_loss: &mut **evaluate_loss,
                structure,
                params: tree.params,
                point,
                gradient,
                bounds,
            }),
            _ => None,
        };
        let evaluate_loss = evaluate_loss.as_mut().map(|evaluate_loss| evaluate_loss as &mut dyn EvaluateLoss);
        *outcome = nested.run(&self.inner, inner, at, Arrays { grads, params, others: &[], updates }, evaluate_loss);
        tree.visit(&mut ReadVector { vector: updates, at: 0 });
    }
}

/// In [`Whole`]: the inner transformation of a [`flatten`].
pub enum Flattened {}

impl<T: Stage> InnerRuns<Flatten<T>> for Flattened {
    fn needs(flatten: &Flatten<T>, _: Level) -> Level {
        flatten.inner.needs()
    }

    fn outcome(_: &Flatten<T>, state: &FlattenState<T::State>) -> Outcome {
        state.scratch.outcome
    }

    fn holds_back(flatten: &Flatten<T>) -> bool {
        flatten.inner.holds_back() > crate::engine::HoldsBack::Never
    }

    fn read<'a>(flatten: &Flatten<T>, state: &'a FlattenState<T::State>, walk: &mut StateWalk<'a, '_>) -> Result<()> {
        walk.other_tree(|walk| walk.nested("inner", &mut |walk| flatten.inner.read(&state.inner, walk)))
    }

    fn unused(flatten: &Flatten<T>, state: &FlattenState<T::State>, report: &mut dyn FnMut(&str, bool)) {
        flatten.inner.unused(&state.inner, report);
    }
}
