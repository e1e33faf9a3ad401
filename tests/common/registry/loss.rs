//! Transformations that need the loss.
//!
//! A line search uses the loss of the last gradients, so `k` mini-steps are not equivalent to one batch.

use gradchain::optimizer::{momo, momo_adam, polyak_sgd};
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::transform::{
    PolyakVariant, scale, scale_by_backtracking_linesearch, scale_by_polyak, scale_by_zoom_linesearch,
};

use super::{WHOLE, family};

family! {
    scale_by_backtracking_linesearch, WHOLE, scale_by_backtracking_linesearch(3);
    scale_by_zoom_linesearch, WHOLE, scale_by_zoom_linesearch(4);
    sgd_backtracking, WHOLE, chain((sgd(3.0), scale_by_backtracking_linesearch(20)));
    sgd_zoom, WHOLE, chain((sgd(0.1), scale_by_zoom_linesearch(20).curv_rtol(0.1)));
    lbfgs_zoom, WHOLE, lbfgs();
    lbfgs_backtracking, WHOLE, lbfgs().linesearch(scale_by_backtracking_linesearch(20));
    zoom_in_groups, WHOLE, partition(
        (("a", chain((sgd(0.1), scale_by_zoom_linesearch(20)))), ("b", adam(0.1))),
        Labels::by(|leaf| if leaf.ndim() == 1 { "a" } else { "b" }),
    );
    polyak_sgd, WHOLE, polyak_sgd().f_min(0.5);
    polyak_sgd_plus, WHOLE, polyak_sgd().f_min(0.5).scaling(linear(0.5, 0.1, 4)).variant(PolyakVariant::SpsPlus);
    scale_by_polyak, WHOLE, chain((scale_by_polyak().max_learning_rate(0.1), scale(-1.0)));
    momo, WHOLE, momo().learning_rate(0.1).weight_decay(0.1);
    momo_adapts, WHOLE, momo().learning_rate(0.1).lower_bound(-1.0).adapt_lower_bound(true);
    momo_adam, WHOLE, momo_adam().learning_rate(0.1).weight_decay(0.1);
    momo_in_chain, WHOLE, chain((clip_by_global_norm(1.0), momo(), clip_by_global_norm(0.1)));
}
