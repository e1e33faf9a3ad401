//! Compares a foreign file with optimizer and parameters, and fills a state from it.

use std::collections::{BTreeMap, BTreeSet};

use safetensors::tensor::TensorInfo;

use super::contents::Contents;
use super::origin::{Filled, Origin, Parts, Role};
use crate::checkpoint::buffers::{self, Values};
use crate::checkpoint::tensors::leaf_dtype;
use crate::internal::engine::MismatchReport;
use crate::internal::restore::{Resolved, missing_heads};
use crate::internal::state::{ItemMut, ItemName, Moves, Owner, Single, below, buffers_of, items_mut, no_part};
use crate::tree::{BufferSpec, Structure, Tree, TreeMut, WalkMut};
use crate::{DType, Error, GradientTransformation, Migration, OptState, Result};

/// A file compared with a state.
pub(super) struct Fit<'a> {
    contents: &'a Contents,
    /// Tensors by role and new path, without leaves that start afresh.
    tensors_by_role: TensorsByRole<'a>,
    /// The source of each value of the state.
    values: Vec<Value<'a>>,
    /// New buffers, with tensors.
    buffers: Vec<(BufferSpec, &'a str)>,
    by_leaf: bool,
}

#[derive(Clone, Copy)]
enum Value<'a> {
    /// The value of `init`.
    Fresh,
    Tensor(&'a str),
    Steps(u64),
}

pub(super) struct Request<'a> {
    pub(super) contents: &'a Contents,
    pub(super) steps: Option<u64>,
    pub(super) migration: &'a Migration,
    pub(super) with_params: bool,
}

impl<'a> Request<'a> {
    pub(super) fn fit<T: GradientTransformation, P: Tree + ?Sized>(
        &self,
        transformation: &T,
        params: &P,
    ) -> Result<Fit<'a>> {
        let &Request { contents, with_params, .. } = self;
        transformation.validate()?;
        let here = Structure::of(params)?;
        let specs: Vec<_> = buffers_of(params).into_iter().map(|(spec, _)| spec).collect();
        let moves = self.migration.resolve_with_buffers((&contents.structure()?, &[]), (&here, &specs))?;
        let mut mismatch_report = MismatchReport { lines: contents.unexpected.clone(), ..MismatchReport::default() };
        let of_parts = moves.parts(&[], &[]).unwrap_or_else(|line| {
            mismatch_report.lines.push(format!("{line}: a file of {} names leaves, not parts", contents.origin.name()));
            Default::default()
        });
        let parts = Parts::of(contents.origin, &transformation.recipe(), &of_parts.fresh);
        mismatch_report.lines.splice(0..0, parts.lines.iter().cloned());
        mismatch_report.hints.extend(parts.hints.iter().cloned());
        let mut compare =
            Compare { contents, moves: &moves, mismatch_report, wanted: BTreeSet::new(), steps: BTreeMap::new() };
        let tensors_by_role = compare.moved();
        compare.steps = compare.leaf_steps(&tensors_by_role)?;
        let count = compare.count(&tensors_by_role, self.steps)?;
        let by_leaf = moves.starts_leaves() || compare.steps.values().any(|steps| Some(*steps) != count);
        // A file with some parameters must have all, of the right shapes.
        if with_params || tensors_by_role.keys().any(|(role, _)| *role == Role::Param) {
            compare.params(&here, &tensors_by_role);
        }
        let buffers = compare.buffers(if with_params { &specs } else { &[] }, &tensors_by_role);
        let mut state = OptState::new_counting(transformation, params, by_leaf)?;
        let mut values = Vec::new();
        let names: Vec<_> = items_mut(&mut *state, &here);
        let is_in = |part: &str| names.iter().any(|(name, _)| below(&name.field, part).is_some());
        let none = of_parts.must_exist.iter().map(|part| ("fresh_part", part));
        let none = none.chain(of_parts.cast.iter().map(|part| ("cast_part", part))).filter(|(_, part)| !is_in(part));
        compare.mismatch_report.lines.extend(none.map(|(verb, part)| no_part(verb, part)));
        for (name, item) in &names {
            let value = match (item, compare.is_fresh(name)) {
                _ if of_parts.is_fresh(&name.field) && !of_parts.is_of_params(&name.field) => Some(Value::Fresh),
                (_, true) => Some(Value::Fresh),
                _ if parts.is_reported(Some(&name.field)) => None,
                (ItemMut::Count(_), _) if ["count", "gradient_step"].contains(&last(&name.field)) => {
                    count.map(Value::Steps)
                }
                (ItemMut::Count(_), _) if last(&name.field) == "updates" => compare.updates(name, count),
                (ItemMut::Array(array), _) if of_parts.is_of_params(&name.field) => {
                    compare.param_copy(name, (array.dtype(), array.shape()), &tensors_by_role)
                }
                _ => compare.item(name, item, &parts, &of_parts.cast, &tensors_by_role),
            };
            values.extend(value);
        }
        if !with_params {
            // Unread, as the parameters are.
            let names =
                specs.iter().flat_map(|buffer| [Role::Buffer, Role::Param].map(|role| (role, buffer.path().into())));
            compare.wanted.extend(names);
        }
        compare.unexpected_tensors(&tensors_by_role, &parts);
        compare.missing_counts(&tensors_by_role, self.steps);
        compare.propose(&here, &tensors_by_role, self.migration.renames());
        let mismatch_report = compare.mismatch_report;
        if !mismatch_report.lines.is_empty() {
            return Err(Error::mismatch_report(&contents.tensors.display_name("the file"), mismatch_report));
        }
        Ok(Fit { contents, tensors_by_role, values, buffers, by_leaf })
    }
}

impl Fit<'_> {
    pub(super) fn state<T: GradientTransformation, P: Tree + ?Sized>(
        &self,
        transformation: &T,
        params: &P,
    ) -> Result<OptState<T>> {
        let mut state = OptState::new_counting(transformation, params, self.by_leaf)?;
        let structure = state.shared_structure();
        for ((_, item), value) in items_mut(&mut *state, &structure).into_iter().zip(&self.values) {
            match (item, *value) {
                (ItemMut::Array(mut leaf), Value::Tensor(tensor)) => {
                    self.contents.tensors.fill(tensor, &mut leaf, |_| {})?;
                }
                (count, Value::Steps(steps)) => _ = count.set(Single::Count(steps)),
                _ => {}
            }
        }
        Ok(state)
    }

    pub(super) fn buffers(&self) -> Result<Values> {
        let read = |(buffer, tensor): &(BufferSpec, &str)| {
            let (mut bytes, tensors) = (Vec::new(), &self.contents.tensors);
            tensors.chunks(tensor, |chunk| bytes.extend_from_slice(chunk))?;
            Ok((buffer.path().to_owned(), buffers::value(bytes, tensors.info(tensor)?.dtype, buffer)))
        };
        self.buffers.iter().map(read).collect::<Result<_>>().map(Values::of)
    }

    pub(super) fn fill_params<P: TreeMut + ?Sized>(&self, params: &mut P) -> Result<()> {
        let mut done = Ok(());
        params.walk_mut(&mut WalkMut::new(&mut String::new(), &mut |path, mut leaf| {
            if let (Some(tensor), Ok(())) = (self.tensors_by_role.get(&(Role::Param, path.to_owned())), &done) {
                done = self.contents.tensors.fill(tensor, &mut leaf, |_| {});
            }
        }));
        done
    }
}

fn last(field: &str) -> &str {
    field.rsplit('.').next().unwrap_or(field)
}

struct Compare<'a, 'm> {
    contents: &'a Contents,
    moves: &'m Resolved,
    mismatch_report: MismatchReport,
    /// Tensors that parameters and state need.
    wanted: BTreeSet<(Role, String)>,
    /// Steps of leaves with own counts.
    steps: BTreeMap<String, u64>,
}

type TensorsByRole<'a> = BTreeMap<(Role, String), &'a str>;

impl<'a> Compare<'a, '_> {
    fn line(&mut self, line: String) {
        self.mismatch_report.lines.push(line);
    }

    /// Returns the contents by new paths.
    fn moved(&mut self) -> TensorsByRole<'a> {
        let mut tensors_by_role = TensorsByRole::new();
        let contents = self.contents;
        for ((role, path), tensor) in &contents.tensors_by_role {
            let path = match role {
                Role::Step if !contents.origin.counts_leaves() => path.clone(),
                _ => match self.moves.to(path) {
                    Some(path) if self.moves.is_fresh(path) || self.moves.is_kept(path) => continue,
                    Some(path) => path.to_owned(),
                    // A count without arrays: of a dropped leaf, or of none.
                    None if *role == Role::Step => {
                        if !contents.tensors_by_role.keys().any(|(r, p)| *r != Role::Step && p == path) {
                            self.line(format!("unexpected tensor `{tensor}`"));
                        }
                        continue;
                    }
                    None => continue,
                },
            };
            if let Some(other) = tensors_by_role.insert((role.clone(), path.clone()), tensor.as_str()) {
                self.line(format!("`{other}` and `{tensor}` are both renamed to `{path}`"));
            }
        }
        tensors_by_role
    }

    fn is_fresh(&self, name: &ItemName) -> bool {
        matches!(&name.of, Owner::Leaf(path) if self.moves.is_fresh(path))
    }

    /// Compares a tensor with the leaf or array that it fills. State may be widened, which is exact.
    fn tensor(
        &mut self,
        wanted: (Role, String),
        (dtype, shape): (DType, &[usize]),
        is_cast: bool,
        tensors_by_role: &TensorsByRole<'a>,
    ) -> Option<&'a str> {
        let name = self.contents.origin.tensor(&wanted.0, &wanted.1);
        let found = tensors_by_role.get(&wanted).copied();
        let fits = |found: DType| {
            let widened = wanted.0 != Role::Param && found.is_exact_in(dtype);
            found == dtype || is_cast || widened
        };
        match found.map(|tensor| (tensor, self.contents.tensors.metadata.info(tensor))) {
            None => self.line(format!("missing tensor `{name}`: {dtype} {shape:?}")),
            Some((_, Some(info))) if leaf_dtype(info.dtype).is_some_and(fits) && info.shape == shape => {}
            Some((tensor, info)) => {
                let is_transposed = info
                    .is_some_and(|info| shape.len() == 2 && info.shape != shape && info.shape.iter().rev().eq(shape));
                let what = info.map_or_else(|| "nothing".into(), what);
                self.line(format!("`{tensor}`: expected {dtype} {shape:?}, found {what}"));
                let hint = "arrays are not transposed: a matrix must have the shape that it has in the file";
                if is_transposed && !self.mismatch_report.hints.iter().any(|known| known == hint) {
                    self.mismatch_report.hints.push(hint.into());
                }
                if info.is_some_and(|info| leaf_dtype(info.dtype).is_some() && info.shape == shape) {
                    let hint = if wanted.0 == Role::Param {
                        "`Migration::new().cast(Mask::all())` rounds parameters and their state to the dtypes of this \
                         model"
                    } else {
                        "`Migration::new().cast_part(..)` rounds arrays of the state to their dtypes here"
                    };
                    if !self.mismatch_report.hints.iter().any(|known| known == hint) {
                        self.mismatch_report.hints.push(hint.into());
                    }
                }
            }
        }
        if !self.wanted.insert(wanted) {
            self.line(format!("optimizer: two arrays of its state would load `{name}`"));
        }
        found
    }

    fn params(&mut self, here: &Structure, tensors_by_role: &TensorsByRole<'a>) {
        for leaf in here.leaves().iter().filter(|leaf| !self.moves.is_fresh(leaf.path())) {
            let is_cast = self.moves.is_cast(leaf.path());
            self.tensor((Role::Param, leaf.path().into()), (leaf.dtype(), leaf.shape()), is_cast, tensors_by_role);
        }
    }

    /// Compares buffers with their tensors. In PyTorch, a frozen parameter is among the parameters.
    fn buffers(&mut self, here: &[BufferSpec], tensors_by_role: &TensorsByRole<'a>) -> Vec<(BufferSpec, &'a str)> {
        let mut found = Vec::new();
        for buffer in here.iter().filter(|buffer| !self.moves.is_kept(buffer.path())) {
            let names = [Role::Buffer, Role::Param].map(|role| (role, buffer.path().to_owned()));
            let Some(name) = names.iter().find(|name| tensors_by_role.contains_key(name)) else {
                let tensor = self.contents.origin.tensor(&Role::Buffer, buffer.path());
                self.line(format!("missing tensor `{tensor}`: {} {:?}", buffer.dtype(), buffer.shape()));
                continue;
            };
            let tensor = tensors_by_role[name];
            self.wanted.insert(name.clone());
            let fits = |info: &TensorInfo| {
                buffers::is_of(info, buffer)
                    || (self.moves.is_cast(buffer.path()) && buffers::can_be_cast(info, buffer))
            };
            match self.contents.tensors.metadata.info(tensor) {
                Some(info) if fits(info) => found.push((buffer.clone(), tensor)),
                info => {
                    let found = info.map_or_else(|| "nothing".into(), what);
                    let (dtype, shape) = (buffer.dtype(), buffer.shape());
                    self.line(format!("`{tensor}`: expected {dtype} {shape:?}, found {found}"));
                }
            }
        }
        found
    }

    /// Finds the source of an array, or of a wrapper's own value.
    fn item(
        &mut self,
        name: &ItemName,
        item: &ItemMut<'_>,
        parts: &Parts,
        casts: &[String],
        tensors_by_role: &TensorsByRole<'a>,
    ) -> Option<Value<'a>> {
        match (parts.filled(self.contents.origin, &name.field), item, &name.of) {
            (Filled::Fresh, ..) => return Some(Value::Fresh),
            (Filled::From(role), ItemMut::Array(array), Owner::Leaf(path)) => {
                let is_cast = self.moves.is_cast(path) || casts.iter().any(|part| below(&name.field, part).is_some());
                let wanted = (role, path.clone());
                return self
                    .tensor(wanted, (array.dtype(), array.shape()), is_cast, tensors_by_role)
                    .map(Value::Tensor);
            }
            _ => {}
        }
        self.line(format!("state: {} has nothing for `{name}`", self.contents.origin.name()));
        None
    }

    fn param_copy(
        &mut self,
        name: &ItemName,
        (dtype, shape): (DType, &[usize]),
        tensors_by_role: &TensorsByRole<'a>,
    ) -> Option<Value<'a>> {
        let Owner::Leaf(path) = &name.of else { return None };
        let tensor = tensors_by_role.get(&(Role::Param, path.clone())).copied();
        let info = tensor.and_then(|tensor| self.contents.tensors.metadata.info(tensor));
        let fits = |found: DType| found == dtype || found.is_exact_in(dtype) || self.moves.is_cast(path);
        if !info.is_some_and(|info| info.shape == shape && leaf_dtype(info.dtype).is_some_and(fits)) {
            let found = info.map_or_else(|| "no parameter".into(), what);
            self.line(format!("`{name}`: expected {dtype} {shape:?}, found {found}"));
        }
        tensor.map(Value::Tensor)
    }

    fn updates(&self, name: &ItemName, count: Option<u64>) -> Option<Value<'a>> {
        let of_leaf = if let Owner::Leaf(path) = &name.of { self.steps.get(path).copied() } else { None };
        of_leaf.or(count).map(Value::Steps)
    }

    fn unexpected_tensors(&mut self, tensors_by_role: &TensorsByRole<'a>, parts: &Parts) {
        let lines = tensors_by_role.iter().filter(|(what, _)| what.0 != Role::Step && !self.wanted.contains(what));
        let lines = lines.filter(|((role, _), _)| !(matches!(role, Role::Array(_)) && parts.is_reported(None)));
        let lines: Vec<_> = lines.map(|(_, tensor)| format!("unexpected tensor `{tensor}`")).collect();
        self.mismatch_report.lines.extend(lines);
    }

    /// Returns steps by leaf, if counted separately.
    fn leaf_steps(&mut self, tensors_by_role: &TensorsByRole<'a>) -> Result<BTreeMap<String, u64>> {
        let mut steps = BTreeMap::new();
        for ((_, path), tensor) in tensors_by_role.iter().filter(|((role, _), _)| *role == Role::Step) {
            match self.contents.steps(tensor)? {
                Ok(found) => _ = steps.insert(path.clone(), found),
                Err(line) => self.line(line),
            }
        }
        Ok(steps)
    }

    /// Returns the steps: the given number, or the largest of all leaves.
    fn count(&mut self, tensors_by_role: &TensorsByRole<'a>, given: Option<u64>) -> Result<Option<u64>> {
        let counts_leaves = self.contents.origin.counts_leaves();
        if let Some(given) = given {
            let (fewer, at_most) = if counts_leaves { (true, "at most ") } else { (false, "") };
            let differ = self.steps.iter().filter(|(_, steps)| **steps > given || (!fewer && **steps != given));
            let tensor = |path: &String| tensors_by_role.get(&(Role::Step, path.clone())).copied().unwrap_or_default();
            let line = |(path, steps): (&String, &u64)| {
                format!("`{}`: expected {at_most}{given} steps (`at_step`), found {steps}", tensor(path))
            };
            let lines: Vec<_> = differ.map(line).collect();
            self.mismatch_report.lines.extend(lines);
        }
        Ok(given.or(self.steps.values().max().copied()))
    }

    fn missing_counts(&mut self, tensors_by_role: &TensorsByRole<'a>, given: Option<u64>) {
        let origin = self.contents.origin;
        let of_leaves = self.wanted.iter().filter(|(role, _)| origin.counts_leaves() && role.is_counted());
        let missing: BTreeSet<_> = of_leaves.map(|(_, path)| (Role::Step, path.clone())).collect();
        let missing = missing.iter().filter(|wanted| !tensors_by_role.contains_key(wanted));
        let missing = missing.map(|(role, path)| origin.tensor(role, path));
        let missing: Vec<_> = missing.map(|tensor| format!("missing tensor `{tensor}`: a step count")).collect();
        let none = given.is_none() && !tensors_by_role.keys().any(|(role, _)| *role == Role::Step);
        if none && missing.is_empty() && self.mismatch_report.lines.is_empty() {
            self.line("the file has no step count; set it with `at_step`".into());
        }
        self.mismatch_report.lines.extend(missing);
    }

    /// Proposes verbs that map the file's leaves to those here.
    fn propose(&mut self, here: &Structure, tensors_by_role: &TensorsByRole<'a>, renames: bool) {
        if self.mismatch_report.lines.is_empty() {
            return;
        }
        if self.contents.is_other_library() {
            let (other, call) = match self.contents.origin {
                Origin::Torch => ("Optax", "optax"),
                Origin::Optax => ("PyTorch", "torch"),
            };
            return self
                .mismatch_report
                .hints
                .push(format!("the names are those of {other}: `Import::{call}` reads them"));
        }
        if self.contents.is_by_number() {
            let hint = "the state is keyed by index: pass the names of the parameters, in the optimizer's order, to \
                        `names`";
            self.mismatch_report.hints.push(hint.into());
        }
        let shape = |tensor: &str| self.contents.tensors.metadata.info(tensor).map_or(&[][..], |info| &info.shape);
        let arrays = tensors_by_role.iter().filter(|((role, _), _)| *role != Role::Step);
        let there: BTreeMap<&str, &[usize]> = arrays.map(|((_, path), tensor)| (&**path, shape(tensor))).collect();
        let wanted = here.leaves().iter().map(|leaf| (leaf.path(), leaf.shape()));
        let missing: Vec<_> =
            wanted.filter(|(path, _)| !there.contains_key(path) && !self.moves.is_fresh(path)).collect();
        let unexpected: Vec<_> = there.into_iter().filter(|(path, _)| here.index_of(path).is_none()).collect();
        // Paths are already the new ones, but verbs take the old.
        let heads = if renames { Vec::new() } else { missing_heads(&missing, &unexpected) };
        if !heads.is_empty() {
            let verbs: String = heads.iter().map(|(from, to)| format!(".rename({from:?}, {to:?})")).collect();
            let is_added = |(from, _): &(String, String)| ["module", "_orig_mod"].contains(&last_level(from));
            let added = "; `DistributedDataParallel` and `torch.compile` add that prefix to names";
            let added = if heads.iter().all(is_added) { added } else { "" };
            self.mismatch_report
                .hints
                .push(format!("`Migration::new(){verbs}` renames leaves to their paths here{added}"));
            return;
        }
        let arrays: BTreeSet<&str> = tensors_by_role
            .keys()
            .filter(|(role, _)| matches!(role, Role::Array(_)))
            .map(|(_, path)| &**path)
            .collect();
        let stateless =
            self.wanted.iter().find(|(role, path)| matches!(role, Role::Array(_)) && !arrays.contains(&**path));
        if let Some((_, path)) = stateless.filter(|_| !arrays.is_empty()) {
            let hint =
                format!("`Migration::new().fresh({path:?})` initializes the state of this leaf, which the file lacks");
            self.mismatch_report.hints.push(hint);
        }
    }
}

fn last_level(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn what(info: &TensorInfo) -> String {
    match leaf_dtype(info.dtype) {
        Some(dtype) => format!("{dtype} {:?}", info.shape),
        None => format!("{:?} {:?}", info.dtype, info.shape),
    }
}
