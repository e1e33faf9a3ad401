//! The type-erased protocol of a transformation.

use super::{Absent, HoldsBack, PassStructure, Skips, Summary};
use crate::arguments::Visit;
use crate::error::{Error, Result};
use crate::needs::Level;
use crate::recipe::Recipe;

/// A transformation without its types.
///
/// The default methods describe a chain of the [`members`](Transform::members).
pub trait Transform: Send + Sync + 'static {
    /// Returns itself. The default methods use it, so that each is compiled once for all types.
    fn as_dyn(&self) -> &dyn Transform;

    /// Calls `visit` with each member, in order.
    fn members(&self, visit: &mut dyn FnMut(&dyn Transform));

    /// Returns barriers and reductions.
    fn shape(&self) -> PassStructure {
        shape_of_members(self.as_dyn())
    }

    /// Returns the inputs besides gradients, perhaps fewer than the type declares.
    fn needs(&self) -> Level {
        greatest(self.as_dyn(), Level::Nothing, Transform::needs)
    }

    /// Returns the treatment of leaves without a gradient.
    fn absent(&self) -> Absent {
        greatest(self.as_dyn(), Absent::Rests, Transform::absent)
    }

    /// Returns true if state covers a window of steps, of which a resting leaf would see a part.
    fn has_windows(&self) -> bool {
        greatest(self.as_dyn(), false, Transform::has_windows)
    }

    /// Returns whether a step may emit [`Partly`](super::Emission::Partly) or [`Nothing`](super::Emission::Nothing).
    fn holds_back(&self) -> HoldsBack {
        greatest(self.as_dyn(), HoldsBack::Never, Transform::holds_back)
    }

    /// Adds the places where [`skip_absent`](crate::wrapper::skip_absent) lets leaves lack gradients; returns false if
    /// none exists. `place` is this transformation's path.
    fn skips(&self, skips: &mut Skips, place: &str) -> bool;

    /// Checks the arguments.
    ///
    /// # Errors
    ///
    /// If one is out of its range.
    fn validate(&self) -> Result<()> {
        validate_members(self.as_dyn())
    }

    /// Visits the arguments, without those of members.
    fn own_arguments(&mut self, visit: &mut Visit<'_>) {
        let _ = visit;
    }

    /// Returns the structure of the transformation, with the effect of each part on updates.
    fn summary(&self) -> Summary {
        chain_summary(self.as_dyn())
    }

    /// Returns the construction of the transformation as data.
    fn recipe(&self) -> Recipe {
        chain_recipe(self.as_dyn())
    }

    /// Describes the transformation in one line, for messages and [`Plan`](super::Plan).
    fn describe(&self) -> String {
        chain_description(self.as_dyn())
    }
}

/// Returns `get` of each member.
fn of_members<T>(of: &dyn Transform, get: fn(&dyn Transform) -> T) -> Vec<T> {
    let mut all = Vec::new();
    of.members(&mut |member| all.push(get(member)));
    all
}

/// Returns the greatest value of the members, at least `least`. Not inlined: shared by all chains.
#[inline(never)]
fn greatest<T: Ord + Copy>(of: &dyn Transform, least: T, get: fn(&dyn Transform) -> T) -> T {
    let mut greatest = least;
    of.members(&mut |member| greatest = greatest.max(get(member)));
    greatest
}

fn shape_of_members(of: &dyn Transform) -> PassStructure {
    let mut shape = PassStructure::EMPTY;
    of.members(&mut |member| shape = shape.then(member.shape()));
    shape
}

fn validate_members(of: &dyn Transform) -> Result<()> {
    Error::all(of_members(of, Transform::validate))
}

fn chain_summary(of: &dyn Transform) -> Summary {
    Summary::Chain(of_members(of, Transform::summary))
}

fn chain_recipe(of: &dyn Transform) -> Recipe {
    Recipe::Map(vec![("chain".into(), Recipe::List(of_members(of, Transform::recipe)))])
}

fn chain_description(of: &dyn Transform) -> String {
    let mut members = of_members(of, Transform::describe);
    members.retain(|member| *member != EMPTY);
    format!("chain({})", members.join(", "))
}

/// The description of a chain without members. Outer chains omit it; `sgd` without momentum has one.
const EMPTY: &str = "chain()";

/// Runs [`Transform::skips`] for each member, at path `place(i)`.
pub(crate) fn members_skip(of: &dyn Transform, skips: &mut Skips, place: &dyn Fn(usize) -> String) -> bool {
    let (mut i, mut all) = (0, true);
    of.members(&mut |member| {
        all &= member.skips(skips, &place(i));
        i += 1;
    });
    all
}

/// Returns the shape of a transformation.
///
/// # Errors
///
/// If it has more barriers than a mask has bits.
pub(super) fn checked_shape(transformation: &dyn Transform) -> Result<PassStructure> {
    let shape = transformation.shape();
    if shape.barriers <= PassStructure::MAX_BARRIERS {
        return Ok(shape);
    }
    let expected = format!(
        "of at most {} barriers (split it: the updates of its first part are the gradients of the second)",
        PassStructure::MAX_BARRIERS
    );
    let found = format!("{} in {}", shape.barriers, transformation.describe());
    Err(Error::argument("init", "transformation", &expected, found))
}

/// Runs [`Transform::skips`] for one that `skip_absent` can only wrap whole.
pub(crate) fn allows_absent(stage: &dyn Transform, skips: &mut Skips, place: &str) -> bool {
    let skips_already = stage.absent() != Absent::Refused;
    let fits = !stage.shape().joins && !stage.has_windows();
    if !skips_already && fits {
        skips.add(place, stage.describe());
    }
    skips_already || fits
}

pub(crate) fn advice(transformation: &dyn Transform) -> String {
    let mut skips = Skips::default();
    if transformation.skips(&mut skips, "$") { skips.advice() } else { super::table::ZEROS.into() }
}
