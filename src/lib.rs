//! Composable gradient transformations, as Optax has for JAX, for any training in Rust.
//!
//! A *transformation* turns gradients into updates and keeps a *state*. Transformations are small and [`chain`]; a
//! chain of any length runs as one loop over memory.
//!
//! ```text
//! cargo add gradchain
//! ```
//!
//! ```
//! use gradchain::ndarray::{Array1, Array2, Axis, array};
//! use gradchain::prelude::*;
//!
//! #[derive(Tree)]
//! struct Linear { weight: Array1<f64>, bias: f64 }
//!
//! /// The gradient of the mean squared error: a struct of the same shape, by whatever computes it.
//! fn gradient(model: &Linear, x: &Array2<f64>, y: &Array1<f64>) -> Linear {
//!     let error = (x.dot(&model.weight) + model.bias - y) / y.len() as f64;
//!     Linear { weight: 2.0 * x.t().dot(&error), bias: 2.0 * error.sum() }
//! }
//!
//! let x = array![[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [2.0, 1.0]];
//! let y = x.index_axis(Axis(1), 0).mapv(|x| 3.0 * x + 0.5);
//! let mut model = Linear { weight: Array1::zeros(2), bias: 0.0 };
//!
//! // Clip by the norm of all gradients together, then AdamW, whose decay is for the weights only.
//! let adamw = adamw(cosine_decay(0.1, 1000)).weight_decay(1e-4).mask(Mask::path("weight"));
//! let optimizer = chain((clip_by_global_norm(1.0), adamw));
//! let mut state = optimizer.init(&model)?;
//! for _ in 0..1000 {
//!     let gradient = gradient(&model, &x, &y);
//!     optimizer.step(&mut model, &gradient, &mut state)?;
//! }
//! assert!((model.weight[0] - 3.0).abs() < 0.01 && (model.bias - 0.5).abs() < 0.01);
//! # Ok::<(), gradchain::Error>(())
//! ```
//!
//! **[The guide](_guide)** continues from here: [first steps](_guide::first_steps), [coming from
//! PyTorch](_guide::from_pytorch), [from Optax](_guide::from_optax), [which optimizer?](_guide::which_optimizer), and
//! the rest. Separate crates step models of [burn] and [candle] in place, and another runs steps on [GPUs].
//!
//! [burn]: https://docs.rs/gradchain-burn/latest/gradchain_burn/_guide/index.html
//! [candle]: https://docs.rs/gradchain-candle/latest/gradchain_candle/_guide/index.html
//! [GPUs]: https://docs.rs/gradchain-gpu/latest/gradchain_gpu/_guide/index.html
//!
//! In a debug build a step is almost a thousand times slower: [two lines](_guide::debug_builds) in your `Cargo.toml`
//! change that.
//!
//! # Modules
//!
//! The root has the common items: [trees](Tree) of parameters, [transformations](GradientTransformation) and their
//! [state](OptState), [masks](Mask), the [plan](Plan) of a step, [errors](Error), and the optimizers, parts and
//! wrappers for first steps. The [`prelude`] has the latter too, and common schedules. Every function is in the module
//! of its subject, also those of the root and the prelude:
//!
//! | module | contents |
//! |---|---|
//! | [`optimizer`] | all optimizers, as chains: `adamw`, `muon`, `prodigy`, and their types |
//! | [`transform`] | all parts of chains: clips, moments, noise, projections, measurements |
//! | [`wrapper`](mod@wrapper) | all wrappers of other transformations: masks, accumulation, lookahead, boxes, partitions |
//! | [`schedule`] | all schedules: numbers that change with the step count |
//! | [`state`] | typed state: counts, flags, numbers, arrays; schemas and averages |
//! | [`tree`] | leaves, paths, arithmetic on trees |
//! | [`select`] | masks and labels by path, shape and dtype |
//! | [`constraint`](https://docs.rs/gradchain/latest/gradchain/constraint/index.html), [`projection`](https://docs.rs/gradchain/latest/gradchain/projection/index.html) | parameters constrained to a set; the feature `constraint` |
//! | [`minimize`](https://docs.rs/gradchain/latest/gradchain/minimize/index.html) | fitting by L-BFGS until convergence, bounds, standard errors, checks of gradients; a feature |
//! | [`needs`], [`extra`] | losses and other inputs of a step |
//! | [`part`](mod@part), [`range`](mod@range), [`arguments`] | custom transformations |
//! | [`recipe`], [`config`](https://docs.rs/gradchain/latest/gradchain/config/index.html) | optimizers as data; `config` is a feature |
//! | [`checkpoint`](https://docs.rs/gradchain/latest/gradchain/checkpoint/index.html) | state and parameters in files; a feature |
//! | [`watch`], [`plot`](https://docs.rs/gradchain/latest/gradchain/plot/index.html) | readings of a run, as JSON and as pictures; `plot` is a feature |
//! | [`collective`](https://docs.rs/gradchain/latest/gradchain/collective/index.html) | process groups that train together; a feature |
//! | [`program`](https://docs.rs/gradchain/latest/gradchain/program/index.html), [`device`](https://docs.rs/gradchain/latest/gradchain/device/index.html) | steps as programs, states and steps on devices; the feature `program` |
//!
//! Features: `half` (f16 and bf16), `rayon` (threads), `serde`, `collective` (processes), `constraint`, `contrib`
//! (`dowg`, `momo`, `mechanize` and others), `minimize` (L-BFGS, line searches), `faer` (`soap`, `shampoo`, `galore`),
//! `config`, `checkpoint`, `program` (steps as programs, devices), `tracing`, `plot`; and `derive`, on by default.
#![cfg_attr(docsrs, feature(doc_cfg))]

// The derive macros name this crate `::gradchain`, here as elsewhere.
extern crate self as gradchain;
#[macro_use(memory, part, wrapper)]
extern crate gradchain_core;

// A macro of the crate is in scope below its definition.
#[macro_use]
mod macros;

#[cfg(any(doc, doctest))]
pub mod _guide;
#[cfg(feature = "checkpoint")]
#[cfg_attr(docsrs, doc(cfg(feature = "checkpoint")))]
pub mod checkpoint;
#[cfg(feature = "config")]
#[cfg_attr(docsrs, doc(cfg(feature = "config")))]
pub mod config;
#[cfg(feature = "constraint")]
#[cfg_attr(docsrs, doc(cfg(feature = "constraint")))]
pub mod constraint;
mod functions;
#[cfg(feature = "minimize")]
#[cfg_attr(docsrs, doc(cfg(feature = "minimize")))]
pub mod minimize;
pub mod optimizer;
#[cfg(feature = "constraint")]
#[cfg_attr(docsrs, doc(cfg(feature = "constraint")))]
pub mod projection;
pub mod transform;
pub mod watch;
pub mod wrapper;

pub use functions::*;
#[cfg(feature = "derive")]
pub use gradchain_core::State;
#[cfg(feature = "collective")]
#[cfg_attr(docsrs, doc(cfg(feature = "collective")))]
pub use gradchain_core::collective;
#[cfg(feature = "half")]
#[cfg_attr(docsrs, doc(cfg(feature = "half")))]
pub use gradchain_core::half;
use gradchain_core::internal;
#[cfg(feature = "plot")]
#[cfg_attr(docsrs, doc(cfg(feature = "plot")))]
pub use gradchain_core::plot;
pub use gradchain_core::{
    DType, Element, Error, EvalParams, GradientTransformation, Labels, Mask, Migration, OptState, Outcome, PassPlan,
    Plan, Real, Result, SimdLevel, Tree, TreeMut, Updates, Warning, WarningKind, apply_updates, arguments,
    detected_simd_level, extra, force_simd_level, ndarray, needs, part, range, recipe, schedule, select, state, tree,
    wrapper,
};
#[cfg(feature = "program")]
#[cfg_attr(docsrs, doc(cfg(feature = "program")))]
pub use gradchain_core::{device, program};
#[cfg(feature = "minimize")]
#[cfg_attr(docsrs, doc(cfg(feature = "minimize")))]
pub use minimize::Minimize;
pub use wrapper::Boxed;

/// The names for first steps, for `use gradchain::prelude::*`.
///
/// It has traits, trees, masks, state, [`chain`], common optimizers, parts, wrappers and schedules, and no name with
/// another usual meaning. All other items are in the module of their subject.
pub mod prelude {
    pub use crate::functions::*;
    #[cfg(feature = "minimize")]
    #[cfg_attr(docsrs, doc(cfg(feature = "minimize")))]
    pub use crate::minimize::Minimize;
    pub use crate::needs::Nothing;
    pub use crate::schedule::{
        Hyperparam, IntoHyperparam, Schedule, cosine_decay, cosine_onecycle, exponential_decay, warmup_cosine_decay,
        warmup_stable_decay,
    };
    pub use crate::select::{Labels, Mask};
    pub use crate::{
        Boxed, EvalParams, GradientTransformation, OptState, Outcome, Tree, TreeMut, Updates, apply_updates,
    };
}
