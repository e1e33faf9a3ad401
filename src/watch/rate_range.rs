#[cfg(feature = "plot")]
use crate::plot::Chart;
use crate::range::{DECAY, POSITIVE};
use crate::schedule::{Schedule, exponential_decay};
use crate::{Error, Result};

/// Learning-rate range test (LR finder): the rate grows geometrically with each step until the loss diverges.
///
/// Train a copy of the parameters from the intended start, with the intended optimizer.
///
/// # Arithmetic
///
/// ```text
/// rate_k  = lowest·(highest/lowest)^(k/(steps − 1))           k = 0, 1, .., steps − 1
/// m_k     = smoothing·m_{k−1} + (1 − smoothing)·loss_k        m_{−1} = 0
/// s_k     = m_k / (1 − smoothing^(k+1))
/// ```
///
/// The test ends after `steps` losses, or when a loss is not finite, or when `s_k` exceeds the least `s` by more than 3
/// times the larger of `|least s|` and `s_0 − least s`. [`proposal`](RateRange::proposal) is the rate at which `s`
/// falls fastest per factor of the rate, before its least value. `smoothing` is 0.9.
///
/// # Errors
///
/// Fails if a rate is not positive, `highest` is not more than `lowest`, or `steps` is less than 10.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::watch::rate_range;
///
/// let mut range = rate_range(1e-4, 10.0, 60)?.smoothing(0.0);
/// let optimizer = sgd(range.schedule());
/// let mut params = vec![1.0_f64, -2.0]; // a copy
/// let mut state = optimizer.init(&params)?;
/// while range.rate().is_some() {
///     let loss: f64 = params.iter().map(|p| p * p / 2.0).sum();
///     range.record(loss)?;
///     let gradient = params.clone();
///     optimizer.step(&mut params, &gradient, &mut state)?;
/// }
/// assert!((0.1..1.0).contains(&range.proposal()?));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// With the feature `plot`, `range.plot()` draws the losses over the rates.
///
/// # References
///
/// Smith, [Cyclical learning rates for training neural networks](https://arxiv.org/abs/1506.01186), 2017, section 3.3.
/// PyTorch Lightning's and fastai's `lr_find`. Differs: from Smith, rates grow geometrically, as in the other two;
/// losses may be negative.
pub fn rate_range(lowest: f64, highest: f64, steps: usize) -> Result<RateRange> {
    const FUNCTION: &str = "rate_range";
    for (name, rate) in [("lowest", lowest), ("highest", highest)] {
        if !(POSITIVE.contains)(rate) {
            return Err(Error::argument(FUNCTION, name, POSITIVE.text, rate));
        }
    }
    if highest <= lowest {
        return Err(Error::argument(FUNCTION, "highest", &format!("more than the lowest rate of {lowest}"), highest));
    }
    if steps < 10 {
        return Err(Error::argument(FUNCTION, "steps", "at least 10", steps));
    }
    Ok(RateRange { lowest, highest, steps, smoothing: 0.9, losses: Vec::new(), smoothed: Vec::new(), mean: 0.0 })
}

/// See [`rate_range`].
#[derive(Clone, Debug)]
pub struct RateRange {
    lowest: f64,
    highest: f64,
    steps: usize,
    smoothing: f64,
    losses: Vec<f64>,
    smoothed: Vec<f64>,
    mean: f64,
}

impl RateRange {
    /// Sets the decay of the running mean of losses, before the first is recorded; 0 for full-batch losses.
    ///
    /// [In [0, 1)](DECAY); [`record`](Self::record) refuses others.
    #[must_use = "this returns the changed test, and leaves the original unchanged"]
    pub fn smoothing(mut self, smoothing: f64) -> RateRange {
        self.smoothing = smoothing;
        self
    }

    /// Returns the rate of the next step; none if the test is over.
    pub fn rate(&self) -> Option<f64> {
        (self.losses.len() < self.steps && !self.has_diverged()).then(|| self.rate_of(self.losses.len()))
    }

    /// Returns the rates of all steps as a schedule, for the optimizer.
    pub fn schedule(&self) -> Schedule {
        exponential_decay(self.lowest, self.steps as u64 - 1, self.highest / self.lowest).into()
    }

    /// Records the loss before the step with the [rate](Self::rate).
    ///
    /// # Errors
    ///
    /// Fails if the test is over, or the smoothing is out of its range.
    pub fn record(&mut self, loss: f64) -> Result<()> {
        const FUNCTION: &str = "record";
        if !(DECAY.contains)(self.smoothing) {
            return Err(Error::argument(FUNCTION, "smoothing", DECAY.text, self.smoothing));
        }
        if self.rate().is_none() {
            return Err(Error::state(FUNCTION, "the test has ended and takes no more losses"));
        }
        self.losses.push(loss);
        self.mean = self.smoothing * self.mean + (1.0 - self.smoothing) * loss;
        self.smoothed.push(self.mean / (1.0 - self.smoothing.powf(self.losses.len() as f64)));
        Ok(())
    }

    /// Iterates over rates and the losses recorded before their steps.
    pub fn losses(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.losses.iter().enumerate().map(|(k, loss)| (self.rate_of(k), *loss))
    }

    /// Iterates over rates and smoothed losses.
    pub fn smoothed(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.smoothed.iter().enumerate().map(|(k, loss)| (self.rate_of(k), *loss))
    }

    /// Returns the rate at which the smoothed loss fell fastest.
    ///
    /// # Errors
    ///
    /// Fails if the loss has not fallen at any rate.
    pub fn proposal(&self) -> Result<f64> {
        let finite = self.smoothed.iter().take_while(|loss| loss.is_finite()).count();
        let smoothed = &self.smoothed[..finite];
        let end = (0..finite).min_by(|a, b| smoothed[*a].total_cmp(&smoothed[*b])).unwrap_or(0);
        let falls = smoothed[..(end + 1).min(finite)].windows(3).map(|three| three[0] - three[2]).enumerate();
        match falls.max_by(|a, b| a.1.total_cmp(&b.1)) {
            Some((k, fall)) if fall > 0.0 => Ok(self.rate_of(k + 1)),
            _ => Err(Error::state(
                "proposal",
                format!("the loss did not fall with any of the rates from {:e} to {:e}", self.lowest, self.highest),
            )),
        }
    }

    fn rate_of(&self, step: usize) -> f64 {
        self.lowest * (self.highest / self.lowest).powf(step as f64 / (self.steps - 1) as f64)
    }

    fn has_diverged(&self) -> bool {
        let (Some(last), Some(first)) = (self.smoothed.last(), self.smoothed.first()) else { return false };
        let least = self.smoothed.iter().copied().fold(f64::INFINITY, f64::min);
        !last.is_finite() || last - least > 3.0 * least.abs().max(first - least)
    }
}

#[cfg(feature = "plot")]
#[cfg_attr(docsrs, doc(cfg(feature = "plot")))]
impl RateRange {
    /// Returns a chart of the losses over the decimal logarithm of the rate, with the proposed rate marked, if any.
    ///
    /// ```
    /// use gradchain::watch::rate_range;
    ///
    /// let mut range = rate_range(1e-4, 1.0, 10)?.smoothing(0.0);
    /// for loss in [9.0, 9.0, 8.0, 5.0, 3.0, 2.0, 2.0, 3.0] {
    ///     range.record(loss)?;
    /// }
    /// assert!(range.plot().svg([400, 200])?.contains("rate 2.2e-3"));
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn plot(&self) -> Chart {
        let by_logarithm = |(rate, loss): (f64, f64)| (rate.log10(), loss);
        let chart = Chart::new("loss by log10 of the learning rate")
            .points("loss", self.losses().map(by_logarithm))
            .faint()
            .points("smoothed", self.smoothed().map(by_logarithm));
        match self.proposal() {
            Ok(rate) => chart.note(rate.log10(), format!("rate {rate:.1e}")),
            Err(_) => chart,
        }
    }
}
