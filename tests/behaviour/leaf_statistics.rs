//! Leaf statistics: bitwise identical, whether updates are stored for them or not.

use gradchain::needs::Nothing;
use gradchain::optimizer::sm3;
use gradchain::part::{
    InitContext, LeafObserver, LeafStatistics, Part, Slot, StepContext, WholeTree, WithLeafStatistics,
};
use gradchain::prelude::*;
use gradchain::state::{Count, PerLeaf, Scalar};
use gradchain::transform::{ema, identity, scale, scale_by_factored_rms, scale_by_sm3, trace};
use gradchain::tree::LeafSpec;
use gradchain::{Boxed, Real};
use ndarray::{Array1, Array2, Array3, ShapeBuilder};

/// Matrices of different orders, a leaf of more axes, one too small to be factored, and a vector.
type Leaves = (Array2<f32>, Array2<f64>, Array3<f32>, Array2<f64>, Array1<f32>);

fn number(i: usize, step: usize) -> f64 {
    let x = ((i * 7919 + step * 104_729) % 2003) as f64 / 1001.0 - 1.0;
    x * 10.0_f64.powi(i as i32 % 5 - 2)
}

/// Returns leaves with matrices in the parameters' memory order, or the other.
fn leaves(step: usize, turned: bool) -> Leaves {
    let f32s = |i| number(i, step) as f32;
    (
        Array2::from_shape_fn((70, 90).set_f(turned), |(i, j)| f32s(i * 90 + j)),
        Array2::from_shape_fn((40, 30).set_f(!turned), |(i, j)| number(i * 30 + j, step)),
        Array3::from_shape_fn((5, 20, 3).set_f(turned), |(i, j, k)| f32s(i * 60 + j * 3 + k)),
        Array2::from_shape_fn((1, 7).set_f(turned), |(_, j)| number(j, step)),
        Array1::from_shape_fn(2500, f32s),
    )
}

fn run<T: GradientTransformation<Needs = Nothing>>(optimizer: &T, turned: bool) -> Vec<u64> {
    let mut params = leaves(0, false);
    let mut state = optimizer.init(&params).unwrap();
    for step in 1..5 {
        optimizer.step(&mut params, &leaves(step, turned), &mut state).unwrap();
    }
    let (a, b, c, d, e) = params;
    let singles = a.iter().chain(&c).chain(&e).map(|x| u64::from(x.to_bits()));
    singles.chain(b.iter().chain(&d).map(|x| x.to_bits())).collect()
}

fn rate() -> impl GradientTransformation<Needs = Nothing> {
    adafactor(0.1).min_dim_size_to_factor(2).momentum(0.9).weight_decay_rate(0.01)
}

/// Compares stored and unstored updates.
fn holds<T: GradientTransformation<Needs = Nothing>>(of: impl Fn() -> T) {
    for turned in [false, true] {
        let plain = run(&of(), turned);
        assert_eq!(run(&chain((scale(1.0), of())), turned), plain, "after arithmetic");
        assert_eq!(run(&chain((trace(0.0), of())), turned), plain, "after what has state");
        assert_eq!(run(&chain((clip_by_global_norm(1e9), of())), turned), plain, "after a barrier");
        assert_eq!(run(&chain((identity(), of(), identity())), turned), plain, "in a chain");
        assert_eq!(run(&chain((of(), clip_by_global_norm(1e9))), turned), plain, "before a barrier");
        let boxes: Vec<Boxed> = vec![Box::new(identity()), Box::new(of())];
        assert_eq!(run(&boxes, turned), plain, "in boxes");
        assert_eq!(run(&masked(of(), Mask::all()), turned), plain, "masked");
        assert_eq!(run(&apply_if_finite(of(), 3), turned), plain, "after a look at all");
        let labels = || Labels::paths([("1", "b")]).otherwise("a");
        assert_eq!(run(&partition((("a", of()), ("b", of())), labels()), turned), plain, "in groups");
        // Beside a group that changes its updates at once.
        let beside = run(&partition((("a", of()), ("b", sgd(0.0))), labels()), turned);
        let [f32s, same] = [70 * 90 + 5 * 20 * 3 + 2500, 40 * 30];
        assert_eq!(beside[..f32s], plain[..f32s]);
        assert_eq!(beside[f32s + same..], plain[f32s + same..]);
        assert_ne!(beside[f32s..f32s + same], plain[f32s..f32s + same]);
        assert_eq!(run(&multi_steps(of(), 1), turned), plain, "after what keeps them");
    }
}

#[test]
fn statistics_of_stored_updates_and_of_gradients_in_place_are_bitwise_identical() {
    holds(rate);
}

/// A loop holds one part's statistics only.
#[test]
fn two_parts_with_leaf_statistics_are_bitwise_identical_wherever_they_read() {
    holds(|| chain((scale_by_factored_rms().min_dim_size_to_factor(2), scale_by_sm3(), scale(-0.1))));
}

/// SM3's output is also its state.
#[test]
fn sm3_is_bitwise_identical_wherever_it_reads_statistics() {
    holds(|| sm3(0.1));
    assert_eq!(sm3(0.1).plan(&leaves(0, false)).unwrap().stored_bytes, 0);
}

#[test]
fn leaf_statistics_store_updates_only_after_a_change() {
    let params = leaves(0, false);
    let stored = |plan: gradchain::Plan| plan.passes.iter().map(|pass| pass.stored).collect::<Vec<_>>();
    let plan = rate().plan(&params).unwrap();
    assert!(plan.between_passes);
    assert_eq!((plan.stored_bytes, stored(plan)), (0, vec![0; 4]));
    let bytes = 4 * (70 * 90 + 5 * 20 * 3 + 2500) + 8 * (40 * 30 + 7);
    let plan = chain((scale(2.0), rate())).plan(&params).unwrap();
    assert_eq!((plan.stored_bytes, stored(plan)), (bytes, vec![bytes, 0, 0, 0]));
}

#[cfg(feature = "half")]
#[test]
fn sixteen_bit_gradients_are_copied_for_leaf_statistics() {
    use half::bf16;

    let params = (vec![bf16::ONE; 300], vec![1.0_f32; 20]);
    assert_eq!(rate().plan(&params).unwrap().stored_bytes, 4 * 300);
    // An identity stage makes the engine store updates.
    let stored = chain((scale(1.0), rate()));
    assert_eq!(stored.plan(&params).unwrap().stored_bytes, 4 * 320);
    let grads = |step| {
        let bf16s = (0..300).map(|i| bf16::from_f64(number(i, step))).collect::<Vec<_>>();
        (bf16s, (0..20).map(|i| number(i, step) as f32).collect::<Vec<_>>())
    };
    let (mut looked, mut wrote) = (params.clone(), params.clone());
    let (mut one, mut other) = (rate().init(&looked).unwrap(), stored.init(&wrote).unwrap());
    for step in 1..4 {
        rate().step(&mut looked, &grads(step), &mut one).unwrap();
        stored.step(&mut wrote, &grads(step), &mut other).unwrap();
        assert_eq!(looked, wrote);
    }
    assert_ne!(looked, params);
}

#[derive(Clone, Debug)]
struct ByLargest;

impl Part for ByLargest {
    const NAME: &'static str = "by_largest";
    type Form = WithLeafStatistics;
}

impl LeafStatistics for ByLargest {
    const BY_LEAF: bool = true;
    type State = PerLeaf<Scalar>;
    type Slots<C: Real> = [C; 0];
    type Expanded<C: Real> = [C; 0];
    type Scalars<C: Real> = C;

    fn start(&self, at: &InitContext<'_>) -> gradchain::Result<PerLeaf<Scalar>> {
        Ok(PerLeaf::new(at.active(), Scalar::new(1.0)))
    }

    fn collect_statistics(&self, largest: &mut PerLeaf<Scalar>, _: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        // Leaves are not writable here.
        assert!(tree.leaf::<f32>(0).is_none());
        tree.observe(&mut Largest(largest));
    }

    fn scalars<C: Real>(&self, largest: &PerLeaf<Scalar>, leaf: usize) -> C {
        C::of(1.0 / largest.get(leaf).map_or(1.0, |largest| largest.get()))
    }

    fn apply<C: Real>(by: C, _: &mut [C; 0], _: &[C; 0], u: C) -> C {
        u * by
    }
}

struct Largest<'a>(&'a mut PerLeaf<Scalar>);

impl LeafObserver for Largest<'_> {
    fn observe<C: Real>(&mut self, leaf: usize, _: &LeafSpec, u: &[C]) {
        let largest = u.iter().fold(0.0_f64, |largest, u| largest.max(u.as_f64().abs()));
        self.0.set(leaf, Scalar::new(largest));
    }
}

#[test]
fn a_custom_part_reads_leaf_statistics() {
    let optimizer = chain((ByLargest, clip_by_global_norm(1e9), sgd(1.0)));
    let mut params = (vec![0.0_f32; 2], vec![0.0_f64; 3]);
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &(vec![-0.5_f32, 0.0], vec![4.0, -2.0, 0.0]), &mut state).unwrap();
    assert_eq!(params, (vec![1.0, 0.0], vec![-1.0, 0.5, 0.0]));
    assert_eq!(state.0.get(1), Some(Scalar::new(4.0)));
}

#[derive(Clone, Debug)]
struct MeanByLargest;

impl Part for MeanByLargest {
    const NAME: &'static str = "mean_by_largest";
    type Form = WithLeafStatistics;
}

impl LeafStatistics for MeanByLargest {
    const BY_LEAF: bool = true;
    const SLOTS: &'static [Slot] = &[Slot::signed("mean")];
    type State = PerLeaf<Scalar>;
    type Slots<C: Real> = [C; 1];
    type Expanded<C: Real> = [C; 0];
    type Scalars<C: Real> = C;

    fn start(&self, at: &InitContext<'_>) -> gradchain::Result<PerLeaf<Scalar>> {
        ByLargest.start(at)
    }

    fn collect_statistics(&self, largest: &mut PerLeaf<Scalar>, _: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        tree.observe(&mut Largest(largest));
    }

    fn scalars<C: Real>(&self, largest: &PerLeaf<Scalar>, leaf: usize) -> C {
        ByLargest.scalars(largest, leaf)
    }

    fn apply<C: Real>(by: C, [mean]: &mut [C; 1], _: &[C; 0], u: C) -> C {
        *mean = *mean * C::of(0.75) + u * by * C::of(0.25);
        *mean
    }
}

#[test]
fn state_of_leaf_statistics_is_written_once_in_a_step() {
    let of = || chain((MeanByLargest, sgd(0.1)));
    holds(of);
    let plain = run(&of(), false);
    assert_eq!(run(&chain((ByLargest, ema(0.75).debias(false), sgd(0.1))), false), plain);
    let params = leaves(0, false);
    let mut state = of().init(&params).unwrap();
    of().step(&mut params.clone(), &leaves(1, false), &mut state).unwrap();
    let (mean, shown) = (state.0.moment("mean").unwrap(), leaves(1, false).4);
    let largest = shown.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    let expected: Vec<f32> = shown.iter().map(|x| x * (1.0 / f64::from(largest)) as f32 * 0.25).collect();
    assert_eq!(mean.get::<f32>(4), Some(&expected[..]));
    assert!(state.0.moment("largest").is_none());
    // The rewriting pass reads and writes each once.
    let elements = [70 * 90 + 5 * 20 * 3 + 2500, 40 * 30 + 7];
    let bytes = 2 * (4 * elements[0] + 8 * elements[1]);
    let pass_by_pass = |plan: gradchain::Plan| plan.passes.iter().map(|pass| pass.state).collect::<Vec<_>>();
    assert_eq!(pass_by_pass(of().plan(&params).unwrap()), [0, bytes]);
    let before_a_barrier = chain((of(), clip_by_global_norm(9.0)));
    assert_eq!(pass_by_pass(before_a_barrier.plan(&params).unwrap()), [0, bytes, 0]);
    // One code for each `f32`, and scales.
    let schema = quantized(of()).min_elements(0).init(&params).unwrap().schema().to_string();
    assert!(schema.contains("root8"), "{schema}");
}

/// Multiplies each element by its index and adds its leaf's, passed as expanded statistics.
#[derive(Clone, Debug)]
struct ByPlace;

impl Part for ByPlace {
    const NAME: &'static str = "by_place";
    type Form = WithLeafStatistics;
}

impl LeafStatistics for ByPlace {
    type State = Count;
    type Slots<C: Real> = [C; 0];
    type Expanded<C: Real> = [C; 2];
    type Scalars<C: Real> = ();

    fn start(&self, _: &InitContext<'_>) -> gradchain::Result<Count> {
        Ok(Count::default())
    }

    fn collect_statistics(&self, looks: &mut Count, _: &StepContext<'_>, _: &mut WholeTree<'_>) {
        looks.increment();
    }

    fn scalars<C: Real>(&self, _: &Count, _: usize) {}

    fn expand<C: Real>(looks: &Count, leaf: usize, start: usize, to: &mut [&mut [C]]) {
        assert_eq!((looks.get(), to.len(), to[0].len()), (1, 2, to[1].len()));
        (start..).zip(&mut *to[0]).for_each(|(place, to)| *to = C::of(place as f64));
        to[1].fill(C::of(leaf as f64));
    }

    fn apply<C: Real>((): (), _: &mut [C; 0], [place, leaf]: &[C; 2], u: C) -> C {
        u * *place + *leaf
    }
}

#[test]
fn leaf_statistics_reach_their_own_elements() {
    type Leaves = (Vec<f32>, Vec<f64>, Vec<f32>);
    let grads: Leaves = (
        (0..40_001).map(|i| number(i, 1) as f32).collect(),
        (0..20_003).map(|i| number(i, 2)).collect(),
        (0..3).map(|i| number(i, 3) as f32).collect(),
    );
    let singles = |g: &[f32], leaf: f32| g.iter().zip(0..).map(|(g, i)| -(g * i as f32 + leaf)).collect::<Vec<_>>();
    let doubles = grads.1.iter().zip(0..).map(|(g, i)| -(g * f64::from(i) + 1.0)).collect::<Vec<_>>();
    let expected = (singles(&grads.0, 0.0), doubles, singles(&grads.2, 2.0));
    let zeros = || (vec![0.0_f32; 40_001], vec![0.0_f64; 20_003], vec![0.0_f32; 3]);

    fn stepped<T: GradientTransformation<Needs = Nothing>>(t: T, mut params: Leaves, grads: &Leaves) -> Leaves {
        let mut state = t.init(&params).unwrap();
        t.step(&mut params, grads, &mut state).unwrap();
        params
    }
    assert_eq!(stepped(chain((ByPlace, scale(-1.0))), zeros(), &grads), expected);
    assert_eq!(stepped(chain((ByPlace, clip_by_global_norm(f64::MAX), scale(-1.0))), zeros(), &grads), expected);
    assert_eq!(stepped(chain((scale(-1.0), ByPlace, scale(-1.0))), zeros(), &grads).2, {
        grads.2.iter().zip(0..).map(|(g, i)| -(-g * i as f32 + 2.0)).collect::<Vec<_>>()
    });
    let boxes: Vec<Boxed> = vec![Box::new(ByPlace), Box::new(scale(-1.0))];
    assert_eq!(stepped(boxes, zeros(), &grads), expected);
    assert_eq!(stepped(masked(chain((ByPlace, scale(-1.0))), Mask::all()), zeros(), &grads), expected);
    let optimizer = chain((ByPlace, scale(-1.0)));
    let params = zeros();
    let updates = optimizer.update(&grads, &mut optimizer.init(&params).unwrap(), &params).unwrap();
    assert_eq!((updates.to_vec::<f32>("0").unwrap(), updates.to_vec::<f64>("1").unwrap()), (expected.0, expected.1));
}
