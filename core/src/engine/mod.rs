//! The engine: runs a chain of transformations in as few passes over memory as possible.
//!
//! Most authors need only [`Rule`], the arithmetic on one element. Reductions, whole-leaf work and wrappers have forms
//! of their own, and all forms implement [`Stage`]. `docs/architecture.md` explains the design.

#![allow(unreachable_pub, reason = "public signatures contain the protocol, which cannot be named outside")]

mod absent;
mod bounds;
pub(crate) mod chain;
mod chunks;
mod context;
mod drive;
mod emission;
mod erased;
mod examples;
mod expansion;
pub(crate) mod form;
mod fused;
#[cfg(feature = "half")]
mod half_blocks;
mod inner;
mod kernel;
pub(crate) mod leaf;
mod limits;
mod lint;
mod nested;
mod objective;
mod pass;
mod pass_structure;
mod passes;
mod plan;
#[cfg_attr(not(feature = "collective"), path = "no_ranks.rs")]
pub(crate) mod ranks;
#[cfg(feature = "program")]
pub(crate) mod recorded;
mod reductions;
#[cfg_attr(not(feature = "program"), path = "no_remote.rs")]
mod remote;
mod repeats;
mod rows;
mod sink;
mod slot;
mod slot_access;
mod slots;
mod stage;
mod stage_chunk;
mod stored;
mod summary;
mod sums;
pub(crate) mod table;
mod tile;
mod tile_driver;
mod transform;
mod tuple;
mod updates;
mod walk;
mod whole;

pub use absent::{Absent, Skips};
pub use bounds::{Bounds, clamp, is_blocked};
pub(crate) use chain::chain_methods;
pub use chain::{ChainRun, Stages};
pub use context::ParamSource;
pub use context::{InitContext, StepContext};
pub(crate) use drive::RunningChain;
pub use drive::Work;
pub use emission::{Emission, HoldsBack, Outcome};
pub(crate) use erased::{Foreign, Viewed};
pub use erased::{InStep, OnMember, OnView, View};
pub use examples::Examples;
pub use form::{
    Arithmetic, Around, AroundWithArithmetic, AroundWithReductions, Clock, Decision, Elements, Holds, LeafStatistics,
    Named, NoArithmetic, OneElement, Optimizer, OutsideMask, Part, PartState, Passes, Reducing, ReducingPasses, Rule,
    Runs, Scope, SlotArray, Steps, TwoPass, TwoPasses, Whole, WholeTreeTransformation, WithArithmetic,
    WithLeafStatistics, WithReductions, Wrapper, WrapperState, differs, own_recipe,
};
pub(crate) use form::{ChainState, Exactly, OfChain};
pub use form::{InnerRuns, LeafSlice, Observer, Observes, OneElementWithMemory, RuleWithMemory};
pub(crate) use fused::{SlotJob, at_point, slot_tile};
pub use inner::Inner;
pub(crate) use leaf::{read_leaf, write_leaf};
pub use lint::Warning;
pub(crate) use lint::refuse_mistakes;
pub use nested::{Arrays, Nested};

pub use objective::{Current, Evaluate, GradientSink, Trial, deliver};
pub(crate) use objective::{EvaluateLoss, Objective};
pub(crate) use pass::run_own_loops;
pub use pass_structure::{PassRange, PassStructure, StageOffset};
pub use plan::{PassPlan, Plan};
pub use reductions::Sums;
pub use reductions::dot;
pub use sink::{Sink, add_rounded};
pub use slot::{Access, Quantization, Slot};
pub(crate) use slot_access::append;
pub use slot_access::{SlotAccess, SlotAccesses};
pub use slots::SlotList;
pub use stage::{Stage, instantiate};
pub use stage_chunk::{StageChunk, Then};
pub use summary::{Effect, Summary, WarningKind};
pub(crate) use sums::sum_tile;
pub(crate) use tile::TILE;
pub use tile::{Tile, TileScratch};
pub(crate) use tile_driver::fused;
pub use transform::Transform;
pub(crate) use transform::{advice, allows_absent, members_skip};
pub(crate) use tuple::{fits, needs_of};
pub use updates::Updates;
pub use walk::Walk;
pub use whole::{LeafObserver, LeafVisitor, WholeLeaf, WholeTree};

pub(crate) use crate::element::Contribution;
pub use crate::numeric::simd::{SimdLevel, detected_simd_level, force_simd_level};
use crate::numeric::{convert, prefetch, simd};
