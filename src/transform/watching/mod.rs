//! Observers of the steps.

mod monitor;
mod plateau;
mod reduce_on_plateau;

pub use monitor::{
    GlobalNorm, Measure, MeasureFn, MeasureWithEma, Measured, Measurements, Monitor, MonitorState, NotFinite, Quantity,
    TreeSum, measure_fn, measure_with_ema, measurements, monitor, of_params, ratio, snapshot,
};
pub use plateau::Plateau;
pub use reduce_on_plateau::{PlateauMode, ReduceOnPlateau, ReduceOnPlateauState, reduce_on_plateau};
