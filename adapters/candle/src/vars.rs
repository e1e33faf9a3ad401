//! The variables of a model, by path.

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Storage, Tensor, Var};
use candle_nn::VarMap;
use gradchain::{Error, Result};

use crate::buffers::UntrainedVar;

/// The variables of a model by path, sorted: trained ones, and untrained ones as [buffers](gradchain::tree::Buffer).
///
/// Variables of integers, running statistics and those that a constructor excludes are buffers: steps do not change
/// them, checkpoints save and load them with the others, and plans name them.
///
/// A path is the variable's name in its [`VarMap`], with `/` for each `.`: `encoder.0.weight` is `encoder/0/weight`.
/// Masks, labels, checkpoints and migrations use these paths.
///
/// Weights are stored outputs first ([`Layout::OutIn`](gradchain::tree::Layout)), as in candle's layers, which matters
/// for [`muon`](gradchain::muon()) and similar transformations. For other variables set the optimizer's argument.
///
/// Variables of candle are handles: a clone is the same variable. This list of handles is made once; the values stay in
/// the model. A variable that is added to the map later is not in it.
///
/// ```
/// use candle_core::{DType, Device};
/// use candle_nn::{VarBuilder, VarMap};
/// use gradchain_candle::Vars;
///
/// let map = VarMap::new();
/// let builder = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
/// candle_nn::linear(3, 2, builder.pp("fc1"))?;
///
/// let vars = Vars::of(&map)?;
/// assert_eq!(vars.paths().collect::<Vec<_>>(), ["fc1/bias", "fc1/weight"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Vars {
    named: Vec<(String, Var)>,
    /// Untrained variables, sorted by path.
    untrained: Vec<UntrainedVar>,
    /// Each variable's storage address and index, sorted by address.
    places: Vec<(usize, usize)>,
}

impl Vars {
    /// Returns all variables of a map, with those of integers and running statistics as buffers.
    ///
    /// Running statistics of [`batch_norm`](candle_nn::batch_norm()) are variables without a gradient: those whose name
    /// ends in `running_mean` or `running_var`. [`of_some`](Self::of_some) and [`of_backward`](Self::of_backward)
    /// choose otherwise.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor};
    /// use candle_nn::{ModuleT, VarBuilder, VarMap};
    /// use gradchain::prelude::*;
    /// use gradchain_candle::{Vars, init, step};
    ///
    /// let map = VarMap::new();
    /// let norm = candle_nn::batch_norm(2, 1e-5, VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu))?;
    /// let vars = Vars::of(&map)?;
    /// assert_eq!(vars.paths().collect::<Vec<_>>(), ["bias", "weight"]);
    /// let plan = vars.read(|params| adam(0.1).plan(params))??;
    /// assert!(plan.to_string().contains("not trained: running_mean: f32 [2]; running_var: f32 [2]"));
    ///
    /// let mut state = init(&adam(0.1), &vars)?;
    /// let x = Tensor::new(&[[1_f32, 2.0], [3.0, 5.0]], &Device::Cpu)?;
    /// step(&adam(0.1), &vars, &norm.forward_t(&x, true)?.sqr()?.sum_all()?.backward()?, &mut state)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`named`](Self::named). A step fails if a variable excluded by its name has a gradient.
    pub fn of(map: &VarMap) -> Result<Vars> {
        let mut vars = Self::of_some(map, |path| !is_statistic(path))?;
        vars.untrained.iter_mut().for_each(|untrained| untrained.by_name = is_statistic(&untrained.path));
        Ok(vars)
    }

    /// Returns those variables of a map that have a gradient, after a backward pass of the whole loss.
    ///
    /// ```
    /// use candle_core::{DType, Device};
    /// use candle_nn::{Init, VarBuilder, VarMap};
    /// use gradchain_candle::Vars;
    ///
    /// let map = VarMap::new();
    /// let builder = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
    /// let w = builder.get_with_hints(2, "w", Init::Const(1.0))?;
    /// builder.get_with_hints(2, "mean_of_inputs", Init::Const(0.0))?;
    /// let vars = Vars::of_backward(&map, &w.sqr()?.sum_all()?.backward()?)?;
    /// assert_eq!(vars.paths().collect::<Vec<_>>(), ["w"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`named`](Self::named); if no variable has a gradient.
    pub fn of_backward(map: &VarMap, grads: &GradStore) -> Result<Vars> {
        let vars = Self::select_vars(map, |_, var| grads.get(var).is_some())?;
        if vars.is_empty() && !vars.untrained.is_empty() {
            let expected = "of a loss that depends on some variable of the map";
            return Err(Error::argument("Vars", "grads", expected, "gradients of none of them"));
        }
        Ok(vars)
    }

    /// Returns those variables of a map whose path `keep` accepts.
    ///
    /// Use it to train only the new variables in fine-tuning, or to exclude the second name of a variable.
    ///
    /// ```
    /// use candle_core::{DType, Device};
    /// use candle_nn::{VarBuilder, VarMap};
    /// use gradchain_candle::Vars;
    ///
    /// let map = VarMap::new();
    /// let builder = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
    /// candle_nn::embedding(10, 4, builder.pp("wte"))?;
    /// let tied = map.data().lock().unwrap()["wte.weight"].clone();
    /// map.data().lock().unwrap().insert("head.weight".into(), tied);
    ///
    /// let error = Vars::of(&map).unwrap_err().to_string();
    /// assert!(error.contains("`wte/weight`") && error.contains("`head/weight`"), "{error}");
    /// let vars = Vars::of_some(&map, |path| path != "head/weight")?;
    /// assert_eq!(vars.paths().collect::<Vec<_>>(), ["wte/weight"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`named`](Self::named).
    pub fn of_some(map: &VarMap, mut keep: impl FnMut(&str) -> bool) -> Result<Vars> {
        Self::select_vars(map, |path, _| keep(path))
    }

    fn select_vars(map: &VarMap, mut keep: impl FnMut(&str, &Var) -> bool) -> Result<Vars> {
        // A panic under the lock adds at most one variable to the map.
        let data = map.data().lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let named = data.iter().map(|(name, var)| (path_of(name), var.clone()));
        let (trained, others): (Vec<_>, Vec<_>) = named.partition(|(path, var)| keep(path, var));
        let mut vars = Self::named(trained)?;
        vars.keep(others);
        Ok(vars)
    }

    /// Adds untrained variables, except second names of trained ones.
    fn keep(&mut self, others: Vec<(String, Var)>) {
        let is_trained = |var: &Var| {
            self.places.binary_search_by_key(&storage_address(var), |(storage_address, _)| *storage_address).is_ok()
        };
        let others = others.into_iter().filter(|(_, var)| !is_trained(var));
        self.untrained.extend(others.map(|(path, var)| UntrainedVar { path, var, by_name: false }));
        self.untrained.sort_by(|a, b| a.path.cmp(&b.path));
    }

    /// Returns your own variables, by name; those of integers are not trained.
    ///
    /// # Errors
    ///
    /// If two names have one variable, since a step would count it twice; if the floats have a type that is no
    /// [`Element`](gradchain::Element) (8 bits and fewer).
    pub fn named(vars: impl IntoIterator<Item = (impl AsRef<str>, Var)>) -> Result<Vars> {
        let named = vars.into_iter().map(|(name, var)| (path_of(name.as_ref()), var));
        let (mut named, others): (Vec<_>, Vec<_>) = named.partition(|(_, var)| var.dtype().is_float());
        named.sort_by(|a, b| a.0.cmp(&b.0));
        for (path, var) in &named {
            if !matches!(var.dtype(), DType::F32 | DType::F64 | DType::F16 | DType::BF16) {
                let found = format!("{:?}", var.dtype());
                return Err(Error::argument("Vars", path, "of type f32, f64, f16 or bf16", found));
            }
        }
        let mut places: Vec<_> = named.iter().enumerate().map(|(i, (_, var))| (storage_address(var), i)).collect();
        places.sort_unstable();
        if let Some(pair) = places.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let [first, second] = [pair[0].1, pair[1].1].map(|i| &named[i].0);
            let found = format!("that of `{first}`; leave one of the two names out with `Vars::of_some`");
            return Err(Error::argument("Vars", second, "a variable of its own", found));
        }
        let mut vars = Vars { named, untrained: Vec::new(), places };
        vars.keep(others);
        Ok(vars)
    }

    /// Returns the sorted paths.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|(path, _)| path.as_str())
    }

    /// Returns paths and variables, sorted by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Var)> {
        self.named.iter().map(|(path, var)| (path.as_str(), var))
    }

    /// Returns paths and untrained variables, sorted by path.
    pub fn buffers(&self) -> impl Iterator<Item = (&str, &Var)> {
        self.untrained.iter().map(|untrained| (untrained.path.as_str(), &untrained.var))
    }

    pub(crate) fn untrained(&self) -> &[UntrainedVar] {
        &self.untrained
    }

    /// Returns the number of trained variables.
    pub fn len(&self) -> usize {
        self.named.len()
    }

    /// Returns true if no variable is trained.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    pub(crate) fn as_slice(&self) -> &[(String, Var)] {
        &self.named
    }

    pub(crate) fn gradients<'a>(&'a self, grads: &'a GradStore) -> Result<Vec<(&'a str, &'a Tensor)>> {
        let found: Vec<_> = self.iter().filter_map(|(path, var)| Some((path, grads.get(var)?))).collect();
        if let Some(untrained) =
            self.untrained.iter().find(|untrained| untrained.by_name && grads.get(&untrained.var).is_some())
        {
            let expected = "without a gradient, since `Vars::of` takes it for a running statistic by its name";
            return Err(Error::argument(
                "Vars",
                &untrained.path,
                expected,
                "one; name the trained variables with `Vars::of_some`",
            ));
        }
        for (path, gradient) in &found {
            if let Ok(at) =
                self.places.binary_search_by_key(&storage_address(gradient), |(storage_address, _)| *storage_address)
            {
                let found = format!("the memory of the variable `{}`", self.named[self.places[at].1].0);
                return Err(Error::argument("gradient", path, "in memory of its own", found));
            }
        }
        Ok(found)
    }

    pub(crate) fn on_cpu(path: &str, device: &Device) -> Result<()> {
        if device.is_cpu() {
            return Ok(());
        }
        Err(Error::argument("gradchain_candle", path, "on the CPU", format!("{:?}", device.location())))
    }
}

/// Returns true for variables that candle's forward pass updates.
fn is_statistic(path: &str) -> bool {
    matches!(path.rsplit('/').next(), Some("running_mean" | "running_var"))
}

fn path_of(name: &str) -> String {
    name.replace('.', "/")
}

/// Returns the storage's address, which identifies shared memory.
fn storage_address(tensor: &Tensor) -> usize {
    std::ptr::from_ref::<Storage>(&tensor.storage_and_layout().0).addr()
}
