//! Drawing charts.

use core::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;

use super::{Chart, Line};
use crate::error::{Error, Result};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawResult = core::result::Result<(), Box<dyn core::error::Error>>;

const INK: RGBColor = RGBColor(0x24, 0x29, 0x2f);
const GRID: RGBColor = RGBColor(0xe1, 0xe4, 0xe8);
const PALE: RGBColor = RGBColor(0xb9, 0xc4, 0xd0);
/// Distinguishable with red-green color blindness.
const COLORS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xb0, 0x80, 0x00),
    RGBColor(0x56, 0x50, 0xc4),
];
/// Largest magnitude with labels.
const LARGEST: f64 = 1e100;
/// Integer coordinates per pixel, for smooth curves.
const PIXEL: u32 = 4;
/// Line height below a chart, and the font's letter width.
const TEXT: [u32; 2] = [15 * PIXEL, 7 * PIXEL];
const MARGIN: u32 = 8 * PIXEL;
const SMALL: u32 = 11 * PIXEL;

/// Draws several charts in one figure, row by row.
///
/// `size` is that of each frame with its scales and title, in pixels.
///
/// # Errors
///
/// Fails as [`Chart::svg`] for each, and without charts or columns.
pub fn grid(charts: &[Chart], columns: usize, size: [u32; 2]) -> Result<String> {
    let [width, height] = size;
    if charts.is_empty() || columns == 0 {
        let found = format!("{} in {columns}", charts.len());
        return Err(Error::argument("grid", "charts", "at least one, in at least one column", found));
    }
    if !(120..=20_000).contains(&width) || !(80..=20_000).contains(&height) {
        let found = format!("{width} by {height}");
        return Err(Error::argument("plot", "size", "from 120 by 80 to 20000 by 20000", found));
    }
    let [width, height] = [width * PIXEL, height * PIXEL];
    let frames = charts.iter().map(Frame::of).collect::<Result<Vec<_>>>()?;
    let rows: Vec<&[Frame<'_>]> = frames.chunks(columns).collect();
    let below =
        |row: &[Frame<'_>]| row.iter().map(|frame| frame.names(width).len() as u32).max().unwrap_or(0) * TEXT[0];
    let heights: Vec<u32> = rows.iter().map(|row| height + below(row)).collect();
    let mut picture = String::new();
    let all = (width * columns.min(charts.len()) as u32, heights.iter().sum());
    let drawn = || -> DrawResult {
        let root = SVGBackend::with_string(&mut picture, all).into_drawing_area();
        root.fill(&WHITE)?;
        let mut rest = root.clone();
        for (row, row_height) in rows.iter().zip(heights) {
            let (here, after) = rest.split_vertically(row_height);
            rest = after;
            let mut here = here;
            for frame in *row {
                let (place, after) = here.split_horizontally(width);
                frame.draw(&place, width, height)?;
                here = after;
            }
        }
        root.present()?;
        Ok(())
    };
    drawn().map_err(|problem| Error::state("plot", problem.to_string()))?;
    let size = |[width, height]: [u32; 2]| format!(r#"<svg width="{width}" height="{height}""#);
    Ok(picture.replacen(&size([all.0, all.1]), &size([all.0 / PIXEL, all.1 / PIXEL]), 1))
}

struct Frame<'a> {
    chart: &'a Chart,
    x: Range<f64>,
    y: Range<f64>,
}

impl<'a> Frame<'a> {
    fn of(chart: &'a Chart) -> Result<Frame<'a>> {
        let seen = |&&(x, y): &&(f64, f64)| is_seen(chart, x, y);
        let lines = chart.lines.iter().filter(|line| line.points.iter().filter(seen).count() > 1);
        let all: Vec<(f64, f64)> = lines.flat_map(|line| line.points.iter().filter(seen).copied()).collect();
        let edges = |of: fn(&(f64, f64)) -> f64| {
            let numbers = || all.iter().map(of);
            numbers().fold(f64::INFINITY, f64::min)..numbers().fold(f64::NEG_INFINITY, f64::max)
        };
        let (x, y) = (edges(|point| point.0), edges(|point| point.1));
        if x.start >= x.end || all.is_empty() {
            let found = format!("{} lines, {} such points", chart.lines.len(), all.len());
            return Err(Error::argument("plot", "lines", "a line with two consecutive finite points", found));
        }
        let room = (y.end / 2.0 - y.start / 2.0) * 0.1;
        let y = match chart.range {
            Some([bottom, top]) if bottom < top && (bottom > 0.0 || !chart.logarithmic) => bottom..top,
            Some(range) => {
                let expected = "two increasing numbers, positive on a logarithmic scale";
                return Err(Error::argument("plot", "range", expected, format!("{range:?}")));
            }
            None if chart.logarithmic => y.start / 1.1..y.end * 1.1,
            None => y.start - room..y.end + room,
        };
        let (x, y) = (wide(x), wide(y));
        let fits = [x.start, x.end, y.start, y.end].into_iter().all(|edge| edge.abs() <= LARGEST);
        if !fits || chart.logarithmic && y.start < 1.0 / LARGEST {
            let expected = "of numbers up to 1e100, from 1e-100 on a logarithmic scale";
            return Err(Error::argument("plot", "range", expected, format!("{x:?} by {y:?}")));
        }
        Ok(Frame { chart, x, y })
    }

    fn names(&self, width: u32) -> Vec<(RGBColor, &'a str)> {
        let most = ((width - 2 * MARGIN) / TEXT[1]).max(8) as usize;
        let named = self.colored().filter(|(line, _)| !line.name.is_empty());
        named.flat_map(|(line, color)| wrap(&line.name, most).into_iter().map(move |text| (color, text))).collect()
    }

    fn colored(&self) -> impl Iterator<Item = (&'a Line, RGBColor)> {
        let mut colors = COLORS.into_iter().cycle();
        self.chart.lines.iter().map(move |line| {
            let color = if line.faint { None } else { colors.next() };
            (line, color.unwrap_or(PALE))
        })
    }

    fn draw(&self, area: &Area<'_>, width: u32, height: u32) -> DrawResult {
        let (frame, below) = area.split_vertically(height);
        let mut builder = ChartBuilder::on(&frame);
        builder.margin(MARGIN).margin_right(2 * MARGIN).x_label_area_size(22 * PIXEL).y_label_area_size(52 * PIXEL);
        if !self.chart.title.is_empty() {
            builder.caption(&self.chart.title, ("sans-serif", 15 * PIXEL, &INK));
        }
        match self.chart.logarithmic {
            true => self.lines(builder.build_cartesian_2d(self.x.clone(), self.y.clone().log_scale())?, height)?,
            false => self.lines(builder.build_cartesian_2d(self.x.clone(), self.y.clone())?, height)?,
        }
        for (row, (color, text)) in self.names(width).into_iter().enumerate() {
            let style = ("monospace", SMALL, &color).into_text_style(&below);
            below.draw_text(text, &style, (MARGIN as i32, (row as u32 * TEXT[0]) as i32))?;
        }
        Ok(())
    }

    fn lines<Y>(
        &self,
        mut context: ChartContext<'_, SVGBackend<'_>, Cartesian2d<plotters::coord::types::RangedCoordf64, Y>>,
        height: u32,
    ) -> DrawResult
    where
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let number = |x: &f64| short(*x);
        context
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.stroke_width(PIXEL))
            .axis_style(GRID.stroke_width(PIXEL))
            .x_labels(6)
            .y_labels((height / PIXEL / 40).clamp(3, 6) as usize)
            .x_label_formatter(&number)
            .y_label_formatter(&number)
            .label_style(("sans-serif", SMALL, &INK))
            .draw()?;
        let Range { start: bottom, end: top } = self.y;
        for (x, text) in self.chart.notes.iter().filter(|(x, _)| self.x.contains(x)) {
            let dashed = [5, 4].map(|length| length * PIXEL);
            let line = [(*x, bottom), (*x, top)];
            context.draw_series(DashedLineSeries::new(line, dashed[0], dashed[1], INK.stroke_width(PIXEL)))?;
            let label = Text::new(text.clone(), (4 * PIXEL as i32, 0), ("sans-serif", SMALL).into_font().color(&INK));
            context.draw_series([EmptyElement::at((*x, top)) + label])?;
        }
        let mut order: Vec<_> = self.colored().collect();
        order.sort_by_key(|(line, _)| !line.faint);
        for (line, color) in order {
            let style = color.stroke_width(if line.faint { PIXEL } else { 2 * PIXEL });
            for part in line.points.split(|(x, y)| !is_seen(self.chart, *x, *y)) {
                let inside = part.iter().map(|(x, y)| (*x, y.clamp(bottom, top)));
                context.draw_series(LineSeries::new(inside, style))?;
            }
        }
        Ok(())
    }
}

/// Widens a range to fit labels: distinct numbers between its edges.
fn wide(range: Range<f64>) -> Range<f64> {
    let size = range.start.abs().max(range.end.abs());
    let least = if size == 0.0 { 1.0 } else { (size * 1e-9).max(1.0 / LARGEST) };
    if range.end - range.start >= least { range } else { range.start - least..range.end + least }
}

fn is_seen(chart: &Chart, x: f64, y: f64) -> bool {
    x.is_finite() && y.is_finite() && (y > 0.0 || !chart.logarithmic)
}

/// Returns a label with just enough digits to distinguish neighbours.
fn short(x: f64) -> String {
    let size = x.abs();
    if size != 0.0 && !(1e-3..1e5).contains(&size) {
        return format!("{x:.0e}");
    }
    let text = format!("{x:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Wraps at `most` characters: a call between methods or arguments, other text at a space.
fn wrap(mut text: &str, most: usize) -> Vec<&str> {
    let mut lines = Vec::new();
    while let Some((limit, _)) = text.char_indices().nth(most) {
        let cuts = |mark: &'static str, after: usize| {
            let places = text.match_indices(mark).map(move |(at, _)| at + after);
            places.filter(|at| *at <= limit).max()
        };
        let cut = cuts(").", 1).max(cuts("), ", 3)).or(cuts(" ", 1)).unwrap_or(limit);
        let (line, rest) = text.split_at(cut);
        lines.push(line);
        text = rest;
    }
    lines.push(text);
    lines
}
