//! Multiplying each leaf by a number that follows from sums over elements: one barrier, nothing stored.

use crate::part::prelude::*;
use crate::state::StateWalk;
use crate::tree::{SMALL, is_safe, length};

/// A part of two passes that only multiplies each leaf by a number, which follows from sums of squares.
// As `TwoPasses`, for which the compiler can show this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has the form `TwoPass` and does not implement `TwoPasses`",
    note = "`impl TwoPasses for {Self}` says what the part does; `docs/own-two-pass.md` has an example"
)]
pub trait Rescale: Part {
    /// What is squared.
    type Of: SquaresOf;
    /// Whether leaves have factors of their own.
    const BY_LEAF: bool;
    /// The hyperparameters at one step.
    type Hyperparams: Copy + Send + Sync;

    /// The hyperparameters at a step count, and the value of the loss if there is one.
    fn hyperparams(&self, count: u64, value: Option<f64>) -> Self::Hyperparams;

    /// The factor that follows from the sums of squares over `len` elements: those of a leaf, or of all.
    fn factor(k: Self::Hyperparams, squares: <Self::Of as SquaresOf>::All, len: usize) -> f64;
}

/// A sum of squares of numbers that were multiplied by a power of two, so that none overflowed and not all vanished.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Squares {
    sum: f64,
    scale: f64,
}

impl Squares {
    /// The root of the sum.
    pub fn norm(self) -> f64 {
        self.sum.sqrt() / self.scale
    }

    /// The root of the mean over `len` numbers.
    pub fn rms(self, len: usize) -> f64 {
        (self.sum / len as f64).sqrt() / self.scale
    }

    /// The sum; infinite or zero where it is out of the range of `f64`.
    pub fn sum(self) -> f64 {
        self.sum / self.scale / self.scale
    }

    /// `x / (sum + eps)`, also where the sum is out of the range of `f64`.
    pub fn divide(self, x: f64, eps: f64) -> f64 {
        x / (self.sum + eps * self.scale * self.scale) * self.scale * self.scale
    }
}

/// Of what squares are added up.
pub trait SquaresOf {
    /// What the roots of the sums are called where they are read.
    const NORMS: &'static [&'static str];
    /// Whether updates are read, and parameters.
    const READS: [bool; 2];
    /// A number for each sum.
    type Sums<W: Real>: SlotArray<W> + Send + Sync;
    /// Each sum.
    type All;

    /// What an element adds, multiplied by a scale for each sum if it is `f64`.
    fn squares<C: Real>(scales: Self::Sums<C>, u: C, p: C) -> Self::Sums<C::Wide>;

    /// One number for each sum.
    fn each<W: Real>(number: impl Fn(usize) -> W) -> Self::Sums<W>;

    /// All sums, given each.
    fn all(sum: impl Fn(usize) -> Squares) -> Self::All;
}

/// The square of a number, which is multiplied by the scale before if that can matter: the squares of `f32` always lie
/// in the range of `f64`.
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

#[diagnostic::do_not_recommend]
impl<P: Rescale> TwoPasses for P {
    const PASSES: Passes = Passes::TWO.reads_params([P::Of::READS[1], false]).reads_updates(P::Of::READS[0]);
    type Memory = RescaleState;
    type Run = P::Hyperparams;
    type Slots<C: Real> = [C; 0];
    type Sums<W: Real> = <P::Of as SquaresOf>::Sums<W>;
    /// What elements are multiplied by before they are squared, and after the sums are known.
    type Scalars<C: Real> = (<P::Of as SquaresOf>::Sums<C>, C);

    fn start(&self, at: &InitContext<'_>) -> Result<RescaleState> {
        Ok(RescaleState::new(at.active(), P::Of::NORMS, P::BY_LEAF))
    }

    fn begin(&self, memory: &mut RescaleState, at: &StepContext<'_>) -> P::Hyperparams {
        let hyperparams = self.hyperparams(memory.count.get(), at.value());
        memory.count.increment();
        memory.scales.clear();
        hyperparams
    }

    #[inline]
    fn scalars<C: Real>(&self, memory: &RescaleState, _: &P::Hyperparams, leaf: usize) -> Self::Scalars<C> {
        (P::Of::each(|i| C::of(memory.scale(i, leaf))), factor_in(memory.factors[leaf]))
    }

    #[inline(always)]
    fn take_in<C: Real>((scales, _): Self::Scalars<C>, _: &mut [C; 0], u: C, p: C) -> (C, Self::Sums<C::Wide>) {
        (u, P::Of::squares(scales, u, p))
    }

    fn again(&self, memory: &mut RescaleState, sums: Sums<'_>, again: &mut dyn FnMut(usize)) {
        memory.rescale(sums, P::BY_LEAF, again);
    }

    fn decide(&self, memory: &mut RescaleState, hyperparams: &mut P::Hyperparams, sums: Sums<'_>) {
        if P::BY_LEAF {
            for (leaf, factor) in memory.factors.iter_mut().enumerate() {
                let squares = |i| of_leaf(&memory.scales, i, leaf, sums);
                *factor = P::factor(*hyperparams, P::Of::all(squares), sums.leaf_len(leaf));
            }
        } else {
            let len = (0..memory.factors.len()).map(|leaf| sums.leaf_len(leaf)).sum();
            let factor = P::factor(*hyperparams, P::Of::all(|i| memory.total(i, sums)), len);
            memory.factors.fill(factor);
        }
        memory.found(sums);
    }

    #[inline(always)]
    fn give_out<C: Real>((_, factor): Self::Scalars<C>, _: &mut [C; 0], u: C, _: C) -> C {
        u * factor
    }
}

/// The state of what multiplies each leaf by a number: [`clip_by_global_norm`](crate::clip_by_global_norm),
/// [`clip_by_block_rms`](crate::transform::clip_by_block_rms),
/// [`scale_by_trust_ratio`](crate::transform::scale_by_trust_ratio),
/// [`scale_by_polyak`](crate::transform::scale_by_polyak).
///
/// There is to [read](crate::GradientTransformation::readings) of it: the norms that the last step found, of all leaves
/// together and of each (`norm`, `norm[leaf]`), and the `factor`, of each leaf where leaves have their own.
#[derive(Clone, Debug)]
pub struct RescaleState {
    /// Steps done.
    pub count: Count,
    /// Worked out anew in each step, so no part of what is saved; kept so that a step need not allocate.
    pub(super) factors: Vec<f64>,
    /// The same, and kept to be read.
    norms: Vec<Norms>,
    /// What the elements of each leaf were multiplied by, for each sum; empty where all sums are of the elements.
    scales: Vec<[f64; 2]>,
    by_leaf: bool,
}

/// Roots of one sum.
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

    fn scale(&self, i: usize, leaf: usize) -> f64 {
        self.scales.get(leaf).map_or(1.0, |scales| scales[i])
    }

    /// Scales the leaves with a sum that is out of the range of `f64`, or all where it is the sum over all.
    fn rescale(&mut self, sums: Sums<'_>, by_leaf: bool, again: &mut dyn FnMut(usize)) {
        let RescaleState { norms, scales, factors, .. } = self;
        for (i, Norms { of_leaf, .. }) in norms.iter().enumerate() {
            let leaves =
                of_leaf.iter().map(|(leaf, _)| leaf).filter(|leaf| sums.is_double(*leaf) && !sums.rests(*leaf));
            for leaf in leaves {
                let sum = if by_leaf { sums.leaf(i, leaf) } else { sums.total(i) };
                if !is_safe(sum) && sums.leaf_len(leaf) > 0 {
                    scales.resize(factors.len(), [1.0; 2]);
                    scales[leaf][i] = if sum < 1.0 { 1.0 / SMALL } else { SMALL };
                    again(leaf);
                }
            }
        }
    }

    /// The sum over all leaves. Where it was out of range, what other leaves add is scaled as `f64` leaves were.
    fn total(&self, i: usize, sums: Sums<'_>) -> Squares {
        let Some(scale) = self.scales.iter().map(|scales| scales[i]).find(|scale| *scale != 1.0) else {
            return Squares { sum: sums.total(i), scale: 1.0 };
        };
        let of_leaf = |leaf| match self.scale(i, leaf) == scale {
            true => sums.leaf(i, leaf),
            false => sums.leaf(i, leaf) * scale * scale,
        };
        Squares { sum: (0..self.factors.len()).map(of_leaf).sum(), scale }
    }

    fn found(&mut self, sums: Sums<'_>) {
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

    /// What a leaf's updates were multiplied by in the last step that this state saw; 1 before the first.
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

/// The sum over one leaf.
fn of_leaf(scales: &[[f64; 2]], i: usize, leaf: usize, sums: Sums<'_>) -> Squares {
    Squares { sum: sums.leaf(i, leaf), scale: scales.get(leaf).map_or(1.0, |scales| scales[i]) }
}

/// What brings `norm` down to `most`: 1 where it is not larger, 0 where it is infinite, NaN where it is NaN.
pub(super) fn shrink(norm: f64, most: f64) -> f64 {
    if norm <= most { 1.0 } else { most / norm }
}

/// `norm`, or `least` if that is larger; NaN where `norm` is NaN, which `max` would drop.
pub(super) fn at_least(norm: f64, least: f64) -> f64 {
    if norm <= least { least } else { norm }
}

/// The factor in the compute type. One too large for it is its largest number: infinity would make NaN of zeros.
#[inline]
pub(super) fn factor_in<C: Real>(factor: f64) -> C {
    let largest = C::max_value();
    if factor.is_finite() && factor > largest.as_f64() { largest } else { C::of(factor) }
}
