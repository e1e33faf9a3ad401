//! Decompositions by the crate faer, on one thread. Bits depend on the processor, whose fused multiply-add is used where
//! it has one.

use core::fmt;

use faer::dyn_stack::{MemBuffer, MemStack, StackReq};
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::linalg::householder::{
    apply_block_householder_sequence_on_the_left_in_place_scratch as apply_scratch,
    apply_block_householder_sequence_on_the_left_in_place_with_conj as apply,
};
use faer::linalg::qr::no_pivoting::factor::{qr_in_place, qr_in_place_scratch, recommended_block_size};
use faer::linalg::svd::{ComputeSvdVectors, svd, svd_scratch};
use faer::{Conj, MatMut, MatRef, Par, diag::DiagMut};

use crate::numeric::isa::Isa;

/// Room that a decomposition needs; kept for the next.
#[derive(Default)]
pub(crate) struct Room {
    inside: Option<MemBuffer>,
    matrix: Vec<f64>,
    values: Vec<f64>,
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}

/// Memory as large as this, from the last time if that was enough.
fn memory(inside: &mut Option<MemBuffer>, size: StackReq) -> &mut MemStack {
    if !inside.as_mut().is_some_and(|memory| MemStack::new(memory).can_hold(size)) {
        *inside = None;
    }
    MemStack::new(inside.get_or_insert_with(|| MemBuffer::new(size)))
}

/// Zeros.
fn zeros(room: &mut Vec<f64>, len: usize) -> &mut [f64] {
    room.clear();
    room.resize(len, 0.0);
    room
}

/// The `Q` of `S = QR`, with a positive diagonal of `R`. What was in `s` is lost.
///
/// Orthogonal to the last digits whatever `S` is, even if its columns depend on each other.
pub(crate) fn orthogonalize(_: Isa, s: &mut [f64], n: usize, q: &mut [f64], room: &mut Room) {
    if n == 0 {
        return;
    }
    q.fill(0.0);
    q.iter_mut().step_by(n + 1).for_each(|x| *x = 1.0);
    let block = recommended_block_size::<f64>(n, n);
    let sizes =
        [qr_in_place_scratch::<f64>(n, n, block, Par::Seq, Default::default()), apply_scratch::<f64>(n, block, n)];
    let mut factors = MatMut::from_column_major_slice_mut(zeros(&mut room.matrix, block * n), block, n);
    let memory = memory(&mut room.inside, StackReq::any_of(&sizes));
    let mut reflected = MatMut::from_column_major_slice_mut(s, n, n);
    qr_in_place(reflected.as_mut(), factors.as_mut(), Par::Seq, memory, Default::default());
    let by_columns = MatMut::from_column_major_slice_mut(q, n, n);
    apply(reflected.as_ref(), factors.as_ref(), Conj::No, by_columns, Par::Seq, memory);
    for (column, diagonal) in q.chunks_exact_mut(n).zip(s.iter().step_by(n + 1)) {
        if *diagonal < 0.0 {
            column.iter_mut().for_each(|x| *x = -*x);
        }
    }
}

/// Eigenvalues of a symmetric matrix, in no order, and its eigenvectors: whether they were found.
pub(super) fn eigen(
    _: Isa,
    matrix: &mut [f64],
    n: usize,
    vectors: &mut [f64],
    values: &mut [f64],
    room: &mut Room,
) -> bool {
    if n == 0 {
        return true;
    }
    let size = self_adjoint_evd_scratch::<f64>(n, ComputeEigenvectors::Yes, Par::Seq, Default::default());
    let matrix = MatRef::from_column_major_slice(matrix, n, n);
    let (vectors, values) = (MatMut::from_column_major_slice_mut(vectors, n, n), DiagMut::from_slice_mut(values));
    let memory = memory(&mut room.inside, size);
    self_adjoint_evd(matrix, values, Some(vectors), Par::Seq, memory, Default::default()).is_ok()
}

/// Replaces columns by the left singular vectors, each times its singular value. Whether they were found. There are no
/// fewer rows than columns.
pub(super) fn rotate(_: Isa, columns: &mut [f64], [rows, cols]: [usize; 2], room: &mut Room) -> bool {
    let [left, right] = [ComputeSvdVectors::Thin, ComputeSvdVectors::No];
    let memory = memory(&mut room.inside, svd_scratch::<f64>(rows, cols, left, right, Par::Seq, Default::default()));
    let (vectors, values) = (zeros(&mut room.matrix, rows * cols), zeros(&mut room.values, cols));
    let matrix = MatRef::from_column_major_slice(columns, rows, cols);
    let by_columns = MatMut::from_column_major_slice_mut(vectors, rows, cols);
    let diagonal = DiagMut::from_slice_mut(values);
    if svd(matrix, diagonal, Some(by_columns), None, Par::Seq, memory, Default::default()).is_err() {
        return false;
    }
    let found = vectors.chunks_exact(rows.max(1)).zip(values);
    for (column, (vector, value)) in columns.chunks_exact_mut(rows.max(1)).zip(found) {
        column.iter_mut().zip(vector).for_each(|(to, x)| *to = x * *value);
    }
    true
}
