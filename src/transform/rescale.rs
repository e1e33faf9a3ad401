//! Multiplying each leaf by a number that follows from sums over elements: one barrier, nothing stored.

use crate::needs::Needs;
use crate::part::prelude::*;
use crate::state::StateWalk;

/// A part of two passes that only multiplies each leaf by a number, which follows from sums of squares.
pub trait Rescale: Part<Form = TwoPass> {
    /// What is squared.
    type Of: SquaresOf;
    /// Whether leaves have factors of their own.
    const BY_LEAF: bool;
    /// What a step must be given besides gradients.
    type Needs: Needs;
    /// The hyperparameters at one step.
    type Scalars: Copy + Send + Sync;

    /// The hyperparameters at a step count, and the value of the loss if there is one.
    fn scalars(&self, count: u64, value: Option<f64>) -> Self::Scalars;

    /// The factor that follows from the sums of squares over `len` elements: those of a leaf, or of all.
    fn factor(k: Self::Scalars, squares: <Self::Of as SquaresOf>::Sums<f64>, len: usize) -> f64;
}

/// Of what squares are added up.
pub trait SquaresOf {
    /// What the roots of the sums are called where they are read.
    const NORMS: &'static [&'static str];
    /// Whether updates are read, and parameters.
    const READS: [bool; 2];
    /// A number for each sum.
    type Sums<W: Real>: SlotArray<W>;

    /// What an element adds.
    fn squares<C: Real>(u: C, p: C) -> Self::Sums<C::Wide>;

    /// All sums, given each.
    fn all(sum: impl Fn(usize) -> f64) -> Self::Sums<f64>;
}

/// Squares of updates.
pub enum Updates {}

/// Squares of parameters.
pub enum Params {}

/// Squares of updates, and of parameters.
pub enum UpdatesAndParams {}

macro_rules! squares {
    ($Of:ty: $READS:expr, [$($NORM:literal = $x:ident),+], |$u:ident, $p:ident|) => {
        impl SquaresOf for $Of {
            const NORMS: &'static [&'static str] = &[$($NORM),+];
            const READS: [bool; 2] = $READS;
            type Sums<W: Real> = [W; [$($NORM),+].len()];
            #[inline(always)]
            fn squares<C: Real>($u: C, $p: C) -> Self::Sums<C::Wide> {
                [$($x.wide() * $x.wide()),+]
            }
            fn all(sum: impl Fn(usize) -> f64) -> Self::Sums<f64> {
                core::array::from_fn(sum)
            }
        }
    };
}
squares!(Updates: [true, false], ["norm" = u], |u, _p|);
squares!(Params: [false, true], ["param_norm" = p], |_u, p|);
squares!(UpdatesAndParams: [true, true], ["update_norm" = u, "param_norm" = p], |u, p|);

impl<P: Rescale> TwoPasses for P {
    const READS_PARAMS: [bool; 2] = [P::Of::READS[1], false];
    const READS_UPDATES: bool = P::Of::READS[0];
    type Needs = <P as Rescale>::Needs;
    type Memory = RescaleState;
    type Run = P::Scalars;
    type Slots<C: Real> = [C; 0];
    type Sums<W: Real> = <P::Of as SquaresOf>::Sums<W>;
    type First<C: Real> = ();
    type Second<C: Real> = C;

    fn start(&self, at: &InitContext<'_>) -> Result<RescaleState> {
        Ok(RescaleState::new(at.active(), P::Of::NORMS, P::BY_LEAF))
    }

    fn begin(&self, memory: &mut RescaleState, at: &StepContext<'_>) -> P::Scalars {
        let scalars = self.scalars(memory.count.get(), at.value());
        memory.count.increment();
        scalars
    }

    fn first<C: Real>(&self, _: &RescaleState, _: &P::Scalars, _: usize) {}

    #[inline(always)]
    fn take_in<C: Real>((): (), _: &mut [C; 0], u: C, p: C) -> (C, Self::Sums<C::Wide>) {
        (u, P::Of::squares(u, p))
    }

    fn decide(&self, memory: &mut RescaleState, scalars: &mut P::Scalars, sums: Sums<'_>) {
        if P::BY_LEAF {
            for (leaf, factor) in memory.factors.iter_mut().enumerate() {
                *factor = P::factor(*scalars, P::Of::all(|i| sums.leaf(i, leaf)), sums.leaf_len(leaf));
            }
        } else {
            let len = (0..memory.factors.len()).map(|leaf| sums.leaf_len(leaf)).sum();
            memory.factors.fill(P::factor(*scalars, P::Of::all(|i| sums.total(i)), len));
        }
        memory.found(sums);
    }

    #[inline]
    fn second<C: Real>(&self, memory: &RescaleState, _: &P::Scalars, leaf: usize) -> C {
        factor_in(memory.factors[leaf])
    }

    #[inline(always)]
    fn give_out<C: Real>(factor: C, _: &mut [C; 0], u: C, _: C) -> C {
        u * factor
    }

    fn factor<C: Real>(factor: C) -> Option<C> {
        Some(factor)
    }
}

/// The state of what multiplies each leaf by a number: [`clip_by_global_norm`](crate::clip_by_global_norm),
/// [`clip_by_block_rms`](crate::clip_by_block_rms), [`scale_by_trust_ratio`](crate::scale_by_trust_ratio),
/// [`scale_by_polyak`](crate::scale_by_polyak).
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
        RescaleState { count: Count::default(), factors: vec![1.0; active.len()], norms, by_leaf }
    }

    fn found(&mut self, sums: Sums<'_>) {
        for (i, Norms { total, of_leaf, .. }) in self.norms.iter_mut().enumerate() {
            *total = sums.total(i).sqrt();
            of_leaf.iter_mut().for_each(|(leaf, norm)| norm.set(sums.leaf(i, leaf).sqrt()));
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
