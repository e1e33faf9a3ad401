//! Safe user code cannot make the engine access invalid memory.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gradchain::part::{
    InitContext, LeafVisitor, Part, StepContext, Whole, WholeLeaf, WholeTree, WholeTreeTransformation,
};
use gradchain::prelude::*;
use gradchain::tree::{LeafMut, LeafRef};
use gradchain::{Real, Result};
use ndarray::{Array2, ShapeBuilder};

/// Requests `more` elements than exist for the gradient's copy.
#[derive(Clone, Debug)]
struct Greedy {
    more: isize,
}

impl Part for Greedy {
    const NAME: &'static str = "greedy";
    type Form = Whole;
}

impl WholeTreeTransformation for Greedy {
    type State = ();

    fn start(&self, _: &InitContext<'_>) -> Result<()> {
        Ok(())
    }

    fn transform(&self, (): &mut (), _: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        let len = tree.structure().leaves()[0].len() as isize;
        let mut room = vec![0.0_f32; (len + self.more) as usize];
        tree.gradient(0, &mut room);
        tree.visit(&mut Write(room));
    }
}

struct Write(Vec<f32>);

impl LeafVisitor for Write {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        leaf.u.iter_mut().zip(&self.0).for_each(|(u, x)| *u = C::of(f64::from(*x)));
    }
}

#[test]
fn room_for_a_gradient_is_as_long_as_the_leaf() {
    // Another order than the parameters', so that elements are fetched one by one.
    let fortran = Array2::<f32>::ones((2, 3).f());
    for (gradient, more) in [(Array2::ones((2, 3)), 0), (fortran.clone(), 0)] {
        let optimizer = Greedy { more };
        let mut params = Array2::<f32>::zeros((2, 3));
        let mut state = optimizer.init(&params).unwrap();
        optimizer.step(&mut params, &gradient, &mut state).unwrap();
        assert_eq!(params, Array2::<f32>::ones((2, 3)));
    }
    for (gradient, more) in [(fortran.clone(), 1), (fortran, 1000), (Array2::ones((2, 3)), 7)] {
        let optimizer = Greedy { more };
        let mut params = Array2::<f32>::zeros((2, 3));
        let mut state = optimizer.init(&params).unwrap();
        let step = catch_unwind(AssertUnwindSafe(|| optimizer.step(&mut params, &gradient, &mut state)));
        assert!(step.is_err(), "{more} elements more than there are");
        assert!(optimizer.step(&mut params, &gradient, &mut state).unwrap_err().is_poisoned());
    }
}

#[test]
fn shapes_that_memory_cannot_have_are_refused() {
    let shapes: [&[usize]; 5] =
        [&[1 << 32, 1 << 32], &[usize::MAX, 2], &[(1 << 62) + 1, 4], &[usize::MAX >> 1, 0, 3], &[0, 1 << 40, 1 << 40]];
    for shape in shapes {
        for data in [&mut [][..], &mut [0.0_f32; 4][..]] {
            let read = LeafRef::from_slice(data, shape).map(drop).unwrap_err().to_string();
            let write = LeafMut::from_slice(data, shape).map(drop).unwrap_err().to_string();
            assert!(read.contains("address space") && read == write, "{shape:?}: {read}");
        }
    }
    let wrong = LeafRef::from_slice(&[0.0_f32; 4], &[5, 1]).unwrap_err().to_string();
    assert!(wrong.contains("as long as its shape says (5)"), "{wrong}");
    assert!(LeafRef::from_slice::<f32>(&[], &[0, 7]).unwrap().to_f64().is_empty());
}
