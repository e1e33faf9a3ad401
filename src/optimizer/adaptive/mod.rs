//! What scales each element by what its gradients have been.

use crate::arguments::required;
use crate::optimizer::inventory::Inventory;

mod acprop;
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
mod simplified_ademamix;
mod stable_adamw;
mod yogi;

pub use acprop::{Acprop, acprop};
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
pub use simplified_ademamix::{SimplifiedAdemamix, simplified_ademamix};
pub use stable_adamw::{StableAdamw, stable_adamw};
pub use yogi::{Yogi, yogi};

/// Lists the optimizers of this family.
pub(super) fn list(to: &mut impl Inventory) {
    to.typed(|| acprop(required()));
    to.in_parts(|| adabelief(required()));
    to.in_parts(|| adagrad(required()));
    to.typed(|| adam(required()));
    to.in_parts(|| adam_mini(required()));
    to.in_parts(|| adamax(required()));
    to.typed(|| adamaxw(required()));
    to.typed(|| adamw(required()));
    to.typed(|| adan(required()));
    to.typed(|| ademamix(required()));
    to.in_parts(|| adopt(required()));
    to.in_parts(|| amsgrad(required()));
    to.typed(|| cautious_adamw(required()));
    to.typed(|| madgrad(required()));
    to.typed(|| mars(required()));
    to.typed(|| optimistic_adam_v2(required()));
    to.in_parts(|| radam(required()));
    to.typed(|| simplified_ademamix(required()));
    to.in_parts(|| stable_adamw(required()));
    to.in_parts(|| yogi(required()));
}
