//! Writes checkpoints of several ranks.

use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{SHARD_SUFFIX, ShardList, remove_unlisted};
use crate::GradientTransformation;
use crate::checkpoint::manifest::{Crc, FORMAT};
use crate::checkpoint::save::{Save, folder_of, replace_file, target_of};
use crate::collective::{Collective, gather};
use crate::tree::Tree;
use crate::{Error, Result};

impl<T: GradientTransformation, P: Tree + ?Sized> Save<'_, T, P> {
    /// Writes a checkpoint of a [`sharded`](crate::wrapper::sharded()) optimizer, a file per rank.
    ///
    /// Each rank writes its shard of the state, the first rank the parameters too. Once all of these are on disk, the
    /// first rank writes a list of them to `path`. All ranks call it, with the same path, in a shared folder.
    ///
    /// [`Checkpoint::open`](crate::checkpoint::Checkpoint::open) opens the list, [`merge`](super::merge) combines all
    /// into one file. Files of an older checkpoint of the same path are removed once the new list exists.
    ///
    /// # Errors
    ///
    /// See [`Save`]. If any rank cannot write, all return an error; if a rank is lost, the others return an error that
    /// [`is_collective`](Error::is_collective). At any time `path` holds a complete checkpoint, the old or the new one.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use gradchain::checkpoint::{Checkpoint, Save};
    /// use gradchain::collective::threads;
    /// use gradchain::prelude::*;
    /// use gradchain::wrapper::sharded;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = &folder.path().join("step-1.safetensors");
    /// std::thread::scope(|scope| {
    ///     for ranks in threads(2, Duration::from_secs(10)) {
    ///         scope.spawn(move || {
    ///             let (optimizer, mut params) = (sharded(adamw(0.1), ranks), vec![1.0_f32; 40_000]);
    ///             let mut state = optimizer.init(&params)?;
    ///             optimizer.step(&mut params, &vec![0.5_f32; 40_000], &mut state)?;
    ///             Save::new(&optimizer, &state).params(&params).to_shards(path, &**optimizer.collective())
    ///         });
    ///     }
    /// });
    ///
    /// // On one machine: the same optimizer without the wrapper.
    /// let mut params = vec![0.0_f32; 40_000];
    /// let mut state = Checkpoint::open(path)?.load(&adamw(0.1), &mut params)?;
    /// assert!(params[39_999] < 1.0);
    /// adamw(0.1).step(&mut params, &vec![0.5_f32; 40_000], &mut state)?;
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "collective")))]
    pub fn to_shards(&self, path: impl AsRef<Path>, collective: &dyn Collective) -> Result<()> {
        let shown = path.as_ref().display().to_string();
        // The files are stored beside the list. If `path` is a symbolic link, the list is its target. A loop of links
        // fails when the list is written, on all ranks.
        let path = &target_of(path.as_ref()).unwrap_or_else(|_| path.as_ref().into());
        let (rank, size) = (collective.rank(), collective.size());
        let Some(called) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(Error::file(shown, "the path has no file name, or one that is not UTF-8"));
        };
        // Each attempt has its own names, so that listed files are never overwritten.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let mut attempt = (now ^ u64::from(std::process::id()).rotate_right(16)).to_le_bytes().to_vec();
        collective.broadcast(0, &mut attempt)?;
        let attempt: String = attempt.iter().map(|byte| format!("{byte:02x}")).collect();
        let file = |rank: usize| format!("{called}.{attempt}.{rank}-of-{size}{SHARD_SUFFIX}");
        let mut check = Crc::default();
        let written = replace_file(&folder_of(path).join(file(rank)), |shown, file| {
            check = self.write(shown, file, Some((rank, size)))?;
            Ok(())
        });
        let checks = all_done(collective, written.map(|()| check))?;
        let listed = if rank == 0 {
            let files = checks.into_iter().enumerate().map(|(rank, check)| (file(rank), check)).collect();
            ShardList { path: path.into(), gradchain_shards: FORMAT, files }.write_checkpoint()
        } else {
            Ok(())
        };
        all_done(collective, listed.map(|()| Crc::default())).map(drop)
    }
}

/// Gathers all ranks' results; fails if any failed.
fn all_done(collective: &dyn Collective, own: Result<Crc>) -> Result<Vec<Crc>> {
    let said = match &own {
        Ok(check) => check.0.to_le_bytes().to_vec(),
        Err(error) => format!("error: {error}").into_bytes(),
    };
    let all = gather(collective, &said)?;
    own?;
    let one = |(rank, said): (usize, &Vec<u8>)| match said[..].try_into() {
        Ok(check) => Ok(Crc(u32::from_le_bytes(check))),
        Err(_) => {
            let problem = format!("rank {rank} could not write its shard: {}", String::from_utf8_lossy(said));
            Err(Error::collective(collective.rank(), problem))
        }
    };
    all.iter().enumerate().map(one).collect()
}

impl ShardList {
    /// Writes the list, and removes the files that it replaces.
    fn write_checkpoint(&self) -> Result<()> {
        replace_file(&self.path, |shown, file| {
            let text = serde_json::to_vec(self).map_err(|error| Error::file(shown, error.to_string()))?;
            file.write_all(&text).map_err(|error| Error::io(shown, &error))
        })?;
        remove_unlisted(&self.path);
        Ok(())
    }
}
