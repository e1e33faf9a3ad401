//! The trials, one a line; optimizers without one are in `untried.rs`.

use gradchain::Real;
use gradchain::optimizer::{
    acprop, adabelief, adadelta, adamax, adamaxw, adan, ademamix, adopt, amsgrad, cocob, dadapt_adamw, dog, dowg,
    fromage, galore, lars, madgrad, momo, momo_adam, nadam, nadamw, noisy_sgd, novograd, optimistic_adam,
    optimistic_adam_v2, optimistic_gradient_descent, polyak_sgd, rprop, schedule_free_sgd, sign_sgd, signum,
    simplified_ademamix, sm3, sophia, yogi,
};
use gradchain::part::{Clock, OneElement, Part, Rule, Slot};
use gradchain::prelude::*;
use gradchain::transform::{InitStep, InitialGuess, normalize, scale_by_zoom_linesearch};
use gradchain::wrapper::{mechanize, sam, schedule_free};

use super::naive;
use super::naive::Naive::{self, *};
use super::{Member, Trial, member};

pub(super) fn trial(
    name: &'static str,
    of: fn(Schedule) -> Member,
    rates: [f64; 3],
    excess: [f64; 3],
    naive: Naive,
) -> Trial {
    Trial { name, of: Box::new(of), rates, excess, naive }
}

/// Returns the trials: for each problem the initial learning rate, which fades to 0, and the allowed excess loss.
#[rustfmt::skip]
pub(super) fn optimizers() -> Vec<Trial> {
    let mut trials = vec![
        trial("sgd", |rate| member(sgd(rate)), [0.018, 0.0018, 3.0], [1e-14, 0.1, 1e-14], Element(naive::sgd)),
        trial("momentum", |rate| member(sgd(rate).momentum(0.9)), [0.018, 0.0032, 0.5], [1e-14; 3], Element(naive::momentum)),
        trial("adam", |rate| member(adam(rate)), [0.2, 0.4, 0.2], [1e-14; 3], Element(naive::adam)),
        trial("adamw", |rate| member(adamw(rate)), [0.5, 0.2, 0.5], [1e-9, 1e-6, 1e-10], Element(naive::adamw)),
        trial("lion", |rate| member(lion(rate)), [0.003, 0.018, 0.003], [1e-9, 1e-7, 1e-14], Element(naive::lion)),
        trial("lamb", |rate| member(lamb(rate)), [0.003, 0.02, 0.002], [1e-12, 1e-7, 1e-14], Leaf(naive::lamb)),
        trial("adafactor", |rate| member(adafactor(rate)), [0.2, 0.04, 0.03], [1e-14, 1e-2, 1e-14], Leaf(naive::adafactor)),
        trial("lbfgs", |rate| member(lbfgs().learning_rate(rate).without_linesearch()), [0.5, 0.5, 0.3], [1e-14; 3], Whole(naive::lbfgs)),
        trial("muon", |rate| member(muon(rate)), [0.01, 0.1, 0.1], [1e-10, 1e-10, 1e-14],
            Recorded([77.24530561622402, 4.24085522770559, 0.3374676629486638])),
        trial("acprop", |rate| member(acprop(rate)), [0.05, 0.01, 0.01], [1e-14, 1.0, 1e-14],
            Recorded([250.08769747243525, 39.34378153821359, 0.4592214495302071])),
        trial("adabelief", |rate| member(adabelief(rate)), [1.0, 0.5, 0.01], [1e-14; 3],
            Recorded([21.98700058363244, 22.210486994828848, 0.4447605575531377])),
        trial("adadelta", |rate| member(adadelta(rate)), [1.0, 1.0, 2.0], [1e-14, 1e-2, 1e-14],
            Element(naive::adadelta)),
        trial("adagrad", |rate| member(adagrad(rate)), [1.0; 3], [1e-14, 0.1, 1e-14], Element(naive::adagrad)),
        trial("adamax", |rate| member(adamax(rate)), [1.0, 1.0, 0.1], [1e-14, 1e-5, 1e-14], Element(naive::adamax)),
        trial("adamaxw", |rate| member(adamaxw(rate)), [1.0, 1.0, 0.5], [1e-8, 1e-3, 1e-9], Element(naive::adamaxw)),
        trial("adan", |rate| member(adan(rate)), [1.0, 0.02, 0.02], [1e-14; 3],
            Recorded([20.48021736779256, 5.826550857490163, 0.41896348181142995])),
        trial("ademamix", |rate| member(ademamix(rate)), [1.0; 3], [1e-6, 1e-3, 1e-10],
            Recorded([17.7494891688521, 22.306899007167203, 0.39750319279771207])),
        trial("adopt", |rate| member(adopt(rate)), [1.0, 3.0, 1.0], [1e-14; 3],
            Recorded([27.00892381581143, 10.826812064153723, 0.33655987517619146])),
        trial("amsgrad", |rate| member(amsgrad(rate)), [1.0, 1.0, 0.3], [1e-14, 1e-2, 1e-14], Element(naive::amsgrad)),
        trial("cocob", |rate| member(cocob().learning_rate(rate)), [1.0; 3], [1e-14, 10.0, 1e-14],
            Recorded([63.12626818617391, 7.067182059689241, 0.44652428066096606])),
        trial("dadapt_adamw", |rate| member(dadapt_adamw().learning_rate(rate).estim_lr0(0.01)), [1.0; 3], [1e-14; 3],
            Recorded([7.174964179267018, 4.269434773518164, 0.3373364551916005])),
        trial("dog", |rate| member(dog().learning_rate(rate).init_step(InitStep::Heuristic(0.01))),
            [2.0; 3], [1e-14, 0.1, 1e-14], Recorded([3.0630217942447775, 4.10503077945537, 0.3291314171987126])),
        trial("dowg", |rate| member(dowg().learning_rate(rate)), [1.0; 3], [1e-14, 1e-2, 1e-14],
            Recorded([13.361088764785247, 6.959198285214114, 0.33836630795247735])),
        trial("fromage", |rate| member(fromage(rate)), [0.01, 0.03, 0.005], [1e-14, 1e-12, 1e-14],
            UpdateLeaf(naive::fromage)),
        trial("galore", |rate| member(galore(rate).rank(1).update_proj_gap(20)), [1.0, 0.5, 0.1], [1e-5, 1e-14, 1e-14],
            Leaf(naive::galore)),
        trial("lars", |rate| member(lars(rate)), [0.2, 2.0, 0.5], [1e-13, 1e-7, 1e-14],
            Recorded([85.38464752823053, 5.786405520108296, 0.5067257333900068])),
        // Optax's line search; the default one interpolates differently.
        trial("lbfgs_zoom", |_| member(lbfgs().linesearch(scale_by_zoom_linesearch(20).initial_guess_strategy(InitialGuess::One))),
            [1.0; 3], [1e-14; 3], Recorded([0.08761953872729081, 2.5583434451074267, 0.32229244105463406])),
        trial("lookahead", |rate| member(lookahead(adam(rate), 5, 0.5)), [0.2, 0.4, 0.2], [1e-13; 3],
            Update(naive::lookahead)),
        trial("madgrad", |rate| member(madgrad(rate)), [0.1, 0.05, 0.01], [1e-14; 3], Update(naive::madgrad)),
        trial("mechanize", |rate| member(mechanize(sgd(rate)).s_init(0.01)), [0.1, 0.03, 0.03], [1e-2, 1.0, 1e-7],
            Recorded([11.929368565286035, 4.80093844727592, 0.5120859656363214])),
        trial("momo", |rate| member(momo().learning_rate(rate)), [1.0; 3], [1e-14; 3],
            Recorded([26.879659180916672, 5.244604926982912, 0.47987913307006086])),
        trial("momo_adam", |rate| member(momo_adam().learning_rate(rate)), [1.0, 1.0, 0.5], [1e-14; 3],
            Recorded([5.736699516890154, 8.648548949549522, 0.35753099872831673])),
        trial("nadam", |rate| member(nadam(rate)), [0.5, 0.1, 0.05], [1e-14, 1e-11, 1e-14], Element(naive::nadam)),
        trial("nadamw", |rate| member(nadamw(rate)), [0.2, 0.1, 0.3], [1e-9, 1e-6, 1e-11], Element(naive::nadamw)),
        // Almost no noise.
        trial("noisy_sgd", |rate| member(noisy_sgd(rate, 1).eta(1e-22)), [0.018, 0.0018, 1.0], [1e-14, 0.1, 1e-14],
            Element(naive::sgd)),
        trial("novograd", |rate| member(novograd(rate)), [0.002; 3], [1e-14, 1e-12, 1e-14],
            Recorded([80.12118749502505, 9.956242557970784, 0.48728669606774805])),
        trial("optimistic_adam", |rate| member(optimistic_adam(rate.at(0))), [0.01, 0.02, 0.005], [1e-14, 1e-3, 1e-14],
            Recorded([68.97768112877968, 4.4603988316200525, 0.4861570730877886])),
        trial("optimistic_adam_v2", |rate| member(optimistic_adam_v2(rate)), [0.5, 0.05, 0.1], [1e-14, 1e-4, 1e-14],
            Recorded([3.0062432027386325, 4.642039493085482, 0.3369435427258558])),
        trial("optimistic_gradient_descent", |rate| member(optimistic_gradient_descent(rate)),
            [0.005, 0.001, 1.0], [1e-6, 1.0, 1e-14],
            Recorded([10.336682990069324, 4.990126144036574, 0.3425138309523165])),
        trial("polyak_sgd", |rate| member(polyak_sgd().scaling(rate)), [1.0; 3], [1e-14, 1e-14, 1e-13],
            Recorded([0.6480336940280755, 30.926947613418506, 0.3399942198833436])),
        trial("prodigy", |rate| member(prodigy().learning_rate(rate).estim_lr0(0.01)), [1.0; 3], [1e-14; 3],
            Recorded([38.64163005786892, 8.409297460741007, 0.38485361942396035])),
        trial("radam", |rate| member(radam(rate)), [0.03, 0.005, 0.1], [1e-13, 10.0, 1e-14],
            Recorded([11.047656841843967, 56.47810151178113, 0.4555695280160909])),
        trial("rmsprop", |rate| member(rmsprop(rate)), [0.005, 0.01, 0.03], [1e-14, 1e-3, 1e-14],
            Element(naive::rmsprop)),
        trial("rprop", |rate| member(rprop(rate)), [0.1; 3], [1e-9, 1e-4, 1e-12], Update(naive::rprop)),
        trial("sam", |rate| member(sam(sgd(rate), chain((normalize(), sgd(0.05)))).opaque_mode()),
            [0.02, 0.001, 0.3], [1e-14, 1.0, 1e-14],
            Recorded([166.14861342101025, 4.755726420621684, 0.37492807296045816])),
        trial("schedule_free", |rate| member(schedule_free(sgd(rate.clone()), rate)),
            [0.1, 0.005, 3.0], [1e-10, 0.1, 1e-11],
            Recorded([28.56265539749045, 1.83160882703719, 0.3273044664739919])),
        trial("schedule_free_adamw", |rate| member(schedule_free_adamw().learning_rate(rate)),
            [1.0, 0.2, 0.3], [1e-14, 1e-3, 1e-14],
            Recorded([0.024088508122505525, 4.188928477829383, 0.32448148169244134])),
        trial("schedule_free_sgd", |rate| member(schedule_free_sgd().learning_rate(rate)),
            [0.1, 0.005, 3.0], [1e-10, 0.1, 1e-11],
            Recorded([28.56265539749045, 1.83160882703719, 0.3273044664739919])),
        trial("sign_sgd", |rate| member(sign_sgd(rate)), [0.002; 3], [1e-7, 0.1, 1e-14], Element(naive::sign_sgd)),
        trial("signum", |rate| member(signum(rate)), [0.001, 0.002, 0.001], [1e-11, 1e-6, 1e-14],
            Element(naive::signum)),
        trial("simplified_ademamix", |rate| member(simplified_ademamix(rate)), [0.02, 0.003, 0.1], [1e-5; 3],
            Recorded([9.846681471910946, 4.644401892865035, 0.42516390567190465])),
        trial("sm3", |rate| member(sm3(rate)), [1.0, 2.0, 1.0], [1e-14, 1e-3, 1e-14], Leaf(naive::sm3)),
        trial("sophia", |rate| member(sophia(rate, Square)), [0.1, 0.02, 0.001], [1e-12, 1e-8, 1e-12],
            Recorded([5.949501640598699, 8.000633931788323, 0.5097013034150815])),
        trial("yogi", |rate| member(yogi(rate)), [1.0, 1.0, 0.05], [1e-14; 3],
            Recorded([17.675312467591723, 22.352306711250407, 0.3629189635200599])),
    ];
    trials.extend(super::beyond::optimizers());
    let others = super::untried::untried(&trials.iter().map(|trial| trial.name).collect::<Vec<_>>());
    trials.extend(others);
    trials
}

/// The Gauss-Newton estimate of the Hessian's diagonal.
#[derive(Clone, Debug)]
struct Square;

impl Part for Square {
    const NAME: &'static str = "square";
    type Form = OneElement;
}

impl Rule for Square {
    const SLOTS: &'static [Slot] = &[];
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = ();

    fn scalars<C: Real>(&self, _: Clock) {}

    #[inline(always)]
    fn apply<C: Real>((): (), _: &mut [C; 0], u: C, _: C) -> C {
        u * u
    }
}
