//! A foreign file's contents, by leaf.

use std::collections::BTreeMap;

use safetensors::tensor::Dtype;

use super::origin::{Origin, Role};
use crate::checkpoint::tensors::{Tensors, leaf_dtype};
use crate::internal::state::fits_in_memory;
use crate::tree::Structure;
use crate::{DType, Result};

#[derive(Debug)]
pub(super) struct Contents {
    pub(super) origin: Origin,
    pub(super) tensors: Tensors,
    /// Tensors by role and their leaf's path in the file.
    pub(super) tensors_by_role: BTreeMap<(Role, String), String>,
    pub(super) unexpected: Vec<String>,
}

impl Contents {
    /// Sorts a file's tensors by role and leaf. `names` are those of PyTorch's parameters, for state by number.
    pub(super) fn of(origin: Origin, tensors: Tensors, names: &[String]) -> Contents {
        let (mut tensors_by_role, mut unexpected) = (BTreeMap::new(), Vec::new());
        let mut all: Vec<String> = tensors.metadata.offset_keys();
        all.sort();
        for tensor in all {
            match origin.parse(&tensor, names) {
                Err(line) => unexpected.push(line),
                Ok(what) => {
                    if let Some(other) = tensors_by_role.get(&what) {
                        unexpected.push(format!("`{other}` and `{tensor}` are the same array of leaf `{}`", what.1));
                    }
                    tensors_by_role.insert(what, tensor);
                }
            }
        }
        Contents { origin, tensors, tensors_by_role, unexpected }
    }

    /// Returns whether state is by parameter number, as in PyTorch's `state_dict`.
    pub(super) fn is_by_number(&self) -> bool {
        let mut arrays =
            self.tensors_by_role.keys().filter(|(role, _)| matches!(role, Role::Array(_))).map(|(_, path)| path);
        let is_number = |path: &String| path.parse::<usize>().is_ok();
        self.origin == Origin::Torch && arrays.next().is_some_and(is_number) && arrays.all(is_number)
    }

    /// Returns whether names are the other library's.
    pub(super) fn is_other_library(&self) -> bool {
        let has = |begins: &str| self.tensors.metadata.offset_keys().iter().any(|name| name.starts_with(begins));
        match self.origin {
            Origin::Torch => !has("state/") && ["mu/", "nu/", "trace/", "sum_of_squares/"].into_iter().any(has),
            Origin::Optax => has("state/"),
        }
    }

    /// Returns the leaves and buffers with an array in the file, for masks and renames.
    pub(super) fn structure(&self) -> Result<Structure> {
        let mut leaves: BTreeMap<&str, (DType, &[usize])> = BTreeMap::new();
        for ((role, path), tensor) in &self.tensors_by_role {
            let info = self.tensors.info(tensor)?;
            let dtype = leaf_dtype(info.dtype).or((*role == Role::Buffer).then_some(DType::F32));
            match dtype {
                Some(dtype) if *role != Role::Step => {
                    if !fits_in_memory(&info.shape, dtype) {
                        return Err(self.tensors.damaged(format_args!("`{tensor}` exceeds the address space")));
                    }
                    leaves.entry(path).or_insert((dtype, &info.shape));
                }
                _ => {}
            }
        }
        Ok(Structure::from_parts(leaves.into_iter().map(|(path, (dtype, shape))| (path, dtype, shape))))
    }

    /// Returns a tensor's number of steps.
    ///
    /// # Errors
    ///
    /// The inner error tells why the tensor is not a number of steps.
    pub(super) fn steps(&self, tensor: &str) -> Result<Result<u64, String>> {
        let info = self.tensors.info(tensor)?;
        let size = match info.dtype {
            Dtype::F32 | Dtype::I32 | Dtype::U32 => 4,
            Dtype::F64 | Dtype::I64 | Dtype::U64 => 8,
            other => return Ok(Err(format!("`{tensor}`: expected a step count, found {other:?}"))),
        };
        if info.data_offsets.1 - info.data_offsets.0 != size {
            return Ok(Err(format!("`{tensor}`: expected one step count, found {:?}", info.shape)));
        }
        let mut bytes = Vec::new();
        self.tensors.chunks(tensor, |chunk| bytes.extend_from_slice(chunk))?;
        let (mut narrow, mut wide) = ([0; 4], [0; 8]);
        if size == 4 {
            narrow.copy_from_slice(&bytes)
        } else {
            wide.copy_from_slice(&bytes)
        }
        Ok(match info.dtype {
            Dtype::I32 => i64::from(i32::from_le_bytes(narrow)).try_into().map_err(|_| "negative".into()),
            Dtype::U32 => Ok(u32::from_le_bytes(narrow).into()),
            Dtype::I64 => i64::from_le_bytes(wide).try_into().map_err(|_| "negative".into()),
            Dtype::U64 => Ok(u64::from_le_bytes(wide)),
            // From there on adding one changes nothing, so the true count is unknown.
            Dtype::F32 => whole(f32::from_le_bytes(narrow).into(), (1_u64 << 24) as f64),
            _ => whole(f64::from_le_bytes(wide), (1_u64 << 53) as f64),
        }
        .map_err(|problem: String| format!("`{tensor}`: expected a step count, found {problem}")))
    }
}

fn whole(x: f64, stuck: f64) -> Result<u64, String> {
    match x {
        _ if x.fract() != 0.0 || x < 0.0 || !x.is_finite() => Err(format!("{x:?}")),
        _ if x >= stuck => Err(format!("{x:?}, where a count of this dtype saturates")),
        _ => Ok(x as u64),
    }
}
