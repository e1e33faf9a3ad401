//! A pass that only reduces parameters computes no updates, with bitwise identical results.

use gradchain::needs::Nothing;
use gradchain::part::{InitContext, Part, Passes, StepContext, Sums, TwoPass, TwoPasses};
use gradchain::prelude::*;
use gradchain::transform::{
    clip_by_block_rms, identity, normalize_by_update_norm, scale, scale_by_factored_rms, scale_by_param_block_rms,
    scale_by_trust_ratio,
};
use gradchain::wrapper::{sam, schedule_free};
use gradchain::{Boxed, Real};
use ndarray::{Array1, Array2, ShapeBuilder};

/// Multiplies by the norm of all parameters; `READS` declares, maybe wrongly, that the norm reads updates.
#[derive(Clone, Debug)]
struct ByNorm<const READS: bool>;

impl<const READS: bool> Part for ByNorm<READS> {
    const NAME: &'static str = "by_norm";
    type Form = TwoPass;
}

impl<const READS: bool> TwoPasses for ByNorm<READS> {
    const PASSES: Passes = Passes::TWO.reads_params([true, false]).reads_updates(READS);
    type Memory = ();
    type Run = f64;
    type Slots<C: Real> = [C; 0];
    type Sums<W: Real> = [W; 1];
    type Scalars<C: Real> = C;

    fn start(&self, _: &InitContext<'_>) -> gradchain::Result<()> {
        Ok(())
    }
    fn begin(&self, (): &mut (), _: &StepContext<'_>) -> f64 {
        f64::NAN
    }
    #[inline(always)]
    fn accumulate<C: Real>(_: C, _: &mut [C; 0], u: C, p: C) -> (C, [C::Wide; 1]) {
        (u, [p.wide() * p.wide()])
    }
    fn decide(&self, (): &mut (), norm: &mut f64, sums: Sums<'_>) {
        *norm = sums.total(0).sqrt();
    }
    fn scalars<C: Real>(&self, (): &(), norm: &f64, _: usize) -> C {
        C::of(*norm)
    }
    #[inline(always)]
    fn emit<C: Real>(norm: C, _: &mut [C; 0], u: C, _: C) -> C {
        u * norm
    }
}

/// Both dtypes and orders, shorter and longer than a tile and a chunk.
type Leaves = (Array1<f32>, Array2<f64>, Array2<f32>, Array1<f32>);

fn leaves(step: usize, turned: bool) -> Leaves {
    let number = |i: usize| ((i * 7919 + step * 104_729) % 2003) as f64 / 1001.0 - 1.0;
    (
        Array1::from_shape_fn(16_501, |i| number(i) as f32),
        Array2::from_shape_fn((40, 50), |(i, j)| number(i * 50 + j)),
        Array2::from_shape_fn((30, 70).set_f(turned), |(i, j)| number(i * 70 + j) as f32),
        Array1::from_shape_fn(5, |i| number(i) as f32),
    )
}

type Gradients = [Leaves; 4];

fn run<T: GradientTransformation<Needs = Nothing>>(optimizer: &T, gradients: &Gradients) -> Vec<u64> {
    let mut params = leaves(0, false);
    let mut state = optimizer.init(&params).unwrap();
    for gradients in gradients {
        optimizer.step(&mut params, gradients, &mut state).unwrap();
    }
    let (a, b, c, d) = params;
    let singles = a.iter().chain(&c).chain(&d).map(|x| u64::from(x.to_bits()));
    singles.chain(b.iter().map(|x| x.to_bits())).collect()
}

/// Compares both declarations in both memory orders.
macro_rules! same {
    ($given:expr, $what:literal, |$size:ident| $optimizer:expr) => {
        for (gradients, nothing) in &$given {
            let [with, without] = [
                {
                    let $size = ByNorm::<true>;
                    run(&$optimizer, gradients)
                },
                {
                    let $size = ByNorm::<false>;
                    run(&$optimizer, gradients)
                },
            ];
            assert!(with == without, $what);
            assert!(with != *nothing, "nothing happened");
        }
    };
}

#[test]
fn skipping_unused_updates_is_bitwise_identical() {
    let given = [false, true].map(|turned| {
        let gradients = [1, 2, 3, 4].map(|step| leaves(step, turned));
        let nothing = run(&identity(), &gradients);
        (gradients, nothing)
    });
    same!(given, "alone", |it| chain((it, scale(-1e-3))));
    same!(given, "after a barrier", |it| chain((clip_by_global_norm(0.5), it, sgd(1e-3))));
    same!(given, "after state and a barrier", |it| chain((scale_by_adam(), clip_by_block_rms(0.5), it, sgd(1e-3))));
    same!(given, "between sums of updates", |it| chain((
        clip_by_global_norm(0.5),
        it,
        normalize_by_update_norm(),
        sgd(1e-3)
    )));
    same!(given, "beside what counts", |it| chain((clip_by_global_norm(0.5), zero_nans(), it, adam(1e-3))));
    same!(given, "after a trust ratio", |it| chain((scale_by_trust_ratio(), it, scale(-1e-3))));
    same!(given, "before what looks", |it| chain((it, scale_by_factored_rms().min_dim_size_to_factor(2), sgd(1e-3))));
    same!(given, "after what looks", |it| chain((scale_by_factored_rms().min_dim_size_to_factor(2), it, sgd(1e-3))));
    same!(given, "in boxes", |it| {
        let boxes: Vec<Boxed> = vec![Box::new(clip_by_block_rms(0.5)), Box::new(it), Box::new(adam(1e-3))];
        boxes
    });
    same!(given, "masked", |it| chain((clip_by_global_norm(0.5), masked(it, Mask::path("2")), sgd(1e-3))));
    same!(given, "in groups", |it| partition(
        (("a", chain((clip_by_global_norm(0.5), it, sgd(1e-3)))), ("b", sam(sgd(1e-3), sgd(0.1)))),
        Labels::paths([("1", "b")]).otherwise("a")
    ));
    same!(given, "under mini-steps", |it| multi_steps(chain((clip_by_global_norm(0.5), it, sgd(1e-3))), 2));
    same!(given, "under what looks first", |it| apply_if_finite(chain((it, clip_by_global_norm(0.5), sgd(1e-3))), 3));
    same!(given, "under lookahead", |it| lookahead(chain((clip_by_global_norm(0.5), it, sgd(1e-3))), 2, 0.5));
    same!(given, "under schedule_free", |it| schedule_free(chain((it, sgd(1e-3))), 1e-3));
}

#[test]
fn the_plan_shows_the_reads_of_parameter_only_passes() {
    let chained = chain((clip_by_global_norm(1.0), scale_by_param_block_rms(), sgd(0.1)));
    let plan = chained.plan(&vec![0.0_f32; 1000]).unwrap();
    let read: Vec<_> = plan.passes.iter().map(|pass| (pass.source, pass.params)).collect();
    assert_eq!(read, [(4000, 0), (0, 4000), (4000, 8000)]);
}
