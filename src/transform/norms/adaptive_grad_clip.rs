use std::sync::Arc;

use super::units::{AccumulateUnits, MapUnits, Units};
use crate::internal::numeric::{SMALL, current_simd_level, dispatch};
use crate::internal::state::state_fields;
use crate::part::prelude::*;
use crate::transform::rescale::factor_in;
use crate::tree::LeafSpec;

/// Scales down the updates of each unit, so that their norm is at most a given ratio of the unit's parameter norm.
///
/// # Arithmetic
///
/// For each unit, with norms summed in `f64`:
///
/// ```text
/// most = clipping·max(‖p‖, eps)
/// u ← u · most / max(‖u‖, 1e-6)           if ‖u‖ ≥ most; else unchanged
/// ```
///
/// A unit holds the weights of one output: the elements that differ only in their indices along
/// [`axis`](AdaptiveGradClip::axis). The default depends on the number of axes:
///
/// | axes | such as | a unit lies along |
/// |---|---|---|
/// | 0, 1, or not more than one that is longer than 1 | bias | all |
/// | 2 | linear: in, out | 0 |
/// | 3 | attention: in, head, size | 0 |
/// | 4 | convolution: height, width, in, out | 0, 1, 2 |
/// | 5 | convolution: depth, height, width, in, out | 0, 1, 2, 3 |
///
/// # Cost
///
/// No state for elements. One more pass, for which the updates are stored in memory; reads parameters.
///
/// # Errors
///
/// `init` fails if `clipping` is negative or NaN, `eps` is negative or not finite, a leaf has not all axes of `axis`,
/// or `axis` is not given and a leaf has more than 5 axes.
///
/// # Example
///
/// The columns are the units; their parameters have norms 5 and 1, their gradients 10 and 0.1:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::adaptive_grad_clip;
/// use ndarray::array;
///
/// let optimizer = adaptive_grad_clip(0.5);
/// let params = array![[3.0_f64, 1.0], [4.0, 0.0]];
/// let grads = array![[6.0, 0.1], [8.0, 0.0]];
/// let updates = optimizer.update(&grads, &mut optimizer.init(&params)?, &params)?;
/// assert_eq!(updates.to_vec::<f64>("").unwrap(), [1.5, 0.1, 2.0, 0.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Brock, De, Smith and Simonyan, [High-performance large-scale image recognition without
/// normalization](https://arxiv.org/abs/2102.06171), 2021, equation 3. Optax,
/// [`adaptive_grad_clip`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: norms are summed
/// in `f64`; `init` refuses leaves with too many axes.
pub fn adaptive_grad_clip(clipping: impl IntoHyperparam) -> AdaptiveGradClip {
    AdaptiveGradClip::with(clipping)
}

part! {
    /// See [`adaptive_grad_clip`].
    pub AdaptiveGradClip as "adaptive_grad_clip": Whole, LIMITS;
    required {
        /// The largest ratio of norms.
        clipping: AT_LEAST_0;
    }
    hyperparams {
        /// Lower bound of parameter norms, so that zeros can move.
        eps: NOT_NEGATIVE = 1e-3;
    }
    options {
        /// The axes of a unit, negative ones counted from the end; by default as in the table above.
        axis: Option<Vec<isize>> = None;
    }
}

/// The state of [`adaptive_grad_clip`], with scratch space for norms.
#[derive(Clone, Debug)]
pub struct AdaptiveGradClipState {
    /// Steps done.
    pub count: Count,
    units: Arc<[Option<Units>]>,
    of_updates: Vec<f64>,
    of_params: Vec<f64>,
}

state_fields!(AdaptiveGradClipState { count } facts { units });

impl AdaptiveGradClip {
    fn units(&self, leaf: &LeafSpec) -> Result<Units> {
        let refused = |expected: &str| Err(Error::argument(Self::NAME, "axis", expected, format!("the leaf `{leaf}`")));
        let n = leaf.ndim();
        let Some(axes) = &self.axis else {
            let long = leaf.shape().iter().filter(|&&len| len != 1).count();
            return match n {
                _ if long <= 1 => Ok(Units::new(leaf, |_| true)),
                2 | 3 => Ok(Units::new(leaf, |axis| axis == 0)),
                4 | 5 => Ok(Units::new(leaf, |axis| axis < n - 1)),
                _ => refused("given, for leaves of more than 5 axes"),
            };
        };
        let mut within = vec![false; n];
        for &axis in axes {
            let axis = if axis < 0 { axis.checked_add_unsigned(n) } else { Some(axis) };
            let place = axis.and_then(|axis| usize::try_from(axis).ok()).and_then(|axis| within.get_mut(axis));
            match place {
                Some(place) if !*place => *place = true,
                _ => return refused("different axes that every leaf has"),
            }
        }
        Ok(Units::new(leaf, |axis| within[axis]))
    }
}

impl WholeTreeTransformation for AdaptiveGradClip {
    const SCOPE: Scope = Scope::LEAF.reads_params();
    type State = AdaptiveGradClipState;

    fn start(&self, at: &InitContext<'_>) -> Result<AdaptiveGradClipState> {
        let leaves = at.structure().leaves().iter().zip(at.active());
        let units = leaves.map(|(leaf, on)| on.then(|| self.units(leaf)).transpose());
        let units: Arc<[_]> = units.collect::<Result<_>>()?;
        let most = units.iter().flatten().map(|units| units.count).max().unwrap_or(0);
        let scratch = vec![0.0; most];
        Ok(AdaptiveGradClipState { count: Count::default(), units, of_updates: scratch.clone(), of_params: scratch })
    }

    fn transform(&self, state: &mut AdaptiveGradClipState, _: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        let [clipping, eps] = Hyperparam::all_at([&self.clipping, &self.eps], state.count.get());
        state.count.increment();
        tree.visit(&mut ClipUnits { state, clipping, eps });
    }
}

struct ClipUnits<'a> {
    state: &'a mut AdaptiveGradClipState,
    clipping: f64,
    eps: f64,
}

/// Least update norm as a divisor.
const MIN_NORM: f64 = 1e-6;

impl LeafVisitor for ClipUnits<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let AdaptiveGradClipState { units, of_updates, of_params, .. } = &mut *self.state;
        let Some(units) = &units[leaf.index] else { return };
        let simd = current_simd_level();
        let [of_updates, of_params] = [of_updates, of_params].map(|norms| &mut norms[..units.count]);
        for (x, norms) in [(&*leaf.u, &mut *of_updates), (leaf.p, &mut *of_params)] {
            norms.fill(0.0);
            dispatch(simd, AccumulateUnits { units, x, sums: norms, f: |x: C| x.as_f64() * x.as_f64() });
            norms.iter_mut().for_each(|norm| *norm = norm.sqrt());
            // `f64` squares may have overflowed; norms whose squares underflow do not matter.
            if norms.iter().any(|norm| norm.is_infinite()) {
                let mut scaled = vec![0.0; norms.len()];
                let f = |x: C| (SMALL * x.as_f64()) * (SMALL * x.as_f64());
                dispatch(simd, AccumulateUnits { units, x, sums: &mut scaled, f });
                norms.iter_mut().zip(scaled).for_each(|(norm, scaled)| {
                    *norm = if norm.is_infinite() { scaled.sqrt() / SMALL } else { *norm };
                });
            }
        }
        // `max` would drop NaN.
        let at_least = |norm: f64, least: f64| if norm <= least { least } else { norm };
        for (of_updates, of_params) in of_updates.iter_mut().zip(of_params) {
            let (norm, most) = (*of_updates, self.clipping * at_least(*of_params, self.eps));
            *of_updates = if norm < most { 1.0 } else { most / at_least(norm, MIN_NORM) };
        }
        dispatch(simd, MapUnits { units, x: leaf.u, by: of_updates, f: |u: C, factor| u * factor_in::<C>(factor) });
    }
}
