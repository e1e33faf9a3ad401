//! A picture of a run.

use gradchain::plot::{Chart, grid};

/// One value for each update, and the updates with events.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) losses: Vec<f64>,
    pub(crate) learning_rates: Vec<f64>,
    /// Updates with NaN in gradients.
    pub(crate) repaired: Vec<usize>,
    /// Updates with a changed setting, and a label.
    pub(crate) notes: Vec<(usize, String)>,
}

/// Returns the trailing mean.
pub(crate) fn smoothed(values: &[f64], window: usize) -> Vec<f64> {
    let mean = |end: usize| {
        let part = &values[end.saturating_sub(window)..end];
        part.iter().sum::<f64>() / part.len() as f64
    };
    (1..=values.len()).map(mean).collect()
}

/// Returns every fifth value with its index: the lines are smooth, and the picture stays small.
fn thinned(values: &[f64]) -> Vec<(f64, f64)> {
    values.iter().enumerate().step_by(5).map(|(i, value)| (i as f64, *value)).collect()
}

pub(crate) fn picture(history: &History, title: &str) -> gradchain::Result<String> {
    let loss = Chart::new(title)
        .logarithmic(true)
        .line("loss of each update", history.losses.iter().copied())
        .faint()
        .points("mean loss of the last 40", thinned(&smoothed(&history.losses, 40)));
    let repaired = |chart: Chart, update: &usize| chart.note(*update as f64, "NaN");
    let rate = Chart::new("learning rate by update").points("", thinned(&history.learning_rates));
    let noted = |chart: Chart, (update, note): &(usize, String)| chart.note(*update as f64, note);
    let charts = [history.repaired.iter().fold(loss, repaired), history.notes.iter().fold(rate, noted)];
    grid(&charts, 1, [860, 280])
}
