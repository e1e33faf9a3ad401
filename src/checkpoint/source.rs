use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

/// Bytes readable at any offset.
#[derive(Debug)]
pub(super) enum Source {
    /// Open, and read in chunks.
    File { file: Mutex<File>, len: u64 },
    /// Open only during reads, because the number of shards may exceed the process limit of open files.
    Named { path: PathBuf, len: u64 },
    /// In memory, or mapped.
    Bytes(Bytes),
    /// In other files, not read from here.
    External,
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

pub(super) enum Reader<'a> {
    Shared(MutexGuard<'a, File>),
    Own(File),
    Bytes(&'a [u8]),
}

impl Source {
    pub(super) fn file(file: File) -> io::Result<Source> {
        let len = file.metadata()?.len();
        Ok(Source::File { file: Mutex::new(file), len })
    }

    /// Returns a file that is closed between reads.
    pub(super) fn named(path: PathBuf) -> io::Result<Source> {
        let len = File::open(&path)?.metadata()?.len();
        Ok(Source::Named { path, len })
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Source::File { len, .. } | Source::Named { len, .. } => *len,
            Source::Bytes(bytes) => bytes.len() as u64,
            Source::External => 0,
        }
    }

    pub(super) fn reader(&self) -> io::Result<Reader<'_>> {
        Ok(match self {
            Source::File { file, .. } => {
                let file = file.lock().map_err(|_| io::Error::other("another thread panicked while reading it"))?;
                Reader::Shared(file)
            }
            Source::Named { path, .. } => Reader::Own(File::open(path)?),
            Source::Bytes(bytes) => Reader::Bytes(bytes),
            Source::External => return Err(io::ErrorKind::Unsupported.into()),
        })
    }
}

impl Reader<'_> {
    pub(super) fn read_at(&mut self, place: u64, into: &mut [u8]) -> io::Result<()> {
        let file = match self {
            Reader::Shared(file) => file,
            Reader::Own(file) => file,
            Reader::Bytes(bytes) => {
                let from = usize::try_from(place).ok().and_then(|start| bytes.get(start..)?.get(..into.len()));
                into.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
                return Ok(());
            }
        };
        file.seek(SeekFrom::Start(place))?;
        file.read_exact(into)
    }
}
