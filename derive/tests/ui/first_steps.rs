use gradchain::prelude::*;

fn main() {
    // Two arguments and not a tuple.
    let optimizer = chain(clip_by_global_norm(1.0), adamw(1e-3));

    // PyTorch's names.
    let optimizer = adam(1e-3).lr(1e-4);
    let optimizer = adam(1e-3).betas((0.9, 0.95));

    // A trait object.
    let optimizer: Box<dyn GradientTransformation> = Box::new(adam(1e-3));

    // Two types.
    let optimizer = if std::env::args().count() > 1 { adam(1e-3) } else { sgd(1e-2).momentum(0.9) };
}
