//! Refused loads of random pairs of optimizers suggest only migrations that work.

use std::io::Cursor;

use gradchain::Migration;
use gradchain::checkpoint::{Checkpoint, Load, Save};
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::transform::trace;
use gradchain::wrapper::Named;
use ndarray::{Array1, Array2, array};

type Params = (Array2<f32>, Array1<f64>);

fn params() -> Params {
    (array![[1.0, -2.0, 3.0], [0.5, 0.25, -0.125]], array![0.5, -1.0])
}

/// SplitMix64, and the rates in use.
#[derive(Clone)]
struct Random {
    seed: u64,
    rates: [f64; 2],
}

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }

    fn named(&mut self) -> Named {
        let rate = self.rates[self.below(2) as usize];
        match self.below(6) {
            0 => Box::new(adam(rate)),
            1 => Box::new(adamw(rate)),
            2 => Box::new(sgd(rate)),
            3 => Box::new(sgd(rate).momentum(0.5)),
            4 => Box::new(lion(rate)),
            _ => Box::new(adam(linear(rate, 0.0, 10))),
        }
    }

    /// Returns wrappers and chains, at most `levels` deep.
    fn optimizer(&mut self, levels: u64) -> Boxed {
        match self.below(if levels == 0 { 9 } else { 16 }) {
            0 => boxed(clip(1.0)),
            1 => boxed(zero_nans()),
            2 => boxed(trace(0.5)),
            3 => boxed(clip_by_global_norm(1.0)),
            4 => boxed(scale_by_adam()),
            5..9 => self.named(),
            9 => boxed(multi_steps(self.optimizer(levels - 1), 2)),
            10 => boxed(masked(self.optimizer(levels - 1), Mask::path("0"))),
            11 => boxed(inject_hyperparams(self.named())),
            12 => boxed(quantized(self.optimizer(levels - 1))),
            13 => {
                let groups = (("a", self.optimizer(levels - 1)), ("b", self.optimizer(levels - 1)));
                boxed(partition(groups, Labels::by(|leaf| if leaf.ndim() == 1 { "a" } else { "b" })))
            }
            _ => boxed(chain((0..=self.below(3)).map(|_| self.optimizer(levels - 1)).collect::<Vec<_>>())),
        }
    }
}

/// Returns a message's verbs with their arguments.
fn calls(message: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for line in message.lines().filter(|line| !line.contains(": expected ") && !line.contains("unexpected")) {
        for (at, _) in line.match_indices('(') {
            let verb = line[..at].rsplit(|c: char| !c.is_ascii_lowercase() && c != '_').next().unwrap_or_default();
            let known = verb.ends_with("_part") || ["wrap_in_chain", "may_differ"].contains(&verb);
            if let (true, Some((arguments, _))) = (known, line[at + 1..].split_once(')')) {
                let arguments = arguments.split(", ").map(|argument| argument.trim_matches('"').to_owned()).collect();
                found.push((verb.to_owned(), arguments));
            }
        }
    }
    found
}

fn proposed(message: &str) -> (Vec<String>, Migration, usize) {
    let (mut may_differ, mut migration, mut verbs) = (Vec::new(), Migration::new(), 0);
    for (verb, arguments) in calls(message) {
        let [first, second] = [0, 1].map(|i| arguments.get(i).cloned().unwrap_or_default());
        verbs += usize::from(verb != "may_differ");
        migration = match &*verb {
            "may_differ" => {
                may_differ.push(first);
                migration
            }
            "rename_part" => migration.rename_part(first, second),
            "insert_part" => migration.insert_part(first),
            "remove_part" => migration.remove_part(first),
            "wrap_part" => migration.wrap_part(first),
            "wrap_in_chain" => migration.wrap_in_chain(first, second.parse().unwrap()),
            "unwrap_part" => migration.unwrap_part(first),
            "fresh_part" => migration.fresh_part(first),
            "drop_part" => migration.drop_part(first),
            "cast_part" => migration.cast_part(first),
            "params_to_part" => migration.params_to_part(first),
            other => panic!("{other} is no verb"),
        };
    }
    (may_differ, migration, verbs)
}

/// Returns true if the message suggests nothing.
fn is_open(message: &str) -> bool {
    message.contains("with a `Migration` where its state differs")
}

#[test]
fn proposed_calls_work() {
    let mut random = Random { seed: 1, rates: [0.1, 0.2] };
    let (mut refused, mut with_verbs, mut arguments_alone, mut moved) = (0, 0, 0, 0);
    for case in 0..1500 {
        let levels = case % 3;
        let mut same = Random { rates: [0.3, 0.4], ..random.clone() };
        let before = random.optimizer(levels);
        // Often the same optimizer, wrapped, with another stage, or with other arguments.
        let after = match random.below(6) {
            0 => boxed(chain((before.clone(), random.optimizer(0)))),
            1 => boxed(chain((random.optimizer(0), before.clone()))),
            2 => boxed(multi_steps(before.clone(), 2)),
            3 => same.optimizer(levels),
            4 => boxed(chain((zero_nans(), same.optimizer(levels)))),
            _ => random.optimizer(levels),
        };
        let (before, after) = if random.below(2) == 0 { (before, after) } else { (after, before) };
        let what = format!("{case}: from {before:?} to {after:?}");
        let mut trained = params();
        let Ok(mut state) = before.init(&trained) else { continue };
        before.step(&mut trained, &params(), &mut state).unwrap();
        let mut bytes = Cursor::new(Vec::new());
        Save::new(&before, &state).params(&trained).to_writer(&mut bytes).unwrap();
        let file = Checkpoint::from_bytes(bytes.into_inner()).unwrap();
        if let Err(error) = file.load(&after, &mut params()) {
            refused += 1;
            let message = format!("{error:#}");
            let (may_differ, migration, verbs) = proposed(&message);
            with_verbs += usize::from(verbs > 0);
            if verbs > 0 || !may_differ.is_empty() && !is_open(&message) {
                arguments_alone += usize::from(verbs == 0);
                let load = may_differ.into_iter().fold(Load::strict(), Load::may_differ).migrating(migration);
                let done = load.load(&file, &after, &mut params());
                done.unwrap_or_else(|error| panic!("{what}\n{message}\n\nand then\n\n{error:#}"));
            }
        }
        if let Err(error) = state.migrate(&after, &trained, &Migration::new()) {
            let message = format!("{error:#}");
            let (_, migration, verbs) = proposed(&message);
            if verbs > 0 {
                moved += 1;
                let done = state.migrate(&after, &trained, &migration);
                done.unwrap_or_else(|error| panic!("{what}\n{message}\n\nand then\n\n{error:#}"));
            }
        }
    }
    println!(
        "{refused} loads refused, {with_verbs} with verbs, {arguments_alone} with arguments alone; {moved} migrations"
    );
    assert!(refused > 1000 && with_verbs > 300 && arguments_alone > 30 && moved > 300);
}

/// A removed stage with a remaining field's name is dropped first.
#[test]
fn colliding_parts_are_dropped_before_a_rename() {
    let params = params();
    for before in [boxed(chain((clip(1.0), adamw(0.1)))), boxed(chain((trace(0.5), adamw(0.1))))] {
        let state = before.init(&params).unwrap();
        let error = state.migrate(&adamw(0.1), &params, &Migration::new()).unwrap_err().to_string();
        let verbs: Vec<_> = calls(&error).into_iter().map(|(verb, _)| verb).collect();
        assert_eq!(verbs, ["drop_part", "rename_part"], "{error}");
        state.migrate(&adamw(0.1), &params, &proposed(&error).1).unwrap();
    }
}

/// The message refers to the migration's result.
#[test]
fn an_insufficient_migration_gets_the_missing_call() {
    let params = params();
    let state = chain((zero_nans(), clip(1.0), adam(0.1))).init(&params).unwrap();
    let after = multi_steps(chain((clip(1.0), adam(0.1))), 2);
    let given = || Migration::new().remove_part("0");
    let error = state.migrate(&after, &params, &given()).unwrap_err().to_string();
    assert!(error.contains("`wrap_part(\"\")` moves them"), "{error}");
    state.migrate(&after, &params, &given().wrap_part("")).unwrap();
}
