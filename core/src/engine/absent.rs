//! Leaves without a gradient in a step, and the advice of errors about them.

/// The treatment of a leaf without a gradient by a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Absent {
    /// The leaf rests: its update is zero.
    Rests,
    /// A window counts it as a zero gradient; in a step that emits, the leaf may have an update.
    Counts,
    /// Every leaf must have a gradient.
    Refused,
}

/// The places where `skip_absent` lets leaves lack gradients: the path in the recipe and the transformation to wrap.
#[derive(Debug, Default)]
pub struct Skips(Vec<(String, String)>);

impl Skips {
    pub(crate) fn add(&mut self, place: &str, what: String) {
        self.0.push((place.into(), what));
    }

    /// Replaces the prefix of all paths, for a chain under another key.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        for (place, _) in &mut self.0 {
            if let Some(rest) = place.strip_prefix(from) {
                *place = format!("{to}{rest}");
            }
        }
    }

    pub(super) fn advice(&self) -> String {
        match &self.0[..] {
            [(place, _)] if place == "$" => {
                "; if leaves may lack a gradient in a step, wrap the optimizer in `skip_absent`".into()
            }
            places => {
                let around: Vec<_> = places.iter().map(|(place, what)| format!("`{what}` (`{place}`)")).collect();
                let around = around.join(" and ");
                format!("; if leaves may lack a gradient in a step, wrap {around} in `skip_absent`")
            }
        }
    }
}
