use crate::element::Element;
use crate::error::{Error, Result};
use crate::layout::BufferSpec;
use crate::tree::buffers::{BufferElement, buffers_of, elements_of};
use crate::tree::{Tree, TreeMut, WalkMut, weighted_mean};

/// The policy for [buffers](crate::tree::Buffer) when trees are averaged: running statistics, counters, flags.
///
/// A tree of weight zero is ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BufferPolicy {
    /// The weighted mean of floats, the maximum of integers, and for a `bool` true if any is.
    ///
    /// [`average`](crate::state::average) treats moments, counts and flags alike. Elements of other types must agree.
    #[default]
    Average,
    /// All trees must agree, else an error.
    Equal,
    /// The first tree's values, even with weight zero.
    First,
}

pub(crate) fn bytes_of<P: Tree + ?Sized>(tree: &P) -> Result<Vec<(BufferSpec, Vec<u8>)>> {
    let read = |(spec, buffer): (BufferSpec, &dyn crate::tree::Buffer)| {
        let mut bytes = Vec::new();
        buffer.read(&mut |chunk| {
            bytes.extend_from_slice(chunk);
            Ok(())
        })?;
        Ok((spec, bytes))
    };
    buffers_of(tree).into_iter().map(read).collect()
}

pub(crate) fn write_buffers<P: TreeMut + ?Sized>(tree: &mut P, means: Vec<Vec<u8>>) -> Result<()> {
    let (mut means, mut done) = (means.into_iter(), Ok(()));
    let mut write = |_: &str, buffer: &mut dyn crate::tree::Buffer| {
        if let (Ok(()), Some(mean)) = (&done, means.next()) {
            done = buffer.write(&mean);
        }
    };
    tree.walk_mut(&mut WalkMut::of_buffers(&mut String::new(), &mut |_, _| {}, &mut write));
    done
}

/// Returns one buffer's mean, from each tree's bytes and share.
pub(crate) fn mean_of_buffer(spec: &BufferSpec, trees: &[(&[u8], f64)], policy: BufferPolicy) -> Result<Vec<u8>> {
    let counted: Vec<(&[u8], f64)> = trees.iter().filter(|(_, share)| *share > 0.0).copied().collect();
    let first = if policy == BufferPolicy::First { trees.first() } else { counted.first() };
    let first = first.map_or(&[][..], |(bytes, _)| *bytes);
    if policy == BufferPolicy::First || counted.iter().all(|(bytes, _)| *bytes == first) {
        return Ok(first.to_vec());
    }
    let refuse = |problem: &str| Err(Error::state(format!("average: buffer `{}`", spec.path()), problem));
    if policy == BufferPolicy::Equal {
        return refuse("the trees differ in it");
    }
    match spec.dtype() {
        "f32" => means::<f32>(&counted),
        "f64" => means::<f64>(&counted),
        #[cfg(feature = "half")]
        "f16" => means::<half::f16>(&counted),
        #[cfg(feature = "half")]
        "bf16" => means::<half::bf16>(&counted),
        "i8" => largest::<i8>(&counted),
        "i16" => largest::<i16>(&counted),
        "i32" => largest::<i32>(&counted),
        "i64" => largest::<i64>(&counted),
        "u8" => largest::<u8>(&counted),
        "u16" => largest::<u16>(&counted),
        "u32" => largest::<u32>(&counted),
        "u64" => largest::<u64>(&counted),
        "bool" => largest::<bool>(&counted),
        other => refuse(&format!(
            "elements of type `{other}` have no mean, and the trees differ; pass `BufferPolicy::First` to keep the first \
             tree's"
        )),
    }
}

fn means<T: BufferElement + Element>(trees: &[(&[u8], f64)]) -> Result<Vec<u8>> {
    combined::<T>(trees, |values| T::from_f64(weighted_mean(values.iter().map(|(x, share)| (x.as_f64(), *share)))))
}

fn largest<T: BufferElement + Ord>(trees: &[(&[u8], f64)]) -> Result<Vec<u8>> {
    combined::<T>(trees, |values| values.iter().fold(values[0].0, |largest, (x, _)| largest.max(*x)))
}

/// Combines the trees, at least one, element by element.
fn combined<T: BufferElement>(trees: &[(&[u8], f64)], combine: impl Fn(&[(T, f64)]) -> T) -> Result<Vec<u8>> {
    let rows = trees.iter().map(|(bytes, share)| Ok((elements_of::<T>(bytes, bytes.len() / size_of::<T>())?, *share)));
    let rows: Vec<(Vec<T>, f64)> = rows.collect::<Result<_>>()?;
    let len = rows.iter().map(|(row, _)| row.len()).min().unwrap_or(0);
    let mut bytes = Vec::with_capacity(len * size_of::<T>());
    for i in 0..len {
        let values: Vec<(T, f64)> = rows.iter().map(|(row, share)| (row[i], *share)).collect();
        bytes.extend_from_slice(combine(&values).bytes().as_ref());
    }
    Ok(bytes)
}
