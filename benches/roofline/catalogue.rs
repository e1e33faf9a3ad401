//! Every optimizer on one leaf of ten million elements; on a matrix, those that see the difference.

use gradchain::optimizer::{
    acprop, adabelief, adadelta, adamax, adamaxw, adan, ademamix, adopt, amsgrad, cocob, dadapt_adamw, dog, dowg,
    fromage, lars, madgrad, nadam, noisy_sgd, novograd, optimistic_adam, optimistic_adam_v2,
    optimistic_gradient_descent, rprop, schedule_free_sgd, sign_sgd, signum, simplified_ademamix, sm3, yogi,
};
use gradchain::prelude::*;

use crate::Bench;
use crate::trees::{Number, Shapes};

macro_rules! lines {
    ($bench:ident: $($name:ident = $optimizer:expr;)*) => {
        $($bench.run(concat!("cat_", stringify!($name)), $optimizer);)*
    };
}

/// One line for each. Names begin with `cat_`, so that `-- cat_` asks for these only.
pub fn run<E: Number>(shapes: &Shapes, dtype: &str, filter: &str) {
    if !("cat_".contains(filter) || filter.contains("cat_") || filter.starts_with("bound_")) {
        return;
    }
    match shapes.name {
        "1e7" => one_leaf(Bench::<E>::new(shapes, dtype, filter)),
        "2500x4000" => one_matrix(Bench::<E>::new(shapes, dtype, filter)),
        _ => {}
    }
}

/// What adds up along the axes of matrices.
fn one_matrix<E: Number>(mut bench: Bench<'_, E>) {
    lines! { bench:
        adafactor = adafactor(1e-3);
        sm3 = sm3(1e-3);
    }
}

fn one_leaf<E: Number>(mut bench: Bench<'_, E>) {
    // Arithmetic on single elements.
    lines! { bench:
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
    // With sums over the leaf or the tree, or work on whole leaves.
    lines! { bench:
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
