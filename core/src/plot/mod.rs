//! Plots of schedules and of training, as SVG. Needs the feature `plot`.
//!
//! A [`Chart`] has lines with common axes; [`grid`] combines several charts into one figure. Both return the SVG as a
//! string, for a file or a notebook.
//!
//! ```
//! use gradchain::plot::{Chart, grid};
//! use gradchain::schedule::{Schedule, warmup_cosine_decay};
//!
//! let rate: Schedule = warmup_cosine_decay(0.0, 1e-3, 10, 100).into();
//! let loss = Chart::new("loss").logarithmic(true).line("train", (0..100).map(|i| 0.97_f64.powi(i)));
//! let picture = grid(&[loss, rate.plot(100)], 1, [600, 200])?;
//! assert!(picture.starts_with("<svg") && picture.contains("loss"));
//! # Ok::<(), gradchain::Error>(())
//! ```

mod draw;

pub use draw::grid;

use crate::error::Result;
use crate::schedule::Schedule;

/// Lines with common axes; see [the module](self).
#[derive(Clone, Debug)]
#[must_use = "a chart does nothing until it is drawn"]
pub struct Chart {
    title: String,
    lines: Vec<Line>,
    logarithmic: bool,
    range: Option<[f64; 2]>,
    notes: Vec<(f64, String)>,
}

#[derive(Clone, Debug)]
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
    faint: bool,
}

impl Chart {
    /// Returns a chart without lines.
    pub fn new(title: impl Into<String>) -> Chart {
        Chart { title: title.into(), lines: Vec::new(), logarithmic: false, range: None, notes: Vec::new() }
    }

    /// Adds a line through values at 0, 1, 2 and so on. A non-empty name is written below, in the line's color.
    pub fn line(self, name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Chart {
        self.points(name, values.into_iter().enumerate().map(|(x, y)| (x as f64, y)))
    }

    /// Adds a line through points. It has gaps where numbers are not finite, or not positive on a logarithmic scale.
    pub fn points(mut self, name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Chart {
        self.lines.push(Line { name: name.into(), points: points.into_iter().collect(), faint: false });
        self
    }

    /// Makes the last line thin and pale, and draws it behind the others: for references.
    pub fn faint(mut self) -> Chart {
        self.lines.last_mut().into_iter().for_each(|line| line.faint = true);
        self
    }

    /// Sets whether values have a logarithmic scale; by default not.
    pub fn logarithmic(mut self, logarithmic: bool) -> Chart {
        self.logarithmic = logarithmic;
        self
    }

    /// Sets the values at the bottom and at the top; by default the lines fill the frame. Lines are cut off there.
    pub fn range(mut self, bottom: f64, top: f64) -> Chart {
        self.range = Some([bottom, top]);
        self
    }

    /// Marks an x coordinate with a dashed line and a text.
    pub fn note(mut self, x: f64, text: impl Into<String>) -> Chart {
        self.notes.push((x, text.into()));
        self
    }

    /// Returns the chart as the text of an SVG file; `size` is in pixels and includes scales and title.
    ///
    /// ```
    /// use gradchain::plot::Chart;
    ///
    /// let error = Chart::new("loss").line("", [f64::NAN]).svg([300, 200]).unwrap_err();
    /// assert!(error.to_string().contains("a line with two consecutive finite points"));
    /// ```
    ///
    /// # Errors
    ///
    /// Fails without anything to draw: no line with two points that are finite, and positive on a logarithmic scale; if
    /// the range is not increasing or exceeds 1e100; if the size is less than 120 by 80.
    pub fn svg(&self, size: [u32; 2]) -> Result<String> {
        grid(core::slice::from_ref(self), 1, size)
    }
}

impl Schedule {
    /// Returns a chart of the values at the counts from 0 to `last`.
    ///
    /// ```
    /// use gradchain::schedule::{Schedule, cosine_decay};
    ///
    /// let schedule: Schedule = cosine_decay(1.0, 100).into();
    /// assert!(schedule.plot(100).svg([400, 200])?.contains("cosine_decay(1.0, 100)"));
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// # Cost
    ///
    /// At most 1001 values are drawn, whatever `last`.
    pub fn plot(&self, last: u64) -> Chart {
        Chart::new("").schedule(self, last)
    }
}

impl Chart {
    /// Adds the line of a [schedule](Schedule::plot), named by its constructor call, so that a chart can compare
    /// several.
    pub fn schedule(self, schedule: &Schedule, last: u64) -> Chart {
        let parts = last.min(1000);
        // Evenly spaced counts, if more than 1001.
        let counts = (0..=parts).map(|i| (u128::from(last) * u128::from(i) / u128::from(parts.max(1))) as u64);
        self.points(schedule.to_string(), counts.map(|count| (count as f64, schedule.at(count))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_has_no_more_points_than_it_says() {
        let schedule: Schedule = crate::schedule::cosine_decay(1.0, 100).into();
        for last in [0, 1, 999, 1000, 1001, 1999, 123_456, u64::MAX] {
            let points = &schedule.plot(last).lines[0].points;
            assert_eq!(points.len() as u64, last.min(1000) + 1, "up to {last}");
            assert_eq!((points[0].0, points[points.len() - 1].0), (0.0, last as f64));
            assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0), "up to {last}");
        }
    }
}
