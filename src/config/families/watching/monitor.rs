//! What is measured.

use serde_json::{Value, json};

use crate::config::error::{ConfigError, Result};
use crate::config::member::{checked, with_arguments};
use crate::config::node::{Args, Member, Node, Read};
use crate::schedule::Hyperparam;
use crate::transform::{GlobalNorm, MeasureWithEma, Measured, TreeSum, measure_with_ema, monitor, snapshot};

#[derive(Clone, Copy)]
enum Name {
    GlobalNorm,
    TreeSum,
}

impl Read for Name {
    fn read(node: &Node<'_>) -> Result<Name> {
        node.choice(&[("global_norm", Name::GlobalNorm), ("tree_sum", Name::TreeSum)])
    }

    fn schema() -> Value {
        json!({"enum": ["global_norm", "tree_sum"]})
    }

    fn example() -> Value {
        json!("global_norm")
    }
}

impl From<Name> for Measured {
    fn from(name: Name) -> Measured {
        match name {
            Name::GlobalNorm => GlobalNorm.into(),
            Name::TreeSum => TreeSum.into(),
        }
    }
}

/// `{"measure": ..}` or `{"measure_with_ema": {..}}`.
impl Read for Measured {
    fn read(node: &Node<'_>) -> Result<Measured> {
        let (name, inside) = node.single("{\"measure\": ..} or {\"measure_with_ema\": ..}")?;
        match name {
            "measure" => inside.read::<Name>().map(Measured::from),
            "measure_with_ema" => {
                let a = Args::new(name, inside)?;
                let with_ema = running_mean(&a)?;
                a.finish()?;
                Ok(with_ema.into())
            }
            other => Err(ConfigError::unknown(&node.place, "measure", other, ["measure", "measure_with_ema"])),
        }
    }
}

fn running_mean(a: &Args<'_>) -> Result<MeasureWithEma> {
    let decay = a.required::<Hyperparam>("decay")?;
    let with_ema = match a.required("measure")? {
        Name::GlobalNorm => measure_with_ema(GlobalNorm, decay),
        Name::TreeSum => measure_with_ema(TreeSum, decay),
    };
    Ok(with_ema.debias(a.or("debias", true)?).accumulator_dtype(a.or::<Option<_>>("accumulator_dtype", None)?))
}

/// By name.
struct Measures(Vec<(String, Measured)>);

impl Read for Measures {
    fn read(node: &Node<'_>) -> Result<Measures> {
        let each = |(name, node): (&str, Node<'_>)| Ok((String::from(name), node.read()?));
        node.entries()?.into_iter().map(each).collect::<Result<_>>().map(Measures)
    }

    fn schema() -> Value {
        let with_ema = json!({
            "type": "object",
            "properties": {
                "measure": Name::schema(),
                "decay": Hyperparam::schema(),
                "debias": bool::schema(),
                "accumulator_dtype": Option::<crate::element::DType>::schema(),
            },
            "required": ["measure", "decay"],
            "additionalProperties": false,
        });
        let one = |name: &str, schema: Value| json!({"type": "object", "properties": {name: schema}, "required": [name], "additionalProperties": false});
        let each = json!({"oneOf": [one("measure", Name::schema()), one("measure_with_ema", with_ema)]});
        json!({"type": "object", "additionalProperties": each})
    }

    fn example() -> Value {
        json!({})
    }
}

pub(in crate::config) const NAMES: &[&str] = &["monitor", "snapshot"];

/// What measures, of this name.
pub(in crate::config) fn build(name: &str, node: &Node<'_>) -> Option<Result<Member>> {
    Some(match name {
        "monitor" => with_arguments(name, node, |a| {
            let Measures(measures) = a.required("measures")?;
            let watch = measures.into_iter().fold(monitor(), |watch, (name, measure)| watch.measure(name, measure));
            checked(&a.node, watch)
        }),
        "snapshot" => with_arguments(name, node, |a| {
            checked(&a.node, snapshot(a.required::<String>("measure_name")?, a.required::<Name>("measure")?))
        }),
        _ => return None,
    })
}
