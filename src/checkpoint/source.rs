//! Where the bytes of a checkpoint are.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Mutex;

/// Bytes that can be read from any place.
#[derive(Debug)]
pub(super) enum Source {
    /// Read piece by piece.
    File { file: Mutex<File>, len: u64 },
    /// In memory, or mapped into it.
    Bytes(Bytes),
    /// In other files, which are not read from here.
    Elsewhere,
}

#[derive(Debug)]
pub(super) enum Bytes {
    Owned(Vec<u8>),
    Mapped(memmap2::Mmap),
}

impl core::ops::Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Owned(bytes) => bytes,
            Bytes::Mapped(map) => map,
        }
    }
}

impl Source {
    pub(super) fn file(file: File) -> io::Result<Source> {
        let len = file.metadata()?.len();
        Ok(Source::File { file: Mutex::new(file), len })
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Source::File { len, .. } => *len,
            Source::Bytes(bytes) => bytes.len() as u64,
            Source::Elsewhere => 0,
        }
    }

    /// Fills a buffer from a place on.
    pub(super) fn read_at(&self, place: u64, into: &mut [u8]) -> io::Result<()> {
        match self {
            Source::File { file, .. } => {
                let mut file = file.lock().map_err(|_| io::Error::other("another thread panicked while reading it"))?;
                file.seek(SeekFrom::Start(place))?;
                file.read_exact(into)
            }
            Source::Bytes(bytes) => {
                let from = usize::try_from(place).ok().and_then(|start| bytes.get(start..)?.get(..into.len()));
                into.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
            Source::Elsewhere => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}
