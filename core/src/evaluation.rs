//! Parameters to evaluate with, which differ from those to train.

use core::ops::Deref;

use crate::element::DType;
use crate::engine::{Stage, leaf, read_leaf, table, write_leaf};
use crate::error::{Error, Result};
use crate::state::{Evaluation, State, StateWalk};
use crate::transformation::OptState;
#[cfg(feature = "checkpoint")]
use crate::transformation::check_sum;
use crate::tree::{LeafSpec, Structure, Tree, TreeMut, Walk};

/// Parameters to evaluate a model with, returned by [`eval_params`](OptState::eval_params).
///
/// It holds a tree of the parameters' own type and dereferences to it, so a model can be called, saved and inspected.
/// It is a read-only tree: training continues from the original parameters, and passing it to `step` does not compile.
///
/// ```compile_fail
/// use gradchain::prelude::*;
/// use gradchain::optimizer::schedule_free_sgd;
///
/// let optimizer = schedule_free_sgd();
/// let mut params = vec![1.0_f64];
/// let mut state = optimizer.init(&params).unwrap();
/// let mut eval = state.eval_params(&params).unwrap();
/// optimizer.step(&mut eval, &vec![1.0_f64], &mut state).unwrap(); // these are not the parameters to train
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "the trained parameters are unchanged"]
pub struct EvalParams<P>(P);

impl<P> EvalParams<P> {
    /// Returns the owned tree, at the end of training for example.
    pub fn into_inner(self) -> P {
        self.0
    }
}

impl<P> Deref for EvalParams<P> {
    type Target = P;
    fn deref(&self) -> &P {
        &self.0
    }
}

impl<P: Tree> Tree for EvalParams<P> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        self.0.walk(walk);
    }
}

impl<T: Stage> OptState<T> {
    /// Returns the parameters to evaluate with, if a wrapper trains others.
    ///
    /// Wrappers such as [`params_ema`], [`schedule_free`] or
    /// [`lookahead`] keep averages, or slow copies. `params` are the trained parameters.
    ///
    /// The wrapper can be anywhere: in a chain, under a mask, in a box. Leaves that it does not act on are those of
    /// `params`. The result is computed in `f64` and rounded once; the state is not changed.
    ///
    /// ```
    /// use gradchain::prelude::*;
    /// use gradchain::wrapper::schedule_free;
    ///
    /// let optimizer = schedule_free(sgd(1.0), 1.0).b1(0.5);
    /// let mut params = 0.0_f64;
    /// let mut state = optimizer.init(&params)?;
    /// optimizer.step(&mut params, &1.0, &mut state)?;
    /// optimizer.step(&mut params, &1.0, &mut state)?;
    /// // The steps of sgd lead to −1 and −2. Their mean is −1.5, and the trained parameters half way from there to −2.
    /// assert_eq!(params, -1.75);
    /// assert_eq!(*state.eval_params(&params)?, -1.5);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if nothing in the state determines the parameters to evaluate with, or more than one wrapper does for the
    /// same leaf, or one inside a [`flatten`], which has no leaves; or if the parameters do
    /// not have the structure of the state.
    ///
    /// [`params_ema`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.params_ema.html
    /// [`schedule_free`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.schedule_free.html
    /// [`lookahead`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.lookahead.html
    /// [`flatten`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.flatten.html
    pub fn eval_params<P: TreeMut + Clone>(&self, params: &P) -> Result<EvalParams<P>> {
        let mut params = params.clone();
        self.eval_params_into(&mut params)?;
        Ok(EvalParams(params))
    }

    /// Overwrites trained parameters with those to evaluate with.
    ///
    /// It is [`eval_params`](Self::eval_params) for trees that cannot be cloned, such as
    /// [`SlicesMut`](crate::tree::SlicesMut) and the borrowed trees of adapters.
    ///
    /// The trained values are lost. Pass a copy, such as [`DynTree::of`](crate::tree::DynTree::of), or keep one and
    /// [assign](crate::tree::tree_assign()) it before training continues.
    ///
    /// ```
    /// use gradchain::prelude::*;
    /// use gradchain::tree::{DynTree, SlicesMut, tree_assign, tree_norm};
    /// use gradchain::wrapper::schedule_free;
    ///
    /// let optimizer = schedule_free(sgd(1.0), 1.0).b1(0.5);
    /// let mut model = [0.0_f64];
    /// let mut params = SlicesMut::new().with("w", &mut model, &[1])?;
    /// let grads = DynTree::of(&SlicesMut::new().with("w", &mut [1.0_f64], &[1])?)?;
    /// let mut state = optimizer.init(&params)?;
    /// optimizer.step(&mut params, &grads, &mut state)?;
    /// optimizer.step(&mut params, &grads, &mut state)?;
    ///
    /// let trained = DynTree::of(&params)?;
    /// state.eval_params_into(&mut params)?;
    /// assert_eq!(tree_norm(&params), 1.5); // here the model is evaluated
    /// tree_assign(&mut params, &trained)?;
    /// assert_eq!(model, [-1.75]);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`eval_params`](Self::eval_params), with nothing written.
    pub fn eval_params_into<P: TreeMut + ?Sized>(&self, params: &mut P) -> Result<()> {
        let evaluate = self.evaluate()?;
        #[cfg(feature = "checkpoint")]
        let trained = check_sum(params);
        evaluate.apply(params)?;
        #[cfg(feature = "checkpoint")]
        self.note_evaluated(trained, params);
        Ok(())
    }

    #[doc(hidden)]
    pub fn evaluate(&self) -> Result<Evaluate<'_>> {
        self.fits()?;
        let (mut found, mut other_tree): (Vec<(String, Evaluation<'_>)>, _) = (Vec::new(), None);
        (**self).walk(&mut StateWalk::of_evaluations(&mut |path, e, is_apart| {
            if is_apart {
                other_tree = Some(String::from(path));
            } else {
                found.push((path.into(), e));
            }
        }));
        if let Some(path) = other_tree {
            let problem = format!("the evaluation parameters of `{path}` are for other leaves than those of `params`");
            return Err(Error::state("eval_params", problem));
        }
        if found.is_empty() {
            return Err(Error::state(
                "eval_params",
                "this optimizer keeps no evaluation parameters; `params_ema`, `params_swa`, `schedule_free` and \
                 `lookahead` do",
            ));
        }
        let mut by_leaf = Vec::with_capacity(self.structure().len());
        for (i, spec) in self.structure().leaves().iter().enumerate() {
            let mut of_leaf = found.iter().filter(|(_, e)| e.moments.dtype(i).is_some());
            let Some((first, mut evaluation)) = of_leaf.next().map(|(path, e)| (path, *e)) else {
                by_leaf.push(None);
                continue;
            };
            for (second, other) in of_leaf {
                if first == second {
                    evaluation = *other;
                    continue;
                }
                let [first, second] = [first, second].map(|path| if path.is_empty() { "(outermost)" } else { path });
                let problem = format!("`{first}` and `{second}` both keep evaluation parameters");
                let advice = "remove one of these wrappers, or mask them so that each leaf is in one";
                return Err(Error::state("eval_params", format!("leaf {spec}: {problem}; {advice}")));
            }
            if evaluation.moments.begins(i).is_some() {
                let problem =
                    "other ranks hold the rest of the averages; load a checkpoint of all ranks without `sharded`";
                return Err(Error::state("eval_params", format!("leaf `{}`: {problem}", spec.path())));
            }
            by_leaf.push(Some(evaluation));
        }
        Ok(Evaluate { structure: self.structure(), by_leaf })
    }
}

/// The computation of parameters to evaluate with, by leaf.
pub struct Evaluate<'a> {
    structure: &'a Structure,
    by_leaf: Vec<Option<Evaluation<'a>>>,
}

impl Evaluate<'_> {
    #[doc(hidden)]
    pub fn apply<P: TreeMut + ?Sized>(&self, params: &mut P) -> Result<()> {
        let (mut leaves, mut path) = (leaf::Table::new(), String::new());
        table::params_mut(params, self.structure, &mut leaves, &mut path)?;
        for (i, (spec, evaluation)) in self.structure.leaves().iter().zip(&self.by_leaf).enumerate() {
            let Some(evaluation) = evaluation else { continue };
            let mut values = vec![0.0; spec.len()];
            read_leaf::<f64>(&leaves[i], spec, Some(&mut values));
            evaluate(evaluation, i, spec, &mut values);
            write_leaf::<f64>(&leaves[i], spec, &values);
        }
        leaves.clear();
        Ok(())
    }
}

fn evaluate(e: &Evaluation<'_>, leaf: usize, spec: &LeafSpec, values: &mut [f64]) {
    // A term of weight 0 is not read: it may be infinite.
    let part = |of: f64, x: f64| if of == 0.0 { -0.0 } else { of * x };
    let one = |p: f64, m: f64| part(e.params_weight, p) + part(e.moments_weight, m);
    let same_order = e.moments.strides(leaf) == spec.strides();
    match e.moments.dtype(leaf) {
        Some(DType::F64) if same_order => {
            let moments = e.moments.get::<f64>(leaf).unwrap_or_default();
            values.iter_mut().zip(moments).for_each(|(p, m)| *p = one(*p, *m));
        }
        Some(DType::F32) if same_order => {
            let moments = e.moments.get::<f32>(leaf).unwrap_or_default();
            values.iter_mut().zip(moments).for_each(|(p, m)| *p = one(*p, f64::from(*m)));
        }
        _ => {
            let at = |i| e.moments.at(leaf, i, spec.strides());
            values.iter_mut().enumerate().for_each(|(i, p)| *p = one(*p, at(i)));
        }
    }
}
