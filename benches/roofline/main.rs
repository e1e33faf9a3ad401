//! Times a step of each core chain against moving the bytes of its plan.
//!
//! `cargo bench --bench roofline --features half [-- FILTER]` prints the machine, and a line for each chain, dtype,
//! tree and number of threads. The ratio is of two medians: of the step, and of the fastest way to move these bytes, in
//! turn with it. `limit_gb_per_s` has a number for each pass. `--features half,rayon` adds runs on all cores, `config`
//! a chain from a config.
//!
//! `SIMD=avx2` limits steps to AVX2 on a CPU with AVX-512, and `SIMD=baseline` to the target's baseline; the limit
//! itself uses the widest level. `PAGES=huge` puts parameters and gradients in huge pages.
#![allow(missing_docs, unreachable_pub, reason = "a program")]

mod bench;
mod limit;
mod trees;

use gradchain::prelude::*;
use gradchain::transform::{kahan_summation, stochastic_rounding};
use gradchain::wrapper::master;

use bench::Bench;
use bench::Bytes::{Accumulating, Planned, Quantized};
use trees::Shapes;

fn main() {
    let filter = bench::begin();
    for shapes in Shapes::all() {
        run_dtype::<f32>(&shapes, "f32", &filter);
        #[cfg(feature = "half")]
        run_dtype::<half::bf16>(&shapes, "bf16", &filter);
    }
}

fn run_dtype<E: trees::Number>(shapes: &Shapes, dtype: &str, filter: &str) {
    let mut bench = Bench::<E>::new(shapes, dtype, filter);
    let chained = || chain((zero_nans(), clip_by_global_norm(1.0), adamw(1e-3)));
    bench.run("sgd_momentum", Planned, sgd(1e-3).momentum(0.9));
    bench.run("adam", Planned, adam(1e-3));
    bench.run("adamw_mask", Planned, adamw(1e-3).weight_decay(1e-2).mask(shapes.decay_mask()));
    bench.run("lion", Planned, lion(1e-4));
    bench.run("zero_nans+clip+adamw", Planned, chained());
    bench.run("multi_steps_emit", Planned, multi_steps(chained(), 1));
    bench.run("multi_steps_hold", Accumulating, multi_steps(chained(), 1_000_000));
    if E::DTYPE.size() == 2 {
        bench.run("master_adamw", Planned, master(adamw(1e-3)));
        bench.run("adamw_kahan", Quantized, chain((adamw(1e-3), kahan_summation())));
        bench.run("adamw_stochastic", Planned, chain((adamw(1e-3), stochastic_rounding(0))));
    }
    bench.run("adamw_8_bits", Quantized, quantized(adamw(1e-3)));
    bench.run("clip+adamw_8_bits", Quantized, chain((clip_by_global_norm(1.0), quantized(adamw(1e-3)))));
    bench.run("adamw_8_bits_log", Quantized, quantized(adamw(1e-3)).logarithmic(true));
    bench.run("dyn_adamw", Planned, boxed(adamw(1e-3).weight_decay(1e-2)));
    let clip = || boxed(clip_by_global_norm(1.0));
    let parts = vec![boxed(zero_nans()), clip(), boxed(scale_by_adam()), boxed(scale_by_learning_rate(1e-3))];
    bench.run("dyn_zero_nans+clip+adam+lr", Planned, chain(parts));
    bench.run("dyn_clip+adamw", Planned, chain(vec![clip(), boxed(adamw(1e-3))]));
    #[cfg(feature = "config")]
    {
        let config = r#"{"chain": [{"clip_by_global_norm": {"max_norm": 1.0}}, {"adamw": {"learning_rate": 1e-3}}]}"#;
        let config = gradchain::config::Config::from_json(config).expect("a config");
        bench.run("config_clip+adamw", Planned, config.build().expect("an optimizer"));
    }
}
