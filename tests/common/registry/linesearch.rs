//! Line searches. They search the loss of the last gradients they were given, so `k` mini-steps are not one batch.

use gradchain::prelude::*;

use super::{WHOLE_WINDOWS, family};

family! {
    // Uphill: the updates are the gradients.
    scale_by_backtracking_linesearch, WHOLE_WINDOWS, scale_by_backtracking_linesearch(3);
    scale_by_zoom_linesearch, WHOLE_WINDOWS, scale_by_zoom_linesearch(4);
    // Downhill.
    sgd_backtracking, WHOLE_WINDOWS, chain((sgd(3.0), scale_by_backtracking_linesearch(20)));
    sgd_zoom, WHOLE_WINDOWS, chain((sgd(0.1), scale_by_zoom_linesearch(20).curv_rtol(0.1)));
    lbfgs_zoom, WHOLE_WINDOWS, lbfgs();
    lbfgs_backtracking, WHOLE_WINDOWS, lbfgs().linesearch(scale_by_backtracking_linesearch(20));
    zoom_in_groups, WHOLE_WINDOWS, partition(
        (("a", chain((sgd(0.1), scale_by_zoom_linesearch(20)))), ("b", adam(0.1))),
        Labels::by(|leaf| if leaf.ndim() == 1 { "a" } else { "b" }),
    );
}
