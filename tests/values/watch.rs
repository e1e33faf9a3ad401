//! Records of a run: lines of JSON, events, pictures.

#[cfg(feature = "serde")]
mod json_lines {
    use gradchain::watch::{JsonLines, Readings, read_json_lines};

    fn written(readings: &Readings) -> Vec<u8> {
        let mut log = JsonLines::new(Vec::new());
        log.write(u64::MAX, readings).unwrap();
        log.into_inner()
    }

    #[test]
    fn numbers_come_back_bit_for_bit() {
        let odd = [0.1, -0.0, 5e-324, -f64::MAX, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.0 / 3.0, 1e22, -3.0];
        let all = odd.iter().enumerate().fold(Readings::default(), |all, (i, x)| all.with(format!("x{i}"), *x));
        let text = written(&all.with("odd \"name\"\n", 1.0));
        assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 1, "one line");
        let (step, numbers) = read_json_lines(&text[..]).next().unwrap().unwrap();
        assert_eq!((step, numbers.len(), numbers["odd \"name\"\n"]), (u64::MAX, odd.len() + 1, 1.0));
        for (i, x) in odd.iter().enumerate() {
            let back = numbers[&format!("x{i}")];
            assert!(back.to_bits() == x.to_bits() || back.is_nan() && x.is_nan(), "{x} came back as {back}");
        }
    }

    #[test]
    fn two_numbers_of_one_name_are_refused() {
        for twice in [Readings::default().with("a", 1.0).with("a", 1.0), Readings::default().with("step", 1.0)] {
            let mut log = JsonLines::new(Vec::new());
            let error = log.write(0, &twice).unwrap_err();
            assert!(error.to_string().contains("is taken by another reading"), "{error}");
            assert!(log.into_inner().is_empty(), "nothing has been written");
        }
    }

    #[test]
    fn malformed_lines_are_reported_by_number() {
        let whole = written(&Readings::default().with("a", 1.0));
        for (bad, problem) in [
            (&b"{\"a\":1}\n"[..], "an integer `step`"),
            (b"{\"step\":-1}", "an integer `step`"),
            (b"{\"step\":1,\"a\":\"0.5\"}", "`a`: expected a number"),
            (b"{\"step\":1,\"a\":null}", "`a`: expected a number"),
            (b"{\"step\":1,\"a\":1", "EOF"),
            (b"[]", "expected a map"),
        ] {
            let both = [&whole[..], bad].concat();
            let read: Vec<_> = read_json_lines(&both[..]).collect();
            assert!(read[0].is_ok() && read.len() == 2);
            let error = read[1].as_ref().unwrap_err().to_string();
            assert!(error.starts_with("line 2: ") && error.contains(problem), "{error}");
        }
    }
}

#[cfg(feature = "tracing")]
mod events {
    use std::fmt::{Debug, Write};
    use std::sync::{Arc, Mutex};

    use gradchain::prelude::*;
    use tracing::field::{Field, Visit};
    use tracing::{Event, Metadata, Subscriber, span};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            write!(self.0, " {field}={value:?}").unwrap();
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut line = Line(format!("{} {}:", event.metadata().level(), event.metadata().target()));
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn readings_are_events_and_skipped_steps_are_warnings() {
        let lines = Lines::default();
        let optimizer = apply_if_finite(sgd(0.5), 5);
        let mut params = 1.0_f64;
        let mut state = optimizer.init(&params).unwrap();
        tracing::subscriber::with_default(lines.clone(), || {
            optimizer.step(&mut params, &1.0, &mut state).unwrap();
            assert!(lines.0.lock().unwrap().is_empty());
            optimizer.step(&mut params, &f64::NAN, &mut state).unwrap();
            let readings = optimizer.readings(&state).unwrap().filter(|reading| reading.name() == "learning_rate");
            readings.with("loss", 0.25).trace(7);
        });
        let expected = [
            "WARN gradchain: message=a step discarded its gradients emitted=false",
            "INFO gradchain::readings: step=7 part=\"sgd\" reading=learning_rate value=0.5",
            "INFO gradchain::readings: step=7 part=\"\" reading=loss value=0.25",
        ];
        assert_eq!(*lines.0.lock().unwrap(), expected);
    }
}

#[cfg(feature = "plot")]
mod pictures {
    use gradchain::plot::{Chart, grid};
    use gradchain::schedule::{Schedule, linear};

    const SIZE: [u32; 2] = [300, 200];

    #[test]
    fn a_chart_has_its_title_names_and_notes() {
        let chart = Chart::new("a < b").line("one & two", [1.0, -2.0, 3.0]).note(1.0, "here").note(9.0, "outside");
        let picture = chart.svg(SIZE).unwrap();
        assert!(picture.starts_with(r#"<svg width="300" height="215" viewBox="0 0 1200 860""#), "{picture}");
        for text in ["a &lt; b", "one &amp; two", "here"] {
            assert!(picture.contains(text), "no {text} in {picture}");
        }
        assert!(!picture.contains("outside"));
    }

    #[test]
    fn charts_stand_row_by_row() {
        let chart = Chart::new("").line("", [0.0, 1.0]);
        let picture = grid(&[chart.clone(), chart.clone(), chart], 2, SIZE).unwrap();
        assert!(picture.starts_with(r#"<svg width="600" height="400""#), "{picture}");
    }

    #[test]
    fn lines_have_gaps_at_nan() {
        let lines = |chart: Chart| chart.svg(SIZE).unwrap().matches("<polyline").count();
        let whole = lines(Chart::new("").range(0.0, 9.0).line("", [1.0, 2.0, 3.0, 4.0, 5.0]));
        let cut = lines(Chart::new("").range(0.0, 9.0).line("", [1.0, 2.0, f64::NAN, 4.0, 5.0]));
        assert_eq!(cut, whole + 1);
    }

    #[test]
    fn values_of_any_size_are_drawn() {
        for values in [
            [0.0, 0.0],
            [1e-300, 1e-300],
            [-1e99, 1e99],
            [5e-324, 1.0],
            [-7.0, -7.0],
            [1.0, 1.0 + 2e-16],
            [1e18, 1e18 + 256.0],
        ] {
            assert!(Chart::new("").line("", values).svg(SIZE).is_ok(), "{values:?}");
        }
        assert!(Chart::new("").logarithmic(true).line("", [1e-99, 1e99]).svg(SIZE).is_ok());
    }

    #[test]
    fn undrawable_charts_are_refused() {
        let line = || Chart::new("").line("", [1.0, 2.0]);
        for (chart, size, problem) in [
            (Chart::new(""), SIZE, "`lines`"),
            (Chart::new("").line("", [1.0]), SIZE, "`lines`"),
            (Chart::new("").line("", [f64::NAN, 1.0, f64::INFINITY]), SIZE, "`lines`"),
            (Chart::new("").logarithmic(true).line("", [0.0, -1.0, 1.0]), SIZE, "`lines`"),
            (Chart::new("").points("", [(1.0, 0.0), (1.0, 2.0)]), SIZE, "`lines`"),
            (line().range(2.0, 1.0), SIZE, "`range`"),
            (line().range(0.0, 1.0).logarithmic(true), SIZE, "`range`"),
            (line().range(f64::NAN, 1.0), SIZE, "`range`"),
            (line().range(f64::MIN, f64::MAX), SIZE, "`range`"),
            (Chart::new("").line("", [f64::MIN, f64::MAX]), SIZE, "`range`"),
            (Chart::new("").line("", [1e101, 1.0]), SIZE, "`range`"),
            (Chart::new("").logarithmic(true).line("", [1e-101, 1.0]), SIZE, "`range`"),
            (line(), [300, 0], "`size`"),
            (line(), [u32::MAX, 300], "`size`"),
        ] {
            let error = chart.svg(size).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
        assert!(grid(&[], 1, SIZE).is_err() && grid(&[line()], 0, SIZE).is_err());
    }

    #[test]
    fn schedules_are_drawn_from_the_first_count_to_the_last() {
        let schedule = Schedule::from(linear(1.0, 0.0, 10));
        for last in [1, 2, 999, 1000, 1001, 12_345, 1 << 40] {
            let picture = schedule.plot(last).svg(SIZE).unwrap();
            assert!(picture.contains("linear(1.0, 0.0, 10)") && picture.len() < 200_000, "{last}: {}", picture.len());
        }
        assert!(schedule.plot(0).svg(SIZE).is_err(), "one value is no line");
    }
}
