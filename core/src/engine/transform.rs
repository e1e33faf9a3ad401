//! The type-erased protocol of a transformation.

use core::fmt;

use super::{Absent, HoldsBack, PassStructure, Skips, Summary};
use crate::arguments::Visit;
use crate::error::{Error, Result};
use crate::needs::Level;
use crate::recipe::Recipe;

/// A transformation without its types.
///
/// The default methods describe a chain of the [`members`](Transform::members).
pub trait Transform: fmt::Debug + Send + Sync + 'static {
    /// Calls `visit` with each member, in order.
    fn members(&self, visit: &mut dyn FnMut(&dyn Transform));

    /// Returns barriers and reductions.
    fn shape(&self) -> PassStructure {
        let mut shape = PassStructure::EMPTY;
        self.members(&mut |member| shape = shape.then(member.shape()));
        shape
    }

    /// Returns the inputs besides gradients, perhaps fewer than the type declares.
    fn needs(&self) -> Level {
        let mut needs = Level::Nothing;
        self.members(&mut |member| needs = needs.max(member.needs()));
        needs
    }

    /// Returns the treatment of leaves without a gradient.
    fn absent(&self) -> Absent {
        let mut absent = Absent::Rests;
        self.members(&mut |member| absent = absent.max(member.absent()));
        absent
    }

    /// Returns true if state covers a window of steps, of which a resting leaf would see a part.
    fn has_windows(&self) -> bool {
        let mut has_windows = false;
        self.members(&mut |member| has_windows |= member.has_windows());
        has_windows
    }

    /// Returns whether a step may emit [`Partly`](super::Emission::Partly) or [`Nothing`](super::Emission::Nothing).
    fn holds_back(&self) -> HoldsBack {
        let mut holds_back = HoldsBack::Never;
        self.members(&mut |member| holds_back = holds_back.max(member.holds_back()));
        holds_back
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
        Error::all(of_members(&|visit| self.members(visit), Transform::validate))
    }

    /// Visits the arguments, without those of members.
    fn own_arguments(&mut self, visit: &mut Visit<'_>) {
        let _ = visit;
    }

    /// Returns the structure of the transformation, with the effect of each part on updates.
    fn summary(&self) -> Summary {
        Summary::Chain(of_members(&|visit| self.members(visit), Transform::summary))
    }

    /// Returns the construction of the transformation as data.
    fn recipe(&self) -> Recipe {
        chain_recipe(of_members(&|visit| self.members(visit), Transform::recipe))
    }

    /// Describes the transformation in one line, for messages and [`Plan`](super::Plan).
    fn describe(&self) -> String {
        chain_description(of_members(&|visit| self.members(visit), Transform::describe))
    }
}

/// Calls a function with each member.
type ForEachMember<'a> = &'a dyn Fn(&mut dyn FnMut(&dyn Transform));

/// Returns `get` of each member. It is compiled once for all transformations, as the next two functions are.
fn of_members<T>(members: ForEachMember<'_>, get: fn(&dyn Transform) -> T) -> Vec<T> {
    let mut all = Vec::new();
    members(&mut |member| all.push(get(member)));
    all
}

fn chain_recipe(members: Vec<Recipe>) -> Recipe {
    Recipe::Map(vec![("chain".into(), Recipe::List(members))])
}

fn chain_description(mut members: Vec<String>) -> String {
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
