//! Multiplication of updates by a ratio of the distance from the initial parameters to the gradients so far: two sums
//! over elements, and a read-only copy of the initial parameters.

use crate::internal::numeric::sum_tile;
use crate::part::prelude::*;
use crate::tree::LeafSpec;

/// Items of [`TwoPasses`](crate::engine::TwoPasses) with a copy of the initial parameters.
///
/// The first pass sums [`squares`], the second multiplies by the factor from
/// [`scalars`](crate::engine::TwoPasses::scalars).
macro_rules! anchored {
    () => {
        const SLOTS: &'static [$crate::part::Slot] = &[$crate::part::Slot::exact("init_params").starts_as_params()];
        const PASSES: Passes = Passes::TWO.reads_params([true, false]).accesses(&[$crate::part::Access::Read], &[]);
        type Slots<C: $crate::Real> = [C; 1];
        type Sums<W: $crate::Real> = [W; 2];
        type Scalars<C: $crate::Real> = C;

        #[inline(always)]
        fn accumulate<C: $crate::Real>(_: C, [first]: &mut [C; 1], u: C, p: C) -> (C, [C::Wide; 2]) {
            (u, $crate::transform::parameter_free::anchored::squares(u, p, *first))
        }

        #[inline(always)]
        fn emit<C: $crate::Real>(factor: C, _: &mut [C; 1], u: C, _: C) -> C {
            u * factor
        }
    };
}
pub(super) use anchored;

/// Returns the squares of an update and of the distance from the initial parameter.
#[inline(always)]
pub(super) fn squares<C: Real>(u: C, p: C, first: C) -> [C::Wide; 2] {
    let distance = p.wide() - first.wide();
    [u.wide() * u.wide(), distance * distance]
}

/// Returns each leaf's squared parameter norm; fails if leaves are sharded over processes.
pub(super) fn squared_norms(at: &InitContext<'_>) -> Result<Vec<f64>> {
    fn of<C: Real>(x: &[C]) -> f64 {
        let stretches = x.chunks(512);
        stretches.map(|x| sum_tile(x, |x| x.as_f64() * x.as_f64())).sum()
    }
    let leaves = at.structure().leaves().iter().enumerate();
    let norm = |(leaf, spec): (usize, &LeafSpec)| match spec.dtype().compute() {
        _ if !at.active()[leaf] => Ok(0.0),
        DType::F64 => Ok(of(&at.whole_leaf::<f64>(leaf)?)),
        _ => Ok(of(&at.whole_leaf::<f32>(leaf)?)),
    };
    leaves.map(norm).collect()
}
