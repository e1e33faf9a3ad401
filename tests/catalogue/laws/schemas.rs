use gradchain::state::{AverageOptions, KeyPolicy, average};
use gradchain::tree::Structure;

use super::{Problem, Subject, holds};

pub(super) fn law(entry: &dyn Subject, Problem { params, grads, .. }: &Problem) {
    let name = entry.name();
    let mut params = params.clone();
    let before = Structure::of(&params).unwrap();
    let mut session = entry.init(&params).unwrap();
    let schema = session.schema();
    for grads in grads {
        let updates = session.update(grads, &params).unwrap();
        assert_eq!(*updates.structure(), before, "{name}: updates have the parameters' types");
        session.step(&mut params, grads).unwrap();
        assert_eq!(session.schema(), schema, "{name}: a step keeps the schema");
        assert_eq!(Structure::of(&params).unwrap(), before, "{name}: a step keeps the parameters' types and layout");
    }
    let options = AverageOptions::default().keys(KeyPolicy::First);
    let other = entry.init(&params).unwrap();
    let mean = average(&[(&session.state(), 1.0), (&other.state(), 3.0)], options).unwrap();
    session.replace(mean).unwrap_or_else(|error| panic!("{name}: averaging keeps the schema: {error}"));
}

#[test]
fn no_step_and_no_average_changes_a_dtype_or_the_schema() {
    holds(law, 3);
}
