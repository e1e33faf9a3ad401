//! What becomes of leaves that have no gradient in a step, and what says how they could lack one.

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
    pub(super) fn advice(&self) -> String {
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
