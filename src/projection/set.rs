use core::hash::{Hash, Hasher};
use std::hash::DefaultHasher;

use super::operand::{Operand, TreeValues, Values};
use super::vector::{TreeVector, Vector};
use crate::GradientTransformation;
use crate::arguments::{Argument, Visit};
use crate::internal::state::{ROW_MAJOR_CHUNK, leaves_mut, rewrite};
use crate::part::prelude::*;
use crate::recipe::Fixed;
use crate::tree::{LeafSpec, Structure, TreeMut};

/// A set to project onto.
///
/// Sealed: for a custom set write the projection as a [`Rule`](crate::part::Rule) or a
/// [`WholeTreeTransformation`](crate::part::WholeTreeTransformation).
pub trait Projection: Set {
    /// The transformation that [`project`](crate::transform::project) returns.
    type Stage: GradientTransformation<Needs = crate::needs::Nothing> + Clone + 'static;

    /// Projects a tree onto the set. Schedules are evaluated at count 0.
    ///
    /// # Errors
    ///
    /// Fails, with nothing changed, if an argument is out of its range, or a tree among the arguments does not fit.
    fn project<T: TreeMut + ?Sized>(&self, tree: &mut T) -> Result<()>;

    /// Converts to the transformation that [`project`](crate::transform::project) returns.
    fn into_stage(self) -> Self::Stage;
}

/// The common part of all sets.
pub trait Set: Clone + core::fmt::Debug + Send + Sync + 'static {
    /// Name of the function in messages and configs.
    const NAME: &'static str;

    fn check(&self) -> Result<()>;

    fn arguments(&mut self, show: &mut Show<'_>);
}

/// A set that holds each element between two bounds.
pub trait ElementSet: Set {
    /// Returns the numeric bounds at a step count.
    fn numbers(&self, count: u64) -> [f64; 2];

    /// Returns the tree bounds, by name.
    fn trees(&self) -> [Option<(&'static str, &TreeValues)>; 2] {
        [None, None]
    }
}

/// A set for which the whole tree is one vector.
pub trait TreeSet: Set {
    /// Returns the vector of the set, if it has one.
    fn along(&self) -> Option<(&'static str, &Operand)> {
        None
    }

    /// Moves a non-empty vector to the nearest point.
    fn move_to(&self, count: u64, x: &mut dyn Vector);
}

pub(super) type Show<'a> = dyn FnMut(&'static str, Described<'_>) + 'a;

/// An argument of a set.
pub enum Described<'a> {
    /// A number or a schedule.
    By(&'a mut Hyperparam),
    /// A number, a schedule, or a tree.
    Over(&'a mut Operand),
}

impl<'a> From<&'a mut Hyperparam> for Described<'a> {
    fn from(number: &'a mut Hyperparam) -> Described<'a> {
        Described::By(number)
    }
}

impl<'a> From<&'a mut Operand> for Described<'a> {
    fn from(operand: &'a mut Operand) -> Described<'a> {
        Described::Over(operand)
    }
}

pub(super) fn check_direction<S: TreeSet>(set: &S) -> Result<()> {
    match set.along() {
        Some((name, a)) if a.fixed() == Some(0.0) => Err(Error::argument(S::NAME, name, "not zero everywhere", 0)),
        _ => Ok(()),
    }
}

/// Visits the arguments except trees, for injection.
pub(super) fn injected<S: Set>(set: &mut S, visit: &mut Visit<'_>) {
    visit("projection", Argument::Static(&mut Fixed(S::NAME)));
    set.arguments(&mut |name, argument| match argument {
        Described::By(number) | Described::Over(Operand::Number(number)) => visit(name, Argument::Hyperparam(number)),
        Described::Over(tree) => visit(name, Argument::Static(tree)),
    });
}

/// Visits the arguments for configs.
pub(super) fn own<S: Set>(set: &mut S, visit: &mut Visit<'_>) {
    visit("projection", Argument::Static(&mut Fixed(S::NAME)));
    set.arguments(&mut |name, argument| match argument {
        Described::By(number) => visit(name, Argument::Hyperparam(number)),
        Described::Over(operand) => visit(name, Argument::Static(operand)),
    });
}

pub(super) fn check_sum<H: Hash>(arguments: &H) -> u64 {
    let mut hasher = DefaultHasher::new();
    arguments.hash(&mut hasher);
    hasher.finish()
}

/// The tree bounds of an active leaf.
pub(super) type LeafBounds = [Option<Values>; 2];

/// Checks trees; returns each leaf's bounds, ordered by `order`.
pub(super) fn bounds<S: ElementSet>(
    set: &S,
    structure: &Structure,
    active: &[bool],
    order: fn(&TreeValues, &LeafSpec) -> Values,
) -> Result<Vec<LeafBounds>> {
    bounds_between(S::NAME, (set.trees(), set.numbers(0)), structure, active, order)
}

type Named<'a> = (&'static str, &'a TreeValues);

/// Not generic over sets, so that it compiles once, as `values_along`.
fn bounds_between(
    set: &'static str,
    (trees, numbers): ([Option<Named<'_>>; 2], [f64; 2]),
    structure: &Structure,
    active: &[bool],
    order: fn(&TreeValues, &LeafSpec) -> Values,
) -> Result<Vec<LeafBounds>> {
    for (name, tree) in trees.into_iter().flatten() {
        tree.fit(set, name, structure, active)?;
    }
    let each = |(leaf, on): (&LeafSpec, &bool)| {
        let of = |tree: Option<(_, &TreeValues)>| tree.filter(|_| *on).map(|(_, tree)| order(tree, leaf));
        let found = trees.map(of);
        if found.iter().all(Option::is_none) {
            return Ok(found);
        }
        let [lower, upper] = sides(found.clone(), numbers);
        match (0..leaf.len()).map(|i| (lower.at(i), upper.at(i))).find(|(lower, upper)| lower > upper) {
            Some((lower, upper)) => Err(crossing(set, leaf.path(), lower, upper)),
            None => Ok(found),
        }
    };
    structure.leaves().iter().zip(active).map(each).collect()
}

fn crossing(function: &str, path: &str, lower: f64, upper: f64) -> Error {
    let found = format!("{upper} with a lower bound of {lower} in `{path}`");
    Error::argument(function, "upper", "nowhere less than the lower bound", found)
}

/// Clamps `x`; unlike `clamp` never panics, unlike `min` and `max` keeps NaN.
pub(super) fn between(x: f64, lower: f64, upper: f64) -> f64 {
    if x > upper {
        upper
    } else if x < lower {
        lower
    } else {
        x
    }
}

pub(super) fn project_elements<S: ElementSet, T: TreeMut + ?Sized>(set: &S, tree: &mut T) -> Result<()> {
    set.check()?;
    let structure = Structure::of(tree)?;
    let bounds = bounds(set, &structure, &vec![true; structure.len()], TreeValues::row_major)?;
    let numbers = set.numbers(0);
    for (leaf, bounds) in leaves_mut(tree).iter_mut().zip(bounds) {
        let [lower, upper] = sides(bounds, numbers);
        rewrite(leaf, |start, x| {
            let mut rooms = [[0.0; ROW_MAJOR_CHUNK]; 2];
            let [low, high] = &mut rooms;
            let (low, high) =
                (lower.row_major(start, &mut low[..x.len()]), upper.row_major(start, &mut high[..x.len()]));
            x.iter_mut().zip(low.iter().zip(high)).for_each(|(x, (low, high))| *x = between(*x, *low, *high));
        });
    }
    Ok(())
}

pub(super) fn sides([lower, upper]: LeafBounds, numbers: [f64; 2]) -> [Values; 2] {
    [lower.unwrap_or(Values::One(numbers[0])), upper.unwrap_or(Values::One(numbers[1]))]
}

pub(super) fn project_tree<S: TreeSet, T: TreeMut + ?Sized>(set: &S, tree: &mut T) -> Result<()> {
    set.check()?;
    let structure = Structure::of(tree)?;
    let vector_values = vector_values(set, &structure, &vec![true; structure.len()], TreeValues::row_major)?;
    let x = &mut TreeVector { leaves: &mut leaves_mut(tree), vector_values: &vector_values };
    if x.elements() > 0 {
        set.move_to(0, x);
    }
    Ok(())
}

/// Returns the values of the set's vector per leaf; none without a vector.
pub(super) fn vector_values<S: TreeSet>(
    set: &S,
    structure: &Structure,
    active: &[bool],
    order: fn(&TreeValues, &LeafSpec) -> Values,
) -> Result<Vec<Values>> {
    match set.along() {
        Some(along) => values_along(S::NAME, along, structure, active, order),
        None => Ok(Vec::new()),
    }
}

fn values_along(
    set: &'static str,
    (name, operand): (&'static str, &Operand),
    structure: &Structure,
    active: &[bool],
    order: fn(&TreeValues, &LeafSpec) -> Values,
) -> Result<Vec<Values>> {
    let leaves = || structure.leaves().iter().zip(active);
    let Some(tree) = operand.tree() else {
        let number = operand.number(0).unwrap_or_default();
        return Ok(leaves().map(|_| Values::One(number)).collect());
    };
    tree.fit(set, name, structure, active)?;
    let of = |(leaf, on): (&LeafSpec, &bool)| if *on { order(tree, leaf) } else { Values::One(0.0) };
    let values: Vec<Values> = leaves().map(of).collect();
    let some = leaves().zip(&values).any(|((leaf, _), values)| (0..leaf.len()).any(|i| values.at(i) != 0.0));
    let empty = leaves().all(|(leaf, on)| !*on || leaf.len() == 0);
    if some || empty { Ok(values) } else { Err(Error::argument(set, name, "not zero everywhere", "zeros")) }
}

/// Declares a set: struct, range checks, visitor of arguments, and the projection, over `elements` or over the `tree`
/// as one vector. `check` names a function for further conditions.
macro_rules! projection {
    (
        $(#[$meta:meta])*
        $T:ident as $name:literal over $what:ident {
            $($(#[$doc:meta])* $a:ident: $A:ident in $range:ident;)*
        }
        $(check $check:path;)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        #[must_use = "a set does nothing until something is projected on it"]
        #[non_exhaustive]
        pub struct $T {
            $(
                $(#[$doc])*
                #[doc = concat!("\n\nRange: [`", stringify!($range), "`](crate::range::", stringify!($range), ").")]
                pub $a: $A,
            )*
        }

        impl $T {
            pub(super) fn with($($a: impl Into<$A>),*) -> $T {
                $T { $($a: $a.into()),* }
            }
        }

        impl $crate::projection::set::Set for $T {
            const NAME: &'static str = $name;

            fn check(&self) -> $crate::Result<()> {
                $crate::Error::all([
                    $($crate::arguments::CheckRange::check_range(
                        &self.$a,
                        $name,
                        stringify!($a),
                        $crate::range::$range,
                    ),)*
                ])?;
                $($check(self)?;)?
                Ok(())
            }

            fn arguments(&mut self, _show: &mut $crate::projection::set::Show<'_>) {
                $(_show(stringify!($a), (&mut self.$a).into());)*
            }
        }

        projection!(@over $what $T);
    };
    (@over elements $T:ident) => {
        projection!(@by $T, $crate::projection::ProjectElements<$T>, $crate::projection::set::project_elements);
    };
    (@over tree $T:ident) => {
        projection!(@by $T, $crate::projection::ProjectTree<$T>, $crate::projection::set::project_tree);
    };
    (@by $T:ty, $Stage:ty, $project:path) => {
        impl $crate::projection::Projection for $T {
            type Stage = $Stage;

            fn project<T: $crate::TreeMut + ?Sized>(&self, tree: &mut T) -> $crate::Result<()> {
                $project(self, tree)
            }

            fn into_stage(self) -> $Stage {
                <$Stage>::new(self)
            }
        }
    };
}
pub(super) use projection;
