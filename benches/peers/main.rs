//! Runs a chain's steps and its limit on demand for `peers.py`.
//!
//! `cargo bench --bench peers --features rayon -- CHAIN TREE THREADS` runs one `step` or `limit` for each input line of
//! that name, and prints the seconds. The limit is the roofline's, for `muon` its products.
#![allow(missing_docs, unreachable_pub, dead_code, reason = "a program, which uses parts of another")]

#[path = "../roofline/limit.rs"]
mod limit;
#[path = "../roofline/trees.rs"]
mod trees;

use std::io::Write;
use std::time::Instant;

use gradchain::prelude::*;
use ndarray::Array2;

use limit::Limit;
use trees::{Shapes, flat};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let [chain_name, tree, threads] = &words[..] else { panic!("expected CHAIN TREE THREADS, found {words:?}") };
    let threads = threads.parse().expect("a number of threads");
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
    let decayed = || adamw(1e-3).weight_decay(1e-2);
    pool.install(|| match &**chain_name {
        "adamw" => fused(tree, decayed()),
        "clip+adamw" => fused(tree, chain((clip_by_global_norm(1.0), decayed()))),
        "muon" => matrix(tree, muon(1e-3)),
        other => panic!("unknown chain {other}"),
    });
}

fn fused<T: GradientTransformation<Needs = Nothing>>(tree: &str, optimizer: T) {
    let shapes = Shapes::all().into_iter().find(|shapes| shapes.name == tree).expect("a tree of that name");
    let mut params = flat::<f32>(&shapes, |_| 0.5);
    let grads = flat::<f32>(&shapes, |i| (i % 1000) as f64 * 1e-3 - 0.5);
    let mut state = optimizer.init(&params).expect("a state");
    let plan = || optimizer.plan(&params).expect("a plan");
    let [mut limit, mut other] = [(); 2].map(|()| Limit::of(&plan(), shapes.elements(), size_of::<f32>(), false));
    // Other arrays of the same sizes leave the caches as a step would.
    limit.measure(|| other.run());
    serve(|| _ = optimizer.step(&mut params, &grads, &mut state).expect("a step"), || limit.run());
}

/// Serves a matrix; the limit is five times `X·Xᵀ`, its square, and the product of that with `X`.
fn matrix<T: GradientTransformation<Needs = Nothing>>(side: &str, optimizer: T) {
    let n = side.parse().expect("the side of a matrix");
    let grads = Array2::from_shape_fn((n, n), |(i, j)| ((i * 7919 + j * 104_729) % 1009) as f32 / 1009.0 - 0.5);
    let mut params = grads.clone();
    let mut state = optimizer.init(&params).expect("a state");
    serve(
        || _ = optimizer.step(&mut params, &grads, &mut state).expect("a step"),
        || {
            for _ in 0..5 {
                let square = grads.dot(&grads.t());
                std::hint::black_box((square.dot(&square), square.dot(&grads)));
            }
        },
    );
}

/// Serves commands, after a line when ready.
fn serve(mut step: impl FnMut(), mut limit: impl FnMut()) {
    let say = |line: String| {
        println!("{line}");
        std::io::stdout().flush().expect("someone who reads");
    };
    say("ready".into());
    for line in std::io::stdin().lines() {
        let start = Instant::now();
        match line.expect("a line").trim() {
            "step" => step(),
            "limit" => limit(),
            other => panic!("expected `step` or `limit`, found {other}"),
        }
        say(start.elapsed().as_secs_f64().to_string());
    }
}
