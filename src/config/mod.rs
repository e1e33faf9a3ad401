//! Optimizers as data: from JSON to transformations and schedules.
//!
//! Guide: [Optimizers as data](https://docs.rs/gradchain/latest/gradchain/_guide/configs/index.html).
//!
//! A transformation is an object of one entry, its name, with an object of its arguments: `{"adam": {"learning_rate":
//! 0.1}}`. Names, arguments and defaults are those of [Optax], in the form of the conformance cases in
//! `tests/conformance`; further options of the crate's builders have the builders' names. Arguments that take a number
//! or a schedule take `{"schedule": {"linear": {..}}}`; masks are `{"by_path": {path: bool}}`, `{"path": pattern}`,
//! `{"min_ndim": n}`, a bool or null.
//!
//! Building checks everything. An error has its place: `$.chain[1].adamw: unknown argument ...`.
//!
//! ```
//! use gradchain::config;
//! use gradchain::prelude::*;
//!
//! let optimizer = config::build(&serde_json::json!({"chain": [
//!     {"scale": {"step_size": 2.0}},
//!     {"scale_by_learning_rate": {"learning_rate": {"schedule": {"constant": {"value": 0.25}}}}},
//! ]}))?;
//! let mut params = 1.0_f64;
//! let mut state = optimizer.init(&params)?;
//! optimizer.step(&mut params, &1.0_f64, &mut state)?;
//! assert_eq!(params, 0.5);
//!
//! let error = config::build(&serde_json::json!({"adamw": {"learning_rate": 0.1, "weight_decy": 0.1}})).unwrap_err();
//! assert!(error.to_string().starts_with("$.adamw: unknown argument `weight_decy`; did you mean `weight_decay`?"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [Optax]: https://optax.readthedocs.io

mod boxed_members;
mod build;
mod data;
mod families;
mod fields;
mod json;
mod own_loops;
mod registry;
mod schema;
mod serialized;

pub use build::{build, build_per_example, build_with, is_per_example, schedule, transformations};
pub use data::Config;
pub use registry::{Member, Registry};
pub use schema::json_schema;

pub use crate::recipe::{ConfigError, Result};
