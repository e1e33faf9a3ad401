//! Trees of the cases: paths to typed arrays.

use std::collections::BTreeMap;

use gradchain::DType;
use gradchain::tree::{DynTree, Tree, for_each_leaf};
use ndarray::{ArrayD, IxDyn};
use serde_json::Value;

/// Row-major values, exact in the dtype.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Leaf {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Vec<f64>,
}

impl Leaf {
    /// Rounds to a dtype.
    pub(crate) fn round(&mut self, dtype: DType) {
        self.dtype = dtype;
        self.data.iter_mut().for_each(|x| *x = round(dtype, *x));
    }

    /// Returns each number's distance to the next.
    pub(crate) fn steps(&self) -> Vec<f64> {
        self.data.iter().map(|x| if x.is_finite() { epsilon(self.dtype) * x.abs() } else { 0.0 }).collect()
    }
}

pub(crate) type Leaves = BTreeMap<String, Leaf>;

/// Parses NaN and infinities from strings.
pub(crate) fn number(value: &Value) -> Result<f64, String> {
    match (value.as_f64(), value.as_str()) {
        (Some(number), _) => Ok(number),
        (_, Some("nan")) => Ok(f64::NAN),
        (_, Some("inf")) => Ok(f64::INFINITY),
        (_, Some("-inf")) => Ok(f64::NEG_INFINITY),
        _ => Err(format!("`{value}` is not a number")),
    }
}

pub(crate) fn read(tree: &Value) -> Result<Leaves, String> {
    let leaves = tree.as_object().ok_or_else(|| format!("`{tree}` is no tree"))?;
    leaves.iter().map(|(path, leaf)| Ok((path.clone(), read_leaf(leaf).map_err(|e| format!("{path}: {e}"))?))).collect()
}

fn read_leaf(leaf: &Value) -> Result<Leaf, String> {
    let list = |key| leaf[key].as_array().cloned().or_else(|| leaf[key].is_number().then(|| vec![leaf[key].clone()]));
    let dtype = leaf["dtype"].as_str().and_then(DType::from_name).ok_or("a leaf without a known `dtype`")?;
    let shape = list("shape").ok_or("a leaf without a `shape`")?;
    let shape = shape.iter().map(|n| n.as_u64().map(|n| n as usize)).collect::<Option<Vec<_>>>();
    let shape = shape.ok_or("a `shape` that is no list of lengths")?;
    let data = match &leaf["data"] {
        Value::Array(values) => values.iter().map(number).collect::<Result<Vec<_>, _>>()?,
        value => vec![number(value)?],
    };
    if data.len() != shape.iter().product::<usize>() {
        return Err(format!("{} values in a leaf of shape {shape:?}", data.len()));
    }
    Ok(Leaf { dtype, shape, data: data.into_iter().map(|x| round(dtype, x)).collect() })
}

pub(crate) fn round(dtype: DType, x: f64) -> f64 {
    match dtype {
        DType::F64 => x,
        DType::F32 => f64::from(x as f32),
        #[cfg(feature = "half")]
        DType::Bf16 => half::bf16::from_f64(x).to_f64(),
        #[cfg(feature = "half")]
        DType::F16 => half::f16::from_f64(x).to_f64(),
        #[allow(unreachable_patterns, reason = "types without the feature `half`, which are skipped")]
        _ => x,
    }
}

fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f64::from(f32::EPSILON),
        DType::F16 => 1.0 / 1024.0,
        DType::Bf16 => 1.0 / 128.0,
        _ => 0.0,
    }
}

/// As a tree for transformations.
pub(crate) fn dynamic(leaves: &Leaves) -> DynTree {
    let mut tree = DynTree::new();
    for (path, leaf) in leaves {
        macro_rules! insert {
            ($to:expr) => {{
                let data = leaf.data.iter().map(|x| $to(*x)).collect();
                let array = ArrayD::from_shape_vec(IxDyn(&leaf.shape), data).expect("checked when it was read");
                tree.insert(path, array);
            }};
        }
        match leaf.dtype {
            DType::F64 => insert!(|x: f64| x),
            DType::F32 => insert!(|x: f64| x as f32),
            #[cfg(feature = "half")]
            DType::Bf16 => insert!(half::bf16::from_f64),
            #[cfg(feature = "half")]
            DType::F16 => insert!(half::f16::from_f64),
            other => panic!("{other} needs the feature `half`; such cases are skipped before"),
        }
    }
    tree
}

pub(crate) fn leaves<T: Tree>(tree: &T) -> Leaves {
    let mut found = Leaves::new();
    for_each_leaf(tree, |path, leaf| {
        found.insert(path.into(), Leaf { dtype: leaf.dtype(), shape: leaf.shape().into(), data: leaf.to_f64() });
    });
    found
}

/// Compares bitwise, except for payloads of NaN.
pub(crate) fn same(a: &Leaves, b: &Leaves) -> bool {
    let same = |a: &Leaf, b: &Leaf| {
        let bits = |x: &f64| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() };
        (a.dtype, &a.shape) == (b.dtype, &b.shape) && a.data.iter().map(bits).eq(b.data.iter().map(bits))
    };
    a.len() == b.len() && a.iter().zip(b).all(|((p, a), (q, b))| p == q && same(a, b))
}

/// Additional tolerances.
pub(crate) type Slack = BTreeMap<String, Vec<f64>>;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tolerance {
    pub(crate) rtol: f64,
    pub(crate) atol: f64,
}

impl Tolerance {
    pub(crate) fn read(case: &Value) -> Result<Tolerance, String> {
        let bound = |name| case["tolerance"][name].as_f64().ok_or_else(|| format!("a case without a `{name}`"));
        Ok(Tolerance { rtol: bound("rtol")?, atol: bound("atol")? })
    }

    pub(crate) fn agrees(self, expected: f64, found: f64) -> bool {
        if expected.is_finite() {
            (found - expected).abs() <= self.atol + self.rtol * expected.abs()
        } else {
            found == expected || found.is_nan() && expected.is_nan()
        }
    }

    /// Returns the first difference as an error.
    pub(crate) fn compare(self, what: &str, expected: &Leaves, found: &Leaves, slack: &Slack) -> Result<(), String> {
        if !expected.keys().eq(found.keys()) {
            let names = |leaves: &Leaves| leaves.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(format!("{what}: expected leaves {}, found {}", names(expected), names(found)));
        }
        expected.iter().zip(found.values()).try_for_each(|((path, e), f)| {
            let at = format!("{what} `{path}`");
            if (e.dtype, &e.shape) != (f.dtype, &f.shape) {
                return Err(format!("{at}: expected {} {:?}, found {} {:?}", e.dtype, e.shape, f.dtype, f.shape));
            }
            let pairs = e.data.iter().zip(&f.data).enumerate();
            let more = |i| slack.get(path).map_or(0.0, |slack| slack[i]);
            let allowed = |i| Tolerance { atol: self.atol + more(i), ..self };
            let differs = pairs.into_iter().find(|(i, (e, f))| !allowed(*i).agrees(**e, **f));
            differs.map_or(Ok(()), |(i, (e, f))| Err(format!("{at}[{i}]: expected {e:?}, found {f:?}")))
        })
    }
}
