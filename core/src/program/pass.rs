//! A step as programs: by pass and by leaf.

use core::fmt;
use std::sync::Arc;

use super::traced::{Kind, Traced};
use super::{Program, Recording, record};
use crate::element::{DType, EngineReal, RecordedArray, Rounding};
use crate::engine::Stage;
use crate::engine::recorded::{self, CHUNK, NOT_REMOTE, Remote, TILE, sum_tile};
use crate::error::{Error, Result};
use crate::numeric::split::parallel_for_each;
use crate::state::{Entry, State, StateWalk};
use crate::tree::{LeafSpec, add_update};

/// One pass of a step: the programs of all leaves between two barriers.
///
/// The last pass computes new parameters. A pass that ends at a barrier computes sums, and stores its updates if a
/// later pass continues from them. Operations on whole leaves at a barrier are a pass of their own, from stored updates
/// to stored updates.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pass {
    /// Number of barriers before it.
    pub number: usize,
    /// True if the incoming updates are those stored by the previous pass; else they are the gradients.
    pub from_stored: bool,
    /// The program of each leaf; empty leaves have none. Some may [come later](Executor::batch_size).
    pub leaves: Vec<LeafProgram>,
}

/// The program of one pass on a leaf.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LeafProgram {
    /// The index of the leaf.
    pub leaf: usize,
    /// Its path.
    pub path: String,
    /// The type of its parameters.
    pub dtype: DType,
    /// Number of its elements.
    pub len: usize,
    /// The arithmetic. An [`update`](Program::update) is stored, in the compute type; a [`param`](Program::param) is
    /// the new parameter.
    pub program: Program,
    /// The scalars of this step.
    pub scalars: Vec<f64>,
    /// The arrays of its [slots](Program::slots).
    pub arrays: Arc<[Array]>,
    sums: Vec<usize>,
    /// The part whose work on whole leaves this is; empty for arithmetic on elements.
    pub(super) part: &'static str,
}

impl LeafProgram {
    /// Checks that it is arithmetic on one element, for backends that know nothing else.
    ///
    /// # Errors
    ///
    /// Fails with the name of the part if it [operates on the whole leaf](Program::is_elementwise).
    pub fn require_elementwise(&self) -> Result<()> {
        match self.program.is_elementwise() {
            true => Ok(()),
            false => Err(Error::unrecordable(self.part, NOT_REMOTE)),
        }
    }
}

/// An array with an element for each of a leaf's, in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Array {
    /// The path of the field in the state.
    pub name: String,
    /// The type of its elements, to which a [program](Program) rounds its writes.
    pub dtype: DType,
    /// True if it is part of the state. If not, each step writes it before reading it, and does not need it afterwards.
    pub is_persistent: bool,
}

/// A device that executes the passes of a step, such as a GPU.
///
/// It holds the parameters, the gradients and the state's arrays. The host computes values from sums, and passes them
/// with the next pass as [scalars](LeafProgram::scalars).
///
/// Guide: [On a device](https://docs.rs/gradchain-gpu/latest/gradchain_gpu/_guide/index.html).
/// [`Interpreter`](super::Interpreter) is a reference implementation.
pub trait Executor {
    /// Executes a pass. Returns, for each of its [leaves](Pass::leaves), the sums of each [chunk](sum_by_chunk).
    ///
    /// The sums of the first chunk come first, then those of the second.
    ///
    /// # Errors
    ///
    /// Fails if the pass fails; the step is then abandoned, and the state is poisoned.
    fn pass(&mut self, pass: &Pass) -> Result<Vec<Vec<f64>>>;

    /// Returns the number of leaves to submit before the others are recorded; by default all.
    ///
    /// A pass is submitted in batches of leaves. The first batch with a sum includes all remaining leaves.
    ///
    /// It is for devices whose [`pass`](Self::pass) returns before its work is done, and which would otherwise be idle.
    fn batch_size(&self) -> usize {
        usize::MAX
    }
}

/// Sums one number for each element of a leaf in the order of the engine, bitwise identical: a sum per chunk of 16384
/// elements.
///
/// Within a chunk, tiles of 1024 elements are summed in order; within a tile 16 partial sums, of each sixteenth
/// element, which are then summed in order.
pub fn sum_by_chunk(values: &[f64]) -> Vec<f64> {
    let tiles = |chunk: &[f64]| chunk.chunks(TILE).fold(0.0, |sum, tile| sum + sum_tile(tile, |x: f64| x));
    values.chunks(CHUNK).map(tiles).collect()
}

pub(crate) struct Passes<'m> {
    pub(super) executor: &'m mut dyn Executor,
    /// The addresses of the state's arrays, with their names.
    names: Vec<(usize, String)>,
    /// Arrays that are not state.
    temporaries: Vec<usize>,
    /// The whole-leaf programs of the next barrier.
    pub(super) whole: Vec<Result<LeafProgram>>,
    /// The part that these programs belong to.
    pub(super) part: &'static str,
    /// The previous leaf's result, shared because most leaves have the same.
    last: Option<(Vec<RecordedArray>, Program, Arc<[Array]>)>,
    error: Option<Error>,
}

impl<'m> Passes<'m> {
    pub(crate) fn new<S: State>(executor: &'m mut dyn Executor, state: &S) -> Passes<'m> {
        let mut names = Vec::new();
        let mut name = |path: &str, entry: Entry<'_>| {
            if let Entry::Moments(moments) = entry {
                names.push((core::ptr::from_ref(moments).addr(), path.to_owned()));
            }
        };
        state.walk(&mut StateWalk::new(&mut name));
        Passes { executor, names, temporaries: Vec::new(), whole: Vec::new(), part: "", last: None, error: None }
    }

    fn array(&mut self, array: RecordedArray) -> Array {
        let RecordedArray { address, dtype } = array;
        if let Some((_, name)) = self.names.iter().find(|(known, _)| *known == address) {
            return Array { name: name.clone(), dtype, is_persistent: true };
        }
        let number = self.temporaries.iter().position(|known| *known == address).unwrap_or_else(|| {
            self.temporaries.push(address);
            self.temporaries.len() - 1
        });
        Array { name: format!("kept {number}"), dtype, is_persistent: false }
    }

    fn leaf<T: Stage, F: Kind>(pass: &recorded::Pass<'_, T>, leaf: usize) -> Result<Recording> {
        let spec = &pass.structure().leaves()[leaf];
        let ([_, stores], dtype) = (pass.reads_and_writes_stored(), spec.dtype());
        record::<F>(spec.path(), pass.number(), |u, p| {
            let (u, adds) = pass.record(leaf, u, p);
            // As in the engine, the update is rounded to the parameter's dtype before it is added.
            let to = Rounding::to(dtype);
            let add = || Traced::record(&[], 0..0, &|_, _| add_update(p, u.rounded(to))).rounded(to);
            [stores.then_some(u), adds.then(add)]
        })
    }

    pub(super) fn named(&mut self, leaf: usize, spec: &LeafSpec, recorded: Recording) -> LeafProgram {
        let Recording { code, scalars, arrays, sums } = recorded;
        let like = |program: &Program| Arc::ptr_eq(&program.code, &code) || *program.code == *code;
        let (program, arrays) = match &self.last {
            Some((of, program, named)) if *of == arrays && like(program) => (program.clone(), named.clone()),
            _ => {
                let named: Arc<[Array]> = arrays.iter().map(|array| self.array(*array)).collect();
                let program = Program { code, slots: named.iter().map(|array| array.name.clone()).collect() };
                self.last = Some((arrays, program.clone(), named.clone()));
                (program, named)
            }
        };
        let (path, len) = (spec.path().to_owned(), spec.len());
        LeafProgram { leaf, path, dtype: spec.dtype(), len, program, scalars, arrays, sums, part: "" }
    }

    fn run<T: Stage>(&mut self, pass: &recorded::Pass<'_, T>) -> Result<Vec<f64>> {
        let specs = pass.structure().leaves();
        let some: Vec<usize> = (0..specs.len()).filter(|leaf| specs[*leaf].len() > 0).collect();
        let (width, chunks) = pass.sums();
        let mut all = vec![0.0; chunks.iter().map(|of_leaf| of_leaf.len()).sum::<usize>() * width];
        let mut rest = &some[..];
        loop {
            let (some, others) = rest.split_at(rest.len().min(self.executor.batch_size().max(1)));
            let mut leaves = self.recorded(pass, some)?;
            // Sums block on the device, so all their leaves are submitted at once.
            let adds = leaves.iter().any(|leaf| !leaf.sums.is_empty());
            if adds {
                leaves.extend(self.recorded(pass, others)?);
            }
            self.part(pass, leaves, &mut all)?;
            if adds || others.is_empty() {
                return Ok(all);
            }
            rest = others;
        }
    }

    fn recorded<T: Stage>(&mut self, pass: &recorded::Pass<'_, T>, some: &[usize]) -> Result<Vec<LeafProgram>> {
        let specs = pass.structure().leaves();
        let recorded = on_threads(some, &|leaf| match specs[leaf].dtype().compute() {
            DType::F64 => Self::leaf::<T, f64>(pass, leaf),
            _ => Self::leaf::<T, f32>(pass, leaf),
        });
        some.iter().zip(recorded).map(|(leaf, recorded)| Ok(self.named(*leaf, &specs[*leaf], recorded?))).collect()
    }

    fn part<T: Stage>(
        &mut self,
        pass: &recorded::Pass<'_, T>,
        leaves: Vec<LeafProgram>,
        all: &mut [f64],
    ) -> Result<()> {
        let recorded = Pass { number: pass.number(), from_stored: pass.reads_and_writes_stored()[0], leaves };
        let added = self.executor.pass(&recorded)?;
        let (width, chunks) = pass.sums();
        for (at, leaf) in recorded.leaves.iter().enumerate() {
            let (own, chunks) = (leaf.sums.len(), chunks[leaf.leaf].clone());
            let found = added.get(at).map_or(0, Vec::len);
            if found != own * chunks.len() {
                let expected = format!("{} sums of `{}`", own * chunks.len(), leaf.path);
                return Err(Error::argument("Executor::pass", "sums", &expected, found));
            }
            for (i, sum) in added[at].iter().enumerate() {
                all[(chunks.start + i / own) * width + leaf.sums[i % own]] = *sum;
            }
        }
        Ok(())
    }
}

/// Records leaves, on rayon's threads if the pool and their number are large enough.
///
/// The device waits for recording, microseconds per leaf. Programs do not depend on threads.
fn on_threads(leaves: &[usize], each: &(dyn Fn(usize) -> Result<Recording> + Sync)) -> Vec<Result<Recording>> {
    if leaves.len() < 2 * AT_ONCE {
        return leaves.iter().map(|leaf| each(*leaf)).collect();
    }
    let mut parts: Vec<_> = leaves.chunks(AT_ONCE).map(|leaves| (leaves, Vec::new())).collect();
    parallel_for_each(&mut parts, &|(leaves, recorded)| *recorded = leaves.iter().map(|leaf| each(*leaf)).collect());
    parts.into_iter().flat_map(|(_, recorded)| recorded).collect()
}

/// Leaves that justify waking a thread, which sleeps while the device works.
const AT_ONCE: usize = 64;

impl<T: Stage> Remote<T> for Passes<'_> {
    fn pass(&mut self, pass: &recorded::Pass<'_, T>) -> Option<Vec<f64>> {
        self.run(pass).map_err(|error| self.error = Some(error)).ok()
    }

    fn leaves(&mut self, barrier: usize) -> Option<()> {
        self.run_whole(barrier).map_err(|error| self.error = Some(error)).ok()
    }

    fn error(&mut self) -> Option<Error> {
        self.error.take()
    }
}

/// The programs of a step's passes; see [`programs`](crate::GradientTransformation::programs).
///
/// It displays a program of several leaves once, under their numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Programs {
    passes: Vec<Pass>,
}

impl Programs {
    /// Returns the passes, in order.
    pub fn passes(&self) -> &[Pass] {
        &self.passes
    }
}

impl Executor for Programs {
    fn pass(&mut self, pass: &Pass) -> Result<Vec<Vec<f64>>> {
        self.passes.push(pass.clone());
        Ok(pass.leaves.iter().map(|leaf| vec![0.0; leaf.len.div_ceil(CHUNK) * leaf.sums.len()]).collect())
    }
}

impl fmt::Display for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for pass in &self.passes {
            let mut shown: Vec<(&Program, Vec<usize>)> = Vec::new();
            for leaf in &pass.leaves {
                match shown.iter_mut().find(|(program, _)| **program == leaf.program) {
                    Some((_, leaves)) => leaves.push(leaf.leaf),
                    None => shown.push((&leaf.program, vec![leaf.leaf])),
                }
            }
            for (program, leaves) in shown {
                let leaves: Vec<_> = leaves.iter().map(usize::to_string).collect();
                let from = if pass.from_stored { "stored updates" } else { "gradients" };
                let what = if program.is_elementwise() { "pass" } else { "barrier" };
                writeln!(f, "{what} {}, from {from}, leaves {}", pass.number, leaves.join(", "))?;
                write!(f, "{program}")?;
            }
        }
        Ok(())
    }
}
