//! A line of JSON for each step.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use serde_json::{Map, Number, Value};

use crate::state::Readings;

/// Writes [readings](Readings) as JSON, a line per step: an object with `step` and a number for each reading.
///
/// Numbers round-trip bit for bit. JSON lacks numbers that are not finite: these are the strings `NaN`, `inf` and
/// `-inf`. Needs the feature `serde`.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::watch::{JsonLines, read_json_lines};
///
/// let optimizer = chain((clip_by_global_norm(1.0), sgd(0.5)));
/// let mut params = vec![0.0_f32, 0.0];
/// let mut state = optimizer.init(&params)?;
/// let mut log = JsonLines::new(Vec::new());
/// for step in 0..3 {
///     optimizer.step(&mut params, &vec![3.0_f32, 4.0], &mut state)?;
///     log.write(step, &optimizer.readings(&state)?.with("loss", 0.25))?;
/// }
/// let text = log.into_inner();
/// let (step, numbers) = read_json_lines(&text[..]).last().unwrap()?;
/// assert_eq!((step, numbers["loss"], numbers["0.norm"]), (2, 0.25, 5.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct JsonLines<W> {
    to: W,
}

impl<W: Write> JsonLines<W> {
    /// Writes to a file, or to any other writer.
    pub fn new(to: W) -> JsonLines<W> {
        JsonLines { to }
    }

    /// Writes a line, and flushes it.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be written; or, with nothing written, if two readings have the same name, or one is called
    /// `step`.
    pub fn write(&mut self, step: u64, readings: &Readings) -> io::Result<()> {
        let mut line = Map::new();
        line.insert("step".into(), step.into());
        for reading in readings {
            let (name, value) = (reading.to_string(), reading.value());
            let number = Number::from_f64(value).map_or_else(|| Value::String(value.to_string()), Value::Number);
            if line.insert(name, number).is_some() {
                let problem = format!("the name `{reading}` is taken by another reading or by the step");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
            }
        }
        let mut line = serde_json::to_vec(&line)?;
        line.push(b'\n');
        self.to.write_all(&line)?;
        self.to.flush()
    }

    /// Returns the writer.
    pub fn into_inner(self) -> W {
        self.to
    }
}

/// Reads the steps and numbers that [`JsonLines`] has written. An incomplete last line, as after a crash, is an error.
pub fn read_json_lines(from: impl BufRead) -> impl Iterator<Item = io::Result<(u64, BTreeMap<String, f64>)>> {
    from.lines().enumerate().map(|(i, line)| parsed(&line?).map_err(|problem| wrong(i, &problem)))
}

fn wrong(line: usize, problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("line {}: {problem}", line + 1))
}

fn parsed(line: &str) -> Result<(u64, BTreeMap<String, f64>), String> {
    let mut line: Map<String, Value> = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let step = line.remove("step").as_ref().and_then(Value::as_u64).ok_or("expected an integer `step`")?;
    let number = |(name, value): (String, Value)| {
        let number = match &value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.parse().ok().filter(|number: &f64| !number.is_finite()),
            _ => None,
        };
        number.map(|number| (name.clone(), number)).ok_or_else(|| format!("`{name}`: expected a number, found {value}"))
    };
    Ok((step, line.into_iter().map(number).collect::<Result<_, _>>()?))
}
