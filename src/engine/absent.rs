//! What becomes of leaves that have no gradient in a step, and what says how they could lack one.

use super::Transform;

/// What a stage does with a leaf without a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Absent {
    /// The leaf rests: its update is zero.
    Rests,
    /// A window counts it as a gradient of zeros; in a step that emits, the leaf may have an update.
    Counts,
    /// Every leaf must have a gradient.
    Refused,
}

/// Where `skip_absent` goes so that leaves may lack gradients: what it goes around, and the place of that in the
/// recipe.
#[derive(Debug, Default)]
pub struct Skips(Vec<(String, String)>);

impl Skips {
    /// Around a stage at a place.
    pub(crate) fn add(&mut self, place: &str, what: String) {
        self.0.push((place.into(), what));
    }

    /// The places of a chain's members, of a chain that is called otherwise.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        for (place, _) in &mut self.0 {
            if let Some(rest) = place.strip_prefix(from) {
                *place = format!("{to}{rest}");
            }
        }
    }

    /// What an error says where all that is wrong is that gradients are missing.
    fn advice(&self) -> String {
        match &self.0[..] {
            [(place, _)] if place == "$" => {
                "; where a leaf may have none in a step, the optimizer goes into `skip_absent`".into()
            }
            places => {
                let around: Vec<_> = places.iter().map(|(place, what)| format!("`{what}` (`{place}`)")).collect();
                let around = around.join(" and around ");
                format!("; where a leaf may have none in a step, `skip_absent` goes around {around}")
            }
        }
    }
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

/// Where nothing can skip a leaf.
pub(super) const ZEROS: &str =
    "; this optimizer cannot skip a leaf: where one may have none in a step, give it a gradient of zeros";

/// What an error says where all that is wrong is that gradients are missing.
pub(crate) fn advice(transformation: &dyn Transform) -> String {
    let mut skips = Skips::default();
    if transformation.skips(&mut skips, "$") { skips.advice() } else { ZEROS.into() }
}
