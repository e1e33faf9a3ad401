use crate::part::prelude::*;
use crate::recipe::{Recipe, ToRecipe};
use crate::select::Mask;

/// Applies a transformation to some leaves only; the updates of the others are unmodified.
///
/// After `masked(sgd(0.1), mask)` the updates of the other leaves are still their raw gradients, which `step` *adds* to
/// the parameters. That is right inside a chain with later members. To leave the other parameters unmodified, use
/// [`masked(..).freeze_others()`](Masked::freeze_others).
///
/// Only the selected leaves have state; the mask is resolved once, in `init`.
///
/// # Cost
///
/// None: it has no state of its own, and leaves are selected outside the loop over their elements.
///
/// # Errors
///
/// `init` fails if a pattern of the mask matches no leaf.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale;
/// use gradchain::tree::DynTree;
/// use ndarray::array;
///
/// let mut params = DynTree::new();
/// params.insert("w", array![1.0_f32]);
/// params.insert("b", array![1.0_f32]);
/// let grads = params.clone();
///
/// let decay = masked(add_decayed_weights(0.5), Mask::path("w"));
/// let optimizer = chain((decay, scale(-0.1)));
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &grads, &mut state)?;
/// assert_eq!(params.get::<f32>("w").unwrap()[0], 0.85);
/// assert_eq!(params.get::<f32>("b").unwrap()[0], 0.9);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`masked`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: a mask is a [`Mask`],
/// not distinguished by callability; freezing has a method of its own.
pub fn masked<T>(inner: T, mask: impl Into<Mask>) -> Masked<T> {
    Masked::with(inner, mask.into(), false)
}

wrapper! {
    /// See [`masked`].
    pub Masked<T> as "masked" around inner: Around {
        mask: Mask;
        freeze_others: @may bool;
    }
    recipe Self::data;
    arguments inside;
}

impl<T> Masked<T> {
    /// Gives the other leaves a zero update, so that their parameters stay bitwise identical.
    ///
    /// ```
    /// use gradchain::prelude::*;
    ///
    /// let optimizer = masked(sgd(0.5), Mask::path("1")).freeze_others();
    /// let mut params = (1.0_f32, 1.0_f32);
    /// let mut state = optimizer.init(&params)?;
    /// optimizer.step(&mut params, &(1.0_f32, 1.0_f32), &mut state)?;
    /// assert_eq!(params, (1.0, 0.5));
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn freeze_others(mut self) -> Self {
        self.freeze_others = true;
        self
    }
}

impl<T: Stage> Masked<T> {
    fn data(&self) -> Recipe {
        let mask = self.mask.to_recipe();
        let frozen = self.freeze_others.then_some(("freeze_others", Recipe::Bool(true)));
        Recipe::call("masked", [("inner", self.inner.recipe()), ("mask", mask)].into_iter().chain(frozen))
    }
}

/// The state of a [`masked`]: the inner state and the selected leaves.
pub type MaskedState<S> = WrapperState<(), S>;

impl<S> MaskedState<S> {
    /// Returns a flag for each leaf: true if it is selected.
    pub fn active(&self) -> &[bool] {
        self.chosen().unwrap_or_default()
    }
}

impl<T: Stage> Wrapper for Masked<T> {
    type Memory = ();
    const RUNS: Runs = Runs::ALWAYS.masked();

    fn mask(&self) -> Option<&Mask> {
        Some(&self.mask)
    }

    fn outside_mask(&self) -> OutsideMask {
        if self.freeze_others { OutsideMask::Zero } else { OutsideMask::Pass }
    }
}
