//! Multiplying updates by how far the parameters are from where they began, in some proportion to the gradients so far: two
//! sums over elements, and a copy of the first parameters that is only read.

use crate::engine::sum_tile;
use crate::part::prelude::*;

/// What the parts of this kind have in common, in their [`TwoPasses`](crate::engine::TwoPasses): a copy of the first parameters, the
/// [`squares`] of the first pass, and the multiplication of the second, by the factor that [`second`](crate::engine::TwoPasses::second)
/// gives.
macro_rules! anchored {
    () => {
        const SLOTS: &'static [&'static str] = &["init_params"];
        const FIRST: &'static [$crate::engine::Access] = &[$crate::engine::Access::Read];
        const READS_PARAMS: [bool; 2] = [true, false];
        type Needs = $crate::needs::Nothing;
        type Slots<C: $crate::Real> = [C; 1];
        type Sums<W: $crate::Real> = [W; 2];
        type First<C: $crate::Real> = ();
        type Second<C: $crate::Real> = C;

        fn slot_starts_as_params(&self, _: usize) -> bool {
            true
        }

        fn first<C: $crate::Real>(&self, _: &Self::Memory, _: &Self::Run, _: usize) {}

        #[inline(always)]
        fn take_in<C: $crate::Real>((): (), [first]: &mut [C; 1], u: C, p: C) -> (C, [C::Wide; 2]) {
            (u, $crate::transform::parameter_free::anchored::squares(u, p, *first))
        }

        #[inline(always)]
        fn give_out<C: $crate::Real>(factor: C, _: &mut [C; 1], u: C, _: C) -> C {
            u * factor
        }
    };
}
pub(super) use anchored;

/// The squares of an element's update, and of its distance from the first parameter.
#[inline(always)]
pub(super) fn squares<C: Real>(u: C, p: C, first: C) -> [C::Wide; 2] {
    let distance = p.wide() - first.wide();
    [u.wide() * u.wide(), distance * distance]
}

/// The squared norms of the parameters, by leaf.
///
/// # Errors
///
/// If there is not enough memory for a copy of them.
pub(super) fn squared_norms(at: &InitContext<'_>) -> Result<Vec<f64>> {
    fn of<C: Real>(x: Option<&[C]>) -> f64 {
        let stretches = x.unwrap_or_default().chunks(512);
        stretches.map(|x| sum_tile(x, |x| x.as_f64() * x.as_f64())).sum()
    }
    let params: Moments = at.params_as_moments()?;
    Ok((0..at.structure().len()).map(|leaf| of(params.get::<f32>(leaf)) + of(params.get::<f64>(leaf))).collect())
}
