//! Checkpoints: optimizer state and parameters in one safetensors file.
//!
//! Guide: [Checkpoints](https://docs.rs/gradchain/latest/gradchain/_guide/checkpoints/index.html).
//!
//! ```
//! use gradchain::checkpoint::{Checkpoint, Save};
//! use gradchain::prelude::*;
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("step-1.safetensors");
//! let optimizer = chain((clip_by_global_norm(1.0), adamw(0.1)));
//! let mut params = vec![1.0_f32, 2.0];
//! let mut state = optimizer.init(&params)?;
//! optimizer.step(&mut params, &vec![1.0_f32, -1.0], &mut state)?;
//! Save::new(&optimizer, &state).params(&params).note("epoch", 3).to_file(&path)?;
//!
//! // Another process: the same model and the same optimizer are built, and go on where the first stopped.
//! let mut params = vec![0.0_f32; 2];
//! let file = Checkpoint::open(&path)?;
//! let mut state = file.load(&optimizer, &mut params)?;
//! assert_eq!(file.note("epoch"), Some("3"));
//! optimizer.step(&mut params, &vec![1.0_f32, -1.0], &mut state)?;
//! # Ok::<(), gradchain::Error>(())
//! ```
//!
//! # The file
//!
//! A checkpoint is a [safetensors](https://huggingface.co/docs/safetensors) file. Its tensors are `params/{path}` for
//! each parameter, `buffers/{path}` for each [buffer](crate::tree::Buffer) that the tree of parameters shows, and
//! `state/{field}/{path}` for each array of the state, in row-major order whatever the memory order. One entry of
//! metadata, `gradchain`, is JSON: the versions of crate and format, the optimizer as data, the structure with its
//! fingerprint, the single values of the state (counts, flags, scalars, random keys), your notes, and a CRC-32 of each
//! tensor and of the header. Numbers keep every bit, NaN included.
//!
//! A file of [several models](SaveModels) has the same for each, in tensors whose names begin with that of the model.
//!
//! # Writing
//!
//! The file appears under its name only when it is complete and on disk: it is written to a temporary file in the same
//! folder, flushed, and renamed. A failure before that leaves an older file of that name unchanged. Arrays are written
//! directly from the state, without a copy of it.
//!
//! # Distributed training
//!
//! With the feature `collective`, [`Save::to_shards`] saves a [`sharded`] optimizer. Each rank writes a file, and a
//! list names them. The list is opened like any other file: on as many ranks, on another number of ranks, or in one
//! process without the wrapper.
//!
//! [`Save::to_shards`]: https://docs.rs/gradchain/latest/gradchain/checkpoint/struct.Save.html#method.to_shards
//! [`sharded`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.sharded.html
//!
//! # Loading
//!
//! Everything must agree: the optimizer with all its arguments, every leaf's path, type and shape, every field of the
//! state. Otherwise nothing is changed, and the error lists the differences (`{:#}` all of a long list):
//!
//! ```text
//! the checkpoint step-1.safetensors does not fit: 2 differences
//!   optimizer: $.chain[1].adamw.b1: expected 0.9, found 0.95
//!   parameters: w: expected shape [3], found [4]
//!   changes of leaves need a `Migration`: `fresh`, `drop`, `rename`
//! ```
//!
//! [`Load`] permits differences. Functions (a mask or a schedule that is a closure) cannot be compared, except for
//! their presence.
//!
//! # Foreign files
//!
//! [`Import`] reads a run of PyTorch or Optax from a safetensors file that was written there.
//!
//! Differs: PyTorch and Optax save state by position or as a pickled tree, and load it without comparing the
//! optimizer's arguments; see `docs/reliability.md`.

mod assembly;
mod buffers;
mod file;
mod import;
mod load;
mod manifest;
mod models;
mod rotation;
mod save;
mod shards;
mod source;
mod tensors;

pub use file::Checkpoint;
pub use import::{Import, Origin};
pub use load::{Load, Report};
pub use models::{SaveModels, Saves};
pub use rotation::{Rotation, SearchResult, Skipped, best_valid, latest_valid};
pub use save::Save;
pub use shards::merge;
