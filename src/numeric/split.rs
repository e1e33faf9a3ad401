//! Work on arrays that is halved until there is little of it, for rayon's threads.

use super::isa::{Isa, Job, current_isa, dispatch};

/// Work of which the halves have nothing to do with each other.
pub(crate) trait Split: Job<Output = ()> + Send + Sized {
    /// Its halves, or itself if there is too little of it. Where it is cut must not depend on the number of threads.
    fn split(self) -> Result<[Self; 2], Self>;
}

/// Where to cut `len` rows, of which `per` belong together; nowhere if there are no more.
pub(crate) fn half(len: usize, per: usize) -> Option<usize> {
    (len > per).then(|| (len / 2).next_multiple_of(per))
}

/// Does all of it, on rayon's threads if there are several.
pub(crate) fn in_parts<J: Split>(job: J) {
    run(current_isa(), job);
}

fn run<J: Split>(isa: Isa, job: J) {
    match job.split() {
        Ok([one, other]) => join(|| run(isa, one), || run(isa, other)),
        Err(job) => dispatch(isa, job),
    }
}

/// Does both, at the same time if a thread has nothing else to do.
pub(crate) fn join(one: impl FnOnce() + Send, other: impl FnOnce() + Send) {
    let (mut one, mut other) = (Some(one), Some(other));
    both(&mut || one.take().into_iter().for_each(|one| one()), &mut || {
        other.take().into_iter().for_each(|other| other())
    });
}

type Half<'a> = &'a mut (dyn FnMut() + Send);

/// Not of the types of what is to be done: what rayon does for two halves is compiled once.
fn both(one: Half<'_>, other: Half<'_>) {
    #[cfg(feature = "rayon")]
    if rayon::current_num_threads() > 1 {
        rayon::join(one, other);
        return;
    }
    one();
    other();
}
