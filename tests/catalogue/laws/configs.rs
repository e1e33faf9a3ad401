use gradchain::GradientTransformation;
use gradchain::config::Config;
use gradchain::needs::ValueAndGradFn;

use super::{Problem, Subject, all_selected, holds, registry, same_state};
use crate::common::{run, same_values};

/// A transformation built from a config has the same state type and steps.
///
/// So each loads the other's file. Functions have no config.
fn rebuilding(entry: &dyn Subject, Problem { params, grads, .. }: &Problem) {
    let Ok(config) = Config::of(&entry.boxed()) else { return };
    let name = entry.name();
    let built = config.build_with::<ValueAndGradFn>().unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(entry.init(params).unwrap().schema(), built.init(params).unwrap().schema(), "{name}: {config}");
    let (ours, theirs) = (entry.run(params, grads), run(&built, params, grads));
    same_values(&ours.params, &theirs.params).unwrap_or_else(|at| panic!("{name}: {at}"));
    assert!(same_state(&ours.state, &*theirs.state), "{name}: the states differ");
}

#[test]
fn a_config_rebuilds_its_optimizer() {
    let data = registry().iter().filter(|entry| Config::of(&entry.boxed()).is_ok()).count();
    assert!(data > 180 || !all_selected(), "{data} entries have a config");
    holds(rebuilding, 3);
}
