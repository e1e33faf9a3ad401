use std::sync::Arc;

use super::units::{AccumulateUnits, MapUnits, Units};
use crate::internal::numeric::{current_simd_level, dispatch};
use crate::internal::state::state_fields;
use crate::part::prelude::*;

/// Subtracts from the updates their mean over all axes but the first.
///
/// # Arithmetic
///
/// For a leaf of two or more axes, with the mean summed in `f64`; other leaves pass through:
///
/// ```text
/// u_ij… ← u_ij… − mean_j… u_ij…
/// ```
///
/// The first axis counts as the output axis, as in PyTorch's layers. Flax's output axis is the last, for which the
/// paper's mean is over other axes.
///
/// # Cost
///
/// No state. One more pass, for which the updates are stored in memory; reads no parameters.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::centralize;
/// use ndarray::{Array2, array};
///
/// let optimizer = centralize();
/// let mut params = Array2::<f32>::zeros((2, 3));
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &array![[1.0_f32, 2.0, 3.0], [4.0, 5.0, 9.0]], &mut state)?;
/// assert_eq!(params, array![[-1.0, 0.0, 1.0], [-2.0, -1.0, 3.0]]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Yong, Huang, Hua and Zhang, [Gradient centralization: a new optimization technique for deep neural
/// networks](https://arxiv.org/abs/2004.01461), 2020, equation 1: the mean over all weights of one output. Optax,
/// [`centralize`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: none.
pub fn centralize() -> Centralize {
    Centralize::with()
}

part! {
    /// See [`centralize`].
    #[derive(Copy, Eq)]
    pub Centralize as "centralize": Whole, SAME_DIRECTION;
}

/// Scratch space of [`centralize`], which has no state.
#[derive(Clone, Debug)]
pub struct CentralizeState {
    units: Arc<[Option<Units>]>,
    means: Vec<f64>,
}

state_fields!(CentralizeState {} facts { units });

impl WholeTreeTransformation for Centralize {
    const SCOPE: Scope = Scope::LEAF;
    type State = CentralizeState;

    fn start(&self, at: &InitContext<'_>) -> Result<CentralizeState> {
        let leaves = at.structure().leaves().iter().zip(at.active());
        let units: Arc<[_]> =
            leaves.map(|(leaf, on)| (*on && leaf.ndim() > 1).then(|| Units::new(leaf, |axis| axis > 0))).collect();
        let most = units.iter().flatten().map(|units| units.count).max().unwrap_or(0);
        Ok(CentralizeState { units, means: vec![0.0; most] })
    }

    fn transform(&self, state: &mut CentralizeState, _: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        tree.visit(state);
    }
}

impl LeafVisitor for CentralizeState {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let Some(units) = &self.units[leaf.index] else { return };
        let (simd, means) = (current_simd_level(), &mut self.means[..units.count]);
        means.fill(0.0);
        dispatch(simd, AccumulateUnits { units, x: leaf.u, sums: means, f: |u: C| u.as_f64() });
        means.iter_mut().for_each(|sum| *sum /= units.len as f64);
        dispatch(simd, MapUnits { units, x: leaf.u, by: means, f: |u: C, mean| u - C::of(mean) });
    }
}
