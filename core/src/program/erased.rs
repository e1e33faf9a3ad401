//! A recorded element without its type.

use super::traced::{Kind, Traced};
use crate::element::{DType, Real};
use crate::engine::Tile;
use crate::numeric::simd::current_simd_level;

/// The one element of a recorded [`Tile`]: its update and its parameter, as line numbers.
#[derive(Debug)]
pub struct ErasedTile {
    dtype: DType,
    leaf: usize,
    zero: bool,
    u: u32,
    p: u32,
}

impl ErasedTile {
    pub(crate) fn of<C: Real>(
        tile: &mut Tile<'_, C>,
        number: fn(C) -> u32,
        line: fn(u32) -> C,
        does: impl FnOnce(&mut ErasedTile),
    ) {
        let (u, p) = (number(tile.u[0]), number(tile.p[0]));
        let mut erased = ErasedTile { dtype: C::DTYPE, leaf: tile.leaf, zero: tile.zero, u, p };
        does(&mut erased);
        (tile.u[0], tile.zero) = (line(erased.u), erased.zero);
    }

    pub(crate) fn with(&mut self, job: &dyn OnTile) {
        match self.dtype {
            DType::F64 => self.with_type(&|tile| job.double(tile)),
            _ => self.with_type(&|tile| job.single(tile)),
        }
    }

    fn with_type<F: Kind>(&mut self, job: &dyn Fn(&mut Tile<'_, Traced<F>>)) {
        let (mut u, p) = ([Traced::<F>::of_line(self.u)], [Traced::of_line(self.p)]);
        let mut tile = Tile::recorded_element(self.leaf, &mut u, &p, current_simd_level());
        tile.zero = self.zero;
        job(&mut tile);
        self.zero = tile.zero;
        self.u = u[0].line();
    }
}

pub(crate) trait OnTile {
    fn single(&self, tile: &mut Tile<'_, Traced<f32>>);
    fn double(&self, tile: &mut Tile<'_, Traced<f64>>);
}
