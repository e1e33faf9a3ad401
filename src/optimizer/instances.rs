//! Instances of common optimizers and clipping, for the crates that use them.
//!
//! rustc shares an instance of a function that is not inlined with the crates above, so each entry saves compile time
//! in every crate that chains the optimizer, at the cost of about 1 % of the compile time of this crate.

use super::{Adam, Adamw, Lion, Sgd};
use crate::internal::engine::instantiate;
use crate::part::InitContext;
use crate::transform::ClipByGlobalNorm;

type Instances<T> = fn(&T, &InitContext<'_>);

#[used]
static CLIP_BY_GLOBAL_NORM: Instances<ClipByGlobalNorm> = instantiate;
#[used]
static SGD: Instances<Sgd> = instantiate;
#[used]
static ADAM: Instances<Adam> = instantiate;
#[used]
static ADAMW: Instances<Adamw> = instantiate;
#[used]
static LION: Instances<Lion> = instantiate;
