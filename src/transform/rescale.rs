//! Multiplication of each leaf by a factor computed from sums over its elements: one barrier, no arrays of state.

use crate::internal::numeric::{SMALL, is_safe, length};
use crate::internal::state::state_fields;
use crate::part::prelude::*;
use crate::state::StateWalk;

/// A two-pass part that multiplies each leaf by a factor computed from sums of squares.
// Stands for `TwoPasses` in compiler messages: this is the trait to implement.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has the form `TwoPass` but does not implement `TwoPasses`",
    note = "implement `TwoPasses` for `{Self}`; `docs/own-two-pass.md` has an example"
)]
pub trait Rescale: Part {
    /// The values whose squares are summed.
    type Of: SquaresOf;
    /// True if each leaf has its own factor.
    const BY_LEAF: bool;
    /// The hyperparameters at one step.
    type Hyperparams: Copy + Send + Sync;

    /// Returns the hyperparameters at a step count; `value` is the value of the loss, if given.
    fn hyperparams(&self, count: u64, value: Option<f64>) -> Self::Hyperparams;

    /// Returns the factor, from the sums of squares over `len` elements of a leaf or of the tree.
    fn factor(k: Self::Hyperparams, squares: <Self::Of as SquaresOf>::All, len: usize) -> f64;
}

/// A sum of squares of values scaled by a power of two, so that the squares neither overflow nor all vanish.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Squares {
    sum: f64,
    scale: f64,
}

impl Squares {
    /// Returns the root of the sum.
    pub fn norm(self) -> f64 {
        self.sum.sqrt() / self.scale
    }

    /// Returns the root of the mean over `len` values.
    pub fn rms(self, len: usize) -> f64 {
        (self.sum / len as f64).sqrt() / self.scale
    }

    /// Returns the sum; infinite or zero if it is outside the range of `f64`.
    pub fn sum(self) -> f64 {
        self.sum / self.scale / self.scale
    }

    /// Returns `x / (sum + eps)`, even if the sum is outside the range of `f64`.
    pub fn divide(self, x: f64, eps: f64) -> f64 {
        x / (self.sum + eps * self.scale * self.scale) * self.scale * self.scale
    }
}

/// A choice of values whose squares are summed.
pub trait SquaresOf {
    /// Names of the norms in [readings](crate::GradientTransformation::readings).
    const NORMS: &'static [&'static str];
    /// True if updates, and parameters, are read.
    const READS: [bool; 2];
    /// One number per sum.
    type Sums<W: Real>: SlotArray<W> + Send + Sync;
    /// All sums.
    type All;

    /// Returns the summands of an element. `f64` values are multiplied by the scale of their sum first.
    fn squares<C: Real>(scales: Self::Sums<C>, u: C, p: C) -> Self::Sums<C::Wide>;

    /// Builds one number per sum.
    fn each<W: Real>(number: impl Fn(usize) -> W) -> Self::Sums<W>;

    /// Collects all sums.
    fn all(sum: impl Fn(usize) -> Squares) -> Self::All;
}

/// Squares a number. `f64` values are scaled first; squares of `f32` always fit `f64`.
#[inline(always)]
fn square<C: Real>(x: C, scale: C) -> C::Wide {
    let x = if const { matches!(C::DTYPE, DType::F64) && !C::RECORDS } { x * scale } else { x };
    x.wide() * x.wide()
}

/// Squares of updates.
pub enum Updates {}

/// Squares of parameters.
pub enum Params {}

/// Squares of updates, and of parameters.
pub enum UpdatesAndParams {}

macro_rules! squares {
    ($Of:ty: $READS:expr, [$($i:literal $NORM:literal = $x:ident),+], |$u:ident, $p:ident|) => {
        impl SquaresOf for $Of {
            const NORMS: &'static [&'static str] = &[$($NORM),+];
            const READS: [bool; 2] = $READS;
            type Sums<W: Real> = [W; [$($NORM),+].len()];
            type All = [Squares; [$($NORM),+].len()];
            #[inline(always)]
            fn squares<C: Real>(scales: Self::Sums<C>, $u: C, $p: C) -> Self::Sums<C::Wide> {
                [$(square($x, scales[$i])),+]
            }
            fn each<W: Real>(number: impl Fn(usize) -> W) -> Self::Sums<W> {
                core::array::from_fn(number)
            }
            fn all(sum: impl Fn(usize) -> Squares) -> Self::All {
                core::array::from_fn(sum)
            }
        }
    };
}
squares!(Updates: [true, false], [0 "norm" = u], |u, _p|);
squares!(Params: [false, true], [0 "param_norm" = p], |_u, p|);
squares!(UpdatesAndParams: [true, true], [0 "update_norm" = u, 1 "param_norm" = p], |u, p|);

/// Implements [`TwoPasses`] for a part that implements [`Rescale`].
macro_rules! rescales {
    ($P:ty) => {
        const _: () = {
            use $crate::part::prelude::*;
            use $crate::transform::rescale::{Rescale, RescaleState, SquaresOf, factor_in, of_leaf};

            type P = $P;
            type Of = <P as Rescale>::Of;

            impl TwoPasses for P {
                const PASSES: Passes = Passes::TWO.reads_params([Of::READS[1], false]).reads_updates(Of::READS[0]);
                type Memory = RescaleState;
                type Run = <P as Rescale>::Hyperparams;
                type Slots<C: Real> = [C; 0];
                type Sums<W: Real> = <Of as SquaresOf>::Sums<W>;
                /// The scales before squaring, and the factor.
                type Scalars<C: Real> = (<Of as SquaresOf>::Sums<C>, C);

                fn start(&self, at: &InitContext<'_>) -> Result<RescaleState> {
                    Ok(RescaleState::new(at.active(), Of::NORMS, P::BY_LEAF))
                }

                fn begin(&self, memory: &mut RescaleState, at: &StepContext<'_>) -> <P as Rescale>::Hyperparams {
                    let hyperparams = self.hyperparams(memory.count.get(), at.value());
                    memory.count.increment();
                    memory.scales.clear();
                    hyperparams
                }

                #[inline]
                fn scalars<C: Real>(
                    &self,
                    memory: &RescaleState,
                    _: &<P as Rescale>::Hyperparams,
                    leaf: usize,
                ) -> Self::Scalars<C> {
                    (Of::each(|i| C::of(memory.scale(i, leaf))), factor_in(memory.factors[leaf]))
                }

                #[inline(always)]
                fn accumulate<C: Real>(
                    (scales, _): Self::Scalars<C>,
                    _: &mut [C; 0],
                    u: C,
                    p: C,
                ) -> (C, Self::Sums<C::Wide>) {
                    (u, Of::squares(scales, u, p))
                }

                fn repeat_reductions(
                    &self,
                    memory: &mut RescaleState,
                    sums: Sums<'_>,
                    repeat_reductions: &mut dyn FnMut(usize),
                ) {
                    memory.rescale(sums, P::BY_LEAF, repeat_reductions);
                }

                fn decide(
                    &self,
                    memory: &mut RescaleState,
                    hyperparams: &mut <P as Rescale>::Hyperparams,
                    sums: Sums<'_>,
                ) {
                    if P::BY_LEAF {
                        for (leaf, factor) in memory.factors.iter_mut().enumerate() {
                            let squares = |i| of_leaf(&memory.scales, i, leaf, sums);
                            *factor = P::factor(*hyperparams, Of::all(squares), sums.leaf_len(leaf));
                        }
                    } else {
                        let len = (0..memory.factors.len()).map(|leaf| sums.leaf_len(leaf)).sum();
                        let factor = P::factor(*hyperparams, Of::all(|i| memory.total(i, sums)), len);
                        memory.factors.fill(factor);
                    }
                    memory.found(sums);
                }

                #[inline(always)]
                fn emit<C: Real>((_, factor): Self::Scalars<C>, _: &mut [C; 0], u: C, _: C) -> C {
                    u * factor
                }
            }
        };
    };
}
pub(super) use rescales;

/// The state of transformations that multiply each leaf by a factor:
/// [`clip_by_global_norm`](crate::clip_by_global_norm), [`clip_by_block_rms`](crate::transform::clip_by_block_rms),
/// [`scale_by_trust_ratio`](crate::transform::scale_by_trust_ratio),
/// [`scale_by_polyak`](crate::transform::scale_by_polyak).
///
/// Its [readings](crate::GradientTransformation::readings) are the norms found by the last step, of all leaves together
/// (`norm`) and of each (`norm[leaf]`), and the `factor`, per leaf if leaves have their own.
#[derive(Clone, Debug)]
pub struct RescaleState {
    /// Steps done.
    pub count: Count,
    /// Recomputed in each step, so not saved; kept to avoid allocation.
    pub(super) factors: Vec<f64>,
    norms: Vec<Norms>,
    /// Each sum's scale by leaf; empty if all are 1.
    pub(super) scales: Vec<[f64; 2]>,
    pub(super) by_leaf: bool,
}

#[derive(Clone, Debug)]
struct Norms {
    name: &'static str,
    total: f64,
    of_leaf: PerLeaf<Scalar>,
}

state_fields!(RescaleState { count } reads read);

impl RescaleState {
    pub(super) fn new(active: &[bool], norms: &[&'static str], by_leaf: bool) -> RescaleState {
        let none = PerLeaf::new(active, Scalar::new(f64::NAN));
        let norms = norms.iter().map(|name| Norms { name, total: f64::NAN, of_leaf: none.clone() }).collect();
        RescaleState { count: Count::default(), factors: vec![1.0; active.len()], norms, scales: Vec::new(), by_leaf }
    }

    pub(super) fn scale(&self, i: usize, leaf: usize) -> f64 {
        self.scales.get(leaf).map_or(1.0, |scales| scales[i])
    }

    /// Rescales leaves whose sum, or a common factor's total, is outside the range of `f64`.
    pub(super) fn rescale(&mut self, sums: Sums<'_>, by_leaf: bool, repeat_reductions: &mut dyn FnMut(usize)) {
        let RescaleState { norms, scales, factors, .. } = self;
        for (i, Norms { of_leaf, .. }) in norms.iter().enumerate() {
            let leaves =
                of_leaf.iter().map(|(leaf, _)| leaf).filter(|leaf| sums.is_double(*leaf) && !sums.rests(*leaf));
            for leaf in leaves {
                let sum = if by_leaf { sums.leaf(i, leaf) } else { sums.total(i) };
                if !is_safe(sum) && sums.leaf_len(leaf) > 0 {
                    scales.resize(factors.len(), [1.0; 2]);
                    scales[leaf][i] = if sum < 1.0 { 1.0 / SMALL } else { SMALL };
                    repeat_reductions(leaf);
                }
            }
        }
    }

    /// Returns the sum over all leaves; if one was scaled, scales the others alike.
    pub(super) fn total(&self, i: usize, sums: Sums<'_>) -> Squares {
        let Some(scale) = self.scales.iter().map(|scales| scales[i]).find(|scale| *scale != 1.0) else {
            return Squares { sum: sums.total(i), scale: 1.0 };
        };
        let of_leaf = |leaf| match self.scale(i, leaf) == scale {
            true => sums.leaf(i, leaf),
            false => sums.leaf(i, leaf) * scale * scale,
        };
        Squares { sum: (0..self.factors.len()).map(of_leaf).sum(), scale }
    }

    pub(super) fn found(&mut self, sums: Sums<'_>) {
        for i in 0..self.norms.len() {
            let of_all = if self.by_leaf { None } else { Some(self.total(i, sums).norm()) };
            let RescaleState { norms, scales, .. } = self;
            let Norms { total, of_leaf: norms, .. } = &mut norms[i];
            norms.iter_mut().for_each(|(leaf, norm)| norm.set(of_leaf(scales, i, leaf, sums).norm()));
            *total = match of_all {
                Some(norm) => norm,
                None if scales.is_empty() => sums.total(i).sqrt(),
                None => length(&mut || norms.iter().map(|(_, norm)| norm.get())),
            };
        }
    }

    fn read(&self, walk: &mut StateWalk<'_, '_>) {
        for Norms { name, total, of_leaf } in &self.norms {
            walk.reading(name, *total);
            walk.readings_by_leaf(name, of_leaf.iter().map(|(leaf, norm)| (leaf, norm.get())));
        }
        let Some(Norms { of_leaf, .. }) = self.norms.first() else { return };
        let mut factors = of_leaf.iter().map(|(leaf, _)| (leaf, self.factors[leaf]));
        match self.by_leaf {
            true => walk.readings_by_leaf("factor", factors),
            false => factors.next().into_iter().for_each(|(_, factor)| walk.reading("factor", factor)),
        }
    }

    /// Returns the factor of a leaf's updates in the last step that this state saw; 1 before the first.
    ///
    /// ```
    /// use gradchain::prelude::*;
    ///
    /// let optimizer = clip_by_global_norm(1.0);
    /// let mut params = vec![0.0_f32, 0.0];
    /// let mut state = optimizer.init(&params)?;
    /// optimizer.step(&mut params, &vec![0.0_f32, 4.0], &mut state)?;
    /// assert_eq!(state.factor(0), Some(0.25));
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn factor(&self, leaf: usize) -> Option<f64> {
        self.factors.get(leaf).copied()
    }
}

pub(super) fn of_leaf(scales: &[[f64; 2]], i: usize, leaf: usize, sums: Sums<'_>) -> Squares {
    Squares { sum: sums.leaf(i, leaf), scale: scales.get(leaf).map_or(1.0, |scales| scales[i]) }
}

/// Returns the factor that reduces `norm` to at most `most`: 0 for infinity, NaN for NaN.
pub(super) fn shrink(norm: f64, most: f64) -> f64 {
    if norm <= most { 1.0 } else { most / norm }
}

/// Returns the larger number; unlike `max` keeps NaN.
pub(super) fn at_least(norm: f64, least: f64) -> f64 {
    if norm <= least { least } else { norm }
}

/// Converts a factor. Saturates at the largest number, because infinity times zero is NaN.
#[inline]
pub(super) fn factor_in<C: Real>(factor: f64) -> C {
    let largest = C::max_value();
    if factor.is_finite() && factor > largest.as_f64() { largest } else { C::of(factor) }
}
