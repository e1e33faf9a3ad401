//! Checkpoints of several ranks in a folder.

use std::path::PathBuf;

use super::{Rotation, name};
use crate::GradientTransformation;
use crate::Result;
use crate::checkpoint::save::Save;
use crate::collective::Collective;
use crate::tree::Tree;

impl Rotation {
    /// Writes the files of all ranks; then the first rank removes obsolete lists with their files.
    ///
    /// All ranks call it, with the same step and score.
    ///
    /// # Errors
    ///
    /// As [`Save::to_shards`]; on the first rank also if a file cannot be removed, or the folder cannot be read. The
    /// others succeed in the first case, and return an error of the collective in the second.
    #[cfg_attr(docsrs, doc(cfg(feature = "collective")))]
    pub fn save_shards<T: GradientTransformation, P: Tree + ?Sized>(
        &self,
        step: u64,
        score: Option<f64>,
        save: Save<'_, T, P>,
        collective: &dyn Collective,
    ) -> Result<PathBuf> {
        let path = self.folder.join(name(step));
        if collective.rank() > 0 {
            return save.to_shards(&path, collective).map(|()| path);
        }
        let (path, save) = self.noted(step, score, save)?;
        save.to_shards(&path, collective)?;
        self.remove_others()?;
        Ok(path)
    }
}
