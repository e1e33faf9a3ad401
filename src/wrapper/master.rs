use crate::element::{DType, Rounding};
use crate::part::prelude::*;
use crate::transform::LeafTypes;
use crate::tree::LeafSpec;

/// Holds 16-bit parameters in `f32`, steps these with what is inside, and gives the leaves what they are rounded to.
///
/// A `bf16` has 8 significant bits: an update of less than a five-hundredth of its parameter is lost when it is added.
/// In the master copy such updates add up. Leaves of other types have no master copy: what is inside steps them as
/// ever.
///
/// # Arithmetic
///
/// For each element of a 16-bit leaf, with the update `u` of what is inside, which sees `master` in the place of the
/// parameter `p`:
///
/// ```text
/// master ← p               where the master, rounded, is not p
/// master ← master + u
/// p ← master, rounded to the type of the leaf
/// ```
///
/// **Parameters that are changed from outside**, loaded, clipped or projected between steps: the master follows the
/// leaf, element by element, wherever the leaf is not what the master is rounded to. The master of the other elements
/// keeps all its bits.
///
/// What goes out is the update that leads from `p` to the rounded master, and like every update it is rounded to the
/// type of the leaf, so that [`update`](crate::GradientTransformation::update) and
/// [`step`](crate::GradientTransformation::step) do the same. Where one step more than doubles or halves an element, or
/// changes its sign, adding that may end beside the rounded master, by about 2⁻⁸ (`f16`: 2⁻¹¹) of the update; then the
/// master follows the leaf in the next step. So it does if something behind this in a chain changes the update: that
/// belongs inside.
///
/// # Cost
///
/// An `f32` of state for each element of 16-bit leaves, read and written in the pass in which what is inside ends.
/// Fuses if what is inside does; reads parameters. What starts its state anew inside, as
/// [`lookahead`](crate::lookahead()) may, starts with the leaves.
///
/// # Errors
///
/// `init` fails if what is inside refuses, or there is not enough memory.
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
/// has it in `torch.optim` by hand, and NVIDIA's Apex as `master_weights`. Differs: the master is part of the state,
/// saved and averaged with it, and follows a leaf that was changed; theirs overwrites the change.
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
    /// The `f32` parameters, of leaves of 16 bits.
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
    const ELEMENTS: Elements =
        Elements::NONE.before(false).after(true).keeps_zeros().reads_params().typed().rows().point(0).some_leaves();
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
        // The difference of two infinities is no number.
        if there == p { C::zero() } else { there - p }
    }
}
