//! What throws steps away that are far off.

use serde_json::{Value, json};

use crate::config::error::Result;
use crate::config::member::checked;
use crate::config::node::{Args, Member, Node, Read};
use crate::wrapper::skip_on_spike;

#[derive(Clone, Copy)]
enum Of {
    Norm,
    Loss,
}

impl Read for Of {
    fn read(node: &Node<'_>) -> Result<Of> {
        node.choice(&[("norm", Of::Norm), ("loss", Of::Loss)])
    }

    fn schema() -> Value {
        json!({"enum": ["norm", "loss"]})
    }
}

pub(super) fn build(a: &Args<'_>) -> Result<Member> {
    let wrapped = skip_on_spike(a.required::<Member>("inner")?, a.required("deviations")?)
        .decay(a.or("decay", 0.97)?)
        .warmup_steps(a.or("warmup_steps", 25)?)
        .max_consecutive(a.or("max_consecutive", 10)?);
    match a.or("of", Of::Norm)? {
        Of::Norm => checked(&a.node, wrapped),
        Of::Loss => checked(&a.node, wrapped.of_loss()),
    }
}
