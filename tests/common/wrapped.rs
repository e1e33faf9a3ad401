//! Every wrapper, around a boxed transformation.

use std::time::Duration;

use gradchain::WarningKind;
use gradchain::collective::threads;
use gradchain::prelude::*;
use gradchain::transform::{scale, scale_by_sophia, trace};
use gradchain::wrapper::{
    allow, cautious, conditionally_mask, conditionally_transform, dynamic_loss_scale, flatten, freezable, graft,
    master, mechanize, params_swa, sam, schedule_free, selective_transform, sharded, skip_absent, skip_not_finite,
    skip_on_spike, step_mod,
};

use super::extra_inputs::{Member, member};

pub type Wrap = fn(Member) -> Member;

macro_rules! wrappers {
    ($($name:ident: |$inner:ident| $wrapped:expr;)*) => {
        pub const WRAPPERS: &[(&str, Wrap)] = &[$((stringify!($name), |$inner| member($wrapped))),*];
    };
}

/// Returns a `cautious` for the direction of the inner updates.
fn cautious_of(inner: Member) -> Member {
    let along = cautious(inner.clone()).against_gradient(false);
    if along.init(&0.0_f64).is_ok() { member(along) } else { member(cautious(inner)) }
}

wrappers! {
    allow: |inner| allow(inner, [WarningKind::EmptyGroup]);
    apply_if_finite: |inner| apply_if_finite(inner, 2);
    cautious: |inner| cautious_of(inner);
    chain: |inner| chain(vec![inner]);
    chain_of_two: |inner| chain((inner, scale(0.5)));
    conditionally_mask: |inner| conditionally_mask(inner, step_mod(2, 1));
    conditionally_transform: |inner| conditionally_transform(inner, step_mod(2, 1));
    dynamic_loss_scale: |inner| dynamic_loss_scale(inner);
    flatten: |inner| flatten(inner);
    freezable: |inner| freezable(inner);
    graft: |inner| graft(inner, sgd(0.1));
    graft_of_magnitude: |inner| graft(sgd(0.1), inner);
    inject_hyperparams: |inner| inject_hyperparams(params_ema(inner, 0.5));
    lookahead: |inner| lookahead(inner, 2, 0.5);
    lookahead_reset: |inner| lookahead(inner, 2, 0.5).reset_state(true);
    lookahead_reset_each_step: |inner| lookahead(inner, 1, 0.5).reset_state(true);
    masked: |inner| masked(inner, Mask::min_ndim(1));
    masked_frozen: |inner| masked(inner, !Mask::min_ndim(2)).freeze_others();
    master: |inner| master(inner);
    mechanize: |inner| mechanize(inner).s_init(0.1);
    multi_steps: |inner| multi_steps(inner, 2);
    multi_steps_skip: |inner| multi_steps(inner, 1).should_skip_update_fn(skip_not_finite());
    named_chain: |inner| named_chain(["inner", "scale"], (inner, scale(0.5)));
    optional: |inner| chain((Some(inner), None::<gradchain::transform::Ema>));
    params_ema: |inner| params_ema(inner, 0.5);
    params_swa: |inner| params_swa(inner);
    partition: |inner| partition(
        (("inner", inner), ("other", scale(-0.1))),
        Labels::by(|leaf| if leaf.ndim() == 1 { "inner" } else { "other" }),
    );
    partition_of_boxes: |inner| partition(
        vec![("inner", inner), ("other", member(trace(0.5)))],
        Labels::by(|leaf| if leaf.ndim() == 0 { "other" } else { "inner" }),
    );
    quantized: |inner| quantized(inner);
    sam: |inner| sam(inner, sgd(0.1));
    sam_adversary: |inner| sam(sgd(0.1), inner).sync_period(2);
    sam_opaque: |inner| sam(inner, sgd(0.1)).opaque_mode();
    sam_opaque_adversary: |inner| sam(sgd(0.1), inner).sync_period(3).opaque_mode();
    scale_by_sophia: |inner| scale_by_sophia(inner).update_interval(2);
    schedule_free: |inner| schedule_free(inner, 0.1);
    selective_transform: |inner| selective_transform(inner, Mask::min_ndim(3));
    sharded: |inner| sharded(inner, threads(1, Duration::from_secs(300)).remove(0));
    skip_absent: |inner| skip_absent(inner);
    skip_on_spike: |inner| skip_on_spike(inner, 6.0).warmup_steps(1);
}
