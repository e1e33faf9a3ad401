use super::{LeafPlan, Locality, Order, Problem, Subject, holds};
use crate::common::trees::map;
use crate::common::{close, same_values};

fn law(entry: &dyn Subject, Problem { plan, params, grads }: &Problem) {
    let dense: Vec<_> = plan.iter().map(|leaf| LeafPlan { order: Order::C, ..leaf.clone() }).collect();
    let plain = |source| map(&dense, source, |_, value| value);
    let grads_plain: Vec<_> = grads.iter().map(plain).collect();
    let (a, b) = (entry.run(params, grads), entry.run(&plain(params), &grads_plain));
    // Fortran-ordered leaves are summed in another order; the rest depends on the logical index.
    let exact = entry.locality() == Locality::Element || plan.iter().all(|leaf| leaf.order != Order::Fortran);
    let same = if exact { same_values(&a.params, &b.params) } else { close(&a.params, &b.params, 2e-2) };
    same.unwrap_or_else(|at| panic!("{}: {at}", entry.name()));
}

#[test]
fn memory_layout_does_not_matter() {
    holds(law, 2);
}
