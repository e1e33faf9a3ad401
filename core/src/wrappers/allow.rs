use crate::engine::{ChainState, OfChain, Summary, WarningKind};
use crate::part::prelude::*;

/// Allows some likely mistakes in a transformation: `init` does not refuse them, and `plan` does not warn of them.
///
/// It changes nothing else: the state is that of the transformation, under the same paths.
///
/// # Cost
///
/// None.
///
/// # Example
///
/// Ascending by a negative learning rate:
///
/// ```
/// use gradchain::WarningKind;
/// use gradchain::prelude::*;
/// use gradchain::wrapper::allow;
///
/// let error = sgd(-0.5).init(&1.0_f32).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "init: $.sgd: a learning rate of -0.5 ascends the gradient; \
///      if intended, use `wrapper::allow(optimizer, [WarningKind::NegativeRate])`",
/// );
///
/// let optimizer = allow(sgd(-0.5), [WarningKind::NegativeRate]);
/// let mut params = 1.0_f32;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &1.0_f32, &mut state)?;
/// assert_eq!(params, 1.5);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// None. Optax refuses nothing; PyTorch refuses negative rates and decays, and has `maximize=True` to ascend.
pub fn allow<T: Stage>(inner: T, kinds: impl IntoIterator<Item = WarningKind>) -> Allow<T> {
    Allow::with(inner, kinds.into_iter().collect())
}

wrapper! {
    /// See [`allow`].
    pub Allow<T> as "allow" around inner: Named<OfChain, Allowing> {
        kinds: Vec<WarningKind>;
    }
    arguments inside;
}

impl<T: Stage> Optimizer for Allow<T> {
    const HIDDEN: bool = true;
    type Chain = T;

    fn chain(&self) -> &T {
        &self.inner
    }
}

/// In [`Named`]: allows some mistakes.
pub enum Allowing {}

impl<T: Stage> ChainState<Allow<T>> for Allowing {
    type State = T::State;

    fn wrap(_: &Allow<T>, state: T::State) -> T::State {
        state
    }

    fn inner(state: &T::State) -> &T::State {
        state
    }

    fn inner_mut(state: &mut T::State) -> &mut T::State {
        state
    }

    fn allowed(part: &Allow<T>) -> &[WarningKind] {
        &part.kinds
    }

    fn summary(part: &Allow<T>, chain: Summary) -> Summary {
        Summary::Allowed { kinds: part.kinds.clone(), inner: Box::new(chain) }
    }
}
