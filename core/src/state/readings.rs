//! Readings of a run: numbers, each with a path.

use core::fmt;
use std::collections::HashMap;
use std::sync::Arc;

use super::Entry;
use super::levels::Levels;
use crate::error::{Error, Result};
use crate::schedule::Hyperparam;
use crate::tree::Structure;

/// One number of a run, from [`readings`](crate::GradientTransformation::readings).
///
/// It displays as its path, with the path of a leaf in brackets: `0.norm`, `0.norm[encoder/weight]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    path: String,
    /// Length of the part's path in it.
    owner: usize,
    /// The path with the levels of wrappers, and the length of the part's path in it.
    full: (String, usize),
    part: &'static str,
    leaf: Option<String>,
    value: f64,
}

impl Reading {
    /// Returns the path of the part, and the name.
    ///
    /// The path has the members of chains and the groups of partitions, and no level for a wrapper:
    /// `backbone.learning_rate`, even if the group is in [`freezable`] or
    /// [`inject_hyperparams`], as in [`set_hyperparam`](crate::OptState::set_hyperparam). If
    /// two readings would have the same path, the inner one keeps its path in the [schema](crate::OptState::schema).
    ///
    /// [`freezable`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.freezable.html
    /// [`inject_hyperparams`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.inject_hyperparams.html
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the name without the path of the part.
    pub fn name(&self) -> &str {
        self.path[self.owner..].trim_start_matches('.')
    }

    /// Returns the name of the part, such as `clip_by_global_norm`; empty for [added](Readings::with) numbers.
    pub fn part(&self) -> &'static str {
        self.part
    }

    /// Returns the path of the leaf; `None` for a number of all leaves.
    pub fn leaf(&self) -> Option<&str> {
        self.leaf.as_deref()
    }

    /// Returns the number: NaN before the first step that computes it.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// Returns whether the other's part is inside this one's.
    fn holds(&self, other: &Reading) -> bool {
        let ((ours, owner), (theirs, other)) = (&self.full, &other.full);
        let inside = theirs[..*other].strip_prefix(&ours[..*owner]);
        other > owner && inside.is_some_and(|inside| *owner == 0 || inside.starts_with('.'))
    }

    fn in_state(&self) -> String {
        with_leaf(&self.full.0, self.leaf())
    }

    fn is(&self, key: &str) -> bool {
        let whole = self.to_string();
        let of_part = || key.strip_prefix(self.part)?.strip_prefix('.');
        is_end(&whole, key)
            || is_end(&self.in_state(), key)
            || of_part().is_some_and(|key| is_end(whole[self.owner..].trim_start_matches('.'), key))
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_leaf(&self.path, self.leaf()))
    }
}

fn with_leaf(path: &str, leaf: Option<&str>) -> String {
    leaf.map_or_else(|| path.to_owned(), |leaf| format!("{path}[{leaf}]"))
}

/// Returns whether a path ends with these levels.
fn is_end(path: &str, levels: &str) -> bool {
    path.strip_suffix(levels).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// All readings of a run at one step: see [`readings`](crate::GradientTransformation::readings).
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::schedule::linear;
///
/// let optimizer = named_chain(["clip", "descend"], (clip_by_global_norm(1.0), sgd(linear(0.5, 0.0, 10))));
/// let mut params = vec![0.0_f32, 0.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![3.0_f32, 4.0], &mut state)?;
///
/// let readings = optimizer.readings(&state)?.with("loss", 0.25);
/// assert_eq!(readings.get("clip.norm")?, 5.0);
/// assert_eq!(readings.get("learning_rate")?, 0.5);
/// assert_eq!(readings.get("loss")?, 0.25);
///
/// let error = readings.get("lerning_rate").unwrap_err();
/// assert!(error.to_string().contains("did you mean `descend.learning_rate`?"), "{error}");
/// # Ok::<(), gradchain::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readings {
    all: Vec<Reading>,
}

impl Readings {
    /// Returns the only number that matches a key.
    ///
    /// A key is a path or its last levels, with a leaf in brackets (`learning_rate`, `1.learning_rate`,
    /// `norm[encoder/weight]`), or the names of part and number (`clip_by_global_norm.norm`). A whole path takes
    /// precedence over paths that end with it; otherwise a reading takes precedence if its part contains the parts of
    /// all other matches.
    ///
    /// # Errors
    ///
    /// Fails if the key matches none, or several: all of them are named.
    pub fn get(&self, key: &str) -> Result<f64> {
        let meant: Vec<&Reading> = self.all.iter().filter(|reading| reading.is(key)).collect();
        let holds = |one: &&&Reading| meant.iter().all(|other| core::ptr::eq(**one, *other) || one.holds(other));
        let one = meant
            .iter()
            .find(|reading| reading.to_string() == key || reading.in_state() == key)
            .or_else(|| meant.iter().find(holds));
        if let Some(one) = one {
            return Ok(one.value);
        }
        if meant.is_empty() {
            return Err(Error::unknown_name("readings", "reading", key, self.all.iter().map(Reading::to_string)));
        }
        let paths: Vec<String> = meant.iter().map(|reading| format!("`{reading}`")).collect();
        Err(Error::state("readings", format!("`{key}` is ambiguous: {}", paths.join(", "))))
    }

    /// Iterates over the numbers, part by part in the order of the chain.
    pub fn iter(&self) -> core::slice::Iter<'_, Reading> {
        self.all.iter()
    }

    /// Adds your own number, such as the loss.
    pub fn with(mut self, name: impl Into<String>, value: f64) -> Readings {
        let path = name.into();
        self.all.push(Reading { full: (path.clone(), 0), path, owner: 0, part: "", leaf: None, value });
        self
    }

    /// Keeps only the readings for which a function returns true.
    ///
    /// ```
    /// use gradchain::prelude::*;
    ///
    /// let optimizer = adam(0.1);
    /// let state = optimizer.init(&0.0_f32)?;
    /// let rates = optimizer.readings(&state)?.filter(|reading| reading.name() == "learning_rate");
    /// assert_eq!(rates.iter().count(), 1);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn filter(mut self, keep: impl FnMut(&Reading) -> bool) -> Readings {
        self.all.retain(keep);
        self
    }
}

impl<'a> IntoIterator for &'a Readings {
    type Item = &'a Reading;
    type IntoIter = core::slice::Iter<'a, Reading>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Writes a number per line.
impl fmt::Display for Readings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|reading| writeln!(f, "{reading} = {:?}", reading.value))
    }
}

/// The current part of a walk.
#[derive(Default)]
pub(super) struct Owner {
    name: &'static str,
    path: usize,
    /// The count of its schedules, if any.
    clock: Option<u64>,
}

pub(crate) type ArgumentValues = Vec<(&'static str, Hyperparam)>;

/// The current optimizer of a walk.
struct CurrentOptimizer {
    name: &'static str,
    path: String,
    arguments: ArgumentValues,
    /// The length of the path of its first shallowest part, and that part's count.
    clock: Option<(usize, u64)>,
}

impl CurrentOptimizer {
    fn has_argument(&self, name: &str, argument: &Hyperparam) -> bool {
        self.arguments.iter().any(|(n, a)| *n == name && a == argument)
    }
}

/// Collects readings on a walk.
pub(crate) struct Reader {
    structure: Arc<Structure>,
    owner: Owner,
    optimizers: Vec<CurrentOptimizer>,
    readings: Readings,
    pub(super) levels: Levels,
}

impl Reader {
    pub(crate) fn new(structure: Arc<Structure>) -> Reader {
        let (readings, levels) = (Readings::default(), Levels::default());
        Reader { structure, owner: Owner::default(), optimizers: Vec::new(), readings, levels }
    }

    /// Returns the readings, with unique paths.
    pub(crate) fn readings(mut self) -> Readings {
        let shown: Vec<String> = self.readings.all.iter().map(|reading| self.levels.shown(&reading.path)).collect();
        let mut outermost: HashMap<(&str, Option<&str>), usize> = HashMap::new();
        for (reading, shown) in self.readings.all.iter().zip(&shown) {
            let len = outermost.entry((shown, reading.leaf.as_deref())).or_insert(reading.path.len());
            *len = reading.path.len().min(*len);
        }
        let is_outermost = |(reading, shown): (&Reading, &String)| {
            outermost.get(&(&**shown, reading.leaf.as_deref())) == Some(&reading.path.len())
        };
        let shows: Vec<bool> = self.readings.all.iter().zip(&shown).map(is_outermost).collect();
        for ((reading, shown), shows) in self.readings.all.iter_mut().zip(shown).zip(shows) {
            if shows {
                reading.owner = self.levels.shown(&reading.path[..reading.owner]).len();
                reading.path = shown;
            }
        }
        self.readings
    }

    pub(super) fn add(&mut self, path: &str, leaf: Option<String>, value: f64) {
        let Owner { name, path: owner, .. } = self.owner;
        let full = (path.to_owned(), owner);
        self.readings.all.push(Reading { path: path.into(), owner, full, part: name, leaf, value });
    }

    pub(super) fn leaf(&self, leaf: usize, other_tree: bool) -> Option<String> {
        let spec = self.structure.leaves().get(leaf).filter(|_| !other_tree);
        Some(spec.map_or_else(|| format!("#{leaf}"), |spec| spec.path().into()))
    }

    pub(super) fn entry(&mut self, path: &str, entry: Entry<'_>, other_tree: bool) {
        match entry {
            Entry::Count(count)
                if self.owner.clock.is_none() && path[self.owner.path..].trim_start_matches('.') == "count" =>
            {
                self.clock(count.get())
            }
            Entry::Count(count) => self.add(path, None, count.get() as f64),
            Entry::Flag(flag) => self.add(path, None, f64::from(flag.get())),
            Entry::Scalar(scalar) => self.add(path, None, scalar.get()),
            Entry::Counts(all) => {
                self.leaves(path, other_tree, all.iter().map(|(leaf, count)| (leaf, count.get() as f64)))
            }
            Entry::Flags(all) => {
                self.leaves(path, other_tree, all.iter().map(|(leaf, flag)| (leaf, f64::from(flag.get()))))
            }
            Entry::Scalars(all) => self.leaves(path, other_tree, all.iter().map(|(leaf, scalar)| (leaf, scalar.get()))),
            Entry::Moments(moments) => {
                let floored = moments.leaves().filter_map(|leaf| Some((leaf, moments.floored(leaf)?)));
                self.leaves(&joined(path, "floored"), other_tree, floored);
            }
            Entry::Key(_) => {}
        }
    }

    pub(super) fn leaves(&mut self, path: &str, other_tree: bool, values: impl Iterator<Item = (usize, f64)>) {
        for (leaf, value) in values {
            self.add(path, self.leaf(leaf, other_tree), value);
        }
    }

    pub(super) fn clock(&mut self, steps: u64) {
        self.owner.clock = Some(steps);
    }

    /// Enters a part with a path of this length; returns the outer one.
    pub(super) fn enter(&mut self, name: &'static str, path: usize) -> Owner {
        core::mem::replace(&mut self.owner, Owner { name, path, clock: None })
    }

    /// Leaves a part, reading its arguments.
    pub(super) fn leave(&mut self, path: &str, arguments: &ArgumentValues, outer: Owner) {
        let Owner { name, clock, .. } = core::mem::replace(&mut self.owner, outer);
        arguments.iter().for_each(|(argument, value)| self.argument((name, path), argument, value, clock));
        let Some(steps) = clock else { return };
        for optimizer in &mut self.optimizers {
            if optimizer.clock.is_none_or(|(depth, _)| path.len() < depth) {
                optimizer.clock = Some((path.len(), steps));
            }
        }
    }

    pub(super) fn enter_optimizer(&mut self, name: &'static str, path: &str, arguments: ArgumentValues) {
        self.optimizers.push(CurrentOptimizer { name, path: path.into(), arguments, clock: None });
    }

    /// Leaves an optimizer. Reads the arguments that no part shares, at the count of its first part.
    pub(super) fn leave_optimizer(&mut self) {
        let Some(CurrentOptimizer { name, path, arguments, clock }) = self.optimizers.pop() else { return };
        for (argument, value) in &arguments {
            let outer = self.optimizers.iter().find(|optimizer| optimizer.has_argument(argument, value));
            let path = outer.map_or(&*path, |optimizer| &optimizer.path);
            if !self.readings.all.iter().any(|reading| reading.path == joined(path, argument)) {
                let path = path.to_owned();
                self.argument((name, &path), argument, value, clock.map(|(_, steps)| steps));
            }
        }
    }

    /// Reads the value of an argument in the last step; before any step, in the first. An optimizer's argument is read
    /// as the optimizer's.
    fn argument(
        &mut self,
        (part, path): (&'static str, &str),
        name: &'static str,
        argument: &Hyperparam,
        clock: Option<u64>,
    ) {
        let value = argument.at(clock.unwrap_or(0).saturating_sub(1));
        let (part, owner) = match self.optimizers.iter().find(|optimizer| optimizer.has_argument(name, argument)) {
            Some(optimizer) => (optimizer.name, &*optimizer.path),
            None => (part, path),
        };
        let path = joined(owner, name);
        // Several parts of an optimizer may share an argument.
        if !self.readings.all.iter().any(|r| r.path == path && r.value.to_bits() == value.to_bits()) {
            let owner = owner.len();
            let full = (path.clone(), owner);
            self.readings.all.push(Reading { path, owner, full, part, leaf: None, value });
        }
    }
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
