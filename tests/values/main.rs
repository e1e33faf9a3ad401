//! Schedules, constraints and projections, with extreme arguments of both signs.
//!
//! A separate program, which `ci/sweep` builds for each mutation.
#![allow(missing_docs, reason = "a test program")]

#[cfg(feature = "derive")]
mod constraint;
mod projection;
mod readings;
mod schedule;
mod schedule_arguments;
mod watch;
