//! Observers.

use gradchain::prelude::*;
use gradchain::transform::{
    GlobalNorm, NotFinite, TreeSum, measure_with_ema, monitor, of_params, ratio, reduce_on_plateau, snapshot, trace,
};

use super::{ELEMENT, WHOLE, family};

family! {
    reduce_on_plateau, ELEMENT, chain((adam(0.1), reduce_on_plateau().factor(0.5).patience(1)));
    reduce_on_plateau_alone, ELEMENT, reduce_on_plateau().factor(0.5).patience(1).cooldown(1);
    snapshot, ELEMENT, chain((sgd(0.1), snapshot("norm", GlobalNorm)));
    monitor, WHOLE, chain((
        trace(0.9),
        monitor().measure("norm", measure_with_ema(GlobalNorm, 0.9)).measure("sum", TreeSum),
        clip_by_global_norm(0.1),
        snapshot("clipped", GlobalNorm),
        adam(0.1),
    ));
    monitor_of_parts, WHOLE, chain((
        clip_by_global_norm(0.1),
        sgd(0.1),
        monitor()
            .measure("far", ratio(GlobalNorm, of_params(GlobalNorm)))
            .measure("mean", measure_with_ema(ratio(GlobalNorm, of_params(GlobalNorm)), 0.9))
            .measure("bad", NotFinite)
            .by_leaf(true)
            .by_group(Labels::by(|_| "all")),
    ));
}
