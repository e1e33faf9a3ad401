//! burn's optimizer type, its records and its `Learner`.

use burn::module::Param;
use burn::nn::LinearConfig;
use burn::optim::lr_scheduler::constant::ConstantLr;
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::Tensor;
use burn::train::{InferenceStep, Learner, TrainOutput, TrainStep};
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::transform::{scale, scale_by_lion, scale_by_schedule};
use gradchain::wrapper::sam;
use gradchain_burn::{Rate, init, optimize, per_tensor, step};

use crate::{Mlp, device, values};

fn clipped() -> impl GradientTransformation<Needs = gradchain::needs::Nothing> {
    chain((clip_by_global_norm(0.125), adamw(1.0).mask(Mask::path("**/weight"))))
}

/// Takes burn's rate.
fn whole_tree<T: GradientTransformation<Needs = gradchain::needs::Nothing>>(optimizer: T) -> ModuleOptimizer {
    gradchain_burn::whole_tree(optimizer, Rate::Burn).unwrap()
}

impl TrainStep for Mlp {
    type Input = usize;
    type Output = ();

    fn step(&self, number: usize) -> TrainOutput<()> {
        TrainOutput { grads: self.gradients(number), item: () }
    }

    fn optimize(mut self, optim: &mut ModuleOptimizer, lr: ModuleLearningRate, grads: GradientsParams) -> Self {
        optimize(optim, lr, &mut self, &grads).expect("the gradients of this model");
        self
    }
}

impl InferenceStep for Mlp {
    type Input = ();
    type Output = ();

    fn step(&self, _: ()) {}
}

#[test]
fn a_learner_steps_the_whole_tree() {
    let mlp = Mlp::new(&device());
    let mut learner = Learner::new(mlp.clone(), whole_tree(clipped()), ConstantLr::from(0.01));
    let optimizer = chain((clipped(), scale(0.01)));
    let mut here = mlp;
    let mut state = init(&optimizer, &here).unwrap();
    for number in 0..5 {
        learner.lr_step();
        let output = learner.train_step(number);
        learner.optimizer_step(output.grads);
        let grads = here.gradients(number);
        step(&optimizer, &mut here, &grads, &mut state).unwrap();
        assert_eq!(values(&learner.model()), values(&here), "step {number}");
    }
}

#[test]
fn a_record_resumes_bitwise_identically() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("optimizer.bpk");
    for resumed_at in [0, 1, 4] {
        let mut mlp = Mlp::new(&device());
        let mut optim = whole_tree(multi_steps(clipped(), 3));
        let mut same = (mlp.clone(), whole_tree(multi_steps(clipped(), 3)));
        for number in 0..10 {
            if number == resumed_at {
                optim.save(&file).unwrap();
                optim = whole_tree(multi_steps(clipped(), 3)).load(&file).unwrap();
            }
            let grads = mlp.gradients(number);
            optimize(&mut optim, 0.01, &mut mlp, &grads).unwrap();
            let grads = same.0.gradients(number);
            optimize(&mut same.1, 0.01, &mut same.0, &grads).unwrap();
        }
        assert_eq!(values(&mlp), values(&same.0), "resumed at {resumed_at}");
    }
}

#[test]
fn an_unused_record_is_saved_unchanged() {
    let (mut mlp, mut optim) = (Mlp::new(&device()), whole_tree(clipped()));
    let grads = mlp.gradients(0);
    optimize(&mut optim, 0.01, &mut mlp, &grads).unwrap();
    let bytes = optim.into_bytes().unwrap();
    let again = whole_tree(clipped()).from_bytes(bytes.clone()).unwrap().into_bytes().unwrap();
    assert_eq!(*bytes, *again);
}

#[test]
fn element_wise_optimizers_match_when_stepped_per_tensor() {
    let mut there = Mlp::new(&device());
    let mut here = there.clone();
    let mut optim = per_tensor(chain((clip(0.5), adamw(1.0))), Rate::Burn).unwrap();
    let optimizer = chain((clip(0.5), adamw(1.0), scale(0.01)));
    let mut state = init(&optimizer, &here).unwrap();
    for number in 0..6 {
        if number == 3 {
            let bytes = optim.into_bytes().unwrap();
            optim = per_tensor(chain((clip(0.5), adamw(1.0))), Rate::Burn).unwrap().from_bytes(bytes).unwrap();
        }
        let grads = there.gradients(number);
        there = optim.step(0.01, there, grads);
        let grads = here.gradients(number);
        step(&optimizer, &mut here, &grads, &mut state).unwrap();
        assert_eq!(values(&there), values(&here));
    }
}

#[test]
fn a_rate_of_one_changes_no_bit() {
    let mut mlp = Mlp::new(&device());
    let mut plain = mlp.clone();
    let optimizer = clipped();
    let (mut optim, mut state) = (whole_tree(clipped()), init(&optimizer, &mlp).unwrap());
    for number in 0..3 {
        let grads = mlp.gradients(number);
        optimize(&mut optim, 1.0, &mut mlp, &grads).unwrap();
        let grads = plain.gradients(number);
        step(&optimizer, &mut plain, &grads, &mut state).unwrap();
    }
    assert_eq!(values(&mlp), values(&plain));
}

#[test]
fn unsupported_optimizers_and_gradients_are_refused() {
    let error = per_tensor(clipped(), Rate::Burn).err().unwrap().to_string();
    assert!(error.contains("**/weight"), "{error}");
    let error = per_tensor(chain((clip_by_global_norm(1.0), sgd(1.0))), Rate::Burn).err().unwrap().to_string();
    assert!(error.contains("one pass") && error.contains("clip_by_global_norm"), "{error}");

    let mut mlp = Mlp::new(&device());
    let (before, grads) = (values(&mlp), mlp.gradients(0));
    let mut refused = |optim: &mut ModuleOptimizer, rate: ModuleLearningRate, grads: &GradientsParams, word: &str| {
        let error = optimize(optim, rate, &mut mlp, grads).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        assert_eq!(values(&mlp), before);
    };
    refused(&mut AdamWConfig::new().init(), 0.1.into(), &grads, "whole_tree");
    let clipping = burn::grad_clipping::GradientClipping::Value(1.0);
    refused(&mut whole_tree(clipped()).with_grad_clipping(clipping), 0.1.into(), &grads, "clip_by_global_norm");
    refused(&mut whole_tree(clipped()), 0.1.into(), &GradientsParams::new(), "fc1/weight");

    // Neither the parameters nor the record change.
    let mut optim = whole_tree(clipped());
    optimize(&mut optim, 0.01, &mut Mlp::new(&device()), &grads_of_another()).unwrap_err();
    let mut other = Mlp::new(&device());
    let grads_of_other = other.gradients(0);
    optimize(&mut optim, 0.01, &mut other, &grads_of_other).unwrap();
    let bytes = optim.into_bytes().unwrap();
    let mut loaded = whole_tree(sgd(1.0)).from_bytes(bytes.clone()).unwrap();
    refused(&mut loaded, 0.1.into(), &grads, "does not fit");
    assert_eq!(*loaded.into_bytes().unwrap(), *bytes);
}

fn grads_of_another() -> GradientsParams {
    Mlp::new(&device()).gradients(0)
}

#[test]
#[should_panic(expected = "gradchain_burn::optimize")]
fn the_whole_tree_is_not_stepped_by_burn() {
    let mlp = Mlp::new(&device());
    let grads = mlp.gradients(0);
    let _ = whole_tree(clipped()).step(0.1, mlp, grads);
}

#[test]
fn a_tensor_is_stepped_in_place() {
    use burn::backend::Flex;
    let address = |param: &Param<Tensor<2>>| param.val().inner().try_into_primitive::<Flex>().unwrap().bytes().as_ptr();
    let device = device();
    let mut layer = LinearConfig::new(4, 4).with_bias(false).init(&device);
    let (mut optim, place) = (per_tensor(adamw(1.0), Rate::Burn).unwrap(), address(&layer.weight));
    for _ in 0..3 {
        let grads = layer.forward(Tensor::<2>::ones([1, 4], &device)).sum().backward();
        let grads = GradientsParams::from_grads(grads, &layer);
        layer = optim.step(0.01, layer, grads);
        assert_eq!(address(&layer.weight), place);
    }
}

/// It comes from the `Learner` or from the transformation; a second one other than 1 is refused.
#[test]
fn the_learning_rate_comes_from_its_declared_owner() {
    let mlp = Mlp::new(&device());
    let schedule = || cosine_decay(0.01, 9);
    let train = |optimizer: ModuleOptimizer, rate: f64| {
        let mut learner = Learner::new(mlp.clone(), optimizer, ConstantLr::from(rate));
        for number in 0..5 {
            learner.lr_step();
            let output = learner.train_step(number);
            learner.optimizer_step(output.grads);
        }
        values(&learner.model())
    };
    let here = |optimizer: &dyn Fn() -> Boxed| {
        let (optimizer, mut here) = (optimizer(), mlp.clone());
        let mut state = init(&optimizer, &here).unwrap();
        for number in 0..5 {
            let grads = here.gradients(number);
            step(&optimizer, &mut here, &grads, &mut state).unwrap();
        }
        values(&here)
    };
    let own = || gradchain_burn::whole_tree(adamw(schedule()), Rate::Own).unwrap();
    assert_eq!(train(own(), 1.0), here(&|| boxed(adamw(schedule()))));
    let burns = || gradchain_burn::whole_tree(adamw(1.0), Rate::Burn).unwrap();
    assert_eq!(train(burns(), 0.01), here(&|| boxed(chain((adamw(1.0), scale(0.01))))));

    // The transformation has another rate, so both kinds of optimizer refuse burn's.
    for rate in [0.01, 2.0, 0.0, -1.0] {
        let (mut other, grads) = (mlp.clone(), mlp.gradients(0));
        let error = optimize(&mut own(), rate, &mut other, &grads).unwrap_err().to_string();
        assert!(error.contains("`Rate::Own`") && error.contains("ConstantLr::from(1.0)"), "{error}");
        assert_eq!(values(&other), values(&mlp));
        let stepped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut optimizer = per_tensor(adam(0.01), Rate::Own).unwrap();
            optimizer.step(rate, mlp.clone(), mlp.gradients(0))
        }));
        let message = stepped.map(drop).unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains("`Rate::Own`") && message.contains("ConstantLr::from(1.0)"), "{message}");
    }
}

/// It is refused at construction, anywhere in a chain.
#[test]
fn a_second_rate_is_found_wherever_it_is() {
    fn refused<T: GradientTransformation<Needs = gradchain::needs::Nothing>>(optimizer: T, place: &str) {
        let error = gradchain_burn::whole_tree(optimizer, Rate::Burn).err().unwrap().to_string();
        assert!(error.contains(place) && error.contains("`Rate::Own`"), "{error}");
    }
    refused(sgd(0.5), "`$.sgd.learning_rate` of 0.5");
    refused(adamw(cosine_decay(1e-3, 10)), "`$.adamw.learning_rate`, a schedule");
    refused(chain((scale_by_adam(), scale(-1e-3))), "`$.chain[1].scale.step_size` of -0.001");
    refused(chain((scale_by_adam(), scale_by_learning_rate(1e-3))), "learning_rate` of 0.001");
    refused(chain((scale_by_adam(), scale_by_schedule(linear(1.0, 0.0, 9)))), "`$.chain[1].scale_by_schedule");
    refused(multi_steps(inject_hyperparams(lion(1e-4)), 2), "lion.learning_rate` of 0.0001");
    refused(boxed(lookahead(sgd(0.1), 5, 0.5)), "sgd.learning_rate` of 0.1");
    refused(partition((("a", sgd(1.0)), ("b", sgd(2.0))), Labels::tree([("fc1", "a"), ("fc2", "b")])), "of 2");
    assert!(per_tensor(sgd(0.5), Rate::Burn).is_err());

    fn taken<T: GradientTransformation<Needs = gradchain::needs::Nothing>>(optimizer: T) {
        gradchain_burn::whole_tree(optimizer, Rate::Burn).unwrap();
    }
    taken(chain((clip_by_global_norm(0.5), adamw(1.0).weight_decay(0.1))));
    taken(chain((scale_by_adam(), scale(-1.0))));
    taken(chain((scale_by_lion(), scale_by_learning_rate(1.0))));
    taken(sam(sgd(1.0), sgd(0.05)));
    taken(lookahead(boxed(adam(1.0)), 5, 0.5));
}
