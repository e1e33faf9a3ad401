use super::leaf_types::LeafTypes;
use crate::element::{DType, Rounding};
use crate::part::prelude::*;
use crate::tree::LeafSpec;

/// Keeps an `f32` master copy of 16-bit parameters, steps the copy, and rounds it to the leaves.
///
/// A `bf16` has 8 significant bits: an update of less than a five-hundredth of its parameter is lost in the addition.
/// In the master copy such updates accumulate. Leaves of other dtypes have no master copy and are stepped as usual.
///
/// # Arithmetic
///
/// For each element of a 16-bit leaf, with the inner update `u`, where the inner transformation sees `master` in place
/// of the parameter `p`:
///
/// ```text
/// master ← p               if the master, rounded, is not p
/// master ← master + u
/// p ← master, rounded to the dtype of the leaf
/// ```
///
/// **Parameters changed between steps**, by loading, clipping or projecting: the master follows the leaf, element by
/// element, where the leaf is not the rounded master. Other elements of the master keep all their bits.
///
/// The output is the update from `p` to the rounded master. Like every update it is rounded to the leaf's dtype, so
/// that [`update`](crate::GradientTransformation::update) and [`step`](crate::GradientTransformation::step) do the
/// same. If one step more than doubles or halves an element, or changes its sign, the sum may differ from the rounded
/// master by about 2⁻⁸ (`f16`: 2⁻¹¹) of the update; the master then follows the leaf in the next step. It also does so
/// if a later member of a chain changes the update: such a member belongs inside.
///
/// # Cost
///
/// An `f32` of state for each element of 16-bit leaves, read and written in the last pass of the inner transformation.
/// Fuses if the inner transformation does; reads parameters. An inner part that reinitializes its state, as
/// [`lookahead`] may, starts from the leaves.
///
/// # Errors
///
/// `init` fails if the inner `init` fails, or if not enough memory is available.
///
/// # Example
///
/// ```
/// # #[cfg(feature = "half")] {
/// use gradchain::prelude::*;
/// use gradchain::wrapper::master;
/// use half::bf16;
///
/// let gradient = vec![bf16::ONE];
/// let [mut plain, mut held] = [(); 2].map(|()| vec![bf16::ONE]);
/// let (sgd, master) = (sgd(1e-3), master(sgd(1e-3)));
/// let (mut of_plain, mut of_held) = (sgd.init(&plain)?, master.init(&held)?);
/// for _ in 0..100 {
///     sgd.step(&mut plain, &gradient, &mut of_plain)?;
///     master.step(&mut held, &gradient, &mut of_held)?;
/// }
/// assert_eq!(plain, [bf16::ONE]); // 1 − 0.001 is nearer to 1 than to 0.99609375, the next number
/// assert_eq!(held, [bf16::from_f32(0.9)]);
/// assert!((of_held.master().get::<f32>(0).unwrap()[0] - 0.9).abs() < 1e-5);
/// # }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Micikevicius and others, [Mixed precision training](https://arxiv.org/abs/1710.03740), 2017, section 3.1. PyTorch
/// leaves it to users of `torch.optim`; NVIDIA's Apex calls it `master_weights`. Differs: the master is part of the
/// state, saved and averaged with it, and follows a leaf that was changed; theirs overwrites the change.
///
/// [`lookahead`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.lookahead.html
pub fn master<T: Stage>(inner: T) -> Master<T> {
    Master::with(inner)
}

wrapper! {
    /// See [`master`].
    pub Master<T> as "master" around inner: AroundWithArithmetic {}
}

/// The state of a [`master`].
pub type MasterState<S> = WrapperState<LeafTypes, S>;

impl<S: State> MasterState<S> {
    /// Returns the `f32` parameters of 16-bit leaves.
    pub fn master(&self) -> &Moments {
        self.slot(0)
    }
}

impl<T: Stage> Wrapper for Master<T> {
    type Memory = LeafTypes;
    const RUNS: Runs = Runs::ALWAYS;

    fn start(&self, memory: &mut LeafTypes, at: &InitContext<'_>) -> Result<()> {
        *memory = LeafTypes::of(at);
        Ok(())
    }
}

impl<T: Stage> Arithmetic for Master<T> {
    const SLOTS: &'static [Slot] = &[Slot::exact("master").starts_as_params()];
    const ELEMENTS: Elements = Elements::NONE
        .before(false)
        .after(true)
        .keeps_zeros()
        .reads_params()
        .typed()
        .rows()
        .params_slot(0)
        .some_leaves();
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = Rounding;

    fn has_slots(&self, leaf: &LeafSpec) -> bool {
        leaf.dtype() != leaf.dtype().compute()
    }

    fn scalars<C: Real>(&self, memory: &LeafTypes, leaf: usize) -> Rounding {
        memory.rounding(leaf)
    }

    #[inline(always)]
    fn typed<C: Real>(to: Rounding, dtype: DType) -> Rounding {
        to.known(dtype)
    }

    #[inline(always)]
    fn before<C: Real>(to: Rounding, [master]: &mut [C; 1], u: C, p: C) -> C {
        *master = if master.rounded(to) == p { *master } else { p };
        u
    }

    #[inline(always)]
    fn after<C: Real>(to: Rounding, [master]: &mut [C; 1], u: C, p: C) -> C {
        *master += u;
        let there = master.rounded(to);
        // The difference of two equal infinities is NaN.
        if there == p { C::zero() } else { there - p }
    }
}
