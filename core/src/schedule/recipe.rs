//! Recipes of schedules, with the names and arguments of each kind.

use super::declared::Declared as _;
use super::*;
#[cfg(feature = "config")]
use crate::recipe::Required;
use crate::recipe::{self, ConfigError, FromRecipe, Node, Recipe, Setting, ToRecipe, words};

/// A name, and the constructor of an instance to read into.
type Prototype = (&'static str, fn() -> Schedule);

const PROTOTYPES: &[Prototype] = &[
    ("constant", || constant(0.0).into()),
    ("linear", || linear(0.0, 0.0, 1).into()),
    ("polynomial", || polynomial(0.0, 0.0, 1.0, 1).into()),
    ("exponential_decay", || exponential_decay(0.0, 1, 1.0).into()),
    ("cosine_decay", || cosine_decay(0.0, 1).into()),
    ("piecewise_constant", || piecewise_constant(0.0, []).into()),
    ("piecewise_interpolate", || piecewise_interpolate(InterpolateType::Linear, 0.0, []).into()),
    ("warmup_constant", || warmup_constant(0.0, 0.0, 1).into()),
    ("warmup_cosine_decay", || warmup_cosine_decay(0.0, 0.0, 0, 1).into()),
    ("warmup_exponential_decay", || warmup_exponential_decay(0.0, 0.0, 1, 1, 1.0).into()),
    ("linear_onecycle", || linear_onecycle(1, 0.0).into()),
    ("cosine_onecycle", || cosine_onecycle(1, 0.0).into()),
    ("sgdr", || sgdr([]).into()),
    ("join", || join(Vec::new(), []).into()),
    ("warmup_stable_decay", || warmup_stable_decay(0.0, 0, 0, 0).into()),
    ("inverse_sqrt", || inverse_sqrt(0.0, 1).into()),
    ("rex", || rex(0.0, 1).into()),
    ("cosine_restarts", || cosine_restarts(0.0, 1).into()),
    ("table", || table([]).into()),
    ("clamp", || clamp(0.0, 0.0, 0.0).into()),
    ("sum", || sum(Vec::new()).into()),
    ("product", || product(Vec::new()).into()),
];

fn names() -> impl Iterator<Item = &'static str> {
    PROTOTYPES.iter().map(|(name, _)| *name).chain(["noam"])
}

/// Returns a prototype, with arguments still to be set.
fn prototype(name: &str) -> Option<Schedule> {
    PROTOTYPES.iter().find(|(known, _)| *known == name).map(|(_, make)| make())
}

/// Returns the JSON schemas of schedules, by name.
#[cfg(feature = "config")]
pub fn schemas() -> Vec<(&'static str, String)> {
    let of = |name: &'static str| {
        let (mut properties, mut required) = (Vec::new(), Vec::new());
        let mut note = |argument: &'static str, setting: &mut dyn Setting| {
            properties.push(format!("{argument:?}: {}", setting.schema()));
            if setting.is_missing() {
                required.push(argument);
            }
        };
        match prototype(name) {
            Some(mut schedule) => schedule.kind_mut().arguments(&mut note),
            None => {
                ["model_width", "warmup_steps"].iter().for_each(|argument| note(argument, &mut Required(&mut 0_u64)))
            }
        }
        let properties = properties.join(", ");
        let schema = format!(
            r#"{{"type": "object", "properties": {{{properties}}}, "required": {required:?}, "additionalProperties": false}}"#
        );
        (name, schema)
    };
    names().map(of).collect()
}

impl ToRecipe for Schedule {
    fn to_recipe(&self) -> Recipe {
        if let Schedule::FromFn(function) = self {
            return Recipe::Opaque(function.to_string());
        }
        Recipe::Map(vec![(self.kind().name().into(), arguments(self.clone().kind_mut()))])
    }
}

fn arguments(kind: &mut dyn Kind) -> Recipe {
    let mut entries = Vec::new();
    kind.arguments(&mut |name, argument| entries.push((name.into(), argument.to_recipe())));
    Recipe::Map(entries)
}

impl FromRecipe for Schedule {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<Schedule> {
        let (name, inside) = node.single("a schedule: {name: arguments}")?;
        if name == "schedule" {
            return inside.read();
        }
        // `noam` is an `inverse_sqrt` whose peak follows from parameters that it does not store.
        if name == "noam" {
            let fields = inside.fields(&["model_width", "warmup_steps"])?;
            return Ok(noam(fields.required("model_width")?, fields.required::<Whole>("warmup_steps")?.0).into());
        }
        let unknown = || ConfigError::unknown(node.place(), "schedule", name, names());
        let mut schedule = prototype(name).ok_or_else(unknown)?;
        inside.set_all(&[], &[], &mut |visit| schedule.kind_mut().arguments(visit))?;
        schedule.validate().map_err(|error| ConfigError::refused(inside.place(), error))?;
        Ok(schedule)
    }

    fn schema() -> String {
        r##"{"$ref": "#/$defs/schedule"}"##.into()
    }
}

/// Reads the arguments alone, as `sgdr` lists them.
impl FromRecipe for WarmupCosineDecay {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<WarmupCosineDecay> {
        let mut cycle = warmup_cosine_decay(0.0, 0.0, 0, 1);
        node.set_all(&[], &[], &mut |visit| cycle.arguments(visit))?;
        Ok(cycle)
    }
}

impl ToRecipe for WarmupCosineDecay {
    fn to_recipe(&self) -> Recipe {
        arguments(&mut self.clone())
    }
}

words!(InterpolateType { Linear = "linear", Cosine = "cosine" });
words!(DecayShape { Linear = "linear", OneMinusSqrt = "one_minus_sqrt", Cosine = "cosine" });

/// A number of steps; a negative one counts as 0, as in Optax.
struct Whole(u64);

impl FromRecipe for Whole {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<Whole> {
        match node.value() {
            Recipe::Integer(n) if *n < 0 => Ok(Whole(0)),
            _ => node.read().map(Whole).map_err(|_| node.wrong("an integer")),
        }
    }

    fn schema() -> String {
        <isize as FromRecipe>::schema()
    }
}

/// An argument stored in another form than given.
struct StoredArgument<'a, T, R> {
    value: &'a mut T,
    is_required: bool,
    keep: fn(R) -> T,
}

impl<T: ToRecipe, R> ToRecipe for StoredArgument<'_, T, R> {
    fn to_recipe(&self) -> Recipe {
        self.value.to_recipe()
    }
}

impl<T: ToRecipe, R: FromRecipe> Setting for StoredArgument<'_, T, R> {
    fn set(&mut self, node: &Node<'_>) -> recipe::Result<()> {
        *self.value = (self.keep)(node.read()?);
        Ok(())
    }
    fn schema(&self) -> String {
        R::schema()
    }
    fn is_missing(&self) -> bool {
        self.is_required
    }
}

pub(super) fn steps(value: &mut u64, is_required: bool) -> impl Setting {
    StoredArgument { value, is_required, keep: |Whole(steps)| steps }
}

pub(super) fn boundaries(value: &mut Vec<u64>) -> impl Setting {
    StoredArgument { value, is_required: true, keep: |all: Vec<Whole>| all.into_iter().map(|Whole(at)| at).collect() }
}

pub(super) fn pairs(value: &mut Vec<(u64, f64)>) -> impl Setting {
    let keep = |pairs: Option<Vec<(Whole, f64)>>| {
        super::piecewise::sorted(pairs.into_iter().flatten().map(|(Whole(at), scale)| (at, scale)))
    };
    StoredArgument { value, is_required: false, keep }
}

impl ToRecipe for Box<Schedule> {
    fn to_recipe(&self) -> Recipe {
        (**self).to_recipe()
    }
}

impl FromRecipe for Box<Schedule> {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<Box<Schedule>> {
        node.read().map(Box::new)
    }

    fn schema() -> String {
        <Schedule as FromRecipe>::schema()
    }
}

impl ToRecipe for Hyperparam {
    fn to_recipe(&self) -> Recipe {
        match self {
            Hyperparam::Number(number) => Recipe::Number(*number),
            Hyperparam::Schedule(schedule) => Recipe::map([("schedule", schedule.to_recipe())]),
        }
    }
}

/// The bits of a missing number: a NaN that no arithmetic produces.
const MISSING: u64 = 0x7ff8_6d69_7373_6e67;

impl Hyperparam {
    pub(crate) const MISSING: Hyperparam = Hyperparam::Number(f64::from_bits(MISSING));
}

/// Reads a number, or `{"schedule": ..}`. `null` keeps the default.
impl FromRecipe for Hyperparam {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<Hyperparam> {
        if let Recipe::Map(_) = node.value() {
            return match node.single("{\"schedule\": ..}")? {
                ("schedule", inside) => Ok(Hyperparam::Schedule(inside.read()?)),
                _ => Err(node.wrong("{\"schedule\": ..}")),
            };
        }
        node.read().map(Hyperparam::Number).map_err(|_| node.wrong("a number or a schedule"))
    }

    fn schema() -> String {
        r##"{"anyOf": [{"type": ["number", "string"]}, {"$ref": "#/$defs/scheduled"}]}"##.into()
    }

    fn set(&mut self, node: &Node<'_>) -> recipe::Result<()> {
        if !node.is_none() || FromRecipe::is_missing(self) {
            *self = Hyperparam::from_recipe(node)?;
        }
        Ok(())
    }

    fn is_missing(&self) -> bool {
        matches!(self, Hyperparam::Number(number) if number.to_bits() == MISSING)
    }
}
