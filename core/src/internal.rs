//! Items that `gradchain` shares with this crate. Semantic versioning does not cover them.

/// Kernels under `#[target_feature]` and raw memory orders: their interfaces follow the loops.
pub mod numeric {
    #[cfg(feature = "half")]
    pub use crate::element::HalfFloat;
    pub use crate::element::{BothTypes, Rounding, TypeFamily, convert};
    pub use crate::engine::{add_rounded, clamp, dot, is_blocked};
    pub use crate::layout::{
        Cursor, Strides, axes_by_stride, dense_strides, elements, is_dense, matching_strides, sort_axes,
    };
    #[cfg(feature = "checkpoint")]
    pub use crate::memory::Buffer;
    #[cfg(feature = "faer")]
    pub use crate::numeric::decompositions::{Orthogonal, Svd, Symmetric, orthogonalize};
    pub use crate::numeric::matmul::{matmul, matrix, symmetric_matmul};
    pub use crate::numeric::opaque::Always;
    pub use crate::numeric::order::{largest_first, max_or_nan, min_or_nan};
    pub use crate::numeric::prefetch::prefetch_to_read;
    pub use crate::numeric::random::{BATCH, BLOCK, Normal, WORDS, halves, leaf_key, path_hash, philox, word, words};
    pub use crate::numeric::simd::{Job, SimdType, current_simd_level, dispatch_on_cpu as dispatch};
    pub use crate::numeric::spectral::spectral_norm;
    pub use crate::numeric::split::{PARALLEL_THRESHOLD, Split, half, is_parallel, parallel_for_each, run_parallel};
    pub use crate::numeric::sums::{squares, sum_pairs, sum_tile};
    pub use crate::tree::math::norm::{SMALL, is_safe, length};
    pub use crate::with_dtype;
}

/// Protocols between the engine and the parts that evaluate losses or run other transformations.
pub mod engine {
    pub use crate::engine::{
        Absent, Arrays, Bounds, Current, Evaluate, Examples, GradientSink, HoldsBack, InnerRuns, LeafSlice, Nested,
        Observer, Observes, OneElementWithMemory, RuleWithMemory, Stage, Trial, deliver, instantiate,
    };
    pub use crate::error::MismatchReport;
    pub use crate::evaluation_cache::{CachedEvaluation, EvaluationCache};
}

/// Walks that checkpoints, configs and fits share with the engine.
pub mod state {
    pub use crate::select::pattern::Pattern;
    pub mod subtree {
        pub use crate::select::subtree::*;
    }
    #[cfg(feature = "serde")]
    pub use crate::state::data::{Leaves, fits_in_memory};
    pub use crate::state::items::{Item, ItemMut, ItemName, Owner, Single, assign_item, items, items_mut, restart};
    pub use crate::state::moves::{ItemSpec, Moves, Source, below, no_part};
    pub use crate::state::verb::INNER;
    pub use crate::tree::buffers::buffers_of;
    pub use crate::tree::constraint::{ConstrainedLeaf, Constraint, Part, index, shown};
    pub use crate::tree::leaf::PartOf;
    pub use crate::tree::math::fingerprint::fingerprint;
    pub use crate::tree::row_major::{ROW_MAJOR_CHUNK, leaves, leaves_mut, read, rewrite};
    pub use crate::{memory, state_fields};
}

/// Bounded JSON and the reading of recipes, for configs and files.
pub mod recipe {
    #[cfg(feature = "config")]
    pub use crate::recipe::json::take_apart;
    #[cfg(feature = "serde")]
    pub use crate::recipe::json::{Bounded, DEEPEST, bounded, from_text, number, refusal};
    pub use crate::recipe::values::{Entries, OneOrMore};
    #[cfg(feature = "config")]
    pub use crate::schedule::recipe::schemas;
    pub use crate::{each_kind, words};
}

/// Comparison of saved data with the target, shared by states as data and by files.
pub mod restore {
    #[cfg(feature = "serde")]
    pub use crate::migrate::{Model, Resolved, missing_heads};
    #[cfg(feature = "serde")]
    pub use crate::restore::{BufferSpecs, Saved, as_data, is_shared, moves};
}
