//! Every transformation, and chains and nestings of them: what the laws run over. A new transformation is one line in its
//! family's file; a new family is one line in each of the two lists below.

mod anchored;
mod core_parts;
mod layerwise;
mod sign;

use gradchain::Stage;

/// Something that must hold of every transformation.
pub trait Law {
    fn check<T: Stage<Needs = gradchain::needs::Nothing> + Clone + 'static>(
        &mut self,
        name: &str,
        about: About,
        transformation: T,
    );
}

/// What a law needs to know of an entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct About {
    /// Each element's update depends on that element alone.
    pub elementwise: bool,
    /// Linear in the gradient up to its own state, so that a mean of gradients can be compared to a batch.
    pub per_step: bool,
}

const ELEMENT: About = About { elementwise: true, per_step: true };
const WHOLE: About = About { elementwise: false, per_step: true };
/// What counts mini-steps itself does something else with `k` gradients than with their mean.
const WINDOWS: About = About { elementwise: true, per_step: false };
const WHOLE_WINDOWS: About = About { elementwise: false, per_step: false };

/// One family's entries.
macro_rules! family {
    ($($name:ident, $about:expr, $t:expr;)*) => {
        /// Runs a law over every entry.
        pub fn entries(law: &mut impl Law) {
            $(law.check(stringify!($name), $about, $t);)*
        }
    };
}
use family;

/// Runs a law over every entry of every family.
#[rustfmt::skip]
pub fn registry(law: &mut impl Law) {
    core_parts::entries(law);
    anchored::entries(law);
    layerwise::entries(law);
    sign::entries(law);
}
