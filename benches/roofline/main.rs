//! One step of each core chain against the time of moving the bytes that its plan says it must move.
//!
//! `cargo bench --bench roofline --features half [-- FILTER]` says what the machine is, and prints a line for each
//! chain, element type, tree and number of threads. The ratio is that of two medians: of the step, and of the fastest
//! way of moving these bytes. All ways take turns with the step, so that what lies in the caches and a drift of the
//! machine's speed are the same for both sides. There is no ratio if a pass of what it is compared with is slower than
//! its bytes would be in one array that is read and one that is written, in the same run. `limit_gb_per_s` has a number
//! for each pass. `--features half,rayon` adds runs on all cores, `config` a chain made from a config. `-- cat_` runs
//! the whole catalogue of optimizers instead, on one leaf; `-- mat_` those that multiply matrices, against these
//! products. `-- bound_`, with the beginning of a chain's name behind it or none, says of each chain on 1e7 elements
//! what its arithmetic takes in the cache.
//!
//! `SIMD=avx2` before the command limits steps to AVX2 on a CPU with AVX-512, and `SIMD=baseline` to the baseline of the
//! target; the limit itself uses the widest level. `PAGES=huge` has parameters and gradients in huge pages,
//! those of the limit too; state always is, if it is large and the system has such pages.
#![allow(missing_docs, unreachable_pub, reason = "a program")]

mod bounds;
mod catalogue;
mod limit;
mod machine;
mod matrices;
mod trees;

use gradchain::prelude::*;
use gradchain::transform::{kahan_summation, stochastic_rounding};
use gradchain::tree::huge_pages;
use gradchain::wrapper::master;
use gradchain::{Plan, SimdLevel};

use limit::{Limit, are_huge, median};
use trees::{Flat, Shapes};

fn main() {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with("--")).unwrap_or_default();
    let asked = match std::env::var("SIMD").as_deref() {
        Ok("baseline") => Some(SimdLevel::Baseline),
        Ok("avx2") => Some(SimdLevel::Avx2),
        Ok(other) => {
            eprintln!("ISA is `baseline` or `avx2`, not `{other}`");
            std::process::exit(2);
        }
        Err(_) => None,
    };
    gradchain::force_simd_level(asked);
    let widest = gradchain::detected_simd_level();
    println!("{}", machine::describe(asked.map_or(widest, |simd| simd.min(widest)), &threads()));
    if filter.starts_with("mat_") {
        return matrices::run(&filter);
    }
    for shapes in Shapes::all() {
        if filter.starts_with("bound_") && shapes.name != "1e7" {
            continue;
        }
        run_dtype::<f32>(&shapes, "f32", &filter);
        #[cfg(feature = "half")]
        run_dtype::<half::bf16>(&shapes, "bf16", &filter);
    }
}

fn run_dtype<E: trees::Number>(shapes: &Shapes, dtype: &str, filter: &str) {
    catalogue::run::<E>(shapes, dtype, filter);
    // The matrix is for the catalogue.
    if filter.starts_with("cat_") || shapes.name == "2500x4000" {
        return;
    }
    let mut bench = Bench::<E>::new(shapes, dtype, filter);
    let chained = || chain((zero_nans(), clip_by_global_norm(1.0), adamw(1e-3)));
    bench.run("sgd_momentum", sgd(1e-3).momentum(0.9));
    bench.run("adam", adam(1e-3));
    bench.run("adamw_mask", adamw(1e-3).weight_decay(1e-2).mask(shapes.decay_mask()));
    bench.run("lion", lion(1e-4));
    bench.run("zero_nans+clip+adamw", chained());
    bench.run("multi_steps_emit", multi_steps(chained(), 1));
    bench.run_hold("multi_steps_hold", multi_steps(chained(), 1_000_000));
    if E::SIZE == 2 {
        bench.run("master_adamw", master(adamw(1e-3)));
        bench.run_few_bits("adamw_kahan", chain((adamw(1e-3), kahan_summation())));
        bench.run("adamw_stochastic", chain((adamw(1e-3), stochastic_rounding(0))));
    }
    bench.run_few_bits("adamw_8_bits", quantized(adamw(1e-3)));
    bench.run_few_bits("clip+adamw_8_bits", chain((clip_by_global_norm(1.0), quantized(adamw(1e-3)))));
    bench.run_few_bits("adamw_8_bits_log", quantized(adamw(1e-3)).logarithmic(true));
    bench.run("dyn_adamw", boxed(adamw(1e-3).weight_decay(1e-2)));
    let parts: Vec<Boxed> = vec![
        boxed(zero_nans()),
        boxed(clip_by_global_norm(1.0)),
        boxed(scale_by_adam()),
        boxed(scale_by_learning_rate(1e-3)),
    ];
    bench.run("dyn_zero_nans+clip+adam+lr", chain(parts));
    bench.run("dyn_clip+adamw", chain(vec![boxed(clip_by_global_norm(1.0)), boxed(adamw(1e-3))]));
    #[cfg(feature = "config")]
    {
        let config = r#"{"chain": [{"clip_by_global_norm": {"max_norm": 1.0}}, {"adamw": {"learning_rate": 1e-3}}]}"#;
        let config = gradchain::config::Config::from_json(config).expect("a config");
        bench.run("config_clip+adamw", config.build().expect("an optimizer"));
    }
}

struct Bench<'a, E> {
    shapes: &'a Shapes,
    dtype: &'a str,
    filter: &'a str,
    /// Parameters and gradients, made for the first line that is wanted: they may take longer than what is measured.
    leaves: Option<(Flat<E>, Flat<E>)>,
}

impl<'a, E: trees::Number> Bench<'a, E> {
    fn new(shapes: &'a Shapes, dtype: &'a str, filter: &'a str) -> Self {
        Bench { shapes, dtype, filter, leaves: None }
    }

    fn run<T: GradientTransformation<Needs = Nothing>>(&mut self, name: &str, t: T) {
        self.measure(name, t, |plan, shapes| Limit::of(plan, shapes, E::SIZE, false));
    }

    /// A chain with an array of state of 16 bits, or two of 8.
    fn run_few_bits<T: GradientTransformation<Needs = Nothing>>(&mut self, name: &str, t: T) {
        self.measure(name, t, |plan, shapes| Limit::of(plan, shapes, E::SIZE, true));
    }

    /// A mini-step that only accumulates: gradient read, accumulator read and written.
    fn run_hold<T: GradientTransformation<Needs = Nothing>>(&mut self, name: &str, t: T) {
        self.measure(name, t, |_, shapes| Limit::of_accumulating(shapes, E::SIZE));
    }

    fn measure<T: GradientTransformation<Needs = Nothing>>(
        &mut self,
        name: &str,
        t: T,
        limit: impl Fn(&Plan, &Shapes) -> Limit,
    ) {
        let (shapes, filter) = (self.shapes, self.filter);
        let bound = filter.strip_prefix("bound_");
        let label = format!("chain={name} dtype={}", self.dtype);
        let mut lines: Vec<_> =
            threads().into_iter().map(|n| (n, format!("{label} tree={} threads={n}", shapes.name))).collect();
        match bound {
            Some(wanted) if name.trim_start_matches("cat_").starts_with(wanted) => {}
            Some(_) => return,
            None => lines.retain(|(_, line)| line.contains(filter.strip_prefix("cat_").unwrap_or(filter))),
        }
        if lines.is_empty() {
            return;
        }
        let (params, grads) = self.leaves.get_or_insert_with(|| {
            let leaves = (Flat::new(shapes, |_| 0.5), Flat::new(shapes, |i| (i % 1000) as f64 * 1e-3 - 0.5));
            if are_huge() {
                huge_pages(&leaves);
            }
            leaves
        });
        let mut limit = limit(&t.plan(params).expect("a plan"), shapes);
        let n = shapes.elements() as f64;
        if bound.is_some() {
            return bounds::run(&label, &t, (params, grads), &mut limit, n);
        }
        for (threads, line) in lines {
            let mut state = t.init(params).expect("a state");
            let measured =
                in_pool(threads, || limit.measure(|| _ = t.step(params, grads, &mut state).expect("a step")));
            let rates: Vec<_> = measured.rates.iter().map(|rate| format!("{rate:.1}")).collect();
            let ratio = format!("{:.3}", measured.step / measured.limit);
            println!(
                "roofline {line} ratio={} ns_per_element={:.4} limit_gb_per_s={}",
                if measured.honest { &ratio } else { "none:the_limit_is_slow" },
                measured.step / n * 1e9,
                rates.join(","),
            );
        }
    }
}

#[cfg(feature = "rayon")]
fn threads() -> Vec<usize> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    if all > 1 { vec![1, all] } else { vec![1] }
}

#[cfg(not(feature = "rayon"))]
fn threads() -> Vec<usize> {
    vec![1]
}

#[cfg(feature = "rayon")]
fn in_pool<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
    pool.install(work)
}

#[cfg(not(feature = "rayon"))]
fn in_pool<R>(_: usize, work: impl FnOnce() -> R) -> R {
    work()
}
