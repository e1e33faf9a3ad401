//! Adaptive optimizers: scaling of each element by its past gradients.

#[cfg(feature = "contrib")]
pub(super) mod acprop;
mod adabelief;
mod adadelta;
mod adagrad;
mod adam;
mod adam_mini;
mod adamax;
mod adamaxw;
mod adamw;
mod adan;
mod ademamix;
mod adopt;
mod amsgrad;
mod cautious_adamw;
mod madgrad;
mod mars;
mod nadam;
mod nadamw;
mod optimistic_adam;
mod optimistic_adam_v2;
mod radam;
mod rmsprop;
#[cfg(feature = "contrib")]
pub(super) mod simplified_ademamix;
mod stable_adamw;
mod yogi;

pub use adabelief::{Adabelief, adabelief};
pub use adadelta::{Adadelta, adadelta};
pub use adagrad::{Adagrad, adagrad};
pub use adam::{Adam, adam};
pub use adam_mini::{AdamMini, adam_mini};
pub use adamax::{Adamax, adamax};
pub use adamaxw::{Adamaxw, adamaxw};
pub use adamw::{Adamw, adamw};
pub use adan::{Adan, adan};
pub use ademamix::{Ademamix, ademamix};
pub use adopt::{Adopt, adopt};
pub use amsgrad::{Amsgrad, amsgrad};
pub use cautious_adamw::{CautiousAdamw, cautious_adamw};
pub use madgrad::{Madgrad, madgrad};
pub use mars::{Mars, mars};
pub use nadam::nadam;
pub use nadamw::nadamw;
pub use optimistic_adam::{OptimisticAdam, optimistic_adam};
pub use optimistic_adam_v2::{OptimisticAdamV2, optimistic_adam_v2};
pub use radam::{Radam, radam};
pub use rmsprop::{Rmsprop, rmsprop};
pub use stable_adamw::{StableAdamw, stable_adamw};
pub use yogi::{Yogi, yogi};
