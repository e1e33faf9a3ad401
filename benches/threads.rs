//! Times steps on all of rayon's threads against one, called from outside rayon's pool.
//!
//! `cargo bench --bench threads --features rayon` prints a line for each chain and number of elements: median
//! microseconds and their ratio, for consecutive steps, and for steps with a pause of 0.3 ms, in which rayon's threads
//! fall asleep. The two take turns.
#![allow(missing_docs, reason = "a program")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use gradchain::OptState;
use gradchain::needs::Nothing;
use gradchain::prelude::*;

const PAUSES: [Duration; 2] = [Duration::ZERO, Duration::from_micros(300)];
const ROUNDS: usize = 12;
const STEPS: usize = 25;

fn main() {
    println!("threads: {}", rayon::current_num_threads());
    for elements in [100_000, 140_000, 200_000, 300_000, 400_000, 500_000, 700_000, 1_000_000, 3_000_000, 10_000_000] {
        for pause in PAUSES {
            run("sgd", sgd(1e-3).momentum(0.9), elements, pause);
            run("adam", adam(1e-3), elements, pause);
            run("clip+adamw", chain((clip_by_global_norm(1.0), adamw(1e-3))), elements, pause);
        }
    }
}

struct Model<T: GradientTransformation> {
    optimizer: T,
    params: Vec<f32>,
    gradients: Vec<f32>,
    state: OptState<T>,
    took: Vec<f64>,
}

impl<T: GradientTransformation<Needs = Nothing>> Model<T> {
    fn new(optimizer: T, elements: usize) -> Self {
        let wave = |scale: f32| (0..elements).map(|i| (i as f32 * 0.618).sin() * scale).collect::<Vec<_>>();
        let (params, gradients) = (wave(1.0), wave(1e-2));
        let state = optimizer.init(&params).expect("the optimizer takes these parameters");
        Model { optimizer, params, gradients, state, took: Vec::new() }
    }

    /// Takes steps; the first fifth warms up the caches and is not recorded.
    fn steps(&mut self, pause: Duration) {
        for step in 0..STEPS {
            let until = Instant::now();
            while until.elapsed() < pause {
                black_box(until);
            }
            let begin = Instant::now();
            self.optimizer.step(&mut self.params, &self.gradients, &mut self.state).expect("the gradients fit");
            if step >= STEPS / 5 {
                self.took.push(begin.elapsed().as_secs_f64() * 1e6);
            }
        }
    }

    fn median(&mut self) -> f64 {
        self.took.sort_by(f64::total_cmp);
        self.took[self.took.len() / 2]
    }
}

fn run<T>(name: &str, optimizer: T, elements: usize, pause: Duration)
where
    T: GradientTransformation<Needs = Nothing> + Clone + Send + Sync,
    OptState<T>: Send,
{
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    let (mut alone, mut all) = (Model::new(optimizer.clone(), elements), Model::new(optimizer, elements));
    for _ in 0..ROUNDS {
        one.install(|| alone.steps(pause));
        all.steps(pause);
    }
    let (alone, all) = (alone.median(), all.median());
    let pause = pause.as_micros();
    println!(
        "threads chain={name} elements={elements} pause_us={pause} one_us={alone:.1} all_us={all:.1} ratio={:.2}",
        all / alone
    );
}
