use core::any::Any;
use core::fmt;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::arguments::{Argument, Arguments};
use crate::element::{Element, with_dtype};
use crate::engine::WarningKind;
use crate::part::prelude::*;
#[cfg(feature = "serde")]
use crate::recipe::Recipe;
use crate::schedule::Schedule;
use crate::state::{Levels, StateWalk, StateWalkMut};
use crate::transformation::OptState;

/// Makes the numbers that a transformation was built with part of its state, to read and set during training.
///
/// Arguments given as schedules are evaluated at each step and can be read. Arguments given as numbers can also be set,
/// to any value that the transformation could be built with. Masks, flags and dtypes are never injected, nor are
/// arguments named in [`static_args`](InjectHyperparams::static_args).
///
/// # Arithmetic
///
/// That of the inner transformation. Values are `f64`, whatever the dtype of the parameters.
///
/// # Cost
///
/// One `f64` of state for each hyperparameter.
///
/// # Errors
///
/// `init` fails if a name in `static_args` is not an argument of the transformation.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = inject_hyperparams(sgd(0.5));
/// let mut params = 1.0_f32;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &1.0_f32, &mut state)?;
/// assert_eq!(params, 0.5);
///
/// state.hyperparams_mut().set("learning_rate", 0.25)?;
/// optimizer.step(&mut params, &1.0_f32, &mut state)?;
/// assert_eq!(params, 0.25);
///
/// let error = state.hyperparams_mut().set("learning_rte", 0.1).unwrap_err();
/// assert!(error.to_string().contains("did you mean `learning_rate`?"));
/// let error = state.hyperparams_mut().set("learning_rate", f64::NAN).unwrap_err();
/// assert_eq!(error.to_string(), "scale_by_learning_rate: argument `learning_rate` must be finite, found NaN");
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`inject_hyperparams`][optax]. Differs: it takes a built transformation instead of a function that builds
/// one; the arguments' types tell numbers from other values; values stay `f64` instead of being cast to the parameters'
/// dtype, in which a `b2` of 0.999 can be 1. Setting a scheduled value, or one out of its range, is an error; Optax
/// overwrites the former at the next step and accepts the latter.
///
/// [optax]: https://optax.readthedocs.io/en/latest/api/optimizer_schedules.html
pub fn inject_hyperparams<T: Arguments + Stage>(inner: T) -> InjectHyperparams<T> {
    InjectHyperparams::with(inner, Vec::new())
}

wrapper! {
    /// See [`inject_hyperparams`].
    pub InjectHyperparams<T: Arguments> as "inject_hyperparams" around inner: Around {
        static_args: Vec<String>;
        /// Rounds every value to a dtype before it is used. By default values are `f64`; rounding reproduces runs of
        /// Optax.
        hyperparam_dtype: Option<DType> = None;
    }
    check Self::check_names;
}

impl<T> InjectHyperparams<T> {
    /// Names arguments that are not injected: they keep the value or schedule that the transformation was built with.
    pub fn static_args(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.static_args = names.into_iter().map(Into::into).collect();
        self
    }
}

/// The hyperparameters of an [`inject_hyperparams`], by name.
#[derive(Clone, Debug, Default)]
pub struct Hyperparams {
    /// The transformation before any value was set.
    owner: Option<Arc<dyn Owner>>,
    values: Vec<Value>,
    /// Arguments that are not injected.
    fixed: Vec<&'static str>,
}

#[derive(Clone, Debug)]
struct Value {
    name: &'static str,
    value: Scalar,
    schedule: Option<Schedule>,
}

impl Value {
    fn at(&self, count: u64) -> f64 {
        self.schedule.as_ref().map_or(self.value.get(), |schedule| schedule.at(count))
    }
}

trait Owner: fmt::Debug + Send + Sync {
    fn name(&self) -> &'static str;
    #[cfg(feature = "serde")]
    fn recipe(&self) -> Recipe;

    /// Returns an error if the transformation refuses these numbers.
    fn accepts(&self, values: &[Value]) -> Result<()>;
}

impl<T: Arguments + Stage> Owner for T {
    fn name(&self) -> &'static str {
        Arguments::name(self)
    }
    #[cfg(feature = "serde")]
    fn recipe(&self) -> Recipe {
        Transform::recipe(self)
    }

    fn accepts(&self, values: &[Value]) -> Result<()> {
        let mut with = self.clone();
        with.arguments(&mut |name, argument| {
            let set = values.iter().find(|v| v.name == name && v.schedule.is_none());
            if let (Argument::Hyperparam(hyperparam), Some(set)) = (argument, set) {
                *hyperparam = Hyperparam::Number(set.value.get());
            }
        });
        with.validate()?;
        let built: Vec<_> =
            Transform::summary(self).negatives().into_iter().map(|(kind, part, _)| (kind, part)).collect();
        let found = Transform::summary(&with).negatives().into_iter();
        match found.into_iter().find(|(kind, part, _)| !built.contains(&(*kind, *part))) {
            None => Ok(()),
            Some((kind, part, value)) => {
                let what = if kind == WarningKind::NegativeRate { "learning_rate" } else { "weight_decay" };
                let expected =
                    format!("at least 0, unless it is built with `wrapper::allow(.., [WarningKind::{kind:?}])`");
                Err(Error::argument(part, what, &expected, value))
            }
        }
    }
}

impl Hyperparams {
    /// Returns the value of the last step, or of the next if it was set since.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|v| v.name == name).map(|v| v.value.get())
    }

    /// Sets a value, for this step and all later ones.
    ///
    /// # Errors
    ///
    /// If no hyperparameter has this name, it is not injected, it has a schedule, or the value is out of its range. The
    /// old value stays.
    pub fn set(&mut self, name: &str, value: f64) -> Result<()> {
        let place = || format!("inject_hyperparams({})", self.owner.as_ref().map_or("", |owner| owner.name()));
        if self.fixed.contains(&name) {
            return Err(Error::state(place(), format!("`{name}` is static; it cannot be set while running")));
        }
        match self.values.iter().position(|v| v.name == name) {
            Some(i) if self.values[i].schedule.is_some() => {
                let problem = format!(
                    "`{name}` is given by a schedule; build with a number, or put `inject_hyperparams(scale(1.0))` behind \
                     it and set `step_size`"
                );
                Err(Error::state(place(), problem))
            }
            Some(i) => {
                let mut values = self.values.clone();
                values[i].value.set(value);
                self.owner.as_ref().map_or(Ok(()), |owner| owner.accepts(&values))?;
                self.values = values;
                Ok(())
            }
            None => Err(Error::unknown_name(place(), "hyperparameter", name, self.values.iter().map(|v| v.name))),
        }
    }

    /// Returns the recipe as built.
    #[cfg(feature = "serde")]
    pub(crate) fn of(&self) -> Option<Recipe> {
        self.owner.as_ref().map(|owner| owner.recipe())
    }

    fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.values.iter().map(|v| v.name)
    }

    /// Returns names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        self.values.iter().map(|v| (v.name, v.value.get()))
    }
}

impl<T: Stage> OptState<T> {
    /// Sets a hyperparameter in every [`inject_hyperparams`] that has one of this name.
    ///
    /// It finds these at any depth: in chains, groups and boxes, and in optimizers from configs. To set one of several,
    /// prefix the name with its group or member, `"head.learning_rate"` or `"1.learning_rate"`. The prefix is the path
    /// that [readings](crate::GradientTransformation::readings) and errors have, in which wrappers add no level, or any
    /// contiguous part of its path in the [schema](OptState::schema).
    ///
    /// ```
    /// use gradchain::prelude::*;
    ///
    /// let optimizer: Boxed = boxed(chain((clip(1.0), inject_hyperparams(sgd(0.5)))));
    /// let mut params = 1.0_f32;
    /// let mut state = optimizer.init(&params)?;
    /// state.set_hyperparam("learning_rate", 0.25)?;
    /// optimizer.step(&mut params, &1.0_f32, &mut state)?;
    /// assert_eq!(params, 0.75);
    /// assert!(state.set_hyperparam("lr", 0.1).unwrap_err().to_string().contains("did you mean `learning_rate`?"));
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the optimizer has no `inject_hyperparams`, none has a hyperparameter of this name, or [`Hyperparams::set`]
    /// refuses one of them. No value changes then.
    pub fn set_hyperparam(&mut self, name: &str, value: f64) -> Result<()> {
        const VERB: &str = "set_hyperparam";
        let asked = name;
        self.usable()?;
        let (all, levels) = injected(&mut **self);
        if all.is_empty() {
            return Err(Error::state(
                VERB,
                "this optimizer has no `inject_hyperparams`: wrap the part that has this argument",
            ));
        }
        let has = |hyperparams: &Hyperparams, name: &str| hyperparams.names().any(|n| n == name);
        // Names may contain dots.
        let everywhere = all.iter().any(|(_, hyperparams)| has(hyperparams, name));
        let (part, name) = match name.rsplit_once('.') {
            Some((part, name)) if !everywhere => (Some(part), name),
            _ => (None, name),
        };
        let is_asked = |path: &str, hyperparams: &Hyperparams| {
            let is_part = |part| is_within(path, part) || is_within(&levels.shown(path), part);
            part.is_none_or(is_part) && has(hyperparams, name)
        };
        if !all.iter().any(|(path, hyperparams)| is_asked(path, hyperparams)) {
            // In the request's form: with the part, or without.
            let of = |path: &str, name: &str| match levels.shown(path).rsplit_once('.').filter(|_| part.is_some()) {
                Some((part, _)) => format!("{part}.{name}"),
                None => name.into(),
            };
            let names = all.iter().flat_map(|(path, hyperparams)| hyperparams.names().map(move |name| of(path, name)));
            let known: BTreeSet<String> = names.collect();
            return Err(Error::unknown_name(VERB, "hyperparameter", asked, known));
        }
        let of_name = all.into_iter().filter(|(path, hyperparams)| is_asked(path, hyperparams)).map(|(_, of)| of);
        let mut set = Vec::new();
        for hyperparams in of_name {
            let mut with = hyperparams.clone();
            with.set(name, value)?;
            set.push((hyperparams, with));
        }
        set.into_iter().for_each(|(hyperparams, with)| *hyperparams = with);
        Ok(())
    }
}

/// Returns true if a dotted path contains these names in sequence.
fn is_within(path: &str, part: &str) -> bool {
    format!(".{path}.").contains(&format!(".{part}."))
}

/// Returns all injected hyperparameters of a state, with their paths, for transformations of unknown type.
///
/// It finds them at any depth, as in optimizers built from configs.
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::wrapper::injected_hyperparams;
///
/// let optimizer: Boxed = boxed(chain((clip(1.0), inject_hyperparams(sgd(0.5)))));
/// let mut params = 1.0_f32;
/// let mut state = optimizer.init(&params)?;
/// for (path, hyperparams) in injected_hyperparams(&mut *state) {
///     assert_eq!(path, "1.hyperparams");
///     hyperparams.set("learning_rate", 0.25)?;
/// }
/// optimizer.step(&mut params, &1.0_f32, &mut state)?;
/// assert_eq!(params, 0.75);
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn injected_hyperparams<S: State>(state: &mut S) -> Vec<(String, &mut Hyperparams)> {
    injected(state).0
}

/// As [`injected_hyperparams`], with the levels that wrappers add.
fn injected<'a, S: State>(state: &'a mut S) -> (Vec<(String, &'a mut Hyperparams)>, Levels) {
    let mut found = Vec::new();
    let mut show = |path: &str, part: &'a mut dyn Any| {
        if let Some(hyperparams) = part.downcast_mut() {
            found.push((path.into(), hyperparams));
        }
    };
    let mut walk = StateWalkMut::of_parts(&mut show);
    state.walk_mut(&mut walk);
    let levels = walk.levels;
    (found, levels)
}

impl fmt::Display for Hyperparams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        f.write_str(&parts.join(" "))
    }
}

impl State for Hyperparams {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        self.values.iter().for_each(|v| walk.setting(v.name, &v.value));
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        if let Some(hyperparams) = walk.part(self) {
            hyperparams.values.iter_mut().for_each(|v| walk.setting(v.name, &mut v.value));
        }
    }
}

/// The state of an [`inject_hyperparams`].
pub type InjectHyperparamsState<T> = WrapperState<InjectHyperparamsMemory<T>, <T as Stage>::State>;

memory! {
    /// The memory of an [`inject_hyperparams`], besides the inner state.
    pub InjectHyperparamsMemory<T: Stage> {
        count: Count,
        hyperparams: Hyperparams,
    }
    beside {
        /// The transformation with the values of this step.
        effective: Option<T>,
    }
}

impl<T: Stage> InjectHyperparamsMemory<T> {
    /// Returns the number of steps.
    pub fn count(&self) -> Count {
        self.count
    }

    /// Returns the hyperparameters.
    pub fn hyperparams(&self) -> &Hyperparams {
        &self.hyperparams
    }

    /// Returns the hyperparameters, to set.
    pub fn hyperparams_mut(&mut self) -> &mut Hyperparams {
        &mut self.hyperparams
    }
}

impl<T: Arguments + Stage> InjectHyperparams<T> {
    /// Collects all arguments, injected ones with value and schedule.
    fn collect(&self) -> Hyperparams {
        let owner = Arc::new(self.inner.clone());
        let mut found = Hyperparams { owner: Some(owner), values: Vec::new(), fixed: Vec::new() };
        self.inner.clone().arguments(&mut |name, argument| match argument {
            Argument::Hyperparam(h) if !self.static_args.iter().any(|s| s == name) => {
                let value = Scalar::new(self.rounded(h.at(0)));
                let schedule = if let Hyperparam::Schedule(schedule) = h { Some(schedule.clone()) } else { None };
                found.values.push(Value { name, value, schedule });
            }
            _ => found.fixed.push(name),
        });
        found
    }

    fn rounded(&self, value: f64) -> f64 {
        match self.hyperparam_dtype {
            Some(dtype) if dtype.is_supported() => with_dtype!(dtype, D => <D as Element>::from_f64(value).as_f64()),
            _ => value,
        }
    }

    fn check_names(&self) -> Result<()> {
        let known = self.collect();
        let names: Vec<&str> = known.values.iter().map(|v| v.name).chain(known.fixed.iter().copied()).collect();
        match self.static_args.iter().find(|name| !names.contains(&name.as_str())) {
            None => Ok(()),
            Some(unknown) => {
                let place = format!("inject_hyperparams({}): static_args", self.inner.name());
                Err(Error::unknown_name(place, "argument", unknown, names))
            }
        }
    }
}

impl<T: Arguments + Stage> Wrapper for InjectHyperparams<T> {
    const RUNS: Runs = Runs::ALWAYS;
    type Memory = InjectHyperparamsMemory<T>;

    fn current_inner<'a>(&'a self, memory: &'a InjectHyperparamsMemory<T>) -> &'a T {
        memory.effective.as_ref().unwrap_or(&self.inner)
    }

    fn start(&self, memory: &mut InjectHyperparamsMemory<T>, _: &InitContext<'_>) -> Result<()> {
        memory.hyperparams = self.collect();
        memory.effective = Some(self.inner.clone());
        Ok(())
    }

    fn decide(&self, memory: &mut InjectHyperparamsMemory<T>, _: &StepContext<'_>, _: f64) -> Decision {
        let InjectHyperparamsMemory { count, hyperparams, effective } = memory;
        let mut values = hyperparams.values.iter();
        // Arguments that are not injected have their current value.
        let effective = match effective.take().filter(|effective| self.inner.changed(effective).is_none()) {
            Some(same) => effective.insert(same),
            None => effective.insert(self.inner.clone()),
        };
        effective.arguments(&mut |name, argument| {
            let Argument::Hyperparam(hyperparam) = argument else { return };
            if self.static_args.iter().any(|s| s == name) {
                return;
            }
            // In the order of `collect`.
            if let Some(v) = values.next() {
                *hyperparam = Hyperparam::Number(self.rounded(v.at(count.get())));
            }
        });
        Decision::Run
    }

    fn finish(&self, memory: &mut InjectHyperparamsMemory<T>, _: Decision, inside: Option<Outcome>, _: &mut T::State) {
        if inside.is_some() {
            let count = memory.count.get();
            memory.hyperparams.values.iter_mut().for_each(|v| v.value.set(self.rounded(v.at(count))));
            memory.count.increment();
        }
    }
}
