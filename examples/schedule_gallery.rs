//! Draws every schedule: the pictures on the guide's page about schedules.
//!
//! ```text
//! cargo run --features plot --example schedule_gallery            writes docs/images/schedules/*.svg
//! cargo run --features plot --example schedule_gallery -- DIR     writes them to DIR
//! ```

use std::path::PathBuf;
use std::{env, fs, io};

use gradchain::plot::Chart;
use gradchain::schedule::*;

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

fn main() -> io::Result<()> {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/images/schedules");
    let folder = env::args_os().nth(1).map_or_else(|| PathBuf::from(kept), PathBuf::from);
    fs::create_dir_all(&folder)?;
    for (name, schedules) in gallery() {
        for schedule in &schedules {
            schedule.validate().map_err(io::Error::other)?;
        }
        let frame = Chart::new(name).range(-0.05, 1.05);
        let chart = schedules.iter().fold(frame, |chart, schedule| chart.schedule(schedule, STEPS));
        let svg = chart.svg([400, 190]).map_err(io::Error::other)?;
        fs::write(folder.join(name).with_extension("svg"), svg)?;
    }
    println!("{} pictures in {}", gallery().len(), folder.display());
    Ok(())
}
