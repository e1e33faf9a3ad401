//! Transformations by the axes of a leaf: rows and columns, factors, singular values.

use crate::arguments::required;
use crate::config::boxed_members::boxed_members;
use crate::config::registry::{Registry, Unconfigured};
use crate::optimizer::*;
use crate::transform::*;

pub(super) fn register(r: &mut Registry) {
    r.part(scale_by_factored_rms).part(scale_by_muon).part(scale_by_rowwise_rss).part(scale_by_sm3);
    // Absent arguments stay absent, because the type depends on them.
    r.constructor("adafactor", |given| {
        let there = |name, default: Option<f64>| given.or(name, default.map(Into::into));
        let there = |name, default| Ok(there(name, default)?.map(|h: crate::schedule::Hyperparam| h.at(0)));
        let clip = if given.has("clipping_threshold") { None } else { Some(1.0) };
        Ok(boxed_members(
            adafactor(1.0)
                .multiply_by_parameter_scale(given.or("multiply_by_parameter_scale", true)?)
                .clipping_threshold(there("clipping_threshold", clip)?)
                .momentum(there("momentum", None)?)
                .weight_decay_rate(there("weight_decay_rate", None)?),
        ))
    })
    .reads(&["multiply_by_parameter_scale"]);
    r.constructor("muon", |given| {
        let matrices = given.or("muon_weight_dimension_numbers", WeightDimensionNumbers::default())?;
        let muon = muon(required()).muon_weight_dimension_numbers(matrices);
        let apart = given.get("adam_learning_rate").is_some();
        Ok(Unconfigured::named(if apart { muon.adam_learning_rate(0.0) } else { muon }))
    })
    .reads(&["muon_weight_dimension_numbers"]);
    #[cfg(feature = "faer")]
    decomposed::register(r);
}

#[cfg(feature = "faer")]
mod decomposed {
    use super::*;
    use crate::config::fields::Fields;
    use crate::recipe::Result;
    use crate::wrapper::{Boxed, boxed};

    pub(super) fn register(r: &mut Registry) {
        r.part(scale_by_shampoo).part(scale_by_soap);
        // The presence of an inner transformation determines the type.
        r.constructor("galore", move |given| {
            let plain = galore(required());
            Ok(match base(given)? {
                None => Unconfigured::named(plain),
                Some(base) => Unconfigured::named(plain.base_optimizer(base)),
            })
        })
        .reads(&["base_optimizer"]);
        r.constructor("scale_by_galore", move |given| {
            Ok(match base(given)? {
                None => Unconfigured::named(scale_by_galore()),
                Some(base) => Unconfigured::named(scale_by_galore().base_optimizer(base)),
            })
        })
        .reads(&["base_optimizer"]);
    }

    fn base(given: &Fields<'_>) -> Result<Option<Boxed>> {
        let Some(node) = given.get("base_optimizer") else { return Ok(None) };
        let mut base: Boxed = boxed(());
        node.build_into(&mut base)?;
        Ok(Some(base))
    }
}
