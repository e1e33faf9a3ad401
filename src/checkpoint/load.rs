//! Loading: everything is compared before anything is changed.

use core::fmt;
use std::collections::{HashMap, HashSet};

use super::buffers::{Values, buffer_name};
use super::file::Checkpoint;
use super::save::param_name;
use super::tensors::put_bytes;
use crate::internal::engine::MismatchReport;
use crate::internal::restore::{BufferSpecs, Model, Resolved, Saved, moves};
use crate::internal::state::{
    ItemMut, ItemName, ItemSpec, Moves, Owner, Source, assign_item, buffers_of, items, items_mut,
};
use crate::state::Kind;
use crate::tree::{BufferSpec, LeafSpec, Structure, Tree, TreeMut, WalkMut};
use crate::{DType, Error, GradientTransformation, Migration, OptState, Result};

/// The permitted differences between a checkpoint and the target of loading; none by default.
///
/// # Example
///
/// Resume with another learning rate, that of the optimizer here, and with a larger head:
///
/// ```
/// use gradchain::Migration;
/// use gradchain::checkpoint::{Checkpoint, Load, Save};
/// use gradchain::prelude::*;
/// use gradchain::tree::DynTree;
/// use ndarray::array;
///
/// let mut params = DynTree::new();
/// params.insert("body", array![1.0_f32, 2.0]);
/// params.insert("head", array![3.0_f32]);
/// let optimizer = adam(0.1);
/// let state = optimizer.init(&params)?;
/// let mut file = std::io::Cursor::new(Vec::new());
/// Save::new(&optimizer, &state).params(&params).to_writer(&mut file)?;
/// let file = Checkpoint::from_bytes(file.into_inner())?;
///
/// let mut params = DynTree::new();
/// params.insert("body", array![0.0_f32, 0.0]);
/// params.insert("head", array![0.5_f32, 0.5]);
/// let optimizer = adam(0.01);
/// let error = file.load(&optimizer, &mut params).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "the checkpoint does not fit: 2 differences\n  \
///        optimizer: $.adam.learning_rate: expected 0.01, found 0.1\n  \
///        parameters: head: expected shape [2], found [1]\n  \
///        `Load::strict().may_differ(\"learning_rate\")` resumes with the current optimizer\n  \
///        changes of leaves need a `Migration`: `fresh`, `drop`, `rename`"
/// );
///
/// let load = Load::strict().may_differ("learning_rate").migrating(Migration::new().fresh(Mask::path("head")));
/// let (state, report) = load.load(&file, &optimizer, &mut params)?;
/// assert_eq!(params.get::<f32>("body").unwrap(), array![1.0, 2.0].into_dyn());
/// assert_eq!(params.get::<f32>("head").unwrap(), array![0.5, 0.5].into_dyn());
/// assert_eq!(report.loaded, ["body"]);
/// assert_eq!(report.fresh, ["head"]);
/// assert_eq!(report.differed, ["$.adam.learning_rate: expected 0.01, found 0.1"]);
/// # Ok::<(), gradchain::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is loaded until a method such as `load` is called"]
pub struct Load {
    may_differ: Vec<String>,
    migration: Migration,
}

/// The result of loading, leaf by leaf.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Leaves and buffers loaded from the file, by their paths here.
    pub loaded: Vec<String>,
    /// Leaves with fresh state, and buffers, that kept their values.
    pub fresh: Vec<String>,
    /// Leaves and buffers of the file that were dropped, by their paths there.
    pub dropped: Vec<String>,
    /// Permitted differences of the optimizer's arguments and parts; those of the optimizer here are used.
    pub differed: Vec<String>,
    /// Leaves of another type than in the file, by their paths here, as permitted by [`cast`](Migration::cast).
    pub cast: Vec<String>,
    /// Fields of the state that start as in `init`, such as those of a new wrapper; not those that do so for fresh
    /// leaves only.
    pub started: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut part = |what: &str, items: &[String]| {
            items.iter().try_for_each(|item| writeln!(f, "{what}: {}", if item.is_empty() { "(root)" } else { item }))
        };
        part("loaded", &self.loaded)?;
        part("fresh", &self.fresh)?;
        part("dropped", &self.dropped)?;
        part("differed", &self.differed)?;
        part("cast", &self.cast)?;
        part("started", &self.started)
    }
}

impl Load {
    /// Returns options that permit no difference.
    pub fn strict() -> Load {
        Load::default()
    }

    /// Permits a difference in this argument of the optimizer.
    ///
    /// Give its name, for every place, or its place as in messages, such as `$.chain[1].adamw.learning_rate`. The
    /// argument of the optimizer here is used, even if [`inject_hyperparams`](crate::inject_hyperparams()) keeps it in
    /// the state: the saved number, or one set during training, is not.
    ///
    /// It may not change the contents of the state: `may_differ("mu_dtype")` does not permit a state of another type. A
    /// name that neither optimizer has is an error. For an entirely different optimizer give `may_differ("$")`, and
    /// describe its state in a [migration](Load::migrating).
    pub fn may_differ(mut self, argument: impl Into<String>) -> Load {
        self.may_differ.push(argument.into());
        self
    }

    /// Describes renamed, added and removed leaves and buffers. Fresh ones keep their values, dropped ones are not
    /// read.
    ///
    /// A parameter frozen since is a leaf in the file and a buffer here: `drop` discards its state, and its value is
    /// loaded. A parameter trained from now on is a buffer in the file: its state is `fresh`, and its value is loaded,
    /// unless `drop` discards the buffer.
    ///
    /// If the migration describes parts of the state, as [`insert_part`](Migration::insert_part) does, it permits new
    /// and removed members of chains, wrapped parts, and changed names; the [report](Report::differed) lists them.
    /// Arguments, and a part in the place of another, still may not differ.
    pub fn migrating(mut self, migration: Migration) -> Load {
        self.migration = migration;
        self
    }

    /// Loads the parameters and [buffers](crate::tree::Buffer), and returns the saved state.
    ///
    /// # Errors
    ///
    /// Fails, with nothing changed, if the file is damaged or has no parameters, or anything differs without
    /// permission: the optimizer, the parameters' structure, the buffers' paths, types and shapes, the fields of the
    /// state. Every difference is listed.
    ///
    /// Parameters from a file on disk are in memory twice during loading, so that nothing is changed if the file
    /// changes during the read. Those from a [mapped](Checkpoint::map) file need no second copy.
    pub fn load<T: GradientTransformation, P: TreeMut + ?Sized>(
        &self,
        file: &Checkpoint,
        transformation: &T,
        params: &mut P,
    ) -> Result<(OptState<T>, Report)> {
        let (mut fit, values) = self.ready(file, transformation, params)?;
        fit.fill_state(file)?;
        fill_params(file, &fit.moves, &fit.params, params)?;
        values.write(params)?;
        fit.initialize_missing(transformation, params)?;
        Ok((fit.state, fit.report))
    }

    /// Compares and verifies everything, and reads new values of buffers.
    fn ready<T: GradientTransformation, P: TreeMut + ?Sized>(
        &self,
        file: &Checkpoint,
        transformation: &T,
        params: &mut P,
    ) -> Result<(Fit<T>, Values)> {
        has_params(file)?;
        let here = buffers(params);
        let fit =
            self.fit(file, transformation, params, BufferSpecs { there: &file.buffers, here: &here, loads: true })?;
        file.verify()?;
        let values = Values::read(file, &fit.moves, &here)?;
        values.fit(params)?;
        Ok((fit, values))
    }

    /// Returns the saved state, for existing parameters and buffers.
    ///
    /// # Errors
    ///
    /// As [`load`](Load::load), except for the values of parameters and buffers.
    pub fn load_state<T: GradientTransformation, P: Tree + ?Sized>(
        &self,
        file: &Checkpoint,
        transformation: &T,
        params: &P,
    ) -> Result<(OptState<T>, Report)> {
        let here = buffers(params);
        let buffer_specs = BufferSpecs { there: &file.buffers, here: &here, loads: false };
        let mut fit = self.fit(file, transformation, params, buffer_specs)?;
        fit.fill_state(file)?;
        Ok((fit.state, fit.report))
    }

    /// Loads the parameters to evaluate with, and the buffers.
    ///
    /// They are those that [`eval_params`](OptState::eval_params) computes from the saved ones. See
    /// [`Checkpoint::load_eval_params`].
    ///
    /// # Errors
    ///
    /// As [`load`](Load::load) and [`eval_params`](OptState::eval_params), with nothing changed.
    pub fn load_eval_params<T: GradientTransformation, P: TreeMut + ?Sized>(
        &self,
        file: &Checkpoint,
        transformation: &T,
        params: &mut P,
    ) -> Result<Report> {
        let (mut fit, values) = self.ready(file, transformation, params)?;
        fit.fill_state(file)?;
        let evaluate = fit.state.evaluate()?;
        fill_params(file, &fit.moves, &fit.params, params)?;
        values.write(params)?;
        evaluate.apply(params)?;
        Ok(fit.report)
    }

    /// Loads only the trained parameters and the buffers; needs no optimizer, and reads no state of it.
    ///
    /// If a wrapper such as [`params_ema`](crate::params_ema()) keeps others to evaluate with, use
    /// [`load_eval_params`](Load::load_eval_params).
    ///
    /// # Errors
    ///
    /// As [`load`](Load::load), except for differences of the optimizer.
    pub fn load_params<P: TreeMut + ?Sized>(&self, file: &Checkpoint, params: &mut P) -> Result<Report> {
        has_params(file)?;
        let (structure, here) = (Structure::of(params)?, buffers(params));
        let mut mismatch_report = MismatchReport::default();
        let there = (file.structure(), &*file.buffers);
        let moves = moves(&self.migration, there, (&structure, &here), true, &mut mismatch_report)?;
        let specs = file.item_specs()?;
        let fields: Vec<&str> = specs.iter().map(|spec| &*spec.name.field).collect();
        let from = if self.migration.moves_parts() { moves.parts(&fields, &[]) } else { Ok(Default::default()) };
        let from = from.map(|parts| parts.to_params).unwrap_or_else(|line| {
            mismatch_report.lines.push(line);
            Vec::new()
        });
        if !mismatch_report.lines.is_empty() {
            return Err(Error::mismatch_report(&file.tensors.display_name("the checkpoint"), mismatch_report));
        }
        let from = params_from(file, &moves, &from, &structure)?;
        file.verify()?;
        let values = Values::read(file, &moves, &here)?;
        values.fit(params)?;
        fill_params(file, &moves, &from, params)?;
        values.write(params)?;
        Ok(report(file, (&structure, &here), &moves, true))
    }

    /// Compares everything, and returns a state to fill.
    fn fit<T: GradientTransformation, P: Tree + ?Sized>(
        &self,
        file: &Checkpoint,
        transformation: &T,
        params: &P,
        buffer_specs: BufferSpecs<'_>,
    ) -> Result<Fit<T>> {
        file.is_one()?;
        let saved = Saved {
            display_name: file.tensors.display_name("the checkpoint"),
            optimizer: &file.manifest.optimizer,
            structure: file.structure(),
            buffer_specs,
            items: file.item_specs()?,
            has_params: file.has_params(),
        };
        let fit = saved.fit(Some(&self.may_differ), &self.migration, transformation, params)?;
        let here = (fit.state.structure(), buffer_specs.here);
        let started = started(&fit.state, &fit.sources, &fit.moves);
        let report = Report { differed: fit.differed, started, ..report(file, here, &fit.moves, buffer_specs.loads) };
        let params = params_from(file, &fit.moves, &fit.params, fit.state.structure())?;
        Ok(Fit { state: fit.state, sources: fit.sources, params, moves: fit.moves, report })
    }
}

/// Returns the fields that start anew; not those that do so for fresh leaves only.
fn started<T: GradientTransformation>(state: &OptState<T>, sources: &[Source], moves: &Resolved) -> Vec<String> {
    let of_fresh = |of: &Owner| matches!(of, Owner::Leaf(path) if moves.is_fresh(path));
    let all = items(&**state, state.structure());
    let own = all.iter().zip(sources).filter(|((name, _), from)| **from == Source::Own && !of_fresh(&name.of));
    let mut fields: Vec<String> = own.map(|((name, _), _)| name.field.clone()).collect();
    fields.dedup();
    fields
}

struct Fit<T: GradientTransformation> {
    state: OptState<T>,
    /// The source of each value of the state.
    sources: Vec<Source>,
    params: FromState,
    moves: Resolved,
    report: Report,
}

impl<T: GradientTransformation> Fit<T> {
    /// Initializes missing fields from the loaded parameters, as `init` does.
    fn initialize_missing<P: Tree + ?Sized>(&mut self, transformation: &T, params: &P) -> Result<()> {
        if !self.sources.contains(&Source::Own) {
            return Ok(());
        }
        let mut fresh = OptState::new_counting(transformation, params, self.state.is_by_leaf())?;
        let structure = self.state.shared_structure();
        let (from, into) = (items(&*self.state, &structure), items_mut(&mut *fresh, &structure));
        for (((name, into), (_, from)), source) in into.into_iter().zip(&from).zip(&self.sources) {
            if *source != Source::Own {
                assign_item(into, from).ok_or_else(|| Error::state(name.to_string(), "it is of another kind"))?;
            }
        }
        self.state = fresh;
        Ok(())
    }

    fn fill_state(&mut self, file: &Checkpoint) -> Result<()> {
        let structure = self.state.shared_structure();
        let (values, arrays) = (&file.manifest.values, &file.manifest.arrays);
        for ((name, item), source) in items_mut(&mut *self.state, &structure).into_iter().zip(&self.sources) {
            let tensor = match (source, &name.of) {
                (Source::Own, _) => continue,
                (Source::Item(i), _) => i.checked_sub(values.len()).and_then(|i| arrays.get(i)).map(|(_, t)| t.clone()),
                (Source::Param, Owner::Leaf(path)) => self.moves.from(path).map(param_name),
                (Source::Param, _) => None,
            };
            let done = match (item, tensor, source) {
                (ItemMut::Array(mut leaf), Some(tensor), _) => {
                    match leaf.part.take() {
                        Some(part) => file.fill_part(&tensor, &mut leaf, &part)?,
                        None => file.fill(&tensor, &mut leaf)?,
                    }
                    true
                }
                (single, None, Source::Item(i)) => values.get(*i).is_some_and(|(_, value)| single.set(*value)),
                _ => false,
            };
            if !done {
                return Err(Error::state(name.to_string(), "it is of another kind in the file"));
            }
        }
        Ok(())
    }
}

impl Checkpoint {
    /// Returns the saved values: single ones, then arrays.
    fn item_specs(&self) -> Result<Vec<ItemSpec>> {
        let spec = |name: &ItemName, kind, array, single| ItemSpec { name: name.clone(), kind, array, single };
        let values = self.manifest.values.iter();
        let values = values.map(|(name, value)| Ok(spec(name, value.kind(), None, Some(*value))));
        let arrays = self
            .manifest
            .arrays
            .iter()
            .map(|(name, tensor)| Ok(spec(name, Kind::Moment, Some(self.array(tensor)?), None)));
        values.chain(arrays).collect()
    }
}

/// By path of a leaf: the state's array that fills it.
type FromState = HashMap<String, String>;

/// Returns the numbered arrays of the state that fill parameters.
///
/// # Errors
///
/// For arrays of other dtypes or shapes.
fn params_from(file: &Checkpoint, moves: &Resolved, numbers: &[usize], here: &Structure) -> Result<FromState> {
    let (mut from, mut lines) = (FromState::new(), Vec::new());
    let first = file.manifest.values.len();
    let arrays = numbers.iter().filter_map(|i| file.manifest.arrays.get(i.checked_sub(first)?));
    for (name, tensor) in arrays {
        let Owner::Leaf(old) = &name.of else { continue };
        let Some(path) = moves.to(old).filter(|path| !moves.is_fresh(path)) else { continue };
        let Some(leaf) = here.index_of(path).map(|leaf| &here.leaves()[leaf]) else { continue };
        let (dtype, shape) = file.array(tensor)?;
        if shape != leaf.shape() || (dtype != leaf.dtype() && !moves.is_cast(path)) {
            lines.push(format!("parameters: expected {leaf}, found {dtype} {shape:?} in `{name}`"));
        }
        if let Some(other) = from.insert(path.to_owned(), tensor.clone()) {
            lines.push(format!("parameters: {path}: expected one array of the state, found `{other}` and `{tensor}`"));
        }
    }
    if lines.is_empty() {
        Ok(from)
    } else {
        Err(Error::mismatch_report(&file.tensors.display_name("the checkpoint"), lines.into()))
    }
}

enum Read {
    /// A tensor in memory, where nothing changes it.
    Tensor(String),
    Bytes(DType, Vec<u8>),
}

/// Fills compared parameters. A file on disk is read completely before the first write: it may have changed since its
/// verification.
fn fill_params<P: TreeMut + ?Sized>(
    file: &Checkpoint,
    moves: &Resolved,
    from_state: &FromState,
    params: &mut P,
) -> Result<()> {
    let from = file.structure().leaves().iter().filter_map(|old| {
        let new = moves.to(old.path()).filter(|new| !moves.is_fresh(new))?;
        Some((new, from_state.get(new).cloned().unwrap_or_else(|| param_name(old.path()))))
    });
    // A parameter thawed since is a buffer in the file.
    let thawed = file.buffers.iter().filter_map(|buffer| {
        let new = moves.to(buffer.path()).filter(|new| moves.is_fresh(new))?;
        Some((new, buffer_name(buffer.path())))
    });
    let from = from.chain(thawed);
    let is_in_memory = file.tensors.is_in_memory();
    let read = |(new, tensor): (_, String)| {
        let read =
            if is_in_memory { Read::Tensor(tensor) } else { Read::Bytes(file.array(&tensor)?.0, file.bytes(&tensor)?) };
        Ok((new, read))
    };
    let from: HashMap<&str, Read> = from.map(read).collect::<Result<_>>()?;
    let mut failure = None;
    params.walk_mut(&mut WalkMut::new(&mut String::new(), &mut |path, mut leaf| match from.get(path) {
        Some(Read::Bytes(dtype, bytes)) => put_bytes(&mut leaf, *dtype, bytes),
        Some(Read::Tensor(tensor)) if failure.is_none() => failure = file.fill(tensor, &mut leaf).err(),
        _ => {}
    }));
    failure.map_or(Ok(()), Err)
}

fn has_params(file: &Checkpoint) -> Result<()> {
    file.is_one()?;
    if file.has_params() {
        return Ok(());
    }
    Err(Error::file(&*file.tensors.name, "it holds no parameters, only state: use `load_state`"))
}

fn report(file: &Checkpoint, (leaves, buffers): Model<'_>, moves: &Resolved, loads_buffers: bool) -> Report {
    let [buffers, saved]: [&[BufferSpec]; 2] = if loads_buffers { [buffers, &file.buffers] } else { [&[], &[]] };
    let thawed = |path: &str| moves.from(path).is_some_and(|old| saved.iter().any(|buffer| buffer.path() == old));
    let comes = |path: &str| if moves.is_fresh(path) { thawed(path) } else { !moves.is_kept(path) };
    let here = leaves.paths().chain(buffers.iter().map(BufferSpec::path)).map(String::from);
    let (loaded, fresh): (Vec<_>, Vec<_>) = here.partition(|path| comes(path));
    let known: HashSet<&str> = loaded.iter().map(String::as_str).collect();
    let is_here = |old: &&str| moves.to(old).is_some_and(|new| known.contains(new));
    let there = file.structure().paths().chain(saved.iter().map(BufferSpec::path));
    let dropped = there.filter(|old| !is_here(old)).map(String::from).collect();
    let is_cast = |leaf: &&LeafSpec| {
        let old = moves.from(leaf.path()).and_then(|old| file.structure().index_of(old));
        let differs = |old: usize| file.structure().leaves()[old].dtype() != leaf.dtype();
        comes(leaf.path()) && old.is_some_and(differs)
    };
    let cast = leaves.leaves().iter().filter(is_cast).map(|leaf| leaf.path().into()).collect();
    Report { loaded, fresh, dropped, cast, ..Report::default() }
}

fn buffers<P: Tree + ?Sized>(params: &P) -> Vec<BufferSpec> {
    buffers_of(params).into_iter().map(|(spec, _)| spec).collect()
}
