//! What watches the steps go by.

use crate::config::registry::{Member, Registry};
use crate::element::DType;
use crate::recipe::{ConfigError, Entries, FromRecipe, Node, Result, words};
use crate::schedule::Hyperparam;
use crate::transform::{GlobalNorm, Measured, TreeSum, measure_with_ema, monitor, reduce_on_plateau, snapshot};

pub(super) fn register(r: &mut Registry) {
    r.part(reduce_on_plateau);
    r.whole("monitor", read_monitor, monitor_schema);
    r.whole("snapshot", read_snapshot, snapshot_schema);
}

#[derive(Clone, Copy)]
enum Name {
    GlobalNorm,
    TreeSum,
}

words!(Name { GlobalNorm = "global_norm", TreeSum = "tree_sum" });

impl From<Name> for Measured {
    fn from(name: Name) -> Measured {
        match name {
            Name::GlobalNorm => GlobalNorm.into(),
            Name::TreeSum => TreeSum.into(),
        }
    }
}

/// `{"measure": ..}` or `{"measure_with_ema": {..}}`.
impl FromRecipe for Measured {
    fn from_recipe(node: &Node<'_>) -> Result<Measured> {
        let (name, inside) = node.single("{\"measure\": ..} or {\"measure_with_ema\": ..}")?;
        match name {
            "measure" => inside.read::<Name>().map(Measured::from),
            "measure_with_ema" => {
                let fields = inside.fields(&["measure", "decay", "debias", "accumulator_dtype"])?;
                let decay = fields.required::<Hyperparam>("decay")?;
                let mean = match fields.required("measure")? {
                    Name::GlobalNorm => measure_with_ema(GlobalNorm, decay),
                    Name::TreeSum => measure_with_ema(TreeSum, decay),
                };
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
        let name = <Name as FromRecipe>::schema();
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
    let Entries(measures) = node.fields(&["measures"])?.required::<Entries<Measured>>("measures")?;
    let watch = measures.into_iter().fold(monitor(), |watch, (name, measure)| watch.measure(name, measure));
    Ok(Box::new(watch))
}

fn monitor_schema() -> String {
    let measures = <Entries<Measured> as FromRecipe>::schema();
    format!(
        r#"{{"type": "object", "properties": {{"measures": {measures}}}, "required": ["measures"], "additionalProperties": false}}"#
    )
}

fn read_snapshot(node: &Node<'_>) -> Result<Member> {
    let fields = node.fields(&["measure_name", "measure"])?;
    Ok(Box::new(snapshot(fields.required::<String>("measure_name")?, fields.required::<Name>("measure")?)))
}

fn snapshot_schema() -> String {
    let name = <Name as FromRecipe>::schema();
    format!(
        r#"{{"type": "object", "properties": {{"measure_name": {{"type": "string"}}, "measure": {name}}},
            "required": ["measure_name", "measure"], "additionalProperties": false}}"#
    )
}
