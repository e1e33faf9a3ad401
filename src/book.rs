//! The README and the pages of the guide, so that the code in them is compiled and run with the doc tests.

macro_rules! pages {
    ($($name:ident: $path:literal),* $(,)?) => {$(
        #[doc = include_str!($path)]
        mod $name {}
    )*};
}
pages! {
    readme: "../README.md",
    extra: "../docs/extra.md",
    which_optimizer: "../docs/which-optimizer.md",
    contributing: "../CONTRIBUTING.md",
    introduction: "../docs/introduction.md",
    first_steps: "../docs/first-steps.md",
    debug_builds: "../docs/debug-builds.md",
    examples: "../docs/examples.md",
    trees: "../docs/trees.md",
    chains: "../docs/chains.md",
    schedules: "../docs/schedules.md",
    masks: "../docs/masks.md",
    projections: "../docs/projections.md",
    constraints: "../docs/constraints.md",
    multi_steps: "../docs/multi-steps.md",
    sparse: "../docs/sparse.md",
    few_bits: "../docs/few-bits.md",
    state: "../docs/state.md",
    averaging: "../docs/averaging.md",
    many_machines: "../docs/many-machines.md",
    scale_on_paper: "../docs/scale-on-paper.md",
    checkpoints: "../docs/checkpoints.md",
    importing: "../docs/importing.md",
    adaptive: "../docs/adaptive.md",
    sign: "../docs/sign.md",
    curvature: "../docs/curvature.md",
    elementwise: "../docs/elementwise.md",
    loss: "../docs/loss.md",
    matrix: "../docs/matrix.md",
    noise: "../docs/noise.md",
    norms: "../docs/norms.md",
    parameter_free: "../docs/parameter-free.md",
    watching: "../docs/watching.md",
    beyond_optax: "../docs/beyond-optax.md",
    own_rule: "../docs/own-rule.md",
    own_two_pass: "../docs/own-two-pass.md",
    own_wrapper: "../docs/own-wrapper.md",
    own_whole_tree: "../docs/own-whole-tree.md",
    own_look: "../docs/own-look.md",
    own_onlooker: "../docs/own-onlooker.md",
    statistics: "../docs/statistics.md",
    least_squares: "../docs/least-squares.md",
    from_optax: "../docs/from-optax.md",
    from_pytorch: "../docs/from-pytorch.md",
    architecture: "../docs/architecture.md",
    wrappers: "../docs/wrappers.md",
    from_your_own_adam: "../docs/from-your-own-adam.md",
    glossary: "../docs/glossary.md",
    compare: "../docs/compare.md",
    platforms: "../docs/platforms.md",
    performance: "../docs/performance.md",
    reliability: "../docs/reliability.md",
    conformance: "../docs/conformance.md",
}

#[cfg(feature = "config")]
pages! {
    configs: "../docs/configs.md",
}
