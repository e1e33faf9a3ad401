//! One chart for each curve.

use gradchain::plot::{Chart, grid};

use crate::Curve;

/// Drawn in every chart.
const EXTRA_SLOT: &str = "adamw";

pub(crate) fn picture(curves: &[Curve]) -> gradchain::Result<String> {
    let points = |curve: &Curve| {
        let losses = curve.losses.clone().into_iter().enumerate();
        losses.map(|(i, loss)| (i as f64 + 1.0, loss))
    };
    let charts: Vec<Chart> = curves
        .iter()
        .map(|curve| {
            let frame = Chart::new(curve.name).logarithmic(true).range(1e-3, 2.5);
            let beside = curves.iter().filter(|other| other.name == EXTRA_SLOT && curve.name != EXTRA_SLOT);
            beside.fold(frame, |chart, other| chart.points("", points(other)).faint()).points("", points(curve))
        })
        .collect();
    grid(&charts, 5, [190, 150])
}
