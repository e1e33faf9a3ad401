//! [gradchain]'s optimizers for models of [candle](candle_core): a step over all variables at once, in place.
//!
//! The step works in candle's memory, with the paths of a [`VarMap`](candle_nn::VarMap).
//!
//! ```text
//! cargo add candle-core candle-nn gradchain gradchain-candle
//! ```
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use candle_nn::{Module, VarBuilder, VarMap};
//! use gradchain::prelude::*;
//! use gradchain_candle::{Vars, init, step};
//!
//! let map = VarMap::new();
//! let model = candle_nn::linear(2, 1, VarBuilder::from_varmap(&map, DType::F64, &Device::Cpu).pp("fc"))?;
//! let vars = Vars::of(&map)?;
//!
//! let rate = cosine_decay(0.1, 300);
//! let optimizer = chain((clip_by_global_norm(1.0), adamw(rate).weight_decay(1e-3).mask(Mask::path("fc/weight"))));
//! let mut state = init(&optimizer, &vars)?;
//! let x = Tensor::new(&[[1.0, 2.0], [3.0, -1.0]], &Device::Cpu)?;
//! for _ in 0..300 {
//!     let loss = (model.forward(&x)? - 1.0)?.sqr()?.mean_all()?;
//!     step(&optimizer, &vars, &loss.backward()?, &mut state)?;
//! }
//! let out = model.forward(&x)?.flatten_all()?.to_vec1::<f64>()?;
//! assert!(out.iter().all(|y| (y - 1.0).abs() < 1e-2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | | |
//! |---|---|
//! | [`Vars`] | the trained variables, by path; lends them as trees |
//! | [`init`], [`step`] | an optimizer's state, and a step |
//! | [`Vars::evaluating`] | evaluates the model with averages instead of the trained values |
//! | [`DeviceState`] | a state and steps on a device whose memory cannot be lent, such as CUDA's |
//! | [`VarOptimizer`] | all three together, as [`candle_nn::Optimizer`] |
//!
//! The [guide](_guide) has the rest: checkpoints, candle's own optimizers beside these, other devices, constraints.

mod buffers;
mod evaluate;
mod open;
mod optimizer;
mod replay;
mod step;
mod vars;

pub use optimizer::VarOptimizer;
pub use replay::{CandleTensors, DeviceState};
pub use step::{init, step};
pub use vars::Vars;

#[cfg(doctest)]
mod table;

#[cfg(any(doc, doctest))]
#[doc = include_str!("../guide.md")]
pub mod _guide {}

fn from_candle(error: candle_core::Error) -> gradchain::Error {
    gradchain::Error::state("candle", error.to_string())
}
