//! Learning-rate-free and schedule-free optimizers.

mod cocob;
mod dadapt_adamw;
mod dog;
#[cfg(feature = "contrib")]
pub(super) mod dowg;
mod prodigy;
mod schedule_free_adamw;
mod schedule_free_sgd;
mod warm_up;

pub use cocob::{Cocob, cocob};
pub use dadapt_adamw::{DadaptAdamw, DadaptAdamwRun, DadaptAdamwState, dadapt_adamw};
pub use dog::{Dog, dog};
pub use prodigy::{Prodigy, ProdigyRun, ProdigyState, prodigy};
pub use schedule_free_adamw::{ScheduleFreeAdamw, schedule_free_adamw};
pub use schedule_free_sgd::{ScheduleFreeSgd, schedule_free_sgd};

/// Returns the factor of the learning rate that replaces both bias corrections of Adam.
fn unbias(clock: crate::part::Clock, (b1, b2): (f64, f64)) -> f64 {
    clock.bias_correction(b2).sqrt() / clock.bias_correction(b1)
}
