//! Items for `gradchain` alone: not covered by semantic versioning.
