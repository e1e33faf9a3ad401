//! Items that `gradchain` shares with this crate. Semantic versioning does not cover them.

/// Kernels under `#[target_feature]` and raw memory orders: their interfaces follow the loops.
pub mod numeric {
    pub use crate::element::BothTypes;
    #[cfg(feature = "half")]
    pub use crate::element::HalfFloat;
    pub use crate::element::Rounding;
    pub use crate::element::TypeFamily;
    pub use crate::element::convert;
    pub use crate::layout::axes_by_stride;
    pub use crate::layout::dense_strides;
    pub use crate::layout::elements;
    pub use crate::layout::is_dense;
    pub use crate::layout::matching_strides;
    pub use crate::layout::sort_axes;
    #[cfg(feature = "checkpoint")]
    pub use crate::memory::Buffer;
    #[cfg(feature = "faer")]
    pub use crate::numeric::decompositions::Orthogonal;
    #[cfg(feature = "faer")]
    pub use crate::numeric::decompositions::Svd;
    #[cfg(feature = "faer")]
    pub use crate::numeric::decompositions::Symmetric;
    #[cfg(feature = "faer")]
    pub use crate::numeric::decompositions::orthogonalize;
    pub use crate::numeric::matmul::matmul;
    pub use crate::numeric::matmul::matrix;
    pub use crate::numeric::matmul::symmetric_matmul;
    pub use crate::numeric::opaque::Always;
    pub use crate::numeric::order::largest_first;
    pub use crate::numeric::order::max_or_nan;
    pub use crate::numeric::order::min_or_nan;
    pub use crate::numeric::prefetch::prefetch_to_read;
    pub use crate::numeric::random::BATCH;
    pub use crate::numeric::random::BLOCK;
    pub use crate::numeric::random::Normal;
    pub use crate::numeric::random::WORDS;
    pub use crate::numeric::random::halves;
    pub use crate::numeric::random::leaf_key;
    pub use crate::numeric::random::path_hash;
    pub use crate::numeric::random::philox;
    pub use crate::numeric::random::word;
    pub use crate::numeric::random::words;
    pub use crate::numeric::simd::SimdType;
    pub use crate::numeric::simd::current_simd_level;
    pub use crate::numeric::simd::dispatch;
    pub use crate::numeric::spectral::spectral_norm;
    pub use crate::numeric::split::PARALLEL_THRESHOLD;
    pub use crate::numeric::split::Split;
    pub use crate::numeric::split::half;
    pub use crate::numeric::split::is_parallel;
    pub use crate::numeric::split::parallel_for_each;
    pub use crate::numeric::split::run_parallel;
    pub use crate::numeric::sums::squares;
    pub use crate::numeric::sums::sum_pairs;
    pub use crate::numeric::sums::sum_tile;
    pub use crate::with_dtype;
}

/// Protocols between the engine and the parts that evaluate losses or run other transformations.
pub mod engine {
    pub use crate::engine::Absent;
    pub use crate::engine::Bounds;
    pub use crate::engine::Evaluate;
    pub use crate::engine::Examples;
    pub use crate::engine::GradientSink;
    pub use crate::engine::HoldsBack;
    pub use crate::engine::InnerRuns;
    pub use crate::engine::Job;
    pub use crate::engine::LeafSlice;
    pub use crate::engine::Observer;
    pub use crate::engine::Observes;
    pub use crate::engine::OneElementWithMemory;
    pub use crate::engine::RuleWithMemory;
    pub use crate::engine::Stage;
    pub use crate::engine::Trial;
    pub use crate::engine::add_rounded;
    pub use crate::engine::clamp;
    pub use crate::engine::current_simd_level;
    pub use crate::engine::dispatch;
    pub use crate::engine::dot;
    pub use crate::engine::is_blocked;
    pub use crate::engine::leaf::Table;
    pub use crate::engine::squares;
    pub use crate::engine::sum_tile;
    pub use crate::engine::{Arrays, Nested};
    pub use crate::error::MismatchReport;
    pub use crate::evaluation_cache::CachedEvaluation;
    pub use crate::evaluation_cache::EvaluationCache;
    pub use crate::extra::deliver;
}

/// Walks that checkpoints, configs and fits share with the engine.
pub mod state {
    pub use crate::select::pattern::Pattern;
    pub use crate::select::subtree;
    pub use crate::state::INNER;
    pub use crate::state::Item;
    pub use crate::state::ItemMut;
    pub use crate::state::ItemName;
    pub use crate::state::ItemSpec;
    pub use crate::state::Moves;
    pub use crate::state::Owner;
    pub use crate::state::Single;
    pub use crate::state::Source;
    pub use crate::state::assign_item;
    pub use crate::state::below;
    #[cfg(feature = "serde")]
    pub use crate::state::data::Leaves;
    #[cfg(feature = "serde")]
    pub use crate::state::data::fits_in_memory;
    pub use crate::state::items;
    pub use crate::state::items_mut;
    pub use crate::state::no_part;
    pub use crate::state::restart;
    pub use crate::tree::Cursor;
    pub use crate::tree::LeafParts;
    pub use crate::tree::PartOf;
    pub use crate::tree::SMALL;
    pub use crate::tree::Strides;
    pub use crate::tree::buffers_of;
    pub use crate::tree::constraint::ConstrainedLeaf;
    pub use crate::tree::constraint::Constraint;
    pub use crate::tree::constraint::Part;
    pub use crate::tree::constraint::index;
    pub use crate::tree::constraint::shown;
    pub use crate::tree::dense_strides;
    pub use crate::tree::fingerprint;
    pub use crate::tree::is_dense;
    pub use crate::tree::is_safe;
    pub use crate::tree::length;
    pub use crate::tree::row_major::ROW_MAJOR_CHUNK;
    pub use crate::tree::row_major::leaves;
    pub use crate::tree::row_major::leaves_mut;
    pub use crate::tree::row_major::read;
    pub use crate::tree::row_major::rewrite;
    pub use crate::{memory, state_fields};
}

/// Bounded JSON and the reading of recipes, for configs and files.
pub mod recipe {
    pub use crate::recipe::Entries;
    pub use crate::recipe::OneOrMore;
    #[cfg(feature = "serde")]
    pub use crate::recipe::json::Bounded;
    #[cfg(feature = "serde")]
    pub use crate::recipe::json::DEEPEST;
    #[cfg(feature = "serde")]
    pub use crate::recipe::json::bounded;
    #[cfg(feature = "serde")]
    pub use crate::recipe::json::from_text;
    #[cfg(feature = "serde")]
    pub use crate::recipe::json::number;
    #[cfg(feature = "serde")]
    pub use crate::recipe::json::refusal;
    #[cfg(feature = "serde")]
    pub use crate::recipe::json::take_apart;
    #[cfg(feature = "config")]
    pub use crate::schedule::schemas;
    pub use crate::{each_kind, words};
}

/// Comparison of saved data with the target, shared by states as data and by files.
pub mod restore {
    pub use crate::migrate::Model;
    pub use crate::migrate::Resolved;
    pub use crate::migrate::missing_heads;
    #[cfg(feature = "serde")]
    pub use crate::restore::BufferSpecs;
    #[cfg(feature = "serde")]
    pub use crate::restore::Saved;
    #[cfg(feature = "serde")]
    pub use crate::restore::as_data;
    #[cfg(feature = "serde")]
    pub use crate::restore::is_shared;
    #[cfg(feature = "serde")]
    pub use crate::restore::moves;
}
