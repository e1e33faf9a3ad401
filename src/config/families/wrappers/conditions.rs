//! Conditions, and what runs only where they hold.

use serde_json::{Value, json};

use crate::config::error::{ConfigError, Result};
use crate::config::member::checked;
use crate::config::node::{Args, Member, Node, Read};
use crate::wrapper::{conditionally_mask, conditionally_transform, step_ge, step_lt, step_mod, value_lt};

enum When {
    Less(u64),
    AtLeast(u64),
    Mod(u64, u64),
    ValueLess(f64),
}

impl Read for When {
    fn read(node: &Node<'_>) -> Result<When> {
        let (name, inside) = node.single("a condition: {\"step_lt\": n} or the like")?;
        match name {
            "step_lt" => inside.read().map(When::Less),
            "step_ge" => inside.read().map(When::AtLeast),
            "step_mod" => match inside.read::<Vec<u64>>()?[..] {
                [n, remainder] => Ok(When::Mod(n, remainder)),
                _ => Err(inside.wrong("two whole numbers: by how much the step is divided, and what must be left")),
            },
            "value_lt" => inside.read().map(When::ValueLess),
            other => {
                let known = ["step_lt", "step_ge", "step_mod", "value_lt"];
                Err(ConfigError::unknown(&node.place, "condition", other, known))
            }
        }
    }

    fn schema() -> Value {
        let one = |name: &str, schema: Value| json!({"type": "object", "properties": {name: schema}, "required": [name], "additionalProperties": false});
        let step = || json!({"type": "integer", "minimum": 0});
        let pair = json!({"type": "array", "items": step(), "minItems": 2, "maxItems": 2});
        let value = json!({"type": ["number", "string"]});
        json!({"oneOf": [one("step_lt", step()), one("step_ge", step()), one("step_mod", pair), one("value_lt", value)]})
    }

    fn example() -> Value {
        json!({"step_lt": 1})
    }
}

/// Wraps the argument `inner` in one of the two, by what the condition is.
macro_rules! by_condition {
    ($a:ident, $wrap:ident) => {{
        let inner = $a.required::<Member>("inner")?;
        let given = $a.or("forward_extra_args", false)?;
        match $a.required::<When>("should_transform_fn")? {
            When::Less(n) => checked(&$a.node, $wrap(inner, step_lt(n))),
            When::AtLeast(n) => checked(&$a.node, $wrap(inner, step_ge(n))),
            When::Mod(n, remainder) => checked(&$a.node, $wrap(inner, step_mod(n, remainder))),
            When::ValueLess(limit) if given => checked(&$a.node, $wrap(inner, value_lt(limit))),
            When::ValueLess(_) => {
                let expected = "`forward_extra_args` true, so that the condition is told the value";
                Err(ConfigError::wrong(&$a.node.place, expected, "false"))
            }
        }
    }};
}

pub(super) fn transform(a: &Args<'_>) -> Result<Member> {
    by_condition!(a, conditionally_transform)
}

pub(super) fn mask(a: &Args<'_>) -> Result<Member> {
    by_condition!(a, conditionally_mask)
}
