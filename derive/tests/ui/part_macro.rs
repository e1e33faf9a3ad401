//! Calls of `part!` that differ from its rules.

gradchain::part! {
    /// Multiplies by a number.
    pub Stretched as "stretched": OneElement;
    required {
        /// By how much.
        by: 0.0..1.0;
    }
}

gradchain::part! {
    /// Has no form.
    pub Formless as "formless";
}

fn main() {}
