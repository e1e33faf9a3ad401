//! A picture of a run as SVG, with no more drawing than it takes.

use std::fmt::Write;

/// What a picture is made from: one value for each update, and where something happened.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) losses: Vec<f64>,
    pub(crate) learning_rates: Vec<f64>,
    /// Updates whose gradients had NaN in them.
    pub(crate) repaired: Vec<usize>,
    /// Updates after which something was changed, and what.
    pub(crate) notes: Vec<(usize, String)>,
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 24.0;

/// A frame with a scale along each side.
struct Panel<'a> {
    svg: &'a mut String,
    top: f64,
    height: f64,
    /// Where the largest number of updates is: at the right.
    updates: f64,
    /// The values at the bottom and at the top.
    range: (f64, f64),
    logarithmic: bool,
}

impl Panel<'_> {
    fn x(&self, update: f64) -> f64 {
        LEFT + update / self.updates * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let scale = |v: f64| if self.logarithmic { v.ln() } else { v };
        let (bottom, top) = (scale(self.range.0), scale(self.range.1));
        self.top + self.height * (top - scale(value)).clamp(0.0, top - bottom) / (top - bottom)
    }

    fn frame(&mut self, title: &str, ticks: &[f64]) -> std::fmt::Result {
        let (top, height, right) = (self.top, self.height, WIDTH - LEFT - RIGHT);
        writeln!(self.svg, r#"<text class="title" x="{LEFT}" y="{}">{title}</text>"#, top - 10.0)?;
        for &tick in ticks {
            let y = self.y(tick);
            writeln!(self.svg, r#"<path class="grid" d="M{LEFT} {y:.1}h{right}"/>"#)?;
            writeln!(self.svg, r#"<text class="left" x="{}" y="{:.1}">{tick}</text>"#, LEFT - 8.0, y + 4.0)?;
        }
        let step =
            [10.0, 20.0, 50.0, 100.0, 250.0, 500.0].into_iter().find(|s| s * 8.0 >= self.updates).unwrap_or(1000.0);
        for i in 0..=(self.updates / step) as u32 {
            let n = step * f64::from(i);
            writeln!(self.svg, r#"<text class="below" x="{:.1}" y="{}">{n}</text>"#, self.x(n), top + height + 18.0)?;
        }
        writeln!(self.svg, r#"<rect class="frame" x="{LEFT}" y="{top}" width="{right}" height="{height}"/>"#)
    }

    fn line(&mut self, class: &str, values: &[f64]) -> std::fmt::Result {
        let points: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(i, &value)| format!("{:.1},{:.1}", self.x(i as f64 + 0.5), self.y(value)))
            .collect();
        writeln!(self.svg, r#"<polyline class="{class}" points="{}"/>"#, points.join(" "))
    }
}

/// The mean over a window that looks back.
fn smoothed(values: &[f64], window: usize) -> Vec<f64> {
    let mean = |end: usize| {
        let part = &values[end.saturating_sub(window)..end];
        part.iter().sum::<f64>() / part.len() as f64
    };
    (1..=values.len()).map(mean).collect()
}

/// The picture, as the text of an SVG file.
pub(crate) fn picture(history: &History, title: &str) -> Result<String, std::fmt::Error> {
    const STYLE: &str = "text{font:13px sans-serif;fill:#333} .head{font-size:16px} .title{font-weight:bold} \
        .left{text-anchor:end} .below{text-anchor:middle} .grid{stroke:#e4e4e4} .frame{fill:none;stroke:#999} \
        polyline{fill:none;stroke-linejoin:round} .each{stroke:#b9cfe6;stroke-width:1} .mean{stroke:#1f5fa8;stroke-width:2} \
        .rate{stroke:#2a8a57;stroke-width:2} .note{stroke:#7a4fa3;stroke-dasharray:5 4} .notetext{fill:#7a4fa3} \
        .nan{fill:#cc3322}";
    let mut svg = String::new();
    writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 600" width="{WIDTH}" height="600">"#
    )?;
    writeln!(svg, r#"<style>{STYLE}</style><rect width="100%" height="100%" fill="white"/>"#)?;
    writeln!(svg, r#"<text class="head" x="{LEFT}" y="30">{title}</text>"#)?;

    let updates = history.losses.len() as f64;
    let bottom = smoothed(&history.losses, 8).into_iter().fold(1.0, f64::min);
    let bottom = [0.3, 0.1, 0.03, 0.01, 0.003, 0.001].into_iter().find(|b| *b <= bottom).unwrap_or(1e-4);
    let range = (bottom, 3.0);
    let mut loss = Panel { svg: &mut svg, top: 76.0, height: 290.0, updates, range, logarithmic: true };
    let ticks: Vec<f64> = [3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001].into_iter().filter(|t| *t >= bottom).collect();
    loss.frame("loss: each update, and the mean of the last 40", &ticks)?;
    loss.line("each", &history.losses)?;
    loss.line("mean", &smoothed(&history.losses, 40))?;
    for &update in &history.repaired {
        let x = loss.x(update as f64 + 0.5);
        let base = loss.top + loss.height;
        writeln!(loss.svg, r#"<path class="nan" d="M{x:.1} {}l-6 11h12z"/>"#, base - 12.0)?;
    }
    if !history.repaired.is_empty() {
        let (x, y) = (WIDTH - RIGHT, loss.top - 10.0);
        writeln!(loss.svg, r#"<text class="left nan" x="{x}" y="{y}">▲ NaN in the gradients, set to 0</text>"#)?;
    }

    let most = history.learning_rates.iter().fold(0.0_f64, |a, &b| a.max(b));
    let range = (0.0, most * 1.1);
    let mut rate = Panel { svg: &mut svg, top: 430.0, height: 110.0, updates, range, logarithmic: false };
    rate.frame("learning rate", &[0.0, most / 2.0, most])?;
    rate.line("rate", &history.learning_rates)?;
    let x = rate.x(updates / 2.0);
    writeln!(rate.svg, r#"<text class="below" x="{x}" y="582">updates</text>"#)?;
    for (update, note) in &history.notes {
        let x = rate.x(*update as f64);
        writeln!(rate.svg, r#"<path class="note" d="M{x:.1} 76V540"/>"#)?;
        writeln!(rate.svg, r#"<text class="notetext" x="{:.1}" y="94">{note}</text>"#, x + 6.0)?;
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}
