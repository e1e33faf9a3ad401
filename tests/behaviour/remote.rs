//! Custom parts that transform whole leaves on a device.

use std::sync::Mutex;

use gradchain::part::prelude::*;
use gradchain::prelude::*;
use gradchain::state::Moments;
use gradchain::{Real, Result};

type Does = fn(&mut dyn RemoteLeaf, &Moments, Line) -> Line;

#[derive(Clone, Debug)]
struct Theirs(Does);

static KEPT: [Mutex<Option<Line>>; 2] = [const { Mutex::new(None) }; 2];

/// Returns an earlier leaf's line and true, or keeps one behind many others.
fn kept(on: &mut dyn RemoteLeaf, array: Line, number: usize) -> (bool, Line) {
    let mut kept = KEPT[number].lock().unwrap();
    let far = |x, i| {
        let i = on.number(f64::from(i));
        on.add(x, i)
    };
    (kept.is_some(), *kept.get_or_insert_with(|| (0..40).fold(array, far)))
}

impl Part for Theirs {
    const NAME: &'static str = "theirs";
    type Form = Whole;
}

impl WholeTreeTransformation for Theirs {
    const SCOPE: Scope = Scope::TREE.remote();
    type State = Moments;

    fn start(&self, at: &InitContext<'_>) -> Result<Moments> {
        Moments::like(at.structure(), at.active(), 0.0, |leaf| leaf.dtype().compute())
    }

    fn transform(&self, state: &mut Moments, _: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        tree.visit(&mut Visit(self.0, state));
    }
}

struct Visit<'a>(Does, &'a mut Moments);

impl LeafVisitor for Visit<'_> {
    fn visit<C: Real>(&mut self, _: WholeLeaf<'_, C>) {}
    fn visit_remote(&mut self, leaf: usize, on: &mut dyn RemoteLeaf) -> Line {
        let Some(array) = on.array(self.1, leaf) else { return on.update() };
        (self.0)(on, self.1, array)
    }
}

#[test]
fn invalid_device_operations_cannot_be_recorded() {
    let params = (ndarray::Array2::<f32>::ones((2, 3)), vec![1.0_f64; 6]);
    let programs = |does: Does| Theirs(does).programs(&params).map(|programs| programs.to_string());
    let fits: [Does; 4] = [
        |on, moments, array| {
            let u = on.update();
            on.write(moments, 0, u);
            on.add(u, array)
        },
        |on, _, array| {
            let gram = on.product(array, array, [1, 2, 3, 2], true);
            on.product(gram, array, [1, 2, 2, 3], false)
        },
        |on, _, array| {
            let sums = on.dots(array, array, 6, 3);
            on.repeat(sums, 2, 3)
        },
        |on, _, array| on.transpose(array, [1, 3, 2, 1]),
    ];
    for (i, does) in fits.into_iter().enumerate() {
        programs(does).unwrap_or_else(|error| panic!("{i}: {error}"));
    }
    let wrong: [(Does, &str); 10] = [
        (|on, _, array| on.dots(array, array, 6, 3), "incompatible sizes"),
        (|on, _, array| on.product(array, array, [1, 2, 3, 3], false), "incompatible sizes"),
        (|on, _, array| on.dots(array, array, 6, 4), "incompatible sizes"),
        (|on, _, array| on.dots(array, array, 6, 0), "incompatible sizes"),
        (|on, _, array| on.transpose(array, [2, 2, 2, 1]), "incompatible sizes"),
        (|on, _, array| on.repeat(array, 2, 3), "incompatible sizes"),
        (|on, _, array| on.repeat(array, usize::MAX, 2), "incompatible sizes"),
        (
            |on, moments, array| {
                let sums = on.dots(array, array, 6, 3);
                on.write(moments, 0, sums);
                on.add(sums, array)
            },
            "incompatible sizes",
        ),
        // The second leaf uses or returns a line of the first.
        (
            |on, _, array| match kept(on, array, 0) {
                (true, line) => on.add(array, line),
                (false, line) => line,
            },
            "a line of another leaf",
        ),
        (|on, _, array| kept(on, array, 1).1, "a line of another leaf"),
    ];
    for (i, (does, why)) in wrong.into_iter().enumerate() {
        let error = programs(does).unwrap_err().to_string();
        assert!(error.starts_with("theirs cannot be recorded") && error.contains(why), "{i}: {error}");
    }
}
