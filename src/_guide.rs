//! The guide: how to train with gradchain, a page a subject. The same pages, in `docs/`, are a book for mdBook.
//!
//! * [Introduction](introduction)
//!
//! ## Getting started
//!
//! * [First steps](first_steps)
//! * [From your own Adam](from_your_own_adam)
//! * [Coming from PyTorch](from_pytorch)
//! * [Coming from Optax](from_optax)
//! * [In burn](https://docs.rs/gradchain-burn/latest/gradchain_burn/_guide/index.html)
//! * [In candle](https://docs.rs/gradchain-candle/latest/gradchain_candle/_guide/index.html)
//! * [Which optimizer?](which_optimizer)
//! * [Gallery](gallery)
//! * [Examples](examples)
//!
//! ## Guide
//!
//! * [Trees: your parameters](trees)
//! * [Chains and plans](chains)
//! * [Schedules and hyperparameters](schedules)
//! * [Masks, labels, freezing](masks)
//! * [Gradient accumulation and NaN](multi_steps)
//! * [Checkpoints, and state for other parameters](checkpoints)
//! * [Importing a run of PyTorch or Optax](importing)
//! * [State](state)
//! * [Averaging parameters and replicas](averaging)
//! * [Low precision](few_bits)
//! * [Row-sparse gradients](sparse)
//! * [Watching a run](watching)
#![cfg_attr(feature = "config", doc = " * [Optimizers as data](configs)")]
//! * [Extra arguments](extra)
#![cfg_attr(feature = "constraint", doc = " * [Projections: parameters restricted to a set](projections)")]
#![cfg_attr(feature = "constraint", doc = " * [Constraints: raw and constrained parameters](constraints)")]
#![cfg_attr(feature = "collective", doc = " * [Several processes](many_machines)")]
//! * [Costs at scale](scale_on_paper)
//! * [On a device](https://docs.rs/gradchain-gpu/latest/gradchain_gpu/_guide/index.html)
//!
//! ## Catalogue
//!
//! * [Wrappers](wrappers)
//! * [Element-wise transformations](elementwise)
//! * [Adaptive optimizers](adaptive)
//! * [Norms and means](norms)
//! * [Sign-based optimizers](sign)
//! * [Matrix optimizers](matrix)
//! * [Learning-rate-free optimizers](parameter_free)
//! * [Step sizes from the loss](loss)
//! * [Curvature](curvature)
//! * [Noise and privacy](noise)
//! * [Beyond Optax](beyond_optax)
//!
//! ## Fitting
//!
#![cfg_attr(feature = "minimize", doc = " * [Fitting a statistics model with L-BFGS](statistics)")]
#![cfg_attr(feature = "minimize", doc = " * [Least squares: fit a curve to data](least_squares)")]
//!
//! ## Parts of your own
//!
//! * [An element rule of your own](own_rule)
//! * [A two-pass part of your own](own_two_pass)
//! * [A wrapper of your own](own_wrapper)
//! * [A whole-tree part of your own](own_whole_tree)
//!
//! ## Reference
//!
//! * [Glossary](glossary)
//! * [Comparison](compare)
//! * [Performance](performance)
//! * [Platforms](platforms)
//! * [Reliability](reliability)
//! * [Conformance and departures](conformance)
//! * [Architecture](architecture)
//! * [Debug builds and compile time](debug_builds)

macro_rules! pages {
    ($($name:ident: $path:literal, $($pictures:literal)?;)*) => {$(
        // Of two definitions of a link the first counts: pictures come from data URIs, since rustdoc copies no files.
        $(#[doc = include_str!($pictures)])?
        #[doc = include_str!($path)]
        pub mod $name {}
    )*};
}

pages! {
    introduction: "../docs/introduction.md",;
    first_steps: "../docs/first-steps.md",;
    from_your_own_adam: "../docs/from-your-own-adam.md",;
    from_pytorch: "../docs/from-pytorch.md",;
    from_optax: "../docs/from-optax.md",;
    which_optimizer: "../docs/which-optimizer.md", "../docs/images/inline/which-optimizer.md";
    gallery: "../docs/gallery.md", "../docs/images/inline/gallery.md";
    examples: "../docs/examples.md",;
    trees: "../docs/trees.md",;
    chains: "../docs/chains.md",;
    schedules: "../docs/schedules.md", "../docs/images/inline/schedules.md";
    masks: "../docs/masks.md",;
    multi_steps: "../docs/multi-steps.md",;
    checkpoints: "../docs/checkpoints.md",;
    importing: "../docs/importing.md",;
    state: "../docs/state.md",;
    averaging: "../docs/averaging.md",;
    few_bits: "../docs/few-bits.md",;
    sparse: "../docs/sparse.md",;
    watching: "../docs/watching.md",;
    extra: "../docs/extra.md",;
    scale_on_paper: "../docs/scale-on-paper.md",;
    wrappers: "../docs/wrappers.md",;
    elementwise: "../docs/elementwise.md",;
    adaptive: "../docs/adaptive.md",;
    norms: "../docs/norms.md",;
    sign: "../docs/sign.md",;
    matrix: "../docs/matrix.md",;
    parameter_free: "../docs/parameter-free.md",;
    loss: "../docs/loss.md",;
    curvature: "../docs/curvature.md",;
    noise: "../docs/noise.md",;
    beyond_optax: "../docs/beyond-optax.md",;
    own_rule: "../docs/own-rule.md",;
    own_two_pass: "../docs/own-two-pass.md",;
    own_wrapper: "../docs/own-wrapper.md",;
    own_whole_tree: "../docs/own-whole-tree.md",;
    glossary: "../docs/glossary.md",;
    compare: "../docs/compare.md",;
    performance: "../docs/performance.md", "../docs/images/inline/performance.md";
    platforms: "../docs/platforms.md",;
    reliability: "../docs/reliability.md",;
    conformance: "../docs/conformance.md",;
    architecture: "../docs/architecture.md",;
    debug_builds: "../docs/debug-builds.md",;
}

#[cfg(feature = "collective")]
pages! {
    many_machines: "../docs/many-machines.md",;
}

#[cfg(feature = "config")]
pages! {
    configs: "../docs/configs.md",;
}

#[cfg(feature = "constraint")]
pages! {
    projections: "../docs/projections.md",;
    constraints: "../docs/constraints.md",;
}

#[cfg(feature = "minimize")]
pages! {
    statistics: "../docs/statistics.md",;
    least_squares: "../docs/least-squares.md",;
}

/// Pages whose code is tested, and that are read elsewhere.
#[cfg(doctest)]
mod other_pages {
    pages! {
        readme: "../README.md",;
        contributing: "../CONTRIBUTING.md",;
    }
}
