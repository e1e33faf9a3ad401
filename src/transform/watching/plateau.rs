use super::{ReduceOnPlateau, ReduceOnPlateauState};
use crate::part::prelude::*;
use crate::{Error, Result};

/// The factor of [`reduce_on_plateau`](crate::transform::reduce_on_plateau) for values measured once an epoch.
///
/// It is not a stage of a chain. [`observe`](Plateau::observe) takes a value, such as a validation loss, and returns
/// the factor; multiply the learning rate by it, with [`set_hyperparam`](crate::OptState::set_hyperparam).
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::reduce_on_plateau;
/// use gradchain::transform::Plateau;
///
/// let rate = 0.1;
/// let optimizer = inject_hyperparams(sgd(rate));
/// let mut params = 1.0_f64;
/// let mut state = optimizer.init(&params)?;
/// let mut plateau = Plateau::new(reduce_on_plateau().patience(2).factor(0.5))?;
/// for validation_loss in [3.0, 2.0, 2.0, 2.5] {
///     // .. the steps of an epoch, and then
///     optimizer.step(&mut params, &1.0, &mut state)?;
///     state.set_hyperparam("learning_rate", rate * plateau.observe(validation_loss))?;
/// }
/// assert_eq!(plateau.scale(), 0.5);
///
/// // In a checkpoint it is a note.
/// let note = plateau.note();
/// let mut resumed = Plateau::new(reduce_on_plateau().patience(2).factor(0.5))?.resume(&note)?;
/// assert_eq!([2.0, 2.0].map(|loss| resumed.observe(loss)), [0.5, 0.25]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// PyTorch, `ReduceLROnPlateau`, whose `step` is called once an epoch. Optax steps
/// [`reduce_on_plateau`](crate::transform::reduce_on_plateau) with a dummy parameter.
#[derive(Clone, Debug)]
pub struct Plateau {
    settings: ReduceOnPlateau,
    state: ReduceOnPlateauState,
}

impl Plateau {
    /// Returns a plateau that has seen no value.
    ///
    /// # Errors
    ///
    /// As `init` of [`reduce_on_plateau`](crate::transform::reduce_on_plateau).
    pub fn new(settings: ReduceOnPlateau) -> Result<Plateau> {
        Part::validate(&settings)?;
        let state = settings.unseen();
        Ok(Plateau { settings, state })
    }

    /// Takes a value, and returns the resulting factor. NaN is no improvement.
    pub fn observe(&mut self, value: f64) -> f64 {
        self.settings.watch(&mut self.state, value);
        self.state.steps.increment();
        self.scale()
    }

    /// Returns the factor.
    pub fn scale(&self) -> f64 {
        self.state.scale.get()
    }

    /// Returns the state of the plateau.
    pub fn state(&self) -> &ReduceOnPlateauState {
        &self.state
    }

    /// Returns its state as text, for a note of a checkpoint; [`resume`](Self::resume) reads it.
    pub fn note(&self) -> String {
        let ReduceOnPlateauState { steps, scale, best_value, plateau_count, cooldown_count, count, avg_value } =
            &self.state;
        let counts = [steps, plateau_count, cooldown_count, count].map(|count| count.get().to_string());
        let numbers = [scale, best_value, avg_value].map(|number| format!("{:?}", number.get()));
        [counts.join(" "), numbers.join(" ")].join(" ")
    }

    /// Resumes from a note, reproducible to the bit.
    ///
    /// # Errors
    ///
    /// Fails if the text is no [`note`](Self::note).
    pub fn resume(mut self, note: &str) -> Result<Plateau> {
        let wrong =
            || Error::argument("resume", "note", "the note of a plateau: 4 counts and 3 numbers", format!("{note:?}"));
        let parts: Vec<&str> = note.split(' ').collect();
        let [steps, plateau_count, cooldown_count, count, scale, best_value, avg_value] = parts[..] else {
            return Err(wrong());
        };
        let counts = [steps, plateau_count, cooldown_count, count].map(|text| text.parse().map(Count::new).ok());
        let numbers = [scale, best_value, avg_value].map(|text| text.parse().map(Scalar::new).ok());
        let (
            [Some(steps), Some(plateau_count), Some(cooldown_count), Some(count)],
            [Some(scale), Some(best_value), Some(avg_value)],
        ) = (counts, numbers)
        else {
            return Err(wrong());
        };
        self.state = ReduceOnPlateauState { steps, scale, best_value, plateau_count, cooldown_count, count, avg_value };
        Ok(self)
    }
}
