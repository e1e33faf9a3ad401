//! Transformations by name.

use core::any::Any;
use std::collections::BTreeMap;

use serde::Serialize;

use super::fields::Fields;
use super::json::{json_in, toml_in};
use super::own_loops::with_own_loops;
use super::serialized::recipe_of;
use crate::GradientTransformation;
use crate::arguments::Arguments;

use crate::needs::ValueAndGradFn;
use crate::needs::{Includes, Needs};
use crate::recipe::{Builder, ConfigError, Node, Recipe, Result, Setting};
use crate::wrapper::{Boxed, narrow};

/// A transformation of any needs, which are known once it is built.
pub type Member = Boxed<ValueAndGradFn>;

/// A [`Member`] with named arguments, which can be injected.
pub(super) type Named = crate::wrapper::Named<ValueAndGradFn>;

/// The transformations that configs can name: those of the crate, and yours.
///
/// A part declares its own arguments, so that an entry only constructs it, with
/// [`required`](crate::arguments::required) for each number that a config must give. Arguments are then set by their
/// names in the part, read by their types, and checked by the part.
///
/// ```
/// use gradchain::arguments::required;
/// use gradchain::config::Registry;
/// use gradchain::part::{Clock, OneElement, Rule};
/// use gradchain::prelude::*;
/// use gradchain::Real;
///
/// gradchain::part! {
///     /// Multiplies by a number.
///     pub Stretch as "stretch": OneElement;
///     required {
///         /// By how much.
///         by: POSITIVE;
///     }
/// }
///
/// impl Rule for Stretch {
///     type Slots<C: Real> = [C; 0];
///     type Scalars<C: Real> = C;
///
///     fn scalars<C: Real>(&self, clock: Clock) -> C {
///         C::of(self.by.at(clock.count))
///     }
///     fn apply<C: Real>(by: C, _: &mut [C; 0], u: C, _: C) -> C {
///         by * u
///     }
/// }
///
/// let mut registry = Registry::new();
/// registry.part(|| Stretch::with(required()));
/// let config = serde_json::json!({"chain": [{"stretch": {"by": 2.0}}, {"sgd": {"learning_rate": 0.5}}]});
/// let optimizer = registry.build(&config)?;
/// let mut params = 3.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &1.0_f64, &mut state)?;
/// assert_eq!(params, 2.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Registry(BTreeMap<&'static str, Entry>);

pub(super) enum Entry {
    /// An object of arguments.
    Part(Constructor),
    /// A value other than an object of arguments, or a holder of a transformation with named arguments.
    Whole { read: fn(&Node<'_>) -> Result<Member>, schema: fn() -> String },
}

/// A constructor whose type depends on some arguments.
pub(super) struct Constructor {
    make: BuildFn,
    /// Arguments that `make` reads.
    read_keys: &'static [&'static str],
    /// Arguments that some of the types ignore.
    ignored_keys: &'static [&'static str],
    /// Arguments that only some of the types have, for the schema.
    schema_keys: &'static [&'static str],
}

impl Constructor {
    pub(super) fn reads(&mut self, read_keys: &'static [&'static str]) -> &mut Constructor {
        self.read_keys = read_keys;
        self
    }

    pub(super) fn ignored_keys(&mut self, ignored_keys: &'static [&'static str]) -> &mut Constructor {
        self.ignored_keys = ignored_keys;
        self
    }

    #[cfg(feature = "constraint")]
    pub(super) fn schema_keys(&mut self, schema_keys: &'static [&'static str]) {
        self.schema_keys = schema_keys;
    }

    fn all_keys(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.read_keys.iter().chain(self.ignored_keys).chain(self.schema_keys).copied()
    }
}

type BuildFn = Box<dyn Fn(&Fields<'_>) -> Result<Unconfigured> + Send + Sync>;

/// A transformation before its arguments are set.
pub(super) enum Unconfigured {
    Named(Named),
    /// Has the inner transformation's arguments and its own.
    InnerWithKeys(Named),
    Member(Member),
}

impl Unconfigured {
    pub(super) fn named<T: Arguments + GradientTransformation>(transformation: T) -> Unconfigured
    where
        ValueAndGradFn: Includes<T::Needs>,
    {
        Unconfigured::Named(Box::new(transformation))
    }

    pub(super) fn wrapping<T: Arguments + GradientTransformation>(transformation: T) -> Unconfigured
    where
        ValueAndGradFn: Includes<T::Needs>,
    {
        Unconfigured::InnerWithKeys(Box::new(transformation))
    }

    pub(super) fn member<T: GradientTransformation>(transformation: T) -> Unconfigured
    where
        ValueAndGradFn: Includes<T::Needs>,
    {
        Unconfigured::Member(Box::new(transformation))
    }

    fn each(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn Setting)) {
        let mut visit = |name, argument: crate::arguments::Argument<'_>| visit(name, argument.setting());
        match self {
            Unconfigured::Named(named) => named.own_arguments(&mut visit),
            Unconfigured::InnerWithKeys(named) => named.arguments(&mut visit),
            Unconfigured::Member(member) => member.own_arguments(&mut visit),
        }
    }

    fn validate(&self) -> crate::Result<()> {
        match self {
            Unconfigured::Named(named) | Unconfigured::InnerWithKeys(named) => named.validate(),
            Unconfigured::Member(member) => member.validate(),
        }
    }

    pub(super) fn into_member(self) -> Member {
        match self {
            Unconfigured::Named(named) | Unconfigured::InnerWithKeys(named) => named,
            Unconfigured::Member(member) => member,
        }
    }
}

pub(super) const PER_EXAMPLE: &[&str] = &["differentially_private_aggregate", "dpsgd"];

/// Names without an entry, and their place instead.
const RELOCATED: &[(&str, &str)] = &[
    ("measure_with_ema", "one of the `measures` of a `monitor`"),
    ("skip_large_updates", "a `should_skip_update_fn` of `multi_steps`"),
];

/// Names of transformations behind a feature of gradchain.
const GATED: &[(&str, &[&str])] = &[
    ("constraint", &["project"]),
    (
        "contrib",
        &[
            "acprop",
            "dowg",
            "mechanize",
            "momo",
            "momo_adam",
            "scale_by_acprop",
            "scale_by_simplified_ademamix",
            "simplified_ademamix",
        ],
    ),
    ("faer", &["galore", "scale_by_galore", "scale_by_shampoo", "scale_by_soap", "shampoo", "soap"]),
    ("minimize", &["lbfgs", "scale_by_backtracking_linesearch", "scale_by_lbfgs", "scale_by_zoom_linesearch"]),
];

impl core::fmt::Debug for Registry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

impl Registry {
    /// Returns a registry without transformations.
    pub fn empty() -> Registry {
        Registry(BTreeMap::new())
    }

    /// Adds a part, replacing an entry of its name. `make` returns one whose arguments are then set.
    pub fn part<T: Arguments + GradientTransformation>(
        &mut self,
        make: impl Fn() -> T + Send + Sync + 'static,
    ) -> &mut Registry
    where
        ValueAndGradFn: Includes<T::Needs>,
    {
        self.named(T::NAME, move || Unconfigured::named(make()))
    }

    /// Adds a wrapper, replacing an entry of its name.
    ///
    /// `make` returns one around its argument, which is then replaced by the transformation of the config.
    pub fn wrapper<T: Arguments + GradientTransformation>(
        &mut self,
        make: impl Fn(Member) -> T + Send + Sync + 'static,
    ) -> &mut Registry
    where
        ValueAndGradFn: Includes<T::Needs>,
    {
        self.named(T::NAME, move || Unconfigured::named(make(placeholder())))
    }

    pub(super) fn named(
        &mut self,
        name: &'static str,
        make: impl Fn() -> Unconfigured + Send + Sync + 'static,
    ) -> &mut Registry {
        self.insert_named(name, Box::new(make));
        self
    }

    fn insert_named(&mut self, name: &'static str, make: Box<dyn Fn() -> Unconfigured + Send + Sync>) {
        self.insert(name, Box::new(move |_| Ok(make())));
    }

    pub(super) fn constructor(
        &mut self,
        name: &'static str,
        make: impl Fn(&Fields<'_>) -> Result<Unconfigured> + Send + Sync + 'static,
    ) -> &mut Constructor {
        self.insert(name, Box::new(make))
    }

    fn insert(&mut self, name: &'static str, make: BuildFn) -> &mut Constructor {
        let unconfigured = Entry::Part(Constructor { make, read_keys: &[], ignored_keys: &[], schema_keys: &[] });
        self.0.insert(name, unconfigured);
        match self.0.get_mut(name) {
            Some(Entry::Part(constructor)) => constructor,
            _ => unreachable!("it was put there just now"),
        }
    }

    pub(super) fn whole(
        &mut self,
        name: &'static str,
        read: fn(&Node<'_>) -> Result<Member>,
        schema: fn() -> String,
    ) -> &mut Registry {
        self.0.insert(name, Entry::Whole { read, schema });
        self
    }

    /// Returns the names of the transformations that can be built, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.0.keys().copied()
    }

    /// Builds a transformation, as [`config::build`](super::build()).
    ///
    /// # Errors
    ///
    /// As [`config::build`](super::build()).
    pub fn build(&self, config: &(impl Serialize + ?Sized)) -> Result<Boxed> {
        self.build_with(config)
    }

    /// Builds a transformation whose steps take more than gradients, as [`config::build_with`](super::build_with).
    ///
    /// # Errors
    ///
    /// As [`config::build_with`](super::build_with).
    pub fn build_with<N: Needs>(&self, config: &(impl Serialize + ?Sized)) -> Result<Boxed<N>> {
        let recipe = recipe_of(config)?;
        let node = Node::root(&recipe, self);
        narrow(with_own_loops(self.read(&node)?)).map_err(|error| ConfigError::refused(node.place(), error))
    }

    /// Builds the transformation of a JSON text with the names of this registry.
    ///
    /// [`Config::from_json`](super::Config::from_json) reads the same texts with the names of the crate.
    ///
    /// # Errors
    ///
    /// Fails if it is not JSON, or an object has a key twice; or as [`config::build`](super::build()).
    pub fn build_json(&self, text: &str) -> Result<Boxed> {
        self.build(&json_in(text)?)
    }

    /// Builds the transformation of a TOML text with the names of this registry.
    ///
    /// [`Config::from_toml`](super::Config::from_toml) reads the same texts with the names of the crate.
    ///
    /// ```
    /// use gradchain::config::Registry;
    /// use gradchain::prelude::*;
    ///
    /// let optimizer = Registry::new().build_toml("sgd = { learning_rate = 0.5 }")?;
    /// let mut params = 1.0_f64;
    /// let mut state = optimizer.init(&params)?;
    /// optimizer.step(&mut params, &1.0, &mut state)?;
    /// assert_eq!(params, 0.5);
    ///
    /// let error = Registry::new().build_toml("sgd = ").unwrap_err().to_string();
    /// assert!(error.starts_with("$: expected TOML"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if it is not TOML; or as [`config::build`](super::build()).
    pub fn build_toml(&self, text: &str) -> Result<Boxed> {
        self.build(&toml_in(text)?)
    }

    pub(super) fn read(&self, node: &Node<'_>) -> Result<Member> {
        let (name, inside) = node.call()?;
        match self.entry(name, node)? {
            Entry::Whole { read, .. } => checked(&inside, read(&inside)?),
            Entry::Part(_) => self.unconfigured(name, node, &inside).map(Unconfigured::into_member),
        }
    }

    pub(super) fn unconfigured(&self, name: &str, node: &Node<'_>, inside: &Node<'_>) -> Result<Unconfigured> {
        let Entry::Part(part) = self.entry(name, node)? else {
            return Err(no_hyperparams(node, name));
        };
        // A value other than an object is refused below, where the expected contents are known.
        let mut unconfigured = (part.make)(&Fields::of(inside).unwrap_or_else(|_| Fields::empty()))?;
        let set = inside.set_all(part.read_keys, part.ignored_keys, &mut |visit| unconfigured.each(visit));
        // Also checks the readable arguments.
        let refused = unconfigured.validate().map_err(|error| ConfigError::refused(inside.place(), error));
        ConfigError::both(set, refused.or_else(ConfigError::of_given))?;
        Ok(unconfigured)
    }

    fn entry(&self, name: &str, node: &Node<'_>) -> Result<&Entry> {
        self.0.get(name).ok_or_else(|| self.unknown(node, name))
    }

    fn unknown(&self, node: &Node<'_>, name: &str) -> ConfigError {
        let relocated = |place: &str| {
            ConfigError::wrong(node.place(), "a gradient transformation", format!("`{name}`, which is {place}"))
        };
        if PER_EXAMPLE.contains(&name) {
            return relocated("for per-example gradients and comes first: see `build_per_example`");
        }
        if let Some((feature, _)) = GATED.iter().find(|(_, names)| names.contains(&name)) {
            return relocated(&format!("available with the feature `{feature}` of gradchain"));
        }
        match RELOCATED.iter().find(|(known, _)| *known == name) {
            Some((_, place)) => relocated(place),
            None => ConfigError::unknown(node.place(), "transformation", name, self.names()),
        }
    }

    pub(super) fn schema_of(&self, name: &str) -> String {
        match &self.0[name] {
            Entry::Whole { schema, .. } => schema(),
            Entry::Part(part) => {
                let (mut properties, mut required) = (Vec::new(), Vec::new());
                let given = Fields::empty();
                if let Ok(mut unconfigured) = (part.make)(&given) {
                    unconfigured.each(&mut |name, setting| {
                        let mut schema = setting.schema();
                        let read_keys = part.read_keys.contains(&name);
                        match setting.to_recipe() {
                            _ if given.needs(name) || setting.is_missing() && !read_keys => {
                                required.push(format!("{name:?}"))
                            }
                            default @ (Recipe::Bool(_) | Recipe::Integer(_) | Recipe::Number(_)) => {
                                schema = format!("{{\"default\": {default}, \"allOf\": [{schema}]}}");
                            }
                            _ => {}
                        }
                        properties.push((name, schema));
                    });
                }
                for name in part.all_keys() {
                    if !properties.iter().any(|(known, _)| *known == name) {
                        if given.needs(name) {
                            required.push(format!("{name:?}"));
                        }
                        properties.push((name, "true".into()));
                    }
                }
                let properties: Vec<_> =
                    properties.iter().map(|(name, schema)| format!("{name:?}: {schema}")).collect();
                format!(
                    r#"{{"type": "object", "properties": {{{}}}, "required": [{}], "additionalProperties": false}}"#,
                    properties.join(", "),
                    required.join(", ")
                )
            }
        }
    }

    pub(super) fn arguments_of(&self, name: &str) -> Vec<&'static str> {
        let Some(Entry::Part(part)) = self.0.get(name) else { return Vec::new() };
        let mut names: Vec<_> = part.all_keys().collect();
        if let Ok(mut unconfigured) = (part.make)(&Fields::empty()) {
            unconfigured.each(&mut |name, _| names.push(name));
        }
        names
    }
}

impl Builder for Registry {
    fn build_into(&self, node: &Node<'_>, into: &mut dyn Any) -> Result<()> {
        if let Some(inside) = into.downcast_mut::<InnerWithKeys>() {
            let (name, arguments) = node.call()?;
            let named = match self.unconfigured(name, node, &arguments)? {
                Unconfigured::Named(named) | Unconfigured::InnerWithKeys(named) => named,
                Unconfigured::Member(_) => return Err(no_hyperparams(node, name)),
            };
            *inside = InnerWithKeys(named, self.arguments_of(name));
            return Ok(());
        }
        let built = self.read(node)?;
        if let Some(member) = into.downcast_mut::<Member>() {
            *member = built;
        } else if let Some(base) = into.downcast_mut::<Boxed>() {
            *base = narrow(built).map_err(|error| ConfigError::refused(node.place(), error))?;
        } else {
            return Err(node.wrong("the transformation that the outer type fixes"));
        }
        Ok(())
    }
}

fn no_hyperparams(node: &Node<'_>, name: &str) -> ConfigError {
    ConfigError::wrong(node.place(), "a transformation with hyperparameters", format!("`{name}`"))
}

/// Returns a placeholder for a config's transformation.
pub(super) fn placeholder() -> Member {
    Box::new(())
}

/// A transformation with named arguments, and their names in its config.
pub(super) struct InnerWithKeys(pub(super) Named, pub(super) Vec<&'static str>);

pub(super) fn checked(node: &Node<'_>, transformation: Member) -> Result<Member> {
    transformation.validate().map_err(|error| ConfigError::refused(node.place(), error))?;
    Ok(transformation)
}
