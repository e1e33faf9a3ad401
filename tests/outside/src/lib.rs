//! A part, a wrapper and an optimizer of a crate outside the workspace, with the public API alone.
//!
//! The tests use them in configs, checkpoints and programs, as entries of the catalogue are used.

use gradchain::Real;
use gradchain::arguments::{Argument, Arguments, Visit, required};
use gradchain::config::Registry;
use gradchain::part::{
    Arithmetic, AroundWithArithmetic, Clock, Decision, Elements, Named, OneElement, Optimizer, Part, Rule, Slot,
    StepContext, Wrapper, own_recipe,
};
use gradchain::prelude::*;
use gradchain::recipe::Recipe;
use gradchain::schedule::Hyperparam;
use gradchain::state::{Count, State};
use gradchain::transform::{ScaleByLearningRate, scale_by_learning_rate};

gradchain::part! {
    /// Replaces updates by the sign of their running mean.
    pub ScaleBySignOfMean as "scale_by_sign_of_mean": OneElement;
    hyperparams {
        /// The decay of the mean.
        decay: DECAY = 0.9;
    }
}

impl Rule for ScaleBySignOfMean {
    const SLOTS: &'static [Slot] = &[Slot::signed("mean")];
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = [C; 2];

    fn scalars<C: Real>(&self, clock: Clock) -> [C; 2] {
        let decay = self.decay.at(clock.count);
        [C::of(decay), C::of(1.0 - decay)]
    }

    #[inline(always)]
    fn apply<C: Real>([keep, take]: [C; 2], [mean]: &mut [C; 1], u: C, _: C) -> C {
        *mean = keep * *mean + take * u;
        mean.signum()
    }
}

/// The memory of a [`Damped`] transformation.
#[derive(State, Clone, Debug, Default)]
pub struct Steps {
    steps: Count,
}

gradchain::wrapper! {
    /// Averages each update with the last one.
    pub Damped<T> as "damped" around inner: AroundWithArithmetic {
        /// The weight of the last update.
        weight: Hyperparam in DECAY;
    }
    shows "{}": weight;
}

impl<T: GradientTransformation> Wrapper for Damped<T> {
    type Memory = Steps;

    fn decide(&self, memory: &mut Steps, _: &StepContext<'_>, _: f64) -> Decision {
        memory.steps.increment();
        Decision::Run
    }
}

impl<T: GradientTransformation> Arithmetic for Damped<T> {
    const SLOTS: &'static [Slot] = &[Slot::signed("last")];
    const ELEMENTS: Elements = Elements::NONE.after(true);
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = [C; 2];

    fn scalars<C: Real>(&self, memory: &Steps, _: usize) -> [C; 2] {
        let weight = self.weight.at(memory.steps.get() - 1);
        [C::of(weight), C::of(1.0 - weight)]
    }

    #[inline(always)]
    fn after<C: Real>([keep, take]: [C; 2], [last]: &mut [C; 1], u: C, _: C) -> C {
        *last = keep * *last + take * u;
        *last
    }
}

/// Descends along the sign of the running mean of gradients.
#[derive(Clone, Debug, PartialEq)]
pub struct SignMomentum {
    chain: (ScaleBySignOfMean, ScaleByLearningRate),
}

/// Descends along the sign of the running mean of gradients.
pub fn sign_momentum(learning_rate: impl Into<Hyperparam>) -> SignMomentum {
    SignMomentum { chain: (ScaleBySignOfMean::with(), scale_by_learning_rate(learning_rate.into())) }
}

impl Arguments for SignMomentum {
    const NAME: &'static str = "sign_momentum";

    fn arguments(&mut self, visit: &mut Visit<'_>) {
        visit("learning_rate", Argument::Hyperparam(&mut self.chain.1.learning_rate));
        visit("decay", Argument::Hyperparam(&mut self.chain.0.decay));
    }
}

impl Part for SignMomentum {
    const NAME: &'static str = "sign_momentum";
    type Form = Named;

    fn own_arguments(&mut self, visit: &mut Visit<'_>) {
        self.arguments(visit);
    }

    fn recipe(&self) -> Recipe {
        own_recipe(self)
    }
}

impl Optimizer for SignMomentum {
    type Chain = (ScaleBySignOfMean, ScaleByLearningRate);

    fn chain(&self) -> &Self::Chain {
        &self.chain
    }
}

/// Returns the crate's names and these.
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    registry
        .part(ScaleBySignOfMean::with)
        .part(|| sign_momentum(required()))
        .wrapper(|inner| Damped::with(inner, required()));
    registry
}

#[cfg(test)]
mod tests {
    use gradchain::checkpoint::{Checkpoint, Save};
    use gradchain::program::{Interpreter, Program};
    use gradchain::{Boxed, DType};

    use super::*;

    const CONFIG: &str = r#"
        [[chain]]
        clip_by_global_norm = { max_norm = 1.0 }

        [[chain]]
        [chain.damped]
        weight = 0.25
        inner = { sign_momentum = { learning_rate = 0.1, decay = 0.5 } }
    "#;

    fn from_config() -> Boxed {
        registry().build_toml(CONFIG).expect("a valid config")
    }

    fn typed() -> impl GradientTransformation<Needs = gradchain::needs::Nothing> {
        let mut inner = sign_momentum(0.1);
        inner.chain.0.decay = 0.5.into();
        chain((clip_by_global_norm(1.0), Damped::with(inner, 0.25.into())))
    }

    /// More elements than a block of a loop, of every remainder.
    fn params() -> Vec<Vec<f32>> {
        (1..80).map(|len| (0..len).map(|i| (i as f32 * 0.7 + len as f32).sin()).collect()).collect()
    }

    fn gradients(params: &[Vec<f32>], step: u32) -> Vec<Vec<f32>> {
        let gradient = |p: &f32| (p * 3.0 + step as f32).cos() * if step.is_multiple_of(2) { 1e-3 } else { 10.0 };
        params.iter().map(|leaf| leaf.iter().map(gradient).collect()).collect()
    }

    fn run(
        optimizer: &impl GradientTransformation<Needs = gradchain::needs::Nothing>,
        steps: u32,
    ) -> (Vec<Vec<f32>>, Vec<Vec<f32>>) {
        let mut params = params();
        let mut state = optimizer.init(&params).expect("a state");
        let mut last = Vec::new();
        for step in 0..steps {
            last = gradients(&params, step);
            optimizer.step(&mut params, &last, &mut state).expect("a step");
        }
        (params, last)
    }

    /// The same arithmetic, from the documentation of the parts.
    fn by_hand(steps: u32) -> Vec<Vec<f32>> {
        let mut params = params();
        let zeros: Vec<Vec<f32>> = params.iter().map(|leaf| vec![0.0; leaf.len()]).collect();
        let (mut mean, mut last) = (zeros.clone(), zeros);
        for step in 0..steps {
            let gradients = gradients(&params, step);
            let squares: f64 = gradients.iter().flatten().map(|g| f64::from(*g) * f64::from(*g)).sum();
            let factor = if squares.sqrt() < 1.0 { 1.0 } else { 1.0 / squares.sqrt() };
            for (leaf, gradient) in gradients.iter().enumerate() {
                for (i, g) in gradient.iter().enumerate() {
                    mean[leaf][i] = 0.5 * mean[leaf][i] + 0.5 * (f64::from(*g) * factor) as f32;
                    let u = -0.1 * mean[leaf][i].signum();
                    last[leaf][i] = 0.25 * last[leaf][i] + 0.75 * u;
                    params[leaf][i] += last[leaf][i];
                }
            }
        }
        params
    }

    #[test]
    fn a_config_names_them_and_is_bitwise_identical_to_the_typed_chain() {
        let ((from_config, _), (typed, _)) = (run(&from_config(), 5), run(&typed(), 5));
        assert_eq!(from_config, typed);
        for (found, expected) in typed.iter().flatten().zip(by_hand(5).iter().flatten()) {
            assert!((found - expected).abs() < 1e-6, "{found} for {expected}");
        }
    }

    #[test]
    fn mistakes_in_a_config_are_reported_with_their_place() {
        let error = registry().build_toml("damped = { inner = { sign_momentum = { decy = 0.5 } } }").unwrap_err();
        let error = error.to_string();
        for expected in [
            "$.damped: expected an argument `weight`, found none",
            "$.damped.inner.sign_momentum: expected an argument `learning_rate`, found none",
            "$.damped.inner.sign_momentum: unknown argument `decy`; did you mean `decay`?",
        ] {
            assert!(error.contains(expected), "{error}");
        }
        let error = registry().build_toml("scale_by_sign_of_mean = { decay = 1.0 }").unwrap_err().to_string();
        assert!(error.contains("argument `decay` must be in [0, 1), found 1"), "{error}");
    }

    #[test]
    fn a_checkpoint_resumes_and_refuses_other_arguments() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("state.safetensors");
        let (optimizer, mut params) = (from_config(), params());
        let mut state = optimizer.init(&params).expect("a state");
        for step in 0..3 {
            let gradients = gradients(&params, step);
            optimizer.step(&mut params, &gradients, &mut state).expect("a step");
        }
        Save::new(&optimizer, &state).params(&params).to_file(&file).expect("a file");

        let checkpoint = Checkpoint::open(&file).expect("a checkpoint");
        let mut resumed = params.clone();
        resumed.iter_mut().flatten().for_each(|p| *p = 0.0);
        let mut loaded = checkpoint.load(&optimizer, &mut resumed).expect("the same optimizer");
        assert_eq!(resumed, params);
        for step in 3..6 {
            let gradients = gradients(&params, step);
            optimizer.step(&mut params, &gradients, &mut state).expect("a step");
            optimizer.step(&mut resumed, &gradients, &mut loaded).expect("a step");
        }
        assert_eq!(resumed, params);

        let other = registry().build_toml(&CONFIG.replace("decay = 0.5", "decay = 0.75")).expect("a valid config");
        let error = checkpoint.load(&other, &mut resumed).unwrap_err().to_string();
        assert!(error.contains("sign_momentum.decay: expected 0.75, found 0.5"), "{error}");
    }

    #[test]
    fn programs_are_bitwise_identical_to_steps() {
        let (program, _) =
            Program::record_rule(&ScaleBySignOfMean::with(), Clock::after(0), DType::F32).expect("it can be recorded");
        assert_eq!(program.slots(), ["mean"]);

        for optimizer in [&from_config(), &boxed(typed())] {
            let (expected, _) = run(optimizer, 4);
            let start = params();
            let mut state = optimizer.init(&start).expect("a state");
            let mut executor = Interpreter::new(&start, &*state).expect("memory");
            let mut params = start;
            for step in 0..4 {
                executor.set_gradients(&gradients(&params, step)).expect("the same structure");
                optimizer.step_on(&mut executor, (), &mut state).expect("a step");
                executor.params_into(&mut params).expect("the same structure");
            }
            assert_eq!(params, expected);
        }
    }
}
