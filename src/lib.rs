//! Composable gradient transformations, as Optax has for JAX, for everything that is trained in Rust.
//!
//! A *transformation* turns gradients into updates and remembers what it needs in a *state*. Transformations are small
//! and [`chain`]; a chain of any length runs as one loop over memory.
//!
//! ```
//! use gradchain::prelude::*;
//! use ndarray::{Array1, Array2, array};
//!
//! #[derive(Tree)]
//! struct Model { weight: Array2<f64>, bias: Array1<f64> }
//!
//! let mut model = Model { weight: array![[1.0, -1.0]], bias: array![0.0] };
//! let gradient = Model { weight: array![[2.0, -2.0]], bias: array![1.0] };
//!
//! let optimizer = chain((clip(1.0), adamw(0.1).weight_decay(0.01).mask(Mask::path("weight"))));
//! let mut state = optimizer.init(&model)?;
//! optimizer.step(&mut model, &gradient, &mut state)?;
//! approx::assert_relative_eq!(model.bias[0], -0.1, max_relative = 1e-6);
//! # Ok::<(), gradchain::Error>(())
//! ```
//!
//! # Where things are
//!
//! The root has what everybody uses: [trees](Tree) of parameters, [transformations](GradientTransformation) and their
//! [state](OptState), [masks](Mask), the [plan](Plan) of a step, and each transformation by the function that makes it.
//! The [`prelude`] has the same, and schedules. Everything else is in the module of its subject:
//!
//! | module | what is in it |
//! |---|---|
//! | [`optimizer`] | whole optimizers, as chains: `adamw`, `muon`, `prodigy`, and their types |
//! | [`transform`] | what chains are made of: clips, moments, noise, projections, measurements |
//! | [`wrapper`](mod@wrapper) | what holds another transformation: masks, accumulation, lookahead, boxes, partitions |
//! | [`schedule`] | numbers that change with the step |
//! | [`state`] | typed state: counts, flags, numbers, arrays; schemas and averages |
//! | [`tree`] | leaves, paths, arithmetic on trees |
//! | [`select`] | masks and labels by path, shape and type |
//! | [`constraint`], [`projection`] | parameters that must stay in a set |
//! | [`minimize`] | fitting by L-BFGS until it converges |
//! | [`needs`], [`extra`] | losses and other things that a step may need |
//! | [`part`](mod@part), [`range`](mod@range), [`arguments`], [`program`] | for transformations of your own |
//! | [`recipe`], `config` | optimizers as data |
//! | `checkpoint` | state and parameters in files |
//! | [`collective`] | machines that train together |
//! | [`device`] | states and steps on devices, for adapters of frameworks |
//!
//! The [guide](https://docs.rs/crate/gradchain/latest/source/docs/introduction.md) goes on from here;
//! [its table of contents](https://docs.rs/crate/gradchain/latest/source/docs/SUMMARY.md) lists the pages.
#![cfg_attr(docsrs, feature(doc_cfg))]

// Lets the derive macros name this crate by `::gradchain`, here as elsewhere.
extern crate self as gradchain;

pub mod arguments;
#[cfg(doctest)]
mod book;
#[cfg(feature = "checkpoint")]
#[cfg_attr(docsrs, doc(cfg(feature = "checkpoint")))]
pub mod checkpoint;
pub mod collective;
#[cfg(feature = "config")]
#[cfg_attr(docsrs, doc(cfg(feature = "config")))]
pub mod config;
pub mod constraint;
pub mod device;
mod element;
mod engine;
mod error;
mod evaluation;
pub mod extra;
mod functions;
mod layout;
#[macro_use]
mod macros;
mod memory;
mod migrate;
pub mod minimize;
pub mod needs;
mod numeric;
pub mod optimizer;
pub mod part;
#[cfg(feature = "plot")]
#[cfg_attr(docsrs, doc(cfg(feature = "plot")))]
pub mod plot;
pub mod program;
pub mod projection;
pub mod range;
mod recall;
pub mod recipe;
mod replicas;
#[cfg(feature = "serde")]
mod saved;
pub mod schedule;
pub mod select;
pub mod state;
pub mod transform;
mod transformation;
pub mod tree;
mod tuples;
pub mod watch;
pub mod wrapper;

pub use element::{DType, Element, Real};
pub use engine::{Isa, Outcome, PassPlan, Plan, Updates, Warning, WarningKind, detected_isa, force_isa};
pub use error::{Error, Result};
pub use evaluation::EvalParams;
pub use functions::*;
#[cfg(feature = "derive")]
pub use gradchain_derive::State;
#[cfg(feature = "half")]
#[cfg_attr(docsrs, doc(cfg(feature = "half")))]
pub use half;
pub use migrate::Migration;
pub use minimize::Minimize;
pub use ndarray;
pub use select::{Labels, Mask};
pub use transformation::{GradientTransformation, OptState};
pub use tree::{
    BufferPolicy, Tree, TreeMut, apply_updates, average_params, average_params_with, incremental_update,
    per_example_global_norm_clip, per_example_layer_norm_clip, periodic_update,
};
pub use wrapper::Boxed;

/// Everything that training code uses: `use gradchain::prelude::*`.
pub mod prelude {
    pub use crate::functions::*;
    pub use crate::minimize::Minimize;
    pub use crate::needs::Nothing;
    pub use crate::schedule::{
        Hyperparam, IntoHyperparam, Schedule, clamp, constant, cosine_decay, cosine_onecycle, cosine_restarts,
        exponential_decay, from_fn, inverse_sqrt, join, linear, linear_onecycle, noam, piecewise_constant,
        piecewise_interpolate, polynomial, product, rex, sgdr, sum, table, warmup_constant, warmup_cosine_decay,
        warmup_exponential_decay, warmup_stable_decay,
    };
    pub use crate::select::{Labels, Mask};
    pub use crate::{
        Boxed, EvalParams, GradientTransformation, OptState, Outcome, Tree, TreeMut, Updates, apply_updates,
    };
}
