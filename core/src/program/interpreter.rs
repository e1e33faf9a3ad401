use std::collections::HashMap;

use super::{Executor, LeafProgram, Pass, sum_by_chunk};
use crate::element::{DType, Real};
use crate::error::Result;
use crate::state::{Entry, Moments, State, StateWalk};
use crate::tree::{Structure, Tree, TreeMut};

/// A reference [`Executor`] on the host that interprets: others can be compared with it bit for bit.
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::program::Interpreter;
///
/// let optimizer = chain((clip_by_global_norm(1.0), adam(0.1)));
/// let (mut params, gradients) = (vec![1.0_f32, 2.0], vec![3.0_f32, -4.0]);
/// let mut state = optimizer.init(&params)?;
/// let mut executor = Interpreter::new(&params, &*state)?;
/// executor.set_gradients(&gradients)?;
/// optimizer.step_on(&mut executor, (), &mut state)?;
///
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &gradients, &mut state)?;
/// assert_eq!(executor.params().get::<f32>(0), Some(&params[..]));
/// assert_eq!(executor.array("1.0.mu").and_then(|mu| mu.get::<f32>(0)), state.1.0.moment("mu").unwrap().get(0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # Cost
///
/// About a hundred times that of a step. It is for inspection and tests.
#[derive(Clone, Debug)]
pub struct Interpreter {
    structure: Structure,
    params: Moments,
    gradients: Moments,
    /// Updates that a pass stores for the next: by leaf, in `f64`, which represents them exactly.
    stored: HashMap<usize, Vec<f64>>,
    arrays: HashMap<String, Moments>,
    temporaries: HashMap<(String, usize), Vec<f64>>,
}

impl Interpreter {
    /// Copies parameters, and the arrays of a state for them.
    ///
    /// # Errors
    ///
    /// Fails if they cannot be the leaves of one tree, or memory for copies cannot be allocated.
    pub fn new<P: Tree + ?Sized, S: State>(params: &P, state: &S) -> Result<Interpreter> {
        let structure = Structure::of(params)?;
        let gradients = Moments::like(&structure, &vec![true; structure.len()], 0.0, |leaf| leaf.dtype().compute())?;
        let mut arrays = HashMap::new();
        let mut copy = |path: &str, entry: Entry<'_>| {
            if let Entry::Moments(moments) = entry {
                arrays.insert(path.to_owned(), moments.clone());
            }
        };
        state.walk(&mut StateWalk::new(&mut copy));
        let params = Moments::of_tree(params, &structure, |leaf| leaf.dtype())?;
        Ok(Interpreter { structure, params, gradients, stored: HashMap::new(), arrays, temporaries: HashMap::new() })
    }

    /// Copies the gradients of the next step.
    ///
    /// # Errors
    ///
    /// Fails, with nothing changed, if they do not fit the parameters.
    pub fn set_gradients<G: Tree + ?Sized>(&mut self, gradients: &G) -> Result<()> {
        self.gradients = Moments::of_tree(gradients, &self.structure, |leaf| leaf.dtype().compute())?;
        Ok(())
    }

    /// Returns the current parameters.
    pub fn params(&self) -> &Moments {
        &self.params
    }

    /// Copies the current parameters into a tree.
    ///
    /// # Errors
    ///
    /// Fails, with nothing changed, if the tree has another structure.
    pub fn params_into<P: TreeMut + ?Sized>(&self, params: &mut P) -> Result<()> {
        self.params.to_tree(params, &self.structure)
    }

    /// Returns an array of the state, by the path of its field.
    pub fn array(&self, name: &str) -> Option<&Moments> {
        self.arrays.get(name)
    }

    fn leaf<C: Real>(&mut self, pass: &Pass, of: &LeafProgram) -> Result<Vec<f64>> {
        let LeafProgram { leaf, len, program, scalars, arrays, .. } = of;
        of.require_elementwise()?;
        let u = match pass.from_stored {
            true => self.stored.get(leaf).cloned().unwrap_or_else(|| vec![0.0; *len]),
            false => self.gradients.in_order(*leaf),
        };
        let mut p = self.params.in_order(*leaf);
        let read = |array: &super::Array| match array.is_persistent {
            true => self.arrays.get(&array.name).map(|moments| moments.in_order(*leaf)).unwrap_or_default(),
            false => self.temporaries.get(&(array.name.clone(), *leaf)).cloned().unwrap_or_else(|| vec![0.0; *len]),
        };
        let mut held: Vec<Vec<f64>> = arrays.iter().map(read).collect();
        let (mut stored, mut added) = (Vec::new(), vec![Vec::with_capacity(*len); program.sums().len()]);
        for i in 0..*len {
            let mut slots: Vec<C> = held.iter().map(|array| C::of(array[i])).collect();
            let made = program.run(scalars, &mut slots, C::of(u[i]), C::of(p[i]))?;
            held.iter_mut().zip(slots).for_each(|(array, slot)| array[i] = slot.as_f64());
            stored.extend(made.update.map(|update| update.as_f64()));
            made.param.into_iter().for_each(|param| p[i] = param.as_f64());
            added.iter_mut().zip(made.sums).for_each(|(all, sum)| all.push(sum));
        }
        if program.update().is_some() {
            self.stored.insert(*leaf, stored);
        }
        self.params.set_in_order(*leaf, &p);
        let written = arrays.iter().zip(held).enumerate().filter(|(slot, _)| program.writes(*slot));
        for (_, (array, held)) in written {
            match self.arrays.get_mut(&array.name).filter(|_| array.is_persistent) {
                Some(moments) => moments.set_in_order(*leaf, &held),
                None => drop(self.temporaries.insert((array.name.clone(), *leaf), held)),
            }
        }
        let by_sum: Vec<_> = added.iter().map(|all| sum_by_chunk(all)).collect();
        let chunks = by_sum.first().map_or(0, Vec::len);
        Ok((0..chunks).flat_map(|chunk| by_sum.iter().map(move |sums| sums[chunk])).collect())
    }
}

impl Executor for Interpreter {
    fn pass(&mut self, pass: &Pass) -> Result<Vec<Vec<f64>>> {
        let one = |leaf: &LeafProgram| match leaf.program.dtype() {
            DType::F64 => self.leaf::<f64>(pass, leaf),
            _ => self.leaf::<f32>(pass, leaf),
        };
        pass.leaves.iter().map(one).collect()
    }
}
