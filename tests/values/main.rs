//! What maps numbers to numbers: schedules, constraints, projections, with arguments of both signs, on both sides of 1,
//! and at the extremes. A program of its own, so that `ci/sweep` can build it for each mistake that it makes.
#![allow(missing_docs, reason = "a test program")]

#[cfg(feature = "derive")]
mod constraint;
mod projection;
mod readings;
mod schedule;
mod schedule_arguments;
mod watch;
