//! What goes by the axes of a leaf: rows and columns, factors, singular values.

mod adafactor;
mod galore;
mod muon;
mod rowwise_adagrad;
mod shampoo;
mod sm3;
mod soap;

pub use adafactor::{Adafactor, adafactor};
pub use galore::{Galore, galore};
pub use muon::{Muon, muon};
pub use rowwise_adagrad::{RowwiseAdagrad, rowwise_adagrad};
pub use shampoo::{Shampoo, shampoo};
pub use sm3::{Sm3, sm3};
pub use soap::{Soap, soap};
