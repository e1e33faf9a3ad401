//! Readings as events of `tracing`.

use crate::state::Readings;

impl Readings {
    /// Emits each number to `tracing`, as an event of level `INFO` and target `gradchain::readings`.
    ///
    /// Its fields are `step`, `part`, `reading` and `value`: field names are fixed at compile time, names of readings
    /// are not.
    ///
    /// Needs the feature `tracing`. Without a subscriber the events are discarded.
    ///
    /// ```
    /// use gradchain::prelude::*;
    ///
    /// let optimizer = adam(0.1);
    /// let state = optimizer.init(&0.0_f32)?;
    /// optimizer.readings(&state)?.with("loss", 0.5).trace(1);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn trace(&self, step: u64) {
        for reading in self {
            let (part, value) = (reading.part(), reading.value());
            tracing::info!(target: "gradchain::readings", step, part, %reading, value);
        }
    }
}
