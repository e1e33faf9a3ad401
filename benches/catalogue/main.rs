//! Times every optimizer against moving its bytes, as the bench `roofline` does.
//!
//! `cargo bench --bench catalogue --features contrib,half [-- FILTER]` prints a line for each optimizer and dtype, on a
//! leaf of 1e7 elements, or a matrix if it reduces axes. `-- mat_` measures optimizers that multiply matrices against
//! these products. `-- bound_`, optionally with the beginning of a name, measures the arithmetic in L1.
#![allow(missing_docs, unreachable_pub, dead_code, reason = "a program, which uses parts of another")]

#[path = "../roofline/bench.rs"]
mod bench;
mod bounds;
#[path = "../roofline/limit.rs"]
mod limit;
mod matrices;
#[path = "../roofline/trees.rs"]
mod trees;

use gradchain::optimizer::{
    acprop, adabelief, adadelta, adamax, adamaxw, adan, ademamix, adopt, amsgrad, cocob, dadapt_adamw, dog, dowg,
    fromage, lars, madgrad, nadam, noisy_sgd, novograd, optimistic_adam, optimistic_adam_v2,
    optimistic_gradient_descent, rprop, schedule_free_sgd, sign_sgd, signum, simplified_ademamix, sm3, yogi,
};
use gradchain::prelude::*;

use bench::Bench;
use bench::Bytes::Planned;
use trees::{Number, Shapes};

macro_rules! lines {
    ($lines:ident: $($name:ident = $optimizer:expr;)*) => {
        $($lines.add(stringify!($name), $optimizer);)*
    };
}
fn main() {
    let filter = bench::begin();
    if filter.starts_with("mat_") {
        return matrices::run(&filter);
    }
    run_dtype::<f32>("f32", &filter);
    #[cfg(feature = "half")]
    run_dtype::<half::bf16>("bf16", &filter);
}

fn run_dtype<E: Number>(dtype: &'static str, filter: &str) {
    let (leaf, matrix) = (Shapes::one("1e7", &[10_000_000]), Shapes::one("2500x4000", &[2500, 4000]));
    let bound = filter.strip_prefix("bound_");
    // With reductions along axes.
    let mut lines = Lines::<E> { bench: Bench::new(&matrix, dtype, filter), bound, dtype };
    lines! { lines:
        adafactor = adafactor(1e-3);
        sm3 = sm3(1e-3);
    }
    one_leaf(&mut Lines::<E> { bench: Bench::new(&leaf, dtype, filter), bound, dtype });
}

struct Lines<'a, E> {
    bench: Bench<'a, E>,
    bound: Option<&'a str>,
    dtype: &'static str,
}

impl<E: Number> Lines<'_, E> {
    fn add<T: GradientTransformation<Needs = Nothing>>(&mut self, name: &str, t: T) {
        match self.bound {
            Some(begin) if name.starts_with(begin) => {
                bounds::run::<E, T>(&format!("chain={name} dtype={}", self.dtype), &t)
            }
            Some(_) => {}
            None => self.bench.run(&format!("cat_{name}"), Planned, t),
        }
    }
}

fn one_leaf<E: Number>(lines: &mut Lines<'_, E>) {
    lines! { lines:
        acprop = acprop(1e-3);
        adabelief = adabelief(1e-3);
        adadelta = adadelta(1e-3);
        adagrad = adagrad(1e-3);
        adamax = adamax(1e-3);
        adamaxw = adamaxw(1e-3);
        adan = adan(1e-3);
        ademamix = ademamix(1e-3);
        adopt = adopt(1e-3);
        amsgrad = amsgrad(1e-3);
        cocob = cocob();
        madgrad = madgrad(1e-3);
        nadam = nadam(1e-3);
        optimistic_adam = optimistic_adam(1e-3);
        optimistic_adam_v2 = optimistic_adam_v2(1e-3);
        optimistic_gradient_descent = optimistic_gradient_descent(1e-3);
        radam = radam(1e-3);
        rmsprop = rmsprop(1e-3);
        rmsprop_momentum = rmsprop(1e-3).momentum(0.9);
        rprop = rprop(1e-3);
        sgd = sgd(1e-3);
        sign_sgd = sign_sgd(1e-3);
        signum = signum(1e-3);
        simplified_ademamix = simplified_ademamix(1e-3);
        yogi = yogi(1e-3);
    }
    // With reductions, or whole leaves.
    lines! { lines:
        adafactor = adafactor(1e-3);
        dadapt_adamw = dadapt_adamw();
        dog = dog();
        dowg = dowg();
        fromage = fromage(1e-3);
        lamb = lamb(1e-3);
        lars = lars(1e-3);
        noisy_sgd = noisy_sgd(1e-3, 0);
        novograd = novograd(1e-3);
        prodigy = prodigy();
        schedule_free_adamw = schedule_free_adamw();
        schedule_free_sgd = schedule_free_sgd();
        sm3 = sm3(1e-3);
        lookahead_adam = lookahead(adam(1e-3), 5, 0.5);
        apply_if_finite_adam = apply_if_finite(adam(1e-3), 3);
    }
}
