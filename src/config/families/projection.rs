//! What keeps parameters in a set.

use serde_json::{Value, json};

use crate::config::error::{ConfigError, Result};
use crate::config::member::{Finish, family};
use crate::config::node::{Args, Named, Node, Read};
use crate::config::values::OneOrMore;
use crate::projection::*;
use crate::schedule::Hyperparam;
use crate::transform::{keep_params_nonnegative, project};
use crate::tree::Slices;

family! { |a|
    "keep_params_nonnegative" => keep_params_nonnegative(),
    "project" => AnyProject::read(a)?,
}

/// The sets, each with how it is read; a hyperparameter is set by `finish`, whatever is given for it here.
macro_rules! sets {
    (|$a:ident| $($name:literal, $Set:ident => $build:expr;)*) => {
        const SETS: &[&str] = &[$($name),*];

        /// A projection on some set.
        enum AnyProject {
            $($Set(<$Set as Projection>::Stage),)*
        }

        impl AnyProject {
            fn of(set: &str, $a: &Args<'_>) -> Result<AnyProject> {
                match set {
                    $($name => Ok(AnyProject::$Set(project($build))),)*
                    other => unreachable!("`{other}` is in SETS"),
                }
            }
        }

        impl Finish for AnyProject {
            fn finish(self, a: &Args<'_>) -> Result<Named> {
                match self {
                    $(AnyProject::$Set(stage) => stage.finish(a),)*
                }
            }
        }
    };
}

sets! { |a|
    "projection_box", BoxSet => box_set(a.required::<Operand>("lower")?, a.required::<Operand>("upper")?);
    "projection_halfspace", Halfspace => halfspace(a.required::<Operand>("a")?, a.required::<Hyperparam>("b")?);
    "projection_hypercube", Hypercube => hypercube(a.or::<Operand>("scale", 1.0.into())?);
    "projection_hyperplane", Hyperplane => hyperplane(a.required::<Operand>("a")?, a.required::<Hyperparam>("b")?);
    "projection_l1_ball", L1Ball => l1_ball(1.0);
    "projection_l1_sphere", L1Sphere => l1_sphere(1.0);
    "projection_l2_ball", L2Ball => l2_ball(1.0);
    "projection_l2_sphere", L2Sphere => l2_sphere(1.0);
    "projection_linf_ball", LinfBall => linf_ball(1.0);
    "projection_non_negative", NonNegative => non_negative();
    "projection_simplex", Simplex => simplex(1.0);
    "projection_vector", VectorLine => vector(a.required::<Operand>("a")?);
}

impl AnyProject {
    fn read(a: &Args<'_>) -> Result<AnyProject> {
        let set = a.required::<SetName>("projection")?.0;
        if a.is_probe() {
            // What the others ask for.
            for name in ["lower", "upper", "scale", "a"] {
                a.or::<Operand>(name, 1.0.into())?;
            }
            a.or::<Hyperparam>("b", 1.0.into())?;
        }
        AnyProject::of(set, a)
    }
}

struct SetName(&'static str);

impl Read for SetName {
    fn read(node: &Node<'_>) -> Result<SetName> {
        let given = node.text("the name of a projection")?;
        let known = SETS.iter().find(|name| **name == given);
        let unknown = || ConfigError::unknown(&node.place, "projection", given, SETS.iter().copied());
        known.map(|name| SetName(name)).ok_or_else(unknown)
    }

    fn schema() -> Value {
        json!({"enum": SETS})
    }

    fn example() -> Value {
        json!("projection_l2_ball")
    }
}

/// A number, `{"schedule": ..}`, or `{"tree": {path: leaf}}` with leaves `{"shape": [..], "data": [..]}`, in row-major order.
impl Read for Operand {
    fn read(node: &Node<'_>) -> Result<Operand> {
        match node.single("a number, {\"schedule\": ..} or {\"tree\": ..}") {
            Ok(("tree", inside)) => tree(&inside),
            _ => Hyperparam::read(node).map(Operand::from).map_err(|error| match node.value {
                Value::Object(_) => error,
                _ => node.wrong("a number, a schedule or a tree"),
            }),
        }
    }

    fn schema() -> Value {
        let leaf = json!({"type": "object", "required": ["shape", "data"], "additionalProperties": false, "properties": {
            "dtype": {"enum": [null, "none", "f16", "bf16", "f32", "f64"]},
            "shape": {"type": "array", "items": usize::schema()},
            "data": {"anyOf": [f64::schema(), {"type": "array", "items": f64::schema()}]},
        }});
        let leaves = json!({"type": "object", "additionalProperties": {"anyOf": [f64::schema(), leaf]}});
        let tree = json!({"type": "object", "required": ["tree"], "additionalProperties": false,
                          "properties": {"tree": leaves}});
        json!({"anyOf": [Hyperparam::schema(), tree]})
    }

    fn example() -> Value {
        json!(0.5)
    }
}

fn tree(node: &Node<'_>) -> Result<Operand> {
    let leaves = node.entries()?.into_iter().map(|(path, node)| Ok((path, leaf(&node)?)));
    let leaves = leaves.collect::<Result<Vec<_>>>()?;
    let mut tree = Slices::new();
    for (path, (shape, data)) in &leaves {
        tree = tree.with(*path, data, shape).map_err(|error| ConfigError::refused(&node.place, error))?;
    }
    Ok(Operand::from(&tree))
}

/// Shape and values.
fn leaf(node: &Node<'_>) -> Result<(Vec<usize>, Vec<f64>)> {
    if node.value.is_number() {
        return Ok((Vec::new(), vec![node.read()?]));
    }
    let a = Args::new("leaf", node.clone())?;
    a.or::<Option<crate::DType>>("dtype", None)?;
    let shape = a.required("shape")?;
    let data = a.required::<OneOrMore<f64>>("data")?.0;
    a.finish()?;
    Ok((shape, data))
}
