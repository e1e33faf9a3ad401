//! The passes of a step, done by candle.

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor, Var};
use gradchain::program::{LeafProgram, Machine, Op, Pass};
use gradchain::{Error, Result};

use super::Arrays;
use super::ops::{Given, Numbers, dtype, run};

/// Elements of a leaf that are added up to one sum; see [`by_piece`](gradchain::program::by_piece).
const PIECE: usize = 16384;

/// Does the passes of one step.
pub(super) struct Replay<'a> {
    vars: &'a [(String, Var)],
    gradients: Vec<Tensor>,
    arrays: &'a mut Arrays,
    /// Arrays that a pass leaves for later ones of the same step.
    kept: Arrays,
    /// Updates that a pass leaves for the next.
    stored: HashMap<usize, Tensor>,
    numbers: Numbers,
}

impl<'a> Replay<'a> {
    pub(super) fn new(vars: &'a [(String, Var)], gradients: Vec<Tensor>, arrays: &'a mut Arrays) -> Replay<'a> {
        let device = vars.first().map_or(Device::Cpu, |(_, var)| var.device().clone());
        let numbers = Numbers::new(&device);
        Replay { vars, gradients, arrays, kept: Arrays::new(), stored: HashMap::new(), numbers }
    }

    fn leaf(&mut self, pass: &Pass, of: &LeafProgram) -> Result<Vec<f64>> {
        let LeafProgram { leaf, program, scalars, arrays, .. } = of;
        let (_, var) = &self.vars[*leaf];
        let compute = dtype(program.dtype());
        let in_compute = |tensor: &Tensor| tensor.to_dtype(compute).map_err(crate::of_candle);
        let gradient = &self.gradients[*leaf];
        let update = if pass.from_stored { self.stored.get(leaf).unwrap_or(gradient) } else { gradient }.clone();
        let param = in_compute(&var.as_tensor().detach())?;
        let mut slots = Vec::with_capacity(arrays.len());
        for array in arrays {
            let key = (array.name.clone(), *leaf);
            let held = if array.lasts { self.arrays.get(&key) } else { self.kept.get(&key) };
            slots.push(match held {
                Some(held) => in_compute(held)?,
                None if array.lasts => {
                    return Err(Error::state(&array.name, "it has no element for each of the leaf's"));
                }
                None => param.zeros_like().map_err(crate::of_candle)?,
            });
        }

        let written: Vec<usize> = (0..arrays.len()).filter(|slot| program.writes(*slot)).collect();
        let new_param = program.param().filter(|line| program.lines()[*line as usize].0 != Op::Param);
        let wanted: Vec<u32> = written.iter().map(|slot| program.new_slots()[*slot]).collect();
        let wanted: Vec<u32> =
            wanted.into_iter().chain(program.update()).chain(new_param).chain(program.sums().iter().copied()).collect();
        let given = Given { update: &update, param: &param, slots: &slots, scalars };
        let mut made = run(program, &given, &wanted, &mut self.numbers)?.into_iter();

        for slot in written {
            let (array, key) = (&arrays[slot], (arrays[slot].name.clone(), *leaf));
            let new = made.next().map(|new| new.to_dtype(dtype(array.dtype))).transpose().map_err(crate::of_candle)?;
            let place = if array.lasts { &mut *self.arrays } else { &mut self.kept };
            place.extend(new.map(|new| (key, new)));
        }
        if program.update().is_some() {
            self.stored.extend(made.next().map(|update| (*leaf, update)));
        }
        if new_param.is_some()
            && let Some(param) = made.next()
        {
            param.to_dtype(var.dtype()).and_then(|param| var.set(&param)).map_err(crate::of_candle)?;
        }
        let sums =
            made.map(|terms| by_piece(&terms)).collect::<candle_core::Result<Vec<_>>>().map_err(crate::of_candle)?;
        let pieces = sums.first().map_or(0, Vec::len);
        Ok((0..pieces).flat_map(|piece| sums.iter().map(move |sum| sum[piece])).collect())
    }
}

impl Machine for Replay<'_> {
    fn pass(&mut self, pass: &Pass) -> Result<Vec<Vec<f64>>> {
        pass.leaves.iter().map(|leaf| self.leaf(pass, leaf)).collect()
    }
}

/// A sum for each piece, added up on the device.
fn by_piece(terms: &Tensor) -> candle_core::Result<Vec<f64>> {
    let terms = terms.flatten_all()?.to_dtype(DType::F64)?;
    let (whole, len) = (terms.elem_count() / PIECE, terms.elem_count());
    let mut sums = match whole {
        0 => Vec::new(),
        _ => terms.narrow(0, 0, whole * PIECE)?.reshape((whole, PIECE))?.sum(1)?.to_vec1()?,
    };
    if len > whole * PIECE {
        sums.push(terms.narrow(0, whole * PIECE, len - whole * PIECE)?.sum_all()?.to_scalar()?);
    }
    Ok(sums)
}
