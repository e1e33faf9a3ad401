//! Several models, each with its optimizer, in one file.

use std::collections::BTreeMap;
use std::io::{Seek, Write};
use std::path::Path;

use super::file::Checkpoint;
use super::manifest::Manifest;
use super::save::{ModelOf, Save, replace_file, write_checkpoint};
use crate::GradientTransformation;
use crate::tree::{Structure, Tree};
use crate::{Error, Result};

/// Several models, each with its optimizer, to save in one checkpoint.
///
/// All are from the same step: the networks of a GAN, an actor and its critic. [`Checkpoint::model`] returns each of
/// them. Notes are those of the file.
///
/// # Errors
///
/// As [`Save`]; also if two models have the same name, or a name is empty or contains a `/`.
///
/// # Example
///
/// ```
/// use gradchain::checkpoint::{Checkpoint, Save, SaveModels};
/// use gradchain::prelude::*;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("gan.safetensors");
/// let (of_generator, of_critic) = (adam(1e-4), sgd(1e-2));
/// let (mut generator, mut critic) = (vec![1.0_f32, 2.0], vec![3.0_f32]);
/// let mut generator_state = of_generator.init(&generator)?;
/// let mut critic_state = of_critic.init(&critic)?;
///
/// SaveModels::new()
///     .model("generator", Save::new(&of_generator, &generator_state).params(&generator))
///     .model("critic", Save::new(&of_critic, &critic_state).params(&critic))
///     .note("epoch", 3)
///     .to_file(&path)?;
///
/// let file = Checkpoint::open(&path)?;
/// generator_state = file.model("generator")?.load(&of_generator, &mut generator)?;
/// critic_state = file.model("critic")?.load(&of_critic, &mut critic)?;
/// assert_eq!(file.note("epoch"), Some("3"));
/// # Ok::<(), gradchain::Error>(())
/// ```
#[must_use = "nothing is written until `to_file` or `to_writer` is called"]
#[derive(Debug, Default)]
pub struct SaveModels<'a> {
    models: Vec<(String, Result<ModelOf<'a>>)>,
    notes: BTreeMap<String, String>,
}

impl<'a> SaveModels<'a> {
    /// Returns a collection without models.
    pub fn new() -> SaveModels<'a> {
        SaveModels::default()
    }

    /// Adds a model, with its optimizer, under a name.
    pub fn model<T: GradientTransformation, P: Tree + ?Sized>(
        mut self,
        name: impl Into<String>,
        save: Save<'a, T, P>,
    ) -> Self {
        self.models.push((name.into(), save.model(None)));
        self
    }

    /// Adds a note: the position in the data, a loss.
    pub fn note(mut self, name: impl Into<String>, value: impl core::fmt::Display) -> Self {
        self.notes.insert(name.into(), value.to_string());
        self
    }

    /// Writes a file, or replaces one, as [`Save::to_file`] does.
    ///
    /// # Errors
    ///
    /// See [`SaveModels`].
    pub fn to_file(&self, path: impl AsRef<Path>) -> Result<()> {
        replace_file(path.as_ref(), |shown, file| self.write(shown, file))
    }

    /// Writes to any writer with `Seek`; flushes nothing.
    ///
    /// # Errors
    ///
    /// See [`SaveModels`].
    pub fn to_writer(&self, mut to: impl Write + Seek) -> Result<()> {
        self.write("the writer", &mut to)
    }

    fn write(&self, shown: &str, to: &mut (impl Write + Seek)) -> Result<()> {
        let (mut models, mut tensors) = (BTreeMap::new(), Vec::new());
        for (name, model) in &self.models {
            let bad = |problem: &str| Err(Error::state("checkpoint", format!("the model name `{name}` {problem}")));
            if name.is_empty() || name.contains('/') {
                return bad("must not be empty or contain `/`");
            }
            let model = model.as_ref().map_err(Error::clone)?;
            if models.insert(name.clone(), model.manifest.clone()).is_some() {
                return bad("occurs twice");
            }
            tensors.extend(model.tensors.iter().map(|(spec, held)| (spec.within(&prefix(name)), held)));
        }
        if models.is_empty() {
            return Err(Error::state("checkpoint", "no model to save"));
        }
        let manifest = Manifest { models, notes: self.notes.clone(), ..Manifest::default() };
        write_checkpoint(shown, to, tensors, manifest).map(drop)
    }
}

fn prefix(model: &str) -> String {
    format!("{model}/")
}

impl Checkpoint {
    /// Returns the names of the models that [`SaveModels`] saved; none if the file holds one unnamed model.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.manifest.models.keys().map(String::as_str)
    }

    /// Returns the model of this name, with its optimizer, as a separate checkpoint.
    ///
    /// The whole file is verified first, so that no model is loaded from a file in which another is damaged.
    ///
    /// See [`SaveModels`].
    ///
    /// # Errors
    ///
    /// Fails if no model has this name, or any tensor of the file is damaged.
    pub fn model(&self, name: &str) -> Result<Checkpoint> {
        if self.manifest.models.is_empty() {
            return Err(Error::file(
                &*self.tensors.name,
                "it holds one model, without a name: load it without `model`",
            ));
        }
        self.verify()?;
        let known = || self.models().map(String::from);
        let model = self.view(name)?;
        model.ok_or_else(|| Error::unknown_name(self.tensors.display_name("the checkpoint"), "model", name, known()))
    }

    /// Returns a model's part of the file.
    pub(super) fn view(&self, name: &str) -> Result<Option<Checkpoint>> {
        let Some(manifest) = self.manifest.models.get(name) else { return Ok(None) };
        let prefix = prefix(name);
        let sums = self.manifest.crc32.iter();
        let crc32 = sums.filter_map(|(tensor, sum)| Some((tensor.strip_prefix(&*prefix)?.to_owned(), *sum))).collect();
        let structure: Option<Structure> = manifest.structure.structure();
        let structure = structure.ok_or_else(|| self.damaged("a leaf exceeds the address space"))?;
        let tensors = self.tensors.within(name, prefix);
        let model = Checkpoint::new(tensors, Manifest { crc32, ..manifest.clone() }, structure, None);
        model.set_verified(self.is_verified());
        Ok(Some(model))
    }

    /// Refuses a file of several models.
    pub(super) fn is_one(&self) -> Result<()> {
        let names: Vec<String> = self.models().map(|name| format!("`model({name:?})`")).collect();
        if names.is_empty() {
            return Ok(());
        }
        Err(Error::file(
            &*self.tensors.name,
            format!("it holds several models: select one with {}", names.join(" or ")),
        ))
    }
}

/// The source of a file that [`Rotation::save`](super::Rotation::save) writes: a [`Save`], or [`SaveModels`].
pub trait Saves: sealed::Saves {}

pub(super) mod sealed {
    use super::*;

    pub trait Saves: Sized {
        fn noted(self, name: &str, value: &dyn core::fmt::Display) -> Self;
        fn write_checkpoint(&self, path: &Path) -> Result<()>;
    }
}

impl<T: GradientTransformation, P: Tree + ?Sized> Saves for Save<'_, T, P> {}
impl<T: GradientTransformation, P: Tree + ?Sized> sealed::Saves for Save<'_, T, P> {
    fn noted(self, name: &str, value: &dyn core::fmt::Display) -> Self {
        self.note(name, value)
    }
    fn write_checkpoint(&self, path: &Path) -> Result<()> {
        self.to_file(path)
    }
}

impl Saves for SaveModels<'_> {}
impl sealed::Saves for SaveModels<'_> {
    fn noted(self, name: &str, value: &dyn core::fmt::Display) -> Self {
        self.note(name, value)
    }
    fn write_checkpoint(&self, path: &Path) -> Result<()> {
        self.to_file(path)
    }
}
