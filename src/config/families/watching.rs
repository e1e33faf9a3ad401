//! Observers of the steps.

use crate::DType;
use crate::config::registry::{Member, Registry};
use crate::internal::recipe::{Entries, words};
use crate::recipe::{ConfigError, FromRecipe, Node, Recipe, Result};
use crate::schedule::Hyperparam;
use crate::select::Labels;
use crate::transform::{
    GlobalNorm, Measured, Monitor, NotFinite, Quantity, TreeSum, measure_with_ema, monitor, of_params, ratio,
    reduce_on_plateau, snapshot,
};

pub(super) fn register(r: &mut Registry) {
    r.part(reduce_on_plateau);
    r.whole("monitor", read_monitor, monitor_schema);
    r.whole("snapshot", read_snapshot, snapshot_schema);
}

#[derive(Clone, Copy)]
enum Name {
    GlobalNorm,
    TreeSum,
    NotFinite,
}

words!(Name { GlobalNorm = "global_norm", TreeSum = "tree_sum", NotFinite = "not_finite" });

/// Reads a name, `{"of_params": name}`, or `{"ratio": [.., ..]}`.
impl FromRecipe for Quantity {
    fn from_recipe(node: &Node<'_>) -> Result<Quantity> {
        if !matches!(node.value(), Recipe::Map(_)) {
            return Ok(match node.read()? {
                Name::GlobalNorm => GlobalNorm.into(),
                Name::TreeSum => TreeSum.into(),
                Name::NotFinite => NotFinite.into(),
            });
        }
        match node.single("{\"of_params\": ..} or {\"ratio\": [.., ..]}")? {
            ("of_params", inside) => Ok(match inside.read()? {
                Name::GlobalNorm => of_params(GlobalNorm),
                Name::TreeSum => of_params(TreeSum),
                Name::NotFinite => of_params(NotFinite),
            }),
            ("ratio", inside) => inside.read().map(|(of, to): (Quantity, Quantity)| ratio(of, to)),
            (other, _) => Err(ConfigError::unknown(node.place(), "measure", other, ["of_params", "ratio"])),
        }
    }

    fn schema() -> String {
        let name = <Name as FromRecipe>::schema();
        let one = |key: &str, inside: &str| {
            format!(
                r#"{{"type": "object", "properties": {{"{key}": {inside}}}, "required": ["{key}"], "additionalProperties": false}}"#
            )
        };
        let both = r##"{"type": "array", "minItems": 2, "maxItems": 2}"##;
        format!(r#"{{"anyOf": [{name}, {}, {}]}}"#, one("of_params", &name), one("ratio", both))
    }
}

/// Reads `{"measure": ..}` or `{"measure_with_ema": {..}}`.
impl FromRecipe for Measured {
    fn from_recipe(node: &Node<'_>) -> Result<Measured> {
        let (name, inside) = node.single("{\"measure\": ..} or {\"measure_with_ema\": ..}")?;
        match name {
            "measure" => inside.read::<Quantity>().map(Measured::from),
            "measure_with_ema" => {
                let fields = inside.fields(&["measure", "decay", "debias", "accumulator_dtype"])?;
                let mean =
                    measure_with_ema(fields.required::<Quantity>("measure")?, fields.required::<Hyperparam>("decay")?);
                let dtype = fields.or::<Option<DType>>("accumulator_dtype", None)?;
                Ok(mean.debias(fields.or("debias", true)?).accumulator_dtype(dtype).into())
            }
            other => {
                let known = ["measure", "measure_with_ema"];
                Err(ConfigError::unknown(node.place(), "measure", other, known))
            }
        }
    }

    fn schema() -> String {
        let name = <Quantity as FromRecipe>::schema();
        let with_ema = format!(
            r#"{{"type": "object", "required": ["measure", "decay"], "additionalProperties": false, "properties": {{
                "measure": {name}, "decay": {}, "debias": {}, "accumulator_dtype": {}}}}}"#,
            <Hyperparam as FromRecipe>::schema(),
            <bool as FromRecipe>::schema(),
            <Option<DType> as FromRecipe>::schema()
        );
        let one = |key: &str, inside: &str| {
            format!(
                r#"{{"type": "object", "properties": {{"{key}": {inside}}}, "required": ["{key}"], "additionalProperties": false}}"#
            )
        };
        format!(r#"{{"oneOf": [{}, {}]}}"#, one("measure", &name), one("measure_with_ema", &with_ema))
    }
}

fn read_monitor(node: &Node<'_>) -> Result<Member> {
    let fields = node.fields(&["measures", "by_leaf", "by_group"])?;
    let Entries(measures) = fields.required::<Entries<Measured>>("measures")?;
    let watch = measures.into_iter().fold(monitor(), |watch, (name, measure)| watch.measure(name, measure));
    let watch = watch.by_leaf(fields.or("by_leaf", false)?);
    Ok(Box::new(fields.or::<Option<Labels>>("by_group", None)?.into_iter().fold(watch, Monitor::by_group)))
}

fn monitor_schema() -> String {
    let measures = <Entries<Measured> as FromRecipe>::schema();
    let [flag, labels] = [<bool as FromRecipe>::schema(), <Option<Labels> as FromRecipe>::schema()];
    format!(
        r#"{{"type": "object", "properties": {{"measures": {measures}, "by_leaf": {flag}, "by_group": {labels}}},
            "required": ["measures"], "additionalProperties": false}}"#
    )
}

fn read_snapshot(node: &Node<'_>) -> Result<Member> {
    let fields = node.fields(&["measure_name", "measure"])?;
    Ok(Box::new(snapshot(fields.required::<String>("measure_name")?, fields.required::<Quantity>("measure")?)))
}

fn snapshot_schema() -> String {
    let name = <Quantity as FromRecipe>::schema();
    format!(
        r#"{{"type": "object", "properties": {{"measure_name": {{"type": "string"}}, "measure": {name}}},
            "required": ["measure_name", "measure"], "additionalProperties": false}}"#
    )
}
