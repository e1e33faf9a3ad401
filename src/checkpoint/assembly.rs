//! Files of several ranks as one.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Seek, Write};

use super::buffers::PREFIX;
use super::file::Checkpoint;
use super::manifest::Manifest;
use super::save::{Spec, Take, in_order, metadata, write};
use super::tensors::Tensors;
use crate::internal::numeric::{Buffer, dense_strides, elements, is_dense, matching_strides, with_dtype};
use crate::internal::state::PartOf;
use crate::tree::{LeafMut, LeafRef};
use crate::{DType, Result};

/// Files with compared headers. Tensors stay on disk, and are assembled one at a time.
#[derive(Debug)]
pub(super) struct Assembly {
    files: Vec<Checkpoint>,
    tensors: BTreeMap<String, Scattered>,
}

/// A tensor in chunks of several files.
#[derive(Debug)]
struct Scattered {
    dtype: DType,
    shape: Vec<usize>,
    /// The strides that order the chunks.
    strides: Vec<isize>,
    /// Each chunk's file, start and length.
    chunks: Vec<(usize, usize, usize)>,
}

impl Checkpoint {
    /// Combines all ranks' files, in order, into one checkpoint.
    pub(super) fn assemble(name: String, files: Vec<Checkpoint>) -> Result<Checkpoint> {
        let manifest = merged(&files)?;
        let mut tensors = BTreeMap::new();
        let params = files[0].manifest.crc32.keys().filter(|tensor| tensor.starts_with("params/"));
        for tensor in params.chain(manifest.arrays.iter().map(|(_, tensor)| tensor)) {
            tensors.insert(tensor.clone(), Scattered::of(tensor, &files)?);
        }
        let assembly = Assembly { files, tensors };
        let metadata = metadata(None, &assembly.specs()).map_err(|problem| assembly.files[0].damaged(problem))?;
        let structure = assembly.files[0].structure.clone();
        Ok(Checkpoint::new(Tensors::external(name, metadata), manifest, structure, Some(assembly)))
    }

    pub(super) fn write_as_one(&self, shown: &str, to: &mut (impl Write + Seek)) -> Result<()> {
        let specs = self.assembly.as_ref().map(Assembly::specs).unwrap_or_default();
        let read = |number: usize, take: Take<'_>| take(&self.bytes(specs[number].name())?);
        write(shown, to, &specs, read, self.manifest.clone()).map(drop)
    }

    pub(super) fn fill_part(&self, tensor: &str, leaf: &mut LeafMut<'_>, part: &PartOf) -> Result<()> {
        let mut data = Buffer::zeros(leaf.dtype(), elements(&part.shape).unwrap_or(0));
        self.fill(tensor, &mut LeafMut::of_buffer(&mut data, &part.shape, &part.strides))?;
        let len = elements(leaf.shape()).unwrap_or(0);
        let dtype = leaf.dtype();
        if dtype.is_quantized() {
            leaf.take_bytes(&data.as_bytes()[dtype.bytes(part.begins)..][..dtype.bytes(len)]);
            return Ok(());
        }
        with_dtype!(leaf.dtype(), T => {
            let data = data.get_mut::<T>().unwrap_or_default();
            leaf.copy_from(&LeafRef::from_slice(&data[part.begins..part.begins + len], &[len])?);
        });
        Ok(())
    }
}

impl Assembly {
    /// Returns the specs of all tensors, in the order of a checkpoint in one file.
    pub(super) fn specs(&self) -> Vec<Spec> {
        let spec = |(name, tensor): (&String, &Scattered)| Spec::new(name.clone(), tensor.dtype, &tensor.shape);
        // The first rank has all buffers.
        let first = &self.files[0].tensors.metadata;
        let buffers = first.tensors().into_iter().filter(|(name, _)| name.starts_with(PREFIX));
        let buffers = buffers.map(|(name, info)| Spec::of(name, info.dtype, info.shape.clone()));
        let mut specs: Vec<Spec> = self.tensors.iter().map(spec).chain(buffers).collect();
        in_order(&mut specs, |spec| spec);
        specs
    }

    pub(super) fn verify(&self) -> Result<()> {
        self.files.iter().try_for_each(Checkpoint::verify)
    }

    /// Returns a tensor's verified bytes, in the element order of a checkpoint in one file.
    pub(super) fn bytes(&self, tensor: &str) -> Result<Vec<u8>> {
        if tensor.starts_with(PREFIX) {
            return self.files[0].bytes(tensor);
        }
        let Some(scattered) = self.tensors.get(tensor) else { return Ok(Vec::new()) };
        let len = elements(&scattered.shape).unwrap_or(0);
        if scattered.dtype.is_quantized() {
            let bytes = scattered.chunks.iter().map(|(file, ..)| self.files[*file].bytes(tensor));
            return bytes.collect::<Result<Vec<_>>>().map(|chunks| chunks.concat());
        }
        let mut data = Buffer::zeros(scattered.dtype, len);
        for &(file, begins, len) in &scattered.chunks {
            with_dtype!(scattered.dtype, T => {
                let data = data.get_mut::<T>().unwrap_or_default();
                let mut stretch = LeafMut::from_slice(&mut data[begins..begins + len], &[len])?;
                self.files[file].fill(tensor, &mut stretch)
            })?;
        }
        Ok(LeafRef::of_buffer(&data, &scattered.shape, &scattered.strides).to_bytes())
    }
}

fn merged(files: &[Checkpoint]) -> Result<Manifest> {
    let first = &files[0].manifest;
    let mut whole = Manifest {
        shard: None,
        parts: BTreeMap::new(),
        quantized: BTreeMap::new(),
        crc32: BTreeMap::new(),
        arrays: Vec::new(),
        ..first.clone()
    };
    let mut values: BTreeMap<_, _> = first.values.iter().map(|(name, value)| (name, (*value, 0))).collect();
    let mut known = BTreeSet::new();
    for (rank, file) in files.iter().enumerate() {
        let of_file = &file.manifest;
        if (&of_file.optimizer, &of_file.structure) != (&first.optimizer, &first.structure) {
            return Err(file.damaged("its optimizer or model differs from rank 0's"));
        }
        for (name, value) in &of_file.values {
            match values.entry(name) {
                Entry::Vacant(place) => {
                    place.insert((*value, rank));
                    whole.values.push((name.clone(), *value));
                }
                Entry::Occupied(place) if place.get().0.same(value) => {}
                Entry::Occupied(place) => {
                    let other = place.get().1;
                    return Err(file.damaged(format_args!("`{name}` differs from rank {other}'s")));
                }
            }
        }
        whole.quantized.extend(of_file.quantized.clone());
        let new = of_file.arrays.iter().filter(|(_, tensor)| known.insert(tensor));
        whole.arrays.extend(new.cloned());
    }
    Ok(whole)
}

impl Scattered {
    /// Finds a tensor's chunk in each file, in all or none.
    fn of(tensor: &str, files: &[Checkpoint]) -> Result<Scattered> {
        let having = files.iter().enumerate().filter(|(_, file)| file.tensors.get(tensor).is_some());
        let having: Vec<_> = having.collect();
        // Of a leaf that one rank has whole, the others have an empty chunk.
        let is_nothing = |file: &Checkpoint| {
            let info = file.tensors.get(tensor);
            file.manifest.parts.contains_key(tensor) && info.is_some_and(|info| elements(&info.shape) == Some(0))
        };
        let nowhere = having.iter().all(|(_, file)| is_nothing(file));
        let mut of_tensor: Option<Scattered> = None;
        for (number, file) in having.into_iter().filter(|(_, file)| nowhere || !is_nothing(file)) {
            let info = file.tensors.info(tensor)?;
            let part = file.manifest.parts.get(tensor);
            let (dtype, whole) = file.array(tensor)?;
            let strides = file
                .manifest
                .quantized
                .get(tensor)
                .map_or_else(|| dense_strides(&whole).to_vec(), |c| c.strides.clone());
            let all = PartOf { begins: 0, shape: whole, strides };
            let PartOf { begins, shape, strides } = part.unwrap_or(&all).clone();
            let known = of_tensor.get_or_insert_with(|| Scattered {
                dtype,
                shape: shape.clone(),
                strides: strides.clone(),
                chunks: Vec::new(),
            });
            if (known.dtype, &known.shape, &known.strides) != (dtype, &shape, &strides) {
                return Err(
                    file.damaged(format_args!("dtype, shape or strides of `{tensor}` differ from other ranks'"))
                );
            }
            // The declared layout of the whole array must cover it.
            let bytes = elements(&shape).and_then(|len| len.checked_mul(dtype.size()));
            if strides.len() != shape.len()
                || bytes.is_none()
                || !is_dense(&shape, &strides, &matching_strides(&shape, &strides))
            {
                return Err(file.damaged(format_args!("`{tensor}` exceeds the address space, or has invalid strides")));
            }
            let len = elements(&info.shape).map_or(usize::MAX, |len| dtype.elements(len));
            match (part, known.chunks.first()) {
                // Unsharded tensors are the same everywhere.
                (None, Some((other, ..))) => {
                    if files[*other].manifest.crc32.get(tensor) != file.manifest.crc32.get(tensor) {
                        return Err(file.damaged(format_args!("the checksum of `{tensor}` differs from other ranks'")));
                    }
                }
                _ => known.chunks.push((number, begins, len)),
            }
        }
        let Some(mut known) = of_tensor else {
            return Err(files[0].damaged(format_args!("missing tensor `{tensor}`")));
        };
        known.chunks.sort_by_key(|(_, begins, len)| (*begins, *len));
        let mut filled = 0;
        for (number, begins, len) in &known.chunks {
            if *begins != filled {
                let problem = format_args!(
                    "`{tensor}` begins at element {begins}, not {filled}, where the earlier ranks' parts end"
                );
                return Err(files[*number].damaged(problem));
            }
            filled = begins.saturating_add(*len);
        }
        let expected = elements(&known.shape).unwrap_or(0);
        if filled != expected {
            let problem = format_args!("all ranks together have {filled} of {expected} elements of `{tensor}`");
            return Err(files[0].damaged(problem));
        }
        Ok(known)
    }
}
