//! Chains on a tree, timed in turn with their limit.

use gradchain::SimdLevel;
use gradchain::prelude::*;
use gradchain::tree::huge_pages;

use crate::limit::Limit;
use crate::trees::{Flat, Number, Shapes, flat};

/// The bytes that a step must move: its plan's, a plan's with 16-bit or 8-bit state, or those of a mini-step that only
/// accumulates.
#[derive(Clone, Copy, PartialEq)]
pub enum Bytes {
    Planned,
    Quantized,
    Accumulating,
}

/// Sets the SIMD level, prints the machine, and returns the filter.
pub fn begin() -> String {
    let asked = std::env::var("SIMD").ok().map(|level| match level.as_str() {
        "baseline" => SimdLevel::Baseline,
        "avx2" => SimdLevel::Avx2,
        other => panic!("SIMD is `baseline` or `avx2`, not `{other}`"),
    });
    gradchain::force_simd_level(asked);
    let level = asked.map_or(gradchain::detected_simd_level(), |level| level.min(gradchain::detected_simd_level()));
    // Only Linux has the file.
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name =
        cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("unknown", |x| x.1);
    println!("machine cpu=\"{name}\" isa={level:?} threads={:?}", threads());
    std::env::args().skip(1).find(|a| !a.starts_with("--")).unwrap_or_default()
}

pub struct Bench<'a, E> {
    shapes: &'a Shapes,
    dtype: &'a str,
    filter: &'a str,
    /// Made for the first selected line, since that may take longer than the runs.
    leaves: Option<(Flat<E>, Flat<E>)>,
}

impl<'a, E: Number> Bench<'a, E> {
    pub fn new(shapes: &'a Shapes, dtype: &'a str, filter: &'a str) -> Self {
        Bench { shapes, dtype, filter, leaves: None }
    }

    /// Prints a line for each selected number of threads.
    pub fn run<T: GradientTransformation<Needs = Nothing>>(&mut self, name: &str, bytes: Bytes, t: T) {
        let label = format!("chain={name} dtype={} tree={}", self.dtype, self.shapes.name);
        let lines = threads().into_iter().map(|n| (n, format!("{label} threads={n}")));
        for (threads, line) in lines.filter(|(_, line)| line.contains(self.filter)) {
            let (params, grads) = self.leaves.get_or_insert_with(|| {
                let leaves = (flat(self.shapes, |_| 0.5), flat(self.shapes, |i| (i % 1000) as f64 * 1e-3 - 0.5));
                if std::env::var("PAGES").is_ok_and(|pages| pages == "huge") {
                    huge_pages(&leaves);
                }
                leaves
            });
            let (n, size) = (self.shapes.elements(), E::DTYPE.size());
            let mut limit = match bytes {
                Bytes::Accumulating => Limit::new([(n * size, 4 * n)]),
                _ => Limit::of(&t.plan(params).expect("a plan"), n, size, bytes == Bytes::Quantized),
            };
            let mut state = t.init(params).expect("a state");
            let (step, limit, rates) =
                in_pool(threads, || limit.measure(|| _ = t.step(params, grads, &mut state).expect("a step")));
            let (ratio, ns) = (step / limit, step / n as f64 * 1e9);
            println!("roofline {line} ratio={ratio:.3} ns_per_element={ns:.4} limit_gb_per_s={rates:.1?}");
        }
    }
}

/// Returns one, and with `rayon` all of the machine's.
fn threads() -> Vec<usize> {
    let all = if cfg!(feature = "rayon") { std::thread::available_parallelism().map_or(1, usize::from) } else { 1 };
    if all > 1 { vec![1, all] } else { vec![1] }
}

/// Runs `work` on this many threads.
pub fn in_pool<R: Send>(_threads: usize, work: impl FnOnce() -> R + Send) -> R {
    #[cfg(feature = "rayon")]
    return rayon::ThreadPoolBuilder::new().num_threads(_threads).build().expect("a thread pool").install(work);
    #[cfg(not(feature = "rayon"))]
    work()
}
