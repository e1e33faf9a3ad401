//! The text as indices of its characters.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use candle_core::{Device, Tensor};

use crate::Result;
use crate::model::CONTEXT;
use crate::random::Random;

/// The next character is predicted from each but the last.
const ROW_MAJOR_CHUNK: usize = CONTEXT + 1;

pub(crate) struct Text {
    /// The first nine tenths.
    trained: Vec<u32>,
    /// The held-out tenth.
    other: Vec<u32>,
    kinds: usize,
}

impl Text {
    /// Reads a folder's Markdown files in order of names.
    ///
    /// Without a folder it reads the guide, which adapters' packages lack.
    pub(crate) fn read(folder: Option<PathBuf>) -> Result<Text> {
        let guide = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let folder = folder.unwrap_or_else(guide);
        let entries = std::fs::read_dir(&folder).map_err(|error| {
            format!("{}: {error}; the argument of the example is a folder of Markdown files", folder.display())
        })?;
        let mut pages = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
        pages.sort();
        let pages = pages.iter().map(std::fs::read_to_string).collect::<std::io::Result<String>>()?;
        let kinds: Vec<char> = pages.chars().collect::<BTreeSet<char>>().into_iter().collect();
        let numbers = pages.chars().filter_map(|character| kinds.binary_search(&character).ok());
        let mut trained: Vec<u32> = numbers.map(|number| number as u32).collect();
        let other = trained.split_off(trained.len() / 10 * 9);
        Ok(Text { trained, other, kinds: kinds.len() })
    }

    pub(crate) fn kinds(&self) -> usize {
        self.kinds
    }

    /// Returns the training chunks in random order.
    pub(crate) fn stretches(&self, random: &mut Random) -> RowMajorChunks<'_> {
        let mut order: Vec<&[u32]> = self.trained.chunks_exact(ROW_MAJOR_CHUNK).collect();
        random.shuffle(&mut order);
        RowMajorChunks { order, taken: 0 }
    }

    /// Returns every fourth held-out chunk.
    pub(crate) fn other(&self) -> Result<Tensor> {
        tensor(self.other.chunks_exact(ROW_MAJOR_CHUNK).step_by(4))
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Text { trained, other, kinds } = self;
        write!(f, "{} characters to train on, {} others, of {kinds} kinds", trained.len(), other.len())
    }
}

/// In a fixed order.
pub(crate) struct RowMajorChunks<'a> {
    order: Vec<&'a [u32]>,
    taken: usize,
}

impl RowMajorChunks<'_> {
    /// Returns the next chunks, cyclically.
    pub(crate) fn next(&mut self, rows: usize) -> Result<Tensor> {
        let rows = (0..rows).map(|i| self.order[(self.taken + i) % self.order.len()]);
        let next = tensor(rows.clone())?;
        self.taken += rows.len();
        Ok(next)
    }
}

fn tensor<'a>(rows: impl ExactSizeIterator<Item = &'a [u32]> + Clone) -> Result<Tensor> {
    let characters = rows.clone().flatten().copied();
    Ok(Tensor::from_iter(characters, &Device::Cpu)?.reshape((rows.len(), ROW_MAJOR_CHUNK))?)
}
