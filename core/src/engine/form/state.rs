//! The state of parts: memory of their own, and arrays that the engine keeps for them.

use core::ops::{Deref, DerefMut};

use super::super::Access;
use super::super::{InitContext, Slot, SlotList};
use super::PartArguments;
use crate::arguments::Argument;
use crate::element::{DType, RecordedArray};
use crate::error::Result;
use crate::recipe::Recipe;
use crate::state::{EvaluateAs, Evaluation, Moments, State, StateWalk, StateWalkMut};
use crate::tree::LeafSpec;

/// State arrays by name. Only the engine accesses them during a step: a part in safe code cannot make it access freed
/// or foreign memory.
#[derive(Clone, Debug)]
pub struct Arrays {
    slots: &'static [Slot],
    pub(super) all: Vec<Moments>,
    /// An array of some leaves only.
    extra: Option<(Slot, Moments)>,
}

/// Sets the dtype of a state array that has none, from the part's argument: `mu_dtype` for `mu`, `accumulator_dtype`
/// for any.
pub(super) fn of_part(part: &dyn PartArguments, slot: Slot) -> Slot {
    let mut asked = slot.dtype;
    part.show(&mut |argument, value| asked = asked.or_else(|| dtype_of(slot, argument, value)));
    slot.of_dtype(asked)
}

fn dtype_of(slot: Slot, argument: &str, value: Argument<'_>) -> Option<DType> {
    let array = argument.strip_suffix("_dtype")?;
    match value.setting().to_recipe() {
        Recipe::Text(name) if array == slot.name() || array == "accumulator" => DType::named(&name),
        _ => None,
    }
}

impl Arrays {
    /// Makes the arrays, each adjusted by `given`.
    pub(super) fn new(slots: &'static [Slot], at: &InitContext<'_>, given: &dyn Fn(Slot) -> Slot) -> Result<Arrays> {
        let one = |declared: &Slot| {
            let Slot { dtype, of_leaf, start, as_params, .. } = given(*declared);
            if as_params {
                return at.params_as_moments_of(dtype);
            }
            let otherwise = |leaf: &LeafSpec| if of_leaf { leaf.dtype() } else { leaf.dtype().compute() };
            if let Some(dtype) = dtype {
                return Moments::like(at.structure, at.active, start, |_| dtype);
            }
            Moments::filled(at.structure, at.active, start, &|number, leaf| {
                let quantized = at.quantization.and_then(|quantization| quantization.dtype(*declared, (number, leaf)));
                quantized.unwrap_or_else(|| otherwise(leaf))
            })
        };
        Ok(Arrays { slots, all: slots.iter().map(one).collect::<Result<_>>()?, extra: None })
    }

    /// Adds an array of some leaves, as a copy of the parameters.
    pub(super) fn with_extra_slot(self, slot: Slot, at: &InitContext<'_>, has: &[bool]) -> Result<Arrays> {
        let extra = if has.contains(&true) { Some((slot, at.with_active(has).params_as_moments()?)) } else { None };
        Ok(Arrays { extra, ..self })
    }

    pub(super) fn has_extra_slot(&self, leaf: usize) -> bool {
        self.extra.as_ref().is_some_and(|(_, array)| array.dtype(leaf).is_some())
    }

    /// Not inlined: each part would have a copy per number type.
    #[inline(never)]
    pub(super) fn list(&self, leaf: usize, list: &mut SlotList<'_>) {
        self.all.iter().for_each(|array| list.push(array, leaf));
    }

    /// Lists the arrays that a pass reads, in their slots.
    pub(super) fn list_read(&self, accesses: &[Access], leaf: usize, list: &mut SlotList<'_>) {
        for (slot, array) in self.all.iter().enumerate() {
            if Access::of(accesses, slot).reads() { list.push(array, leaf) } else { list.push_none() }
        }
    }

    pub(super) fn recorded_array(&self, leaf: usize) -> Vec<Option<RecordedArray>> {
        self.all.iter().map(|array| array.recorded_array(leaf)).collect()
    }

    pub(super) fn has(&self, leaf: usize) -> bool {
        self.all.iter().all(|array| array.dtype(leaf).is_some())
    }

    /// Returns a leaf's arrays, with the additional one; `None` if some are missing.
    pub(super) fn of_leaf(&self, leaf: usize) -> Option<SlotList<'static>> {
        let mut list = SlotList::new();
        self.list(leaf, &mut list);
        if let Some((_, array)) = self.extra.as_ref().filter(|_| self.has_extra_slot(leaf)) {
            list.push(array, leaf);
        }
        self.all.iter().all(|array| array.dtype(leaf).is_some()).then_some(list)
    }

    /// Returns the bytes of a leaf's arrays, each times `times(i)`.
    pub(super) fn bytes(&self, leaf: usize, times: &dyn Fn(usize) -> usize) -> usize {
        let arrays = self.all.iter().chain(self.extra.iter().map(|(_, array)| array));
        let sizes = arrays.map(|array| array.as_bytes(leaf).map_or(0, <[u8]>::len));
        sizes.enumerate().map(|(slot, size)| times(slot) * size).sum()
    }

    fn named(&self, name: &str) -> Option<&Moments> {
        let all = self.slots.iter().zip(&self.all).chain(self.extra.iter().map(|(slot, array)| (slot, array)));
        all.into_iter().find(|(slot, _)| slot.name() == name).map(|(_, array)| array)
    }

    fn named_mut(&mut self, name: &str) -> Option<&mut Moments> {
        let extra = self.extra.iter_mut().map(|(slot, array)| (&*slot, array));
        let mut all = self.slots.iter().zip(&mut self.all).chain(extra);
        all.find(|(slot, _)| slot.name() == name).map(|(_, array)| array)
    }

    pub(super) fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        self.slots.iter().zip(&self.all).for_each(|(slot, array)| walk.child(slot.name(), array));
        self.extra.iter().for_each(|(slot, array)| walk.child(slot.name(), array));
    }

    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        self.slots.iter().zip(&mut self.all).for_each(|(slot, array)| walk.child(slot.name(), array));
        self.extra.iter_mut().for_each(|(slot, array)| walk.child(slot.name(), array));
    }
}

/// The state of a part: its memory, to which it dereferences, and its state arrays by name.
#[derive(Clone, Debug)]
pub struct PartState<M> {
    pub(super) memory: M,
    pub(super) arrays: Arrays,
}

/// The state of a wrapper: its memory, to which it dereferences, its state arrays by name, and the inner state.
#[derive(Clone, Debug)]
pub struct WrapperState<M, S> {
    pub(super) memory: M,
    pub(super) arrays: Arrays,
    pub(super) inner: S,
    /// The active leaves; `None` if all are.
    pub(super) active: Option<Vec<bool>>,
    /// True if the step changes leaves that are inactive here, other than those outside an outer mask.
    pub(super) others: bool,
    pub(super) name: &'static str,
    /// The gradients, for wrappers that read them again; not state.
    pub(super) gradients: Arrays,
    pub(super) leaves: usize,
    /// Leaves without an update, if others have one; else empty. Not state.
    pub(super) resting: Vec<bool>,
}

impl<M, S> WrapperState<M, S> {
    /// Returns the state of the inner transformation.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Returns the state of the inner transformation, to write.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    pub(crate) fn slot(&self, slot: usize) -> &Moments {
        &self.arrays.all[slot]
    }

    pub(crate) fn chosen(&self) -> Option<&[bool]> {
        self.active.as_deref()
    }
}

macro_rules! arrays_and_memory {
    ($S:ident<$M:ident $(, $Inner:ident)?>) => {
        impl<$M $(, $Inner)?> $S<$M $(, $Inner)?> {
            /// Returns the state arrays of this name.
            pub fn moment(&self, name: &str) -> Option<&Moments> {
                self.arrays.named(name)
            }

            /// Returns the state arrays of this name, to write.
            pub fn moment_mut(&mut self, name: &str) -> Option<&mut Moments> {
                self.arrays.named_mut(name)
            }
        }

        impl<$M $(, $Inner)?> Deref for $S<$M $(, $Inner)?> {
            type Target = $M;
            fn deref(&self) -> &$M {
                &self.memory
            }
        }

        impl<$M $(, $Inner)?> DerefMut for $S<$M $(, $Inner)?> {
            fn deref_mut(&mut self) -> &mut $M {
                &mut self.memory
            }
        }
    };
}
arrays_and_memory!(PartState<M>);
arrays_and_memory!(WrapperState<M, S>);

fn evaluation<'a, M: State>(memory: &M, arrays: &'a Arrays, walk: &mut StateWalk<'a, '_>) {
    if let Some(EvaluateAs { slot, params_weight, array_weight }) = memory.evaluate_as()
        && let Some(moments) = arrays.all.get(slot)
    {
        walk.evaluation(Evaluation { moments, params_weight, moments_weight: array_weight });
        // Evaluation uses the additional array where a leaf has it.
        if let Some((_, moments)) = &arrays.extra {
            walk.evaluation(Evaluation { moments, params_weight: 0.0, moments_weight: 1.0 });
        }
    }
}

impl<M: State> State for PartState<M> {
    // Not inlined, as below: instances are shared with the crates above.
    #[inline(never)]
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        evaluation(&self.memory, &self.arrays, walk);
        self.memory.walk(walk);
        self.arrays.walk(walk);
    }
    #[inline(never)]
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        self.memory.walk_mut(walk);
        self.arrays.walk_mut(walk);
    }
}

impl<M: State, S: State> State for WrapperState<M, S> {
    #[inline(never)]
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.fact("active", &self.active);
        evaluation(&self.memory, &self.arrays, walk);
        self.memory.walk(walk);
        self.arrays.walk(walk);
        walk.nested(self.name, &mut |walk| self.inner.walk(walk));
    }
    #[inline(never)]
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        self.memory.walk_mut(walk);
        self.arrays.walk_mut(walk);
        walk.nested(self.name, |walk| self.inner.walk_mut(walk));
    }
}
