//! Transformations that keep parameters in a set.

use crate::config::registry::Registry;
use crate::transform::keep_params_nonnegative;

pub(super) fn register(r: &mut Registry) {
    r.part(keep_params_nonnegative);
    #[cfg(feature = "constraint")]
    sets::register(r);
}

#[cfg(feature = "constraint")]
mod sets {
    use crate::arguments::required;
    use crate::config::registry::{Registry, Unconfigured};
    use crate::projection::*;
    use crate::recipe::ConfigError;
    use crate::transform::project;

    type ProjectionEntry = (&'static str, fn() -> Unconfigured);

    const PROJECTIONS: &[ProjectionEntry] = &[
        ("projection_box", || Unconfigured::named(project(box_set(required(), required())))),
        ("projection_halfspace", || Unconfigured::named(project(halfspace(required(), required())))),
        ("projection_hypercube", || Unconfigured::named(project(hypercube(1.0)))),
        ("projection_hyperplane", || Unconfigured::named(project(hyperplane(required(), required())))),
        ("projection_l1_ball", || Unconfigured::named(project(l1_ball(1.0)))),
        ("projection_l1_sphere", || Unconfigured::named(project(l1_sphere(1.0)))),
        ("projection_l2_ball", || Unconfigured::named(project(l2_ball(1.0)))),
        ("projection_l2_sphere", || Unconfigured::named(project(l2_sphere(1.0)))),
        ("projection_linf_ball", || Unconfigured::named(project(linf_ball(1.0)))),
        ("projection_non_negative", || Unconfigured::named(project(non_negative()))),
        ("projection_simplex", || Unconfigured::named(project(simplex(1.0)))),
        ("projection_vector", || Unconfigured::named(project(vector(required())))),
    ];

    pub(super) fn register(r: &mut Registry) {
        r.constructor("project", |given| {
            let name = given.required("projection", String::from("projection_l2_ball"))?;
            let place = given.get("projection").map_or("$", |node| node.place());
            let unknown =
                || ConfigError::unknown(place, "projection", &name, PROJECTIONS.iter().map(|(name, _)| *name));
            PROJECTIONS.iter().find(|(known, _)| *known == name).map(|(_, make)| make()).ok_or_else(unknown)
        })
        .schema_keys(&["lower", "upper", "scale", "a", "b"]);
    }
}
