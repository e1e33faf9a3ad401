use super::{BufferSpecs, Saved, as_data, is_shared};
use crate::engine::Stage;
use crate::error::{Error, Result};
use crate::migrate::Migration;
use crate::recipe::json::{Bounded, from_text};
use crate::state::data::{Array, Datum, Entry, FORMAT, Leaves, QuantizedArray};
use crate::state::{Item, ItemName, Single, Source, StateData, items, items_mut};
use crate::transformation::OptState;
use crate::tree::Tree;

/// Serializes a state as [`StateData`], with the transformation that made it or did the last step.
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::state::StateData;
///
/// let (optimizer, mut params) = (adam(0.1), vec![1.0_f32, 2.0]);
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![0.5_f32, -0.5], &mut state)?;
/// let text = serde_json::to_string(&state).unwrap();
///
/// let data: StateData = serde_json::from_str(&text).unwrap();
/// let state = data.load(&optimizer, &params)?;
/// assert_eq!(state.0.count.get(), 1);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// The data lacks masks and memory orders, so deserialization needs the transformation and the parameters:
///
/// ```compile_fail
/// use gradchain::prelude::*;
///
/// let state: OptState<gradchain::optimizer::Adam> = serde_json::from_str("{}").unwrap();
/// ```
impl<T: Stage> serde::Serialize for OptState<T> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        StateData::of(self.made_by(), self).map_err(serde::ser::Error::custom)?.serialize(to)
    }
}

/// Implemented by nothing: the compiler names it if a state is deserialized alone.
pub trait DeserializeStateDataAndLoadIt {}

impl<'de, T: Stage> serde::Deserialize<'de> for OptState<T>
where
    OptState<T>: DeserializeStateDataAndLoadIt,
{
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<OptState<T>, D::Error> {
        Err(serde::de::Error::custom("deserialize a `StateData`, and call its `load`"))
    }
}

impl StateData {
    /// Returns the data of a state and its transformation, which is included.
    ///
    /// # Errors
    ///
    /// Fails if a panic left the state half written, or the transformation is nested too deeply for serialization.
    pub fn of<T: Stage>(transformation: &T, state: &OptState<T>) -> Result<StateData> {
        state.usable()?;
        let structure = state.structure();
        if is_shared(&**state) {
            let problem = "it has this rank's shard only; `checkpoint::Save::to_shards` writes those of all ranks";
            return Err(Error::state("StateData", problem));
        }
        let entry = |(name, item): (ItemName, Item<'_>)| {
            let value = match item {
                Item::Array(leaf) if leaf.dtype().is_quantized() => Datum::Quantized(QuantizedArray::of(&leaf)),
                Item::Array(leaf) => Datum::Array(Array::of(&leaf)),
                Item::Single(Single::Count(count)) => Datum::Count(count),
                Item::Single(Single::Flag(flag)) => Datum::Flag(flag),
                Item::Single(Single::Scalar(scalar)) => Datum::Scalar(scalar),
                Item::Single(Single::Key(key)) => Datum::Key(key),
            };
            Entry { field: name.field, of: name.of, value }
        };
        Ok(StateData {
            format: FORMAT,
            optimizer: as_data(transformation)?.to_string(),
            structure: Leaves::of(structure),
            items: items(&**state, structure).into_iter().map(entry).collect(),
        })
    }

    /// Returns the state of the data, for the same transformation and parameters of the same structure.
    ///
    /// # Errors
    ///
    /// Fails if anything differs: an argument of the transformation, a path, type or shape of the parameters, a field
    /// of the state. All differences are listed. Also fails if the data was written by a later version of this crate,
    /// or is invalid after a change by hand.
    pub fn load<T: Stage, P: Tree + ?Sized>(&self, transformation: &T, params: &P) -> Result<OptState<T>> {
        let bad = |problem: &dyn core::fmt::Display| Error::state("the state's data", problem.to_string());
        if self.format != FORMAT {
            let problem = format_args!("it has format {}, and this version of gradchain reads {FORMAT}", self.format);
            return Err(bad(&problem));
        }
        let Bounded(optimizer) = from_text(&self.optimizer).map_err(|error| bad(&error))?;
        let structure = self.structure.structure().ok_or_else(|| bad(&"a leaf exceeds the address space"))?;
        let items = self.items.iter().map(Entry::spec).collect();
        let saved = Saved {
            display_name: "the state".into(),
            optimizer: &optimizer,
            structure: &structure,
            buffer_specs: BufferSpecs::default(),
            items,
            has_params: false,
        };
        let fit = saved.fit(None, &Migration::new(), transformation, params)?;
        let (mut state, here) = (fit.state, fit.sources);
        let structure = state.shared_structure();
        for ((name, item), source) in items_mut(&mut *state, &structure).into_iter().zip(here) {
            let source = if let Source::Item(source) = source { self.items.get(source) } else { None };
            let value = source.map(|entry| &entry.value);
            if !value.is_some_and(|value| value.assign(item)) {
                return Err(bad(&format_args!("`{name}` is of another kind")));
            }
        }
        Ok(state)
    }

    /// Returns the transformation as JSON.
    pub fn optimizer(&self) -> &str {
        &self.optimizer
    }
}
