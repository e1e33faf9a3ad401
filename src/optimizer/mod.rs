//! The named optimizers: each a short chain, written as one.

mod adafactor;
mod adam;
mod adamw;
mod lamb;
mod lbfgs;
mod lion;
mod muon;
mod polyak_sgd;
mod schedule_free_adamw;
mod schedule_free_sgd;
mod sgd;
mod warm_up;

pub use adafactor::{Adafactor, adafactor};
pub use adam::{Adam, adam};
pub use adamw::{Adamw, adamw};
pub use lamb::{Lamb, lamb};
pub use lbfgs::{Lbfgs, lbfgs};
pub use lion::{Lion, lion};
pub use muon::{Muon, muon};
pub use polyak_sgd::{PolyakSgd, polyak_sgd};
pub use schedule_free_adamw::{ScheduleFreeAdamw, schedule_free_adamw};
pub use schedule_free_sgd::{ScheduleFreeSgd, schedule_free_sgd};
pub use sgd::{Sgd, sgd};
