//! Comparing a file of others with an optimizer and parameters, and filling a state from it.

use std::collections::{BTreeMap, BTreeSet};

use safetensors::tensor::TensorInfo;

use super::contents::Contents;
use super::origin::{ARRAYS, Role, strangers};
use crate::checkpoint::buffers::{self, Values};
use crate::checkpoint::tensors::leaf_dtype;
use crate::element::DType;
use crate::engine::Stage;
use crate::error::{Error, Result};
use crate::migrate::{Migration, Resolved};
use crate::state::{ItemMut, ItemName, Moves, Owner, Single, items_mut};
use crate::transformation::OptState;
use crate::tree::{BufferSpec, Structure, Tree, TreeMut, WalkMut, buffers_of};

/// A file, and a state that it fits.
pub(super) struct Fit<'a, T: Stage> {
    pub(super) state: OptState<T>,
    contents: &'a Contents,
    /// By what it is and the path of its leaf here; leaves that start afresh are not in it.
    held: BTreeMap<(Role, String), &'a str>,
    /// The buffers here, each with its tensor.
    buffers: Vec<(String, &'a str)>,
    steps: u64,
}

impl<'a, T: Stage> Fit<'a, T> {
    /// Compares everything.
    pub(super) fn new<P: Tree + ?Sized>(
        contents: &'a Contents,
        steps: Option<u64>,
        migration: &Migration,
        transformation: &T,
        params: &P,
        with_params: bool,
    ) -> Result<Fit<'a, T>> {
        let mut state = OptState::new(transformation, params)?;
        let here = state.shared_structure();
        let mut compare = Compare { contents, lines: Vec::new(), wanted: BTreeSet::new() };
        let whose = contents.origin.name();
        strangers(&transformation.recipe(), "$", &mut |place, name| {
            compare.lines.push(format!("optimizer: {place}: {whose} has no state such as that of {name}"));
        });
        compare.lines.extend(contents.strange.iter().cloned());
        let specs: Vec<_> = buffers_of(params).into_iter().map(|(spec, _)| spec).collect();
        let moves = migration.resolve_beside((&contents.structure()?, &[]), (&here, &specs))?;
        let held = compare.moved(&moves);
        // A file that has some of the parameters must have them all, of the right shapes.
        if with_params || held.keys().any(|(role, _)| *role == Role::Param) {
            compare.params(&here, &held, &moves);
        }
        let buffers = compare.buffers(if with_params { &specs } else { &[] }, &held, &moves);
        for (name, item) in items_mut(&mut *state, &here) {
            compare.item(&name, &item, &held, &moves);
        }
        if !with_params {
            // They are not read, as parameters are not.
            let names =
                specs.iter().flat_map(|buffer| [Role::Buffer, Role::Param].map(|role| (role, buffer.path().into())));
            compare.wanted.extend(names);
        }
        compare.unwanted(&held);
        let steps = compare.steps(&held, steps)?;
        match (steps, compare.lines.is_empty()) {
            (Some(steps), true) => Ok(Fit { state, contents, held, buffers, steps }),
            _ => Err(Error::misfit(&contents.tensors.called("the file"), compare.lines.into())),
        }
    }

    /// Writes the state.
    pub(super) fn fill_state(&mut self) -> Result<()> {
        let structure = self.state.shared_structure();
        for (name, item) in items_mut(&mut *self.state, &structure) {
            let wanted = role(&name);
            match item {
                ItemMut::Array(mut leaf) => {
                    if let Some(tensor) = wanted.and_then(|wanted| self.held.get(&wanted)) {
                        self.contents.tensors.fill(tensor, &mut leaf, |_| {})?;
                    }
                }
                count => {
                    count.set(Single::Count(self.steps));
                }
            }
        }
        Ok(())
    }

    /// Reads what the buffers are to be.
    pub(super) fn buffers(&self) -> Result<Values> {
        let read = |(path, tensor): &(String, &str)| {
            let mut bytes = Vec::new();
            self.contents.tensors.pieces(tensor, |piece| bytes.extend_from_slice(piece))?;
            Ok((path.clone(), bytes))
        };
        self.buffers.iter().map(read).collect::<Result<_>>().map(Values::of)
    }

    /// Writes the parameters.
    pub(super) fn fill_params<P: TreeMut + ?Sized>(&self, params: &mut P) -> Result<()> {
        let mut done = Ok(());
        params.walk_mut(&mut WalkMut::new(&mut String::new(), &mut |path, mut leaf| {
            if let (Some(tensor), Ok(())) = (self.held.get(&(Role::Param, path.to_owned())), &done) {
                done = self.contents.tensors.fill(tensor, &mut leaf, |_| {});
            }
        }));
        done
    }
}

/// What an array of a state is to be filled from.
fn role(name: &ItemName) -> Option<(Role, String)> {
    let Owner::Leaf(path) = &name.of else { return None };
    let field = last(&name.field);
    ARRAYS.iter().find(|(array, _)| *array == field).map(|(_, role)| (*role, path.clone()))
}

fn last(field: &str) -> &str {
    field.rsplit('.').next().unwrap_or(field)
}

/// A comparison that is going on.
struct Compare<'a> {
    contents: &'a Contents,
    lines: Vec<String>,
    /// What parameters and state take from the file.
    wanted: BTreeSet<(Role, String)>,
}

type Held<'a> = BTreeMap<(Role, String), &'a str>;

impl<'a> Compare<'a> {
    /// What the file holds, by the paths here.
    fn moved(&mut self, moves: &Resolved) -> Held<'a> {
        let mut held = Held::new();
        for ((role, path), tensor) in &self.contents.held {
            let path = match role {
                Role::Step if !self.contents.origin.counts_leaves() => path.clone(),
                _ => match moves.to(path) {
                    Some(path) if moves.is_fresh(path) || moves.is_kept(path) => continue,
                    Some(path) => path.to_owned(),
                    // A count without any array: of a leaf that is dropped, or of none.
                    None if *role == Role::Step => {
                        let of_none = !self.contents.held.keys().any(|(r, p)| *r != Role::Step && p == path);
                        if of_none {
                            self.lines.push(format!("unexpected tensor `{tensor}`"));
                        }
                        continue;
                    }
                    None => continue,
                },
            };
            if let Some(other) = held.insert((*role, path.clone()), tensor.as_str()) {
                self.lines.push(format!("`{other}` and `{tensor}` are both renamed to `{path}`"));
            }
        }
        held
    }

    /// Compares a tensor with the leaf or the array that it is to fill.
    fn tensor(&mut self, wanted: (Role, String), dtype: DType, shape: &[usize], held: &Held<'a>) {
        match held.get(&wanted).copied() {
            None => {
                let tensor = self.contents.origin.tensor(wanted.0, &wanted.1);
                self.lines.push(format!("missing tensor `{tensor}`: {dtype} {shape:?}"));
            }
            Some(tensor) => match self.contents.tensors.metadata.info(tensor) {
                Some(info) if leaf_dtype(info.dtype) == Some(dtype) && info.shape == shape => {}
                info => {
                    let found = info.map_or_else(|| "nothing".into(), what);
                    self.lines.push(format!("`{tensor}`: expected {dtype} {shape:?}, found {found}"));
                }
            },
        }
        let tensor = self.contents.origin.tensor(wanted.0, &wanted.1);
        if !self.wanted.insert(wanted) {
            self.lines.push(format!("optimizer: two arrays of its state would be filled from `{tensor}`"));
        }
    }

    fn params(&mut self, here: &Structure, held: &Held<'a>, moves: &Resolved) {
        for leaf in here.leaves().iter().filter(|leaf| !moves.is_fresh(leaf.path())) {
            self.tensor((Role::Param, leaf.path().into()), leaf.dtype(), leaf.shape(), held);
        }
    }

    /// Compares the buffers here with their tensors, which may be parameters: in PyTorch a frozen one is.
    fn buffers(&mut self, here: &[BufferSpec], held: &Held<'a>, moves: &Resolved) -> Vec<(String, &'a str)> {
        let mut found = Vec::new();
        for buffer in here.iter().filter(|buffer| !moves.is_kept(buffer.path())) {
            let names = [Role::Buffer, Role::Param].map(|role| (role, buffer.path().to_owned()));
            let Some(name) = names.iter().find(|name| held.contains_key(name)) else {
                let tensor = self.contents.origin.tensor(Role::Buffer, buffer.path());
                self.lines.push(format!("missing tensor `{tensor}`: {} {:?}", buffer.dtype(), buffer.shape()));
                continue;
            };
            let tensor = held[name];
            self.wanted.insert(name.clone());
            match self.contents.tensors.metadata.info(tensor) {
                Some(info) if buffers::is_of(info, buffer) => found.push((buffer.path().to_owned(), tensor)),
                info => {
                    let found = info.map_or_else(|| "nothing".into(), what);
                    let (dtype, shape) = (buffer.dtype(), buffer.shape());
                    self.lines.push(format!("`{tensor}`: expected {dtype} {shape:?}, found {found}"));
                }
            }
        }
        found
    }

    fn item(&mut self, name: &ItemName, item: &ItemMut<'_>, held: &Held<'a>, moves: &Resolved) {
        match (item, role(name), &name.of) {
            (ItemMut::Count(_), _, Owner::State) if last(&name.field) == "count" => {}
            (ItemMut::Array(_), Some((_, path)), _) if moves.is_fresh(&path) => {}
            (ItemMut::Array(array), Some(wanted), _) => {
                self.tensor(wanted, array.dtype(), array.shape(), held);
            }
            _ => self.lines.push(format!("state: {} has nothing for `{name}`", self.contents.origin.name())),
        }
    }

    /// What is in the file and nothing takes.
    fn unwanted(&mut self, held: &Held<'a>) {
        let lines = held.iter().filter(|(what, _)| what.0 != Role::Step && !self.wanted.contains(what));
        let lines: Vec<_> = lines.map(|(_, tensor)| format!("unexpected tensor `{tensor}`")).collect();
        self.lines.extend(lines);
    }

    /// The count that all agree on.
    fn steps(&mut self, held: &Held<'a>, given: Option<u64>) -> Result<Option<u64>> {
        let mut agreed = given.map(|steps| (steps, String::from("`at_step`")));
        for (_, tensor) in held.iter().filter(|((role, _), _)| *role == Role::Step) {
            match (self.contents.steps(tensor)?, &agreed) {
                (Err(line), _) => self.lines.push(line),
                (Ok(steps), None) => agreed = Some((steps, format!("`{tensor}`"))),
                (Ok(steps), Some((expected, whose))) if steps != *expected => {
                    self.lines.push(format!("`{tensor}`: expected {expected} steps, as {whose} says, found {steps}"));
                }
                (Ok(_), Some(_)) => {}
            }
        }
        // Adam of PyTorch counts for each parameter.
        let missing = self.wanted.iter().filter(|(role, path)| {
            *role == Role::Mu && !held.contains_key(&(Role::Step, path.clone())) && self.contents.origin.counts_leaves()
        });
        let missing = missing.map(|(_, path)| self.contents.origin.tensor(Role::Step, path));
        let missing: Vec<_> = missing.map(|tensor| format!("missing tensor `{tensor}`: a count of steps")).collect();
        if agreed.is_none() && missing.is_empty() && self.lines.is_empty() {
            self.lines.push("there is no count of steps; `at_step` says it".into());
        }
        self.lines.extend(missing);
        Ok(agreed.map(|(steps, _)| steps))
    }
}

/// A tensor as messages show it.
fn what(info: &TensorInfo) -> String {
    match leaf_dtype(info.dtype) {
        Some(dtype) => format!("{dtype} {:?}", info.shape),
        None => format!("{:?} {:?}", info.dtype, info.shape),
    }
}
