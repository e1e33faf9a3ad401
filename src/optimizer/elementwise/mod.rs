//! Steps along the gradient, or its running mean.

mod optimistic_gradient_descent;
mod sgd;

pub use optimistic_gradient_descent::{OptimisticGradientDescent, optimistic_gradient_descent};
pub use sgd::{Sgd, sgd};
