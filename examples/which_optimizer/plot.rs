//! The curves as SVG.

use std::fmt::Write;

use crate::Curve;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 220.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 50.0;
/// The losses at the bottom and at the top.
const RANGE: (f64, f64) = (1e-3, 2.5);
const TICKS: [f64; 7] = [2.0, 0.5, 0.1, 0.03, 0.01, 0.003, 0.001];

/// The picture, as the text of an SVG file.
pub(crate) fn picture(curves: &[Curve]) -> Result<String, std::fmt::Error> {
    let mut svg = String::new();
    writeln!(svg, r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}">"#)?;
    writeln!(svg, "<style>text{{font:12px sans-serif;fill:#333}} .grid{{stroke:#e4e4e4}}</style>")?;
    writeln!(svg, r#"<rect width="100%" height="100%" fill="white"/>"#)?;
    writeln!(svg, r#"<text x="{LEFT}" y="28">mean training loss of each epoch, at the best learning rate</text>"#)?;
    let epochs = curves.iter().map(|curve| curve.losses.len()).max().unwrap_or(1) as f64;
    let x = |epoch: f64| LEFT + (epoch - 1.0) / (epochs - 1.0).max(1.0) * (WIDTH - LEFT - RIGHT);
    let y = |loss: f64| {
        let (bottom, top) = (RANGE.0.ln(), RANGE.1.ln());
        TOP + (top - loss.ln().clamp(bottom, top)) / (top - bottom) * (HEIGHT - TOP - BOTTOM)
    };
    for tick in TICKS {
        let (right, at) = (WIDTH - LEFT - RIGHT, y(tick));
        writeln!(svg, r#"<path class="grid" d="M{LEFT} {at:.1}h{right}"/>"#)?;
        writeln!(svg, r#"<text x="{}" y="{:.1}" text-anchor="end">{tick}</text>"#, LEFT - 8.0, at + 4.0)?;
    }
    for epoch in (5..=epochs as usize).step_by(5).chain([1]) {
        let at = x(epoch as f64);
        writeln!(svg, r#"<text x="{at:.1}" y="{}" text-anchor="middle">{epoch}</text>"#, HEIGHT - BOTTOM + 18.0)?;
    }
    writeln!(svg, r#"<text x="{LEFT}" y="{}">epoch</text>"#, HEIGHT - 10.0)?;
    for (i, curve) in curves.iter().enumerate() {
        let color = format!("hsl({:.0},65%,{}%)", i as f64 * 137.5 % 360.0, if i % 2 == 0 { 38 } else { 50 });
        let dash = if i % 3 == 1 { r#" stroke-dasharray="6 3""# } else { "" };
        let points = curve.losses.iter().enumerate().filter(|(_, loss)| loss.is_finite());
        let points: Vec<_> = points.map(|(i, &loss)| format!("{:.1},{:.1}", x(i as f64 + 1.0), y(loss))).collect();
        let line = format!(r#"stroke="{color}" stroke-width="1.6"{dash}"#);
        writeln!(svg, r#"<polyline fill="none" {line} points="{}"/>"#, points.join(" "))?;
        let (left, at) = (WIDTH - RIGHT + 16.0, TOP + 14.0 * i as f64);
        writeln!(svg, r#"<path {line} d="M{left} {at}h26"/>"#)?;
        writeln!(svg, r#"<text x="{}" y="{}">{}</text>"#, left + 32.0, at + 4.0, curve.name)?;
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}
