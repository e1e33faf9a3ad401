//! Draws every schedule: the pictures on the guide's page about schedules.
//!
//! ```text
//! cargo run --example schedule_gallery            writes docs/images/schedules/*.svg
//! cargo run --example schedule_gallery -- DIR     writes them there
//! ```

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs, io};

use gradchain::schedule::*;

/// Steps shown in each picture.
const STEPS: u64 = 200;

fn gallery() -> Vec<(&'static str, Vec<Schedule>)> {
    let wsd = warmup_stable_decay(1.0, 20, 120, 60);
    vec![
        ("constant", vec![constant(0.5).into()]),
        ("linear", vec![linear(1.0, 0.1, 150).transition_begin(20).into()]),
        ("polynomial", [0.5, 2.0, 4.0].map(|power| polynomial(1.0, 0.1, power, 180).into()).into()),
        (
            "exponential_decay",
            vec![exponential_decay(1.0, 40, 0.5).into(), exponential_decay(1.0, 40, 0.5).staircase(true).into()],
        ),
        ("cosine_decay", vec![cosine_decay(1.0, 180).into(), cosine_decay(1.0, 180).alpha(0.2).exponent(2.0).into()]),
        ("rex", vec![rex(1.0, 180).into()]),
        ("warmup_constant", vec![warmup_constant(0.1, 1.0, 60).into()]),
        ("warmup_cosine_decay", vec![warmup_cosine_decay(0.0, 1.0, 30, 190).end_value(0.1).into()]),
        ("warmup_exponential_decay", vec![warmup_exponential_decay(0.0, 1.0, 30, 50, 0.5).end_value(0.1).into()]),
        (
            "warmup_stable_decay",
            vec![wsd.into(), wsd.shape(DecayShape::OneMinusSqrt).into(), wsd.shape(DecayShape::Cosine).into()],
        ),
        ("inverse_sqrt", vec![inverse_sqrt(1.0, 25).into()]),
        ("linear_onecycle", vec![linear_onecycle(190, 1.0).into()]),
        ("cosine_onecycle", vec![cosine_onecycle(190, 1.0).into()]),
        ("piecewise_constant", vec![piecewise_constant(1.0, [(60, 0.5), (120, 0.4), (170, 0.5)]).into()]),
        (
            "piecewise_interpolate",
            [InterpolateType::Linear, InterpolateType::Cosine]
                .map(|kind| piecewise_interpolate(kind, 0.2, [(60, 5.0), (120, 0.4), (190, 0.25)]).into())
                .into(),
        ),
        ("table", vec![table([1.0, 0.8, 0.5, 0.55, 0.2]).every(40).into()]),
        (
            "sgdr",
            vec![
                sgdr([warmup_cosine_decay(0.0, 1.0, 10, 60).end_value(0.1), warmup_cosine_decay(0.1, 0.7, 20, 130)])
                    .into(),
            ],
        ),
        (
            "cosine_restarts",
            vec![cosine_restarts(1.0, 50).into(), cosine_restarts(1.0, 25).steps_factor(2).value_factor(0.8).into()],
        ),
        ("join", vec![join((linear(0.0, 1.0, 40), 1.0, rex(1.0, 80)), [40, 110]).into()]),
        ("sum", vec![sum((linear(0.8, 0.1, 200), product((0.2, cosine_restarts(1.0, 25))))).into()]),
        ("product", vec![product((linear(0.0, 1.0, 30), exponential_decay(1.0, 60, 0.5))).into()]),
        ("clamp", vec![clamp(cosine_decay(1.0, 200), 0.2, 0.8).into()]),
        ("from_fn", vec![from_fn("sine", |count| 0.5 + 0.4 * (count as f64 / 15.0).sin()).into()]),
    ]
}

const WIDTH: f64 = 400.0;
const LEFT: f64 = 36.0;
const TOP: f64 = 34.0;
const HEIGHT: f64 = 130.0;
const COLORS: [&str; 3] = ["#1f6feb", "#d1570b", "#1a7f37"];

/// The picture of some schedules, each named by the call that makes it.
fn picture(name: &str, schedules: &[Schedule]) -> Result<String, std::fmt::Error> {
    let right = WIDTH - LEFT - 14.0;
    let x = |count: u64| LEFT + right * count as f64 / STEPS as f64;
    let y = |value: f64| TOP + HEIGHT * (1.05 - value) / 1.1;
    let calls: Vec<String> = schedules.iter().map(Schedule::to_string).collect();
    let lines: Vec<(usize, &str)> =
        calls.iter().enumerate().flat_map(|(i, call)| wrap(call).map(move |l| (i, l))).collect();
    let height = TOP + HEIGHT + 30.0 + 13.0 * lines.len() as f64;
    let mut svg = String::new();
    writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">"#
    )?;
    writeln!(
        svg,
        "<style>text {{ font: 11px sans-serif; fill: #57606a; }} .name {{ font: bold 14px sans-serif; fill: #24292f; }} .call {{ font: 10px monospace; }} .grid {{ stroke: #d0d7de; stroke-width: 1; fill: none; }} .line {{ fill: none; stroke-width: 2; stroke-linejoin: round; }}</style>"
    )?;
    writeln!(svg, r##"<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>"##)?;
    writeln!(svg, r#"<text class="name" x="{LEFT}" y="20">{name}</text>"#)?;
    for value in [0.0, 0.5, 1.0] {
        let at = y(value);
        writeln!(svg, r#"<path class="grid" d="M{LEFT} {at:.1}h{right}"/>"#)?;
        writeln!(svg, r#"<text text-anchor="end" x="{}" y="{:.1}">{value}</text>"#, LEFT - 6.0, at + 4.0)?;
    }
    for count in (0..=STEPS).step_by(50) {
        let (at, below) = (x(count), TOP + HEIGHT + 14.0);
        writeln!(svg, r#"<text text-anchor="middle" x="{at:.1}" y="{below}">{count}</text>"#)?;
    }
    for (schedule, color) in schedules.iter().zip(COLORS) {
        let values = schedule.sample(0..=STEPS).into_iter().enumerate();
        let points: Vec<String> = values.map(|(i, value)| format!("{:.1},{:.1}", x(i as u64), y(value))).collect();
        writeln!(svg, r#"<polyline class="line" stroke="{color}" points="{}"/>"#, points.join(" "))?;
    }
    for (row, (i, line)) in lines.into_iter().enumerate() {
        let (at, color) = (TOP + HEIGHT + 32.0 + 13.0 * row as f64, COLORS[i % COLORS.len()]);
        let line = line.replace('&', "&amp;").replace('<', "&lt;");
        writeln!(svg, r#"<text class="call" style="fill: {color}" x="8" y="{at}">{line}</text>"#)?;
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// Cuts a call into lines that fit, between arguments that are calls themselves or before a method.
fn wrap(mut call: &str) -> impl Iterator<Item = &str> {
    const MOST: usize = 64;
    std::iter::from_fn(move || {
        if call.is_empty() {
            return None;
        }
        let arguments = call.match_indices("), ").map(|(at, _)| at + 3);
        let methods =
            call.match_indices(").").filter(|(at, _)| !call[*at..].starts_with(").into")).map(|(at, _)| at + 1);
        let cut = arguments.chain(methods).filter(|at| *at <= MOST).max().filter(|_| call.len() > MOST);
        let (line, rest) = call.split_at(cut.unwrap_or(call.len()));
        call = rest;
        Some(line)
    })
}

fn main() -> io::Result<()> {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/images/schedules");
    let folder = env::args_os().nth(1).map_or_else(|| PathBuf::from(kept), PathBuf::from);
    fs::create_dir_all(&folder)?;
    for (name, schedules) in gallery() {
        for schedule in &schedules {
            schedule.validate().map_err(io::Error::other)?;
        }
        let svg = picture(name, &schedules).map_err(io::Error::other)?;
        fs::write(folder.join(name).with_extension("svg"), svg)?;
    }
    println!("{} pictures in {}", gallery().len(), folder.display());
    Ok(())
}
