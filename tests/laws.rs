//! Laws that every transformation must keep, over random trees; see `common::registry`.
#![allow(missing_docs, reason = "a test program")]

mod common;

use common::registry::{About, Law, registry};
use common::trees::{LeafPlan, Number, Order, Problem, noise, problem, tree};
use common::{close, run, same_values};
use gradchain::prelude::*;
use gradchain::state::{AverageOptions, KeyPolicy, average, same_bits};
use gradchain::tree::{DynTree, Structure};
use gradchain::{Isa, Stage};
use proptest::test_runner::{Config, TestRunner};

/// Runs a law on random problems; `PROPTEST_CASES` sets how many.
fn for_problems(steps: usize, check: impl Fn(&Problem)) {
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(cases()) });
    runner
        .run(&problem(steps), |problem| {
            check(&problem);
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(12)
}

struct Schemas<'a>(&'a Problem);

impl Law for Schemas<'_> {
    fn check<T: Stage<Needs = gradchain::needs::Nothing> + Clone + 'static>(&mut self, name: &str, _: About, t: T) {
        let Problem { params, grads, .. } = self.0;
        let mut params = params.clone();
        let before = Structure::of(&params).unwrap();
        let mut state = t.init(&params).unwrap();
        let schema = state.schema();
        for grads in grads {
            let updates = t.update(grads, &mut state, &params).unwrap();
            assert_eq!(*updates.structure(), before, "{name}: updates have the parameters' types");
            t.step(&mut params, grads, &mut state).unwrap();
            assert_eq!(state.schema(), schema, "{name}: a step keeps the schema");
            assert_eq!(
                Structure::of(&params).unwrap(),
                before,
                "{name}: a step keeps the parameters' types and layout"
            );
        }
        let options = AverageOptions { keys: KeyPolicy::First, ..AverageOptions::default() };
        let other = t.init(&params).unwrap();
        let mean = average(&[(&*state, 1.0), (&*other, 3.0)], options).unwrap();
        state.replace(mean).unwrap_or_else(|error| panic!("{name}: averaging keeps the schema: {error}"));
    }
}

#[test]
fn no_step_and_no_average_changes_a_dtype_or_the_schema() {
    for_problems(3, |problem| registry(&mut Schemas(problem)));
}

struct StepIsUpdateAndApply<'a>(&'a Problem);

impl Law for StepIsUpdateAndApply<'_> {
    fn check<T: Stage<Needs = gradchain::needs::Nothing> + Clone + 'static>(&mut self, name: &str, _: About, t: T) {
        let Problem { params, grads, .. } = self.0;
        let stepped = run(&t, params, grads);
        let mut params = params.clone();
        let mut state = t.init(&params).unwrap();
        let mut updates = state.zero_updates();
        for grads in grads {
            let outcome = t.update_into(grads, &mut state, &params, &mut updates).unwrap();
            assert_eq!(outcome, updates.outcome(), "{name}");
            apply_updates(&mut params, &updates).unwrap();
        }
        same_values(&params, &stepped.params).unwrap_or_else(|at| panic!("{name}: {at}"));
        assert!(same_bits(&*state, &*stepped.state), "{name}: the states differ");
    }
}

#[test]
fn step_is_update_and_apply() {
    for_problems(3, |problem| registry(&mut StepIsUpdateAndApply(problem)));
}

struct FusedIsStageByStage<'a>(&'a Problem);

impl Law for FusedIsStageByStage<'_> {
    fn check<T: Stage<Needs = gradchain::needs::Nothing> + Clone + 'static>(&mut self, name: &str, _: About, t: T) {
        let Problem { params, grads, .. } = self.0;
        let fused = run(&t, params, grads);
        // In a chain with something that cannot be fused, every part runs on tiles; the identity behind `dyn` is such.
        let apart = run(&chain((boxed(identity()), t.clone(), boxed(identity()))), params, grads);
        same_values(&fused.params, &apart.params).unwrap_or_else(|at| panic!("{name} in a chain: {at}"));
        assert!(same_bits(&*fused.state, &apart.state.1), "{name}: the states differ");
        let erased = run(&boxed(t), params, grads);
        same_values(&fused.params, &erased.params).unwrap_or_else(|at| panic!("{name} boxed: {at}"));
    }
}

#[test]
fn fused_equals_stage_by_stage() {
    for_problems(3, |problem| registry(&mut FusedIsStageByStage(problem)));
}

#[test]
fn a_chain_fused_equals_its_members_boxed_and_its_members_one_after_the_other() {
    for_problems(3, |Problem { params, grads, .. }| {
        let fused =
            run(&chain((zero_nans(), scale(0.5), clip_by_global_norm(0.4), ema(0.5), adamw(0.1))), params, grads);
        let members: Vec<Boxed> = vec![
            boxed(zero_nans()),
            boxed(scale(0.5)),
            boxed(clip_by_global_norm(0.4)),
            boxed(ema(0.5)),
            boxed(adamw(0.1)),
        ];
        let apart = run(&chain(members), params, grads);
        same_values(&fused.params, &apart.params).unwrap_or_else(|at| panic!("{at}"));
    });
}

struct Isas<'a>(&'a Problem);

impl Law for Isas<'_> {
    fn check<T: Stage<Needs = gradchain::needs::Nothing> + Clone + 'static>(&mut self, name: &str, _: About, t: T) {
        let Problem { params, grads, .. } = self.0;
        let runs = [Some(Isa::Baseline), Some(Isa::Avx2), None].map(|isa| {
            gradchain::force_isa(isa);
            let after = run(&t, params, grads);
            gradchain::force_isa(None);
            after
        });
        for other in &runs[1..] {
            same_values(&runs[0].params, &other.params).unwrap_or_else(|at| panic!("{name}: {at}"));
            assert!(runs[0].same_state(other), "{name}: the states differ");
        }
    }
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    for_problems(2, |problem| registry(&mut Isas(problem)));
}

/// Leaves of several pieces, small ones among them, so that threads share leaves and take several.
fn large_problem() -> Problem {
    let leaf = |number, shape: &[usize], order| LeafPlan { number, shape: shape.into(), order };
    let plan = vec![
        leaf(Number::F32, &[50_000], Order::C),
        leaf(Number::F64, &[3], Order::C),
        leaf(Number::F32, &[200, 170], Order::Fortran),
        leaf(Number::F64, &[40_000], Order::Negative),
        leaf(Number::F32, &[], Order::C),
        leaf(Number::F32, &[100, 300], Order::Strided),
    ];
    let params = tree(&plan, |leaf, i| noise(1, leaf, i));
    let grads = (0..3).map(|t| tree(&plan, |leaf, i| noise(2 + t, leaf, i))).collect();
    Problem { plan, params, grads }
}

#[cfg(feature = "rayon")]
#[test]
fn every_number_of_threads_gives_the_same_bits() {
    struct Threads<'a>(&'a Problem);
    impl Law for Threads<'_> {
        fn check<T: Stage<Needs = gradchain::needs::Nothing> + Clone + 'static>(&mut self, name: &str, _: About, t: T) {
            let Problem { params, grads, .. } = self.0;
            let runs = [1, 2, 8].map(|threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| run(&t, params, grads))
            });
            for other in &runs[1..] {
                same_values(&runs[0].params, &other.params).unwrap_or_else(|at| panic!("{name}: {at}"));
                assert!(runs[0].same_state(other), "{name}: the states differ");
            }
        }
    }
    registry(&mut Threads(&large_problem()));
}

#[test]
fn leaves_of_several_pieces_keep_the_laws_too() {
    let problem = large_problem();
    registry(&mut StepIsUpdateAndApply(&problem));
    registry(&mut FusedIsStageByStage(&problem));
}

struct Layouts<'a>(&'a Problem);

impl Law for Layouts<'_> {
    fn check<T: Stage<Needs = gradchain::needs::Nothing> + Clone + 'static>(&mut self, name: &str, about: About, t: T) {
        let Problem { plan, params, grads } = self.0;
        let plain = |source: &DynTree, number: usize| {
            let values = common::values(source);
            let of = |leaf: usize, i: usize| {
                let path = format!("layer{}/p{leaf}", leaf % 2);
                values.iter().find(|(p, _)| *p == path).map_or(0.0, |(_, v)| v[i])
            };
            let plan: Vec<_> = plan.iter().map(|l| LeafPlan { order: Order::C, ..l.clone() }).collect();
            let _ = number;
            tree(&plan, of)
        };
        let grads_plain: Vec<_> = grads.iter().enumerate().map(|(i, g)| plain(g, i)).collect();
        let (a, b) = (run(&t, params, grads), run(&t, &plain(params, 0), &grads_plain));
        // Fortran-ordered leaves are added up in another order; random numbers and everything else go by logical place.
        let exact = about.elementwise || plan.iter().all(|l| l.order != Order::Fortran);
        let same = if exact { same_values(&a.params, &b.params) } else { close(&a.params, &b.params, 2e-2) };
        same.unwrap_or_else(|at| panic!("{name}: {at}"));
    }
}

#[test]
fn memory_layout_does_not_matter() {
    for_problems(2, |problem| registry(&mut Layouts(problem)));
}

struct Errors<'a>(&'a Problem);

impl Law for Errors<'_> {
    fn check<T: Stage<Needs = gradchain::needs::Nothing> + Clone + 'static>(&mut self, name: &str, _: About, t: T) {
        let Problem { params, grads, .. } = self.0;
        let mut after = run(&t, params, &grads[..1]);
        let (params, state) = (after.params.clone(), after.state.clone());
        let mut wrong = grads[1].clone();
        wrong.insert("unexpected", ndarray::arr0(1.0_f32));
        wrong.insert("another", ndarray::arr1(&[1.0_f64]));
        let error = t.step(&mut after.params, &wrong, &mut after.state).unwrap_err();
        assert_eq!(error.differences().len(), 2, "{name}: every difference is listed: {error}");
        let error = t.update(&wrong, &mut after.state, &params).unwrap_err();
        assert!(error.is_structure(), "{name}: {error}");
        let mut other = wrong.clone();
        assert!(t.step(&mut other, &wrong, &mut after.state).is_err(), "{name}: other parameters");
        same_values(&after.params, &params).unwrap_or_else(|at| panic!("{name}: parameters changed: {at}"));
        same_values(&other, &wrong).unwrap_or_else(|at| panic!("{name}: parameters changed: {at}"));
        assert!(same_bits(&*after.state, &*state), "{name}: the state changed");
        // And the run goes on as if nothing had been.
        t.step(&mut after.params, &grads[1], &mut after.state).unwrap();
        let straight = run(&t, &self.0.params, grads);
        same_values(&after.params, &straight.params).unwrap_or_else(|at| panic!("{name}: {at}"));
    }
}

#[test]
fn an_error_changes_nothing() {
    for_problems(2, |problem| registry(&mut Errors(problem)));
}

struct Masks<'a>(&'a Problem);

impl Law for Masks<'_> {
    fn check<T: Stage<Needs = gradchain::needs::Nothing> + Clone + 'static>(&mut self, name: &str, _: About, t: T) {
        let Problem { params, grads, .. } = self.0;
        let frozen = masked(t.clone(), Mask::by(|leaf| !leaf.path().starts_with("layer1"))).freeze_others();
        let after = run(&frozen, params, grads);
        let only = |tree: &DynTree, layer: &str| {
            let keep = common::values(tree).into_iter().filter(|(path, _)| path.starts_with(layer));
            keep.map(|(path, v)| (path, v.iter().map(|x| x.to_bits()).collect::<Vec<_>>())).collect::<Vec<_>>()
        };
        assert_eq!(only(&after.params, "layer1"), only(params, "layer1"), "{name}: frozen leaves keep their bits");
        let fields = after.state.schema().entries;
        let acted_on = fields.iter().filter_map(|f| f.leaf.as_deref()).all(|leaf| !leaf.starts_with("layer1"));
        assert!(acted_on, "{name}: there is state for a leaf that is not acted on");

        // The leaves acted on fare as if the others were not there.
        let without = |tree: &DynTree| {
            let mut tree = tree.clone();
            let gone: Vec<String> = tree.names().filter(|n| n.starts_with("layer1")).map(String::from).collect();
            gone.iter().for_each(|name| assert!(tree.remove(name)));
            tree
        };
        let alone = run(&t, &without(params), &grads.iter().map(without).collect::<Vec<_>>());
        same_values(&without(&after.params), &alone.params).unwrap_or_else(|at| panic!("{name}: {at}"));
    }
}

#[test]
fn leaves_that_are_masked_off_are_not_touched_and_do_not_matter() {
    for_problems(2, |problem| registry(&mut Masks(problem)));
}

struct MiniSteps<'a>(&'a Problem);

impl Law for MiniSteps<'_> {
    fn check<T: Stage<Needs = gradchain::needs::Nothing> + Clone + 'static>(&mut self, name: &str, about: About, t: T) {
        if !about.per_step {
            return;
        }
        let Problem { plan, params, grads } = self.0;
        // Mini-batches g and 3g, whose mean is 2g, and −g and 2g, whose sum is g: both exact in every type here.
        let times = |g: &DynTree, factor: f64| {
            let values = common::values(g);
            tree(plan, |leaf, i| {
                let path = format!("layer{}/p{leaf}", leaf % 2);
                values.iter().find(|(p, _)| *p == path).map_or(0.0, |(_, v)| v[i] * factor)
            })
        };
        let eighth: Vec<_> = grads.iter().map(|g| times(g, 0.125)).collect();
        let minis: Vec<_> = eighth.iter().flat_map(|g| [times(g, 1.0), times(g, 1.0)]).collect();
        let batch = run(&t, params, &eighth);
        let mean = run(&multi_steps(t.clone(), 2), params, &minis);
        same_values(&batch.params, &mean.params).unwrap_or_else(|at| panic!("{name}, mean: {at}"));
        assert!(same_bits(&*batch.state, mean.state.inner()), "{name}: the inner states differ");
        let halves: Vec<_> = eighth.iter().flat_map(|g| [times(g, 0.5), times(g, 0.5)]).collect();
        let sum = run(&multi_steps(t.clone(), 2).use_grad_mean(false), params, &halves);
        close(&batch.params, &sum.params, 2e-3).unwrap_or_else(|at| panic!("{name}, sum: {at}"));
        let windows = sum.state.gradient_step().get();
        assert_eq!((windows, sum.state.mini_step().get()), (grads.len() as u64, 0), "{name}");
    }
}

#[test]
fn mini_batches_equal_the_batch() {
    for_problems(2, |problem| registry(&mut MiniSteps(problem)));
}

struct ZeroGradients<'a>(&'a Problem);

impl Law for ZeroGradients<'_> {
    fn check<T: Stage<Needs = gradchain::needs::Nothing> + Clone + 'static>(&mut self, name: &str, _: About, t: T) {
        let zero = tree(&self.0.plan, |_, _| 0.0);
        let after = run(&t, &self.0.params, &[zero.clone(), zero.clone(), zero]);
        let finite = common::values(&after.params).iter().all(|(_, v)| v.iter().all(|x| x.is_finite()));
        assert!(finite, "{name}: {:?}", after.params);
    }
}

#[test]
fn zero_gradients_give_no_nan() {
    for_problems(2, |problem| registry(&mut ZeroGradients(problem)));
}

struct Neighbours<'a>(&'a Problem);

impl Law for Neighbours<'_> {
    fn check<T: Stage<Needs = gradchain::needs::Nothing> + Clone + 'static>(&mut self, name: &str, about: About, t: T) {
        if !about.elementwise {
            return;
        }
        let Problem { plan, params, grads } = self.0;
        for bad in [f64::NAN, f64::INFINITY] {
            let poisoned = |g: &DynTree| {
                let values = common::values(g);
                tree(plan, |leaf, i| {
                    let path = format!("layer{}/p{leaf}", leaf % 2);
                    if i == 0 { bad } else { values.iter().find(|(p, _)| *p == path).map_or(0.0, |(_, v)| v[i]) }
                })
            };
            let (well, ill) =
                (run(&t, params, grads), run(&t, params, &grads.iter().map(poisoned).collect::<Vec<_>>()));
            for ((path, a), (_, b)) in common::values(&well.params).iter().zip(&common::values(&ill.params)) {
                let bits = |v: &[f64]| v.iter().skip(1).map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(a), bits(b), "{name}: a {bad} in {path} reached another element");
            }
        }
    }
}

#[test]
fn a_nan_in_one_element_stays_in_that_element() {
    for_problems(2, |problem| registry(&mut Neighbours(problem)));
}

/// One leaf of 700 elements; the same as two; and the two under names that put them the other way round.
fn cuts(values: &dyn Fn(usize) -> f64) -> [DynTree; 3] {
    let part = |range: std::ops::Range<usize>| ndarray::Array1::from_iter(range.map(values));
    let tree = |parts: [(&str, std::ops::Range<usize>); 2]| {
        let mut tree = DynTree::new();
        parts
            .into_iter()
            .filter(|(_, range)| !range.is_empty())
            .for_each(|(name, range)| tree.insert(name, part(range)));
        tree
    };
    [tree([("a", 0..700), ("b", 0..0)]), tree([("a", 0..300), ("b", 300..700)]), tree([("b", 0..300), ("a", 300..700)])]
}

struct Cuts;

impl Law for Cuts {
    fn check<T: Stage<Needs = gradchain::needs::Nothing> + Clone + 'static>(&mut self, name: &str, about: About, t: T) {
        // What treats leaves as wholes may tell one from two; what adds up over the tree differs in the last bit at most.
        let of_the_tree = ["clip_by_global_norm", "chain_of_four", "nested_chain", "named_chain", "multi_steps_clip"];
        if !about.elementwise && !of_the_tree.contains(&name) {
            return;
        }
        let params = cuts(&|i| noise(1, 0, i));
        let grads: Vec<_> = (0..4).map(|step| cuts(&move |i| noise(2 + step, 0, i))).collect();
        let results: Vec<Vec<f64>> = (0..3)
            .map(|cut| {
                let grads: Vec<_> = grads.iter().map(|g| g[cut].clone()).collect();
                let mut leaves = common::values(&run(&t, &params[cut], &grads).params);
                if cut == 2 {
                    leaves.reverse();
                }
                leaves.into_iter().flat_map(|(_, values)| values).collect()
            })
            .collect();
        for (cut, result) in results.iter().enumerate().skip(1) {
            for (i, (whole, cut_up)) in results[0].iter().zip(result).enumerate() {
                let close = if about.elementwise { whole == cut_up } else { (whole - cut_up).abs() <= 1e-12 };
                assert!(close, "{name}, cut {cut}: element {i} is {cut_up:e} instead of {whole:e}");
            }
        }
    }
}

#[test]
fn cutting_a_leaf_in_two_and_the_order_of_leaves_do_not_matter() {
    registry(&mut Cuts);
}

/// Every entry of the registry, boxed.
struct Collect(Vec<Boxed>);

impl Law for Collect {
    fn check<T: Stage<Needs = gradchain::needs::Nothing> + Clone + 'static>(&mut self, _: &str, _: About, t: T) {
        self.0.push(boxed(t));
    }
}

/// A chain of entries drawn by `draws`, some of them wrapped, wrapped itself.
fn random_nesting(entries: &[Boxed], draws: &[usize]) -> Boxed {
    let wrap = |inner: Boxed, how: usize| match how % 7 {
        0 => boxed(multi_steps(inner, 2)),
        1 => boxed(masked(inner, Mask::min_ndim(1))),
        2 => boxed(masked(inner, !Mask::min_ndim(2)).freeze_others()),
        3 => boxed(apply_if_finite(inner, 2)),
        4 => boxed(lookahead(inner, 2, 0.5)),
        _ => inner,
    };
    let members = draws.chunks(2).map(|d| wrap(entries[d[0] % entries.len()].clone(), d[d.len() - 1] / 128));
    let chain: Vec<Boxed> = members.collect();
    wrap(boxed(chain), draws.iter().sum::<usize>() / 7)
}

#[test]
fn random_chains_and_nestings_keep_the_laws() {
    let mut entries = Collect(Vec::new());
    registry(&mut entries);
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(cases() * 2) });
    let draws = proptest::collection::vec(0..100_000_usize, 2..8);
    runner
        .run(&(problem(2), draws), |(problem, draws)| {
            let t = random_nesting(&entries.0, &draws);
            let (name, about) = (t.describe(), About { elementwise: false, per_step: false });
            Schemas(&problem).check(&name, about, t.clone());
            StepIsUpdateAndApply(&problem).check(&name, about, t.clone());
            FusedIsStageByStage(&problem).check(&name, about, t.clone());
            Errors(&problem).check(&name, about, t.clone());
            Masks(&problem).check(&name, about, t);
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
}
