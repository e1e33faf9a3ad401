//! The host protocol: what the engine asks of a transformation once per step, whatever its types.

use core::fmt;

use super::{Absent, HoldsBack, Outline, Shape, Skips};
use crate::arguments::Visit;
use crate::error::{Error, Result};
use crate::needs::Level;
use crate::recipe::Recipe;

/// A transformation without its types.
///
/// The default methods are those of a chain of the [`members`](Transform::members).
pub trait Transform: fmt::Debug + Send + Sync + 'static {
    /// Calls `visit` with each member, in order.
    fn members(&self, visit: &mut dyn FnMut(&dyn Transform));

    /// Returns barriers and reductions.
    fn shape(&self) -> Shape {
        let mut shape = Shape::EMPTY;
        self.members(&mut |member| shape = shape.then(member.shape()));
        shape
    }

    /// Returns what a step must be given besides gradients, which can be less than the type says.
    fn needs(&self) -> Level {
        let mut needs = Level::Nothing;
        self.members(&mut |member| needs = needs.max(member.needs()));
        needs
    }

    /// Returns what becomes of leaves without a gradient.
    fn absent(&self) -> Absent {
        let mut absent = Absent::Rests;
        self.members(&mut |member| absent = absent.max(member.absent()));
        absent
    }

    /// Returns true if it has windows over steps, of which a leaf that rests would see a part.
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

    /// Adds where [`skip_absent`](crate::wrapper::skip_absent) goes so that leaves may lack gradients. Returns false if
    /// there is no such place. `place` is that of this transformation.
    fn skips(&self, skips: &mut Skips, place: &str) -> bool;

    /// Checks the arguments.
    ///
    /// # Errors
    ///
    /// If one is out of its range.
    fn validate(&self) -> Result<()> {
        let mut checked = Vec::new();
        self.members(&mut |member| checked.push(member.validate()));
        Error::all(checked)
    }

    /// Shows its own arguments, and not those of its members.
    fn own_arguments(&mut self, visit: &mut Visit<'_>) {
        let _ = visit;
    }

    /// Returns what it is made of, and what each part does to updates.
    fn outline(&self) -> Outline {
        let mut outlines = Vec::new();
        self.members(&mut |member| outlines.push(member.outline()));
        Outline::Chain(outlines)
    }

    /// Returns how it is made, as data.
    fn recipe(&self) -> Recipe {
        let mut recipes = Vec::new();
        self.members(&mut |member| recipes.push(member.recipe()));
        Recipe::Map(vec![("chain".into(), Recipe::List(recipes))])
    }

    /// Returns the parts in a line, for messages and [`Plan`](super::Plan).
    fn describe(&self) -> String {
        let mut parts = Vec::new();
        self.members(&mut |member| parts.push(member.describe()));
        parts.retain(|part| *part != EMPTY);
        format!("chain({})", parts.join(", "))
    }
}

/// The description of a chain without members, which a chain around it leaves out: `sgd` without momentum has one.
const EMPTY: &str = "chain()";

/// [`Transform::skips`] of each member, at the place of its number.
pub(crate) fn members_skip(of: &dyn Transform, skips: &mut Skips, place: &dyn Fn(usize) -> String) -> bool {
    let (mut i, mut all) = (0, true);
    of.members(&mut |member| {
        all &= member.skips(skips, &place(i));
        i += 1;
    });
    all
}

/// Returns the shape of a transformation, if there can be passes for its barriers.
///
/// # Errors
///
/// If it has more barriers than the masks have bits for.
pub(super) fn checked_shape(transformation: &dyn Transform) -> Result<Shape> {
    let shape = transformation.shape();
    if shape.barriers <= Shape::MOST_BARRIERS {
        return Ok(shape);
    }
    let expected = format!(
        "of at most {} barriers (split it: the updates of its first part are the gradients of the second)",
        Shape::MOST_BARRIERS
    );
    let found = format!("{} in {}", shape.barriers, transformation.describe());
    Err(Error::argument("init", "transformation", &expected, found))
}

/// As [`Transform::skips`], of a transformation that it goes around as a whole or not at all.
pub(crate) fn goes_around(stage: &dyn Transform, skips: &mut Skips, place: &str) -> bool {
    let skips_already = stage.absent() != Absent::Refused;
    let fits = !stage.shape().joins && !stage.has_windows();
    if !skips_already && fits {
        skips.add(place, stage.describe());
    }
    skips_already || fits
}

/// What an error says where all that is wrong is that gradients are missing.
pub(crate) fn advice(transformation: &dyn Transform) -> String {
    let mut skips = Skips::default();
    if transformation.skips(&mut skips, "$") { skips.advice() } else { super::table::ZEROS.into() }
}
