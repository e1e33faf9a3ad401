//! Transformations that keep parameters in a set.

use gradchain::prelude::*;
use gradchain::projection::*;
use gradchain::schedule::linear;
use gradchain::transform::{keep_params_nonnegative, project};

use super::{ELEMENT, WHOLE, family};

family! {
    keep_params_nonnegative, ELEMENT, keep_params_nonnegative();
    project_non_negative, ELEMENT, project(non_negative());
    project_box, ELEMENT, chain((adam(0.1), project(box_set(-0.5, gradchain::schedule::Schedule::from(linear(0.5, 0.1, 3))))));
    project_hypercube, ELEMENT, chain((sgd(0.1).momentum(0.9), project(hypercube(0.7))));
    project_linf_ball, ELEMENT, project(linf_ball(0.3));
    project_injected, ELEMENT, inject_hyperparams(project(linf_ball(linear(0.3, 0.1, 4))));
    project_simplex, WHOLE, chain((adam(0.1), project(simplex(1.0))));
    project_l1_ball, WHOLE, project(l1_ball(0.8));
    project_l1_sphere, WHOLE, project(l1_sphere(0.8));
    project_l2_ball, WHOLE, chain((clip_by_global_norm(1.0), adamw(0.1), project(l2_ball(linear(1.0, 0.5, 3)))));
    project_l2_sphere, WHOLE, project(l2_sphere(2.0));
    project_hyperplane, WHOLE, chain((sgd(0.1), project(hyperplane(1.0, 0.5))));
    project_halfspace, WHOLE, project(halfspace(-1.0, 0.5));
    project_vector, WHOLE, project(vector(2.0));
    project_masked, WHOLE, chain((adam(0.1), masked(project(l2_ball(0.5)), Mask::min_ndim(1))));
    project_windows, ELEMENT, multi_steps(chain((sgd(0.1), project(non_negative()))), 2);
}
