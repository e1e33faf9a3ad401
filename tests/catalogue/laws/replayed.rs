//! Every entry with programs equals its replay by a framework's operations, here on vectors.

use std::rc::Rc;

use gradchain::program::{Binary, Comparison, StateTensors, Tensors, Unary, sum_by_chunk};
use gradchain::state::{Moments, same_bits};
use gradchain::tree::{DynTree, Structure};
use gradchain::{DType, Element, Result};

use super::holds;
use crate::common::chunk::CHUNK;
use crate::common::registry::registry;
use crate::common::subject::Subject;
use crate::common::trees::{LeafPlan, Number, Order, Problem, noise, tree};
use crate::common::{close, same_values};

/// Numbers that their dtype holds exactly; sums have the wide dtype.
#[derive(Clone)]
struct Vectors {
    wide: DType,
}

type Vector = (DType, Rc<[f64]>);

macro_rules! with_type {
    ($dtype:expr, $T:ident => $code:expr) => {
        match $dtype {
            DType::F64 => {
                type $T = f64;
                $code
            }
            #[cfg(feature = "half")]
            DType::F16 => {
                type $T = half::f16;
                $code
            }
            #[cfg(feature = "half")]
            DType::Bf16 => {
                type $T = half::bf16;
                $code
            }
            _ => {
                type $T = f32;
                $code
            }
        }
    };
}

fn rounded(x: f64, dtype: DType) -> f64 {
    with_type!(dtype, T => <T as Element>::from_f64(x).as_f64())
}

#[cfg(feature = "half")]
fn half_of(bits: u16, dtype: DType) -> f64 {
    if dtype == DType::F16 { half::f16::from_bits(bits).to_f64() } else { half::bf16::from_bits(bits).to_f64() }
}

#[cfg(feature = "half")]
fn bits_of_half(x: f64, dtype: DType) -> u16 {
    if dtype == DType::F16 { half::f16::from_f64(x).to_bits() } else { half::bf16::from_f64(x).to_bits() }
}

#[cfg(not(feature = "half"))]
fn half_of(_: u16, _: DType) -> f64 {
    unreachable!("not drawn without the feature")
}

#[cfg(not(feature = "half"))]
fn bits_of_half(_: f64, _: DType) -> u16 {
    unreachable!("not drawn without the feature")
}

fn zip<R>(x: &[f64], y: &[f64], f: impl Fn(f64, f64) -> R) -> Rc<[R]> {
    let at = |of: &[f64], i: usize| if of.len() == 1 { of[0] } else { of[i] };
    let len = if x.len() == 1 { y.len() } else { x.len() };
    (0..len).map(|i| f(at(x, i), at(y, i))).collect()
}

impl Tensors for Vectors {
    const NAME: &'static str = "vectors";

    type Tensor = Vector;
    type Mask = Rc<[bool]>;

    fn wide(&self) -> DType {
        self.wide
    }

    fn number(&self, value: f64, dtype: DType) -> Result<Vector> {
        Ok((dtype, [rounded(value, dtype)].into()))
    }

    fn convert(&self, x: &Vector, dtype: DType) -> Result<Vector> {
        Ok((dtype, x.1.iter().map(|x| rounded(*x, dtype)).collect()))
    }

    fn unary(&self, op: Unary, (dtype, x): &Vector) -> Option<Result<Vector>> {
        type Function<T> = fn(T) -> T;
        let (single, double): (Function<f32>, Function<f64>) = match op {
            Unary::Neg => (|x| -x, |x| -x),
            Unary::Abs => (f32::abs, f64::abs),
            Unary::Sqrt => (f32::sqrt, f64::sqrt),
            Unary::Floor => (f32::floor, f64::floor),
            Unary::Ceil => (f32::ceil, f64::ceil),
            Unary::Exp => (f32::exp, f64::exp),
            Unary::Ln => (f32::ln, f64::ln),
            Unary::Tanh => (f32::tanh, f64::tanh),
            _ => return None,
        };
        let of = |x: &f64| if *dtype == DType::F64 { double(*x) } else { f64::from(single(*x as f32)) };
        Some(Ok((*dtype, x.iter().map(of).collect())))
    }

    fn binary(&self, op: Binary, (dtype, x): &Vector, (other, y): &Vector) -> Option<Result<Vector>> {
        assert_eq!(dtype, other, "operands of one type");
        // `f64` has more than twice the digits, so rounding its result once more gives the `f32` result.
        let of: fn(f64, f64) -> f64 = match op {
            Binary::Add => |x, y| x + y,
            Binary::Sub => |x, y| x - y,
            Binary::Mul => |x, y| x * y,
            Binary::Div => |x, y| x / y,
            _ => return None,
        };
        Some(Ok((*dtype, zip(x, y, |x, y| rounded(of(x, y), *dtype)))))
    }

    fn compare(&self, op: Comparison, (_, x): &Vector, (_, y): &Vector) -> Result<Rc<[bool]>> {
        Ok(match op {
            Comparison::Less => zip(x, y, |x, y| x < y),
            Comparison::LessOrEqual => zip(x, y, |x, y| x <= y),
            Comparison::Equal => zip(x, y, |x, y| x == y),
        })
    }

    fn select(&self, mask: &Rc<[bool]>, (dtype, x): &Vector, (other, y): &Vector) -> Result<Vector> {
        assert_eq!(dtype, other, "operands of one type");
        let len = mask.len().max(x.len()).max(y.len());
        let at = |of: &[f64], i: usize| if of.len() == 1 { of[0] } else { of[i] };
        let yes = |i: usize| if mask.len() == 1 { mask[0] } else { mask[i] };
        Ok((*dtype, (0..len).map(|i| if yes(i) { at(x, i) } else { at(y, i) }).collect()))
    }

    fn fill(&self, (dtype, x): &Vector, len: usize) -> Result<Vector> {
        Ok((*dtype, if x.len() == len { x.clone() } else { vec![x[0]; len].into() }))
    }

    fn sums(&self, (_, x): &Vector, chunk: usize) -> Result<Vector> {
        let single = |chunk: &[f64]| chunk.iter().fold(0.0_f32, |sum, x| sum + *x as f32).into();
        Ok((
            self.wide,
            if self.wide == DType::F64 { sum_by_chunk(x).into() } else { x.chunks(chunk).map(single).collect() },
        ))
    }

    fn read(&self, (_, x): &Vector) -> Result<Vec<f64>> {
        Ok(x.to_vec())
    }

    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<Vector> {
        let number = |bytes: &[u8]| match *bytes {
            [a, b] => half_of(u16::from_ne_bytes([a, b]), dtype),
            [a, b, c, d] => f32::from_ne_bytes([a, b, c, d]).into(),
            _ => f64::from_ne_bytes(bytes.try_into().expect("eight bytes")),
        };
        Ok((dtype, bytes.chunks(dtype.size()).map(number).collect()))
    }

    fn download(&self, (dtype, x): &Vector) -> Result<Vec<u8>> {
        let bytes = |x: &f64| match dtype {
            DType::F64 => x.to_ne_bytes().to_vec(),
            DType::F32 => (*x as f32).to_ne_bytes().to_vec(),
            other => bits_of_half(*x, *other).to_ne_bytes().to_vec(),
        };
        Ok(x.iter().flat_map(bytes).collect())
    }
}

/// Returns the leaves as tensors, in a structure's order.
fn tensors(of: &DynTree, structure: &Structure, compute: bool) -> Result<Vec<Vector>> {
    let dtype = |dtype: DType| if compute { dtype.compute() } else { dtype };
    let copies = Moments::of_tree(of, structure, |leaf| dtype(leaf.dtype()))?;
    let leaves = structure.leaves().iter().enumerate();
    let bytes = leaves.map(|(i, leaf)| (copies.as_bytes(i).unwrap_or_default(), dtype(leaf.dtype())));
    bytes.map(|(bytes, dtype)| Vectors { wide: DType::F64 }.upload(bytes, dtype)).collect()
}

/// Compares with replayed steps: bitwise, or within the error of `f32` sums.
fn replayed(entry: &dyn Subject, problem: &Problem, wide: DType) -> Result<()> {
    let structure = Structure::of(&problem.params)?;
    let (mut here, mut there) = (entry.init(&problem.params)?, entry.init(&problem.params)?);
    let mut held = StateTensors::new(Vectors { wide }, &entry.programs(&problem.params)?, &there.state())?;
    let mut ours = problem.params.clone();
    let mut theirs = tensors(&ours, &structure, false)?;
    for (t, grads) in problem.grads.iter().enumerate() {
        let (given, grads_given) = (theirs.clone(), tensors(grads, &structure, true)?);
        let mut write = |leaf: usize, new| {
            theirs[leaf] = new;
            Ok(())
        };
        let outcome = there.step_on(&mut held.replay(given, grads_given, &mut write))?;
        assert_eq!(here.step(&mut ours, grads)?, outcome, "{}, step {t}", entry.name());

        let mut copies = Moments::of_tree(&ours, &structure, |leaf| leaf.dtype())?;
        for (leaf, tensor) in theirs.iter().enumerate() {
            let bytes = copies.as_bytes_mut(leaf).expect("every leaf has a copy");
            bytes.copy_from_slice(&Vectors { wide }.download(tensor)?);
        }
        let mut made = ours.clone();
        copies.to_tree(&mut made, &structure)?;
        if wide == DType::F64 {
            same_values(&ours, &made).unwrap_or_else(|problem| panic!("{}, step {t}: {problem}", entry.name()));
            let mut state = there.state();
            held.state_into(&mut state)?;
            assert!(same_bits(&state, &here.state()), "{}, step {t}", entry.name());
        } else {
            close(&ours, &made, 2.0_f64.powi(-10)).unwrap_or_else(|problem| panic!("{}: {problem}", entry.name()));
        }
    }
    Ok(())
}

fn is_replayed(entry: &dyn Subject, problem: &Problem) {
    if let Err(error) = replayed(entry, problem, DType::F64) {
        let known = error.is_unrecordable() || error.to_string().contains("vectors: it has no operation");
        assert!(known, "{}: {error}", entry.name());
    }
}

#[test]
fn every_recorded_entry_is_replayed_bitwise_identically() {
    holds(is_replayed, 4);
}

/// Sums follow the engine's order; in `f32`, 16384 squares are off by at most 2⁻¹⁰.
#[test]
fn sums_are_read_by_chunk() {
    let plan = vec![LeafPlan { number: Number::F32, shape: vec![2 * CHUNK + 7_232], order: Order::C }];
    let params = tree(&plan, |leaf, i| noise(1, leaf, i));
    let grads = (0..2).map(|t| tree(&plan, |leaf, i| noise(2 + t, leaf, i))).collect();
    let problem = Problem { plan, params, grads };
    let summing = ["clip_by_global_norm", "scale_by_trust_ratio", "apply_if_finite", "zero_nans"];
    for entry in registry().iter().filter(|entry| summing.contains(&entry.name())) {
        for wide in [DType::F64, DType::F32] {
            replayed(&**entry, &problem, wide).unwrap_or_else(|error| panic!("{}: {error}", entry.name()));
        }
    }
}
