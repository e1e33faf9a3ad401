//! The memory traffic of a step.

use core::fmt;

use super::lint::mistakes;
use super::{PassRange, Stage, Viewed, Warning};
use crate::element::DType;
use crate::state::{Schema, SizeReport};
use crate::tree::{BufferSpec, LeafSpec, Structure};

/// The cost of [`step`](crate::GradientTransformation::step): passes over memory, bytes moved, and state.
///
/// It counts the bytes that cross the memory bus if nothing stays in a cache: gradients, parameters, state arrays, and
/// updates stored between passes. Work on whole leaves between passes (matrix products, histories) is not counted;
/// `between_passes` is true if a part does such work.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// The parts of the chain.
    pub transformation: String,
    /// Passes over the tree.
    pub passes: Vec<PassPlan>,
    /// Elements of all leaves.
    pub elements: usize,
    /// True if a part works on whole leaves between passes.
    pub between_passes: bool,
    /// Bytes of updates stored between passes and of gradients copied for leaf statistics.
    ///
    /// 16-bit gradients are copied, for example. These bytes are not part of the saved state.
    pub stored_bytes: usize,
    /// The state, by kind.
    pub state: SizeReport,
    /// Likely mistakes: clipping after Adam, no learning rate, decay on biases, a mask that matches no leaf.
    ///
    /// ```
    /// use gradchain::prelude::*;
    /// use gradchain::WarningKind;
    ///
    /// let warnings = chain((scale_by_adam(), clip_by_global_norm(1.0))).plan(&vec![0.0_f32; 8])?.warnings;
    /// let kinds: Vec<_> = warnings.iter().map(|warning| warning.kind).collect();
    /// assert_eq!(kinds, [WarningKind::ClipAfterAdaptive, WarningKind::Climbs]);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub warnings: Vec<Warning>,
    /// The untrained arrays of the model: the [buffers](crate::tree::Buffer) of the tree. Empty in plans made from a
    /// structure.
    pub buffers: Vec<BufferSpec>,
}

/// The maximum number of buffers that the display names.
const MAX_SHOWN: usize = 8;

/// One pass of a [`Plan`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PassPlan {
    /// Bytes read from gradients, or from updates that an earlier pass stored.
    pub source: usize,
    /// Bytes read from, and in the last pass written to, parameters.
    pub params: usize,
    /// Bytes read from and written to state arrays.
    pub state: usize,
    /// Bytes of updates stored for the next pass.
    pub stored: usize,
}

impl PassPlan {
    /// Returns the bytes read and written.
    pub fn bytes(&self) -> usize {
        self.source + self.params + self.state + self.stored
    }
}

impl Plan {
    pub(crate) fn of<T: Stage>(
        transformation: &T,
        state: &T::State,
        structure: &Structure,
        grads: impl Fn(usize) -> DType,
    ) -> Plan {
        let shape = transformation.shape();
        let bytes = |range: PassRange| {
            let mut pass = PassPlan { source: 0, params: 0, state: 0, stored: 0 };
            for (i, leaf) in structure.leaves().iter().enumerate() {
                let (n, size) = (leaf.len(), leaf.dtype().size());
                let last = range.to == shape.barriers;
                let stored = leaf.dtype().compute().size();
                if shape.needs_updates(range.to) {
                    pass.source += n * if range.from > 0 { stored } else { grads(i).size() };
                }
                pass.params += n * size * if last { 2 } else { usize::from(shape.reads_params_in(range.to)) };
                pass.state += transformation.state_bytes(state, i, 0, range);
                pass.stored += if shape.cuts(range.to) { n * stored } else { 0 };
            }
            pass
        };
        let warnings = mistakes(&Viewed { stage: transformation, state, run: None }, structure);
        let stores = (0..shape.barriers).any(|pass| shape.cuts(pass));
        let reads_updates = (0..shape.barriers).any(|pass| shape.reads_updates_at(pass) && !shape.has_stored(pass));
        let kept = |i: usize, leaf: &LeafSpec| {
            let copies = reads_updates && grads(i) != leaf.dtype().compute();
            leaf.len() * leaf.dtype().compute().size() * (usize::from(stores) + usize::from(copies))
        };
        Plan {
            transformation: transformation.describe(),
            passes: (0..=shape.barriers).map(|i| bytes(shape.range(i))).collect(),
            elements: structure.elements(),
            between_passes: shape.materializes | shape.reads_updates != 0,
            stored_bytes: structure.leaves().iter().enumerate().map(|(i, leaf)| kept(i, leaf)).sum(),
            state: Schema::of(state, structure).size(),
            warnings,
            buffers: Vec::new(),
        }
    }

    /// Returns the bytes read and written in a step.
    pub fn bytes(&self) -> usize {
        self.passes.iter().map(PassPlan::bytes).sum()
    }

    /// Returns the bytes read and written per element.
    pub fn bytes_per_element(&self) -> f64 {
        self.bytes() as f64 / self.elements.max(1) as f64
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.transformation)?;
        for (i, pass) in self.passes.iter().enumerate() {
            let per = |bytes: usize| bytes as f64 / self.elements.max(1) as f64;
            write!(f, "pass {i}: {:.1} bytes per element (", per(pass.bytes()))?;
            write!(f, "{} {:.1}", if i == 0 { "gradients" } else { "source" }, per(pass.source))?;
            write!(f, ", parameters {:.1}, state {:.1}", per(pass.params), per(pass.state))?;
            writeln!(f, ", stored {:.1})", per(pass.stored))?;
        }
        if self.between_passes {
            writeln!(f, "between passes: work on whole leaves, not counted above")?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        if !self.buffers.is_empty() {
            let shown: Vec<_> = self.buffers.iter().take(MAX_SHOWN).map(BufferSpec::to_string).collect();
            let more = self.buffers.len() - shown.len();
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            writeln!(f, "not trained: {}{more}", shown.join("; "))?;
        }
        write!(f, "state: {} bytes for {} parameters", self.state.total_bytes(), self.elements)
    }
}
