use crate::engine::{ChainState, Named, OfChain, Optimizer, Part, Stage, Summary};
use crate::error::{Error, Result};
use crate::recipe::Recipe;
use crate::state::{State, StateWalk, StateWalkMut};

/// Applies transformations one after the other.
///
/// The first gets the gradients, and each later one the output of the one before. A chain is the tuple of its members,
/// at most twelve. Chains nest, so a chain may be longer, with up to 31 members that need a reduction over the whole
/// tree (barriers). A chain fuses: intermediate updates stay in registers. If the length is known only at run time, use
/// a `Vec` of [`Boxed`] members. The empty chain `()` changes nothing.
///
/// # Cost
///
/// One pass over memory, and an additional one for each barrier; [`plan`] shows the passes.
///
/// # Errors
///
/// `init` fails if the chain has more than 31 barriers. [`flatten`] and
/// [`sam`] in opaque mode run their inner transformation in passes of its own, which count as
/// one.
///
/// [`plan`]: crate::GradientTransformation::plan
///
/// # Example
///
/// The order matters: clipping before or after scaling by 10.
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale;
///
/// let (mut a, mut b) = (0.0_f32, 0.0_f32);
/// let first = chain((clip(1.0), scale(10.0)));
/// let last = chain((scale(10.0), clip(1.0)));
/// let (mut of_first, mut of_last) = (first.init(&a)?, last.init(&b)?);
/// first.step(&mut a, &3.0_f32, &mut of_first)?;
/// last.step(&mut b, &3.0_f32, &mut of_last)?;
/// assert_eq!((a, b), (10.0, 1.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`chain`](https://optax.readthedocs.io/en/latest/api/combining_optimizers.html). Differs: none in arithmetic.
///
/// [`Boxed`]: https://docs.rs/gradchain/latest/gradchain/wrapper/type.Boxed.html
/// [`flatten`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.flatten.html
/// [`sam`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.sam.html
// The compiler shows this line where `chain(a, b)` is called.
pub fn chain<T: Stage>(tuple_or_vec: /* `chain((a, b))` */ T) -> T {
    tuple_or_vec
}

/// Applies transformations one after the other, by names that the state's schema, messages and readings use.
///
/// # Errors
///
/// `init` fails if a name is used twice.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = named_chain(["clip", "descend"], (clip_by_global_norm(1.0), sgd(0.1)));
/// let state = optimizer.init(&1.0_f32)?;
/// assert_eq!(state.schema().entries[0].field, "clip.count");
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`named_chain`](https://optax.readthedocs.io/en/latest/api/combining_optimizers.html). Differs: names and
/// members are given side by side, and members' states are still reached by number.
pub fn named_chain<T: Stage + Members<N>, const N: usize>(names: [&str; N], members: T) -> NamedChain<T> {
    NamedChain { names: names.map(String::from).to_vec(), members }
}

/// A chain of `N` members.
pub trait Members<const N: usize> {}

macro_rules! members {
    ($($T:ident $i:tt),*) => {
        impl<$($T),*> Members<{ <[&str]>::len(&[$(stringify!($T)),*]) }> for ($($T,)*) {}
    };
}
crate::tuples::up_to_twelve!(members);

/// See [`named_chain`].
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct NamedChain<T> {
    names: Vec<String>,
    members: T,
}

/// A chain whose length is known at run time.
impl<N> FromIterator<(String, super::Boxed<N>)> for NamedChain<Vec<super::Boxed<N>>> {
    fn from_iter<I: IntoIterator<Item = (String, super::Boxed<N>)>>(members: I) -> Self {
        let (names, members) = members.into_iter().unzip();
        NamedChain { names, members }
    }
}

/// The states of a [`named_chain`]'s members. It dereferences to their tuple, whose members have names.
#[derive(Clone, Debug)]
pub struct NamedState<S> {
    names: Vec<String>,
    members: S,
}

impl<S> core::ops::Deref for NamedState<S> {
    type Target = S;
    fn deref(&self) -> &S {
        &self.members
    }
}

impl<S> core::ops::DerefMut for NamedState<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.members
    }
}

impl<S: State> State for NamedState<S> {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.renamed(&self.names, &mut |walk| self.members.walk(walk));
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        let NamedState { names, members } = self;
        walk.renamed(names, |walk| members.walk_mut(walk));
    }
}

/// In [`Named`]: the state has the members' names.
pub enum WithNames {}

impl<T: Stage> ChainState<NamedChain<T>> for WithNames {
    type State = NamedState<T::State>;

    fn wrap(part: &NamedChain<T>, members: T::State) -> NamedState<T::State> {
        NamedState { names: part.names.clone(), members }
    }

    fn inner(state: &NamedState<T::State>) -> &T::State {
        &state.members
    }

    fn inner_mut(state: &mut NamedState<T::State>) -> &mut T::State {
        &mut state.members
    }

    fn names(state: &NamedState<T::State>) -> &[String] {
        &state.names
    }

    fn summary(_: &NamedChain<T>, chain: Summary) -> Summary {
        match chain {
            Summary::Chain(members) => Summary::NamedChain(members),
            other => other,
        }
    }
}

impl<T: Stage> Part for NamedChain<T> {
    const NAME: &'static str = "named_chain";
    type Form = Named<OfChain, WithNames>;

    fn validate(&self) -> Result<()> {
        match self.names.iter().enumerate().find(|(i, name)| self.names[..*i].contains(name)) {
            Some((i, name)) => {
                Err(Error::argument(Self::NAME, "names", "all different", format!("`{name}` again at {i}")))
            }
            None => Ok(()),
        }
    }

    fn changed_argument(&self, original: &Self) -> Option<&'static str> {
        (self.names != original.names).then_some("names")
    }

    fn recipe(&self) -> Recipe {
        let members = self.members.recipe();
        let named = self.names.iter().zip(members.get("chain").map_or(&[][..], Recipe::items));
        let pairs = named.map(|(name, member)| Recipe::List(vec![Recipe::text(name), member.clone()]));
        Recipe::Map(vec![(Self::NAME.into(), Recipe::List(pairs.collect()))])
    }

    fn describe(&self) -> String {
        format!("named_{}", self.members.describe())
    }
}

impl<T: Stage> Optimizer for NamedChain<T> {
    type Chain = T;

    fn chain(&self) -> &T {
        &self.members
    }
}
