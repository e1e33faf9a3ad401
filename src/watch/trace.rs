//! Readings as events of `tracing`.

use crate::state::Readings;

impl Readings {
    /// Gives each number to `tracing`, as an event of level `INFO` and target `gradchain::readings` with the fields
    /// `step`, `part`, `reading` and `value`: the names of fields are fixed when a program is compiled, those of
    /// readings are not.
    ///
    /// Needs the feature `tracing`. A subscriber decides what becomes of them; without one nothing does.
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
