use core::hash::{Hash, Hasher};
use std::hash::DefaultHasher;

use super::{Collective, gather, numbers, rank_and_size};
use crate::error::{Error, Result};

pub(crate) fn is_same(collective: &dyn Collective, number: u64) -> Result<bool> {
    Ok(numbers(collective, number)?.iter().all(|other| *other == number))
}

/// Compares all ranks' lines; fails with the first difference.
pub(crate) fn agree(collective: &dyn Collective, what: &str, lines: &[String]) -> Result<()> {
    rank_and_size(collective)?;
    let mut hasher = DefaultHasher::new();
    lines.hash(&mut hasher);
    if is_same(collective, hasher.finish())? {
        return Ok(());
    }
    let all = gather(collective, lines.join("\n").as_bytes())?;
    // All compare with the first, so that all reach the same result.
    let texts: Vec<_> = all.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
    let Some(other) = texts.iter().position(|text| *text != texts[0]) else { return Ok(()) };
    let [mut ours, mut theirs] = [&texts[0], &texts[other]].map(|text| text.lines());
    let problem = loop {
        match (ours.next(), theirs.next()) {
            (Some(ours), Some(theirs)) if ours == theirs => {}
            (ours, theirs) => {
                let [ours, theirs] = [ours, theirs].map(|line| line.unwrap_or("nothing more"));
                break format!("the ranks differ in {what}: rank 0 has {ours}; rank {other} has {theirs}");
            }
        }
    };
    Err(Error::collective(collective.rank(), problem))
}
