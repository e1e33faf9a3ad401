//! The variables of a model, by path.

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Storage, Tensor, Var};
use candle_nn::VarMap;
use gradchain::{Error, Result};

/// The variables that are trained, each with its path, in the order of the paths.
///
/// A path is the name that the variable has in its [`VarMap`], with `/` for each `.`: `encoder.0.weight` is
/// `encoder/0/weight`, and masks, labels, checkpoints and migrations go by that.
///
/// Variables of candle are handles: a clone is the same variable. So this is a list of handles, made once; the values
/// are in the model. A variable that is added to the map later is not in it.
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
    /// Where the storage of each is, and whose it is, in the order of the places.
    places: Vec<(usize, usize)>,
}

impl Vars {
    /// All variables of a map. Those of integers are left out, as in candle's own optimizers.
    ///
    /// # Errors
    ///
    /// As [`named`](Self::named).
    pub fn of(map: &VarMap) -> Result<Vars> {
        Self::of_some(map, |_| true)
    }

    /// Those variables of a map whose path `keep` says yes to: of a fine-tuning the new ones, or all but the second
    /// name of a variable that has two.
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
        // A panic while somebody held the lock has left the map as it was or with a variable more.
        let data = map.data().lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let named = data.iter().map(|(name, var)| (path_of(name), var.clone()));
        Self::named(named.filter(|(path, _)| keep(path)))
    }

    /// Variables of your own, by name.
    ///
    /// # Errors
    ///
    /// If two names have one variable, since a step would count it twice; if floats are of a type that
    /// [`Element`](gradchain::Element) is not (8 bits and fewer).
    pub fn named(vars: impl IntoIterator<Item = (impl AsRef<str>, Var)>) -> Result<Vars> {
        let named = vars.into_iter().filter(|(_, var)| var.dtype().is_float());
        let mut named: Vec<_> = named.map(|(name, var)| (path_of(name.as_ref()), var)).collect();
        named.sort_by(|a, b| a.0.cmp(&b.0));
        for (path, var) in &named {
            if !matches!(var.dtype(), DType::F32 | DType::F64 | DType::F16 | DType::BF16) {
                let found = format!("{:?}", var.dtype());
                return Err(Error::argument("Vars", path, "of type f32, f64, f16 or bf16", found));
            }
        }
        let mut places: Vec<_> = named.iter().enumerate().map(|(i, (_, var))| (place(var), i)).collect();
        places.sort_unstable();
        if let Some(pair) = places.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let [first, second] = [pair[0].1, pair[1].1].map(|i| &named[i].0);
            let found = format!("that of `{first}`; leave one of the two names out with `Vars::of_some`");
            return Err(Error::argument("Vars", second, "a variable of its own", found));
        }
        Ok(Vars { named, places })
    }

    /// The paths, in order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|(path, _)| path.as_str())
    }

    /// Paths and variables, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Var)> {
        self.named.iter().map(|(path, var)| (path.as_str(), var))
    }

    /// How many variables.
    pub fn len(&self) -> usize {
        self.named.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    pub(crate) fn as_slice(&self) -> &[(String, Var)] {
        &self.named
    }

    /// The gradients that there are, by path.
    pub(crate) fn gradients<'a>(&'a self, grads: &'a GradStore) -> Result<Vec<(&'a str, &'a Tensor)>> {
        let found: Vec<_> = self.iter().filter_map(|(path, var)| Some((path, grads.get(var)?))).collect();
        for (path, gradient) in &found {
            if let Ok(at) = self.places.binary_search_by_key(&place(gradient), |(place, _)| *place) {
                let found = format!("the memory of the variable `{}`", self.named[self.places[at].1].0);
                return Err(Error::argument("gradient", path, "in memory of its own", found));
            }
        }
        Ok(found)
    }

    /// What says that memory is elsewhere, if it is.
    pub(crate) fn on_cpu(path: &str, device: &Device) -> Result<()> {
        if device.is_cpu() {
            return Ok(());
        }
        Err(Error::argument("gradchain_candle", path, "on the CPU", format!("{:?}", device.location())))
    }
}

fn path_of(name: &str) -> String {
    name.replace('.', "/")
}

/// Where the storage is: the same for tensors that share it, and for no others.
fn place(tensor: &Tensor) -> usize {
    std::ptr::from_ref::<Storage>(&tensor.storage_and_layout().0).addr()
}
