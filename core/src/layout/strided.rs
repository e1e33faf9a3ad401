//! Memory orders, and iteration over strided elements in another's order.

use smallvec::SmallVec;

/// Axes stored without allocation.
const INLINE: usize = 6;
pub(crate) type Shape = SmallVec<[usize; INLINE]>;
/// The strides of an array, in elements.
pub type Strides = SmallVec<[isize; INLINE]>;

/// Collects axes. `SmallVec`'s constructor copies even one or two numbers by a call.
#[inline(always)]
pub(crate) fn axes<T: Copy + Default>(from: &[T]) -> SmallVec<[T; INLINE]> {
    match from.len() {
        0..=INLINE => {
            let inline = core::array::from_fn(|axis| from.get(axis).copied().unwrap_or_default());
            SmallVec::from_buf_and_len(inline, from.len())
        }
        _ => SmallVec::from_slice(from),
    }
}

/// Returns a shape's number of elements; `None` on overflow.
///
/// An axis of length 0 makes it 0, whatever the others.
pub fn elements(shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) { Some(0) } else { shape.iter().try_fold(1_usize, |len, axis| len.checked_mul(*axis)) }
}

/// Returns row-major strides without gaps; arbitrary for an empty array.
pub fn dense_strides(shape: &[usize]) -> Strides {
    let mut inline = [0; INLINE];
    if shape.len() <= INLINE {
        into_dense(shape, &mut inline);
        return Strides::from_buf_and_len(inline, shape.len());
    }
    let mut strides = Strides::from_elem(0, shape.len());
    into_dense(shape, &mut strides);
    strides
}

#[inline]
fn into_dense(shape: &[usize], strides: &mut [isize]) {
    let mut step = 1;
    for (stride, &len) in strides[..shape.len()].iter_mut().zip(shape).rev() {
        *stride = step;
        step = step.saturating_mul(len.max(1) as isize);
    }
}

/// Returns whether strides address the elements as `dense`: axes of length 0 or 1 do not matter.
pub fn is_dense(shape: &[usize], strides: &[isize], dense: &[isize]) -> bool {
    shape.contains(&0) || shape.iter().zip(strides).zip(dense).all(|((&len, s), d)| len <= 1 || s == d)
}

/// Returns strides without gaps, in the axis order of the given ones.
///
/// The state of a Fortran-ordered parameter is thus walked in step with it. Row-major if the array has gaps, overlaps
/// or backward axes.
pub fn matching_strides(shape: &[usize], strides: &[isize]) -> Strides {
    let mut axes: Shape = (0..shape.len()).collect();
    // Stable: axes of length one, of arbitrary stride, do not move the others.
    sort_axes(&mut axes, &|a| if shape[a] <= 1 { isize::MAX } else { strides[a] });
    let mut dense: Strides = shape.iter().map(|_| 0).collect();
    let mut step = 1;
    for &a in axes.iter().rev() {
        dense[a] = step;
        step = step.saturating_mul(shape[a].max(1) as isize);
    }
    if is_dense(shape, strides, &dense) { dense } else { dense_strides(shape) }
}

/// Returns the axes longer than one, by decreasing stride.
pub fn axes_by_stride(shape: &[usize], strides: &[isize]) -> Shape {
    let mut axes: Shape = (0..shape.len()).filter(|&a| shape[a] != 1).collect();
    sort_axes(&mut axes, &|a| strides[a]);
    axes
}

/// Sorts axes by decreasing stride.
pub fn sort_axes(axes: &mut [usize], stride: &dyn Fn(usize) -> isize) {
    axes.sort_by_key(|a| core::cmp::Reverse(stride(*a)));
}

/// `len` elements, `stride` apart, the first at `offset` from the array's first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    #[doc(hidden)]
    pub offset: isize,
    #[doc(hidden)]
    pub stride: isize,
    #[doc(hidden)]
    pub len: usize,
}

/// The offsets of a strided array, from its first element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Extent {
    least: isize,
    most: isize,
}

impl Extent {
    /// The range of an empty array.
    const NONE: Extent = Extent { least: 0, most: -1 };

    /// Returns the range; empty if offsets exceed the address space.
    pub(crate) fn of(shape: &[usize], strides: &[isize]) -> Extent {
        let widen = |extent: Extent, (&len, &stride): (&usize, &isize)| {
            let far = isize::try_from(len.checked_sub(1)?).ok()?.checked_mul(stride)?;
            let (least, most) = (extent.least.checked_add(far.min(0))?, extent.most.checked_add(far.max(0))?);
            Some(Extent { least, most })
        };
        shape.iter().zip(strides).try_fold(Extent { least: 0, most: 0 }, widen).unwrap_or(Extent::NONE)
    }

    /// Returns whether both ends of a run, and thus all of it, are in the range.
    #[inline]
    pub(crate) fn has(self, run: Run) -> bool {
        let lies = |at: isize| self.least <= at && at <= self.most;
        let Some(steps) = run.len.checked_sub(1) else { return true };
        let last = isize::try_from(steps).ok().and_then(|steps| run.offset.checked_add(steps.checked_mul(run.stride)?));
        lies(run.offset) && last.is_some_and(lies)
    }
}

/// Strides and their range of offsets.
#[derive(Clone, Debug)]
pub(crate) struct Strided {
    pub(crate) strides: Strides,
    pub(crate) extent: Extent,
}

/// Iterates over a strided array in a dense one's order, by runs along one axis.
pub struct Cursor {
    /// Lengths, strides and current place, slowest axis first.
    shape: Shape,
    strides: Strides,
    place: Shape,
}

impl Cursor {
    /// Starts at element `start` in the order of the dense strides `order`.
    #[doc(hidden)]
    pub fn new(shape: &[usize], order: &[isize], strides: &[isize], start: usize) -> Cursor {
        let axes = axes_by_stride(shape, order);
        let place = axes.iter().map(|&a| start / order[a].max(1) as usize % shape[a].max(1)).collect();
        Cursor {
            shape: axes.iter().map(|&a| shape[a]).collect(),
            strides: axes.iter().map(|&a| strides[a]).collect(),
            place,
        }
    }

    #[doc(hidden)]
    pub fn take(&mut self, len: usize) -> impl Iterator<Item = Run> + '_ {
        let mut left = len;
        core::iter::from_fn(move || {
            (left > 0).then(|| {
                let run = self.next(left);
                left -= run.len;
                run
            })
        })
    }

    fn next(&mut self, at_most: usize) -> Run {
        let offset = self.place.iter().zip(&self.strides).map(|(&i, s)| i as isize * s).sum();
        let Some(last) = self.shape.len().checked_sub(1) else {
            return Run { offset, stride: 1, len: 1 };
        };
        let len = at_most.min(self.shape[last] - self.place[last]);
        self.place[last] += len;
        for axis in (1..=last).rev() {
            if self.place[axis] < self.shape[axis] {
                break;
            }
            self.place[axis] = 0;
            self.place[axis - 1] += 1;
        }
        Run { offset, stride: self.strides[last], len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fortran_array_keeps_its_order_and_a_reversed_one_gets_row_major() {
        assert_eq!(matching_strides(&[2, 3], &[1, 2]).as_slice(), [1, 2]);
        assert_eq!(matching_strides(&[2, 3], &[3, 1]).as_slice(), [3, 1]);
        assert_eq!(matching_strides(&[2, 3], &[-3, 1]).as_slice(), [3, 1]);
        assert_eq!(matching_strides(&[2, 3], &[6, 2]).as_slice(), [3, 1]);
        // An axis of length one counts as the slowest; its stride is unused.
        assert_eq!(matching_strides(&[4, 1, 3], &[1, 1, 4]).as_slice(), [1, 12, 4]);
    }

    #[test]
    fn an_extent_has_the_runs_of_its_array_and_no_others() {
        let arrays: [(&[usize], &[isize]); 6] = [
            (&[2, 3], &[3, 1]),
            (&[2, 3], &[1, 2]),
            (&[3, 2], &[-4, 2]),
            (&[4], &[1_000_000]),
            (&[3], &[0]),
            (&[], &[]),
        ];
        for (shape, strides) in arrays {
            let (extent, len) = (Extent::of(shape, strides), shape.iter().product());
            let order = dense_strides(shape);
            for start in 0..len {
                let mut cursor = Cursor::new(shape, &order, strides, start);
                assert!(cursor.take(len - start).all(|run| extent.has(run)), "{shape:?} {strides:?} from {start}");
            }
            let run = |offset, stride, len| Run { offset, stride, len };
            for stride in strides.iter().filter(|stride| **stride != 0) {
                let beyond = Cursor::new(&[len + 1], &[1], &[*stride], 0).take(len + 1).all(|run| extent.has(run));
                assert!(!beyond, "{shape:?} {strides:?}: {len} + 1 elements {stride} apart");
            }
            assert!(!extent.has(run(extent.least - 1, 1, 1)) && !extent.has(run(extent.most + 1, -1, 1)));
            assert!(!extent.has(run(0, isize::MAX, 3)) && !extent.has(run(isize::MIN, -1, 2)));
            assert!(extent.has(run(extent.most + 1, 1, 0)), "no elements");
        }
        for (shape, strides) in [(&[0_usize, 3][..], &[3, 1][..]), (&[usize::MAX, 2], &[1, 1]), (&[3], &[isize::MAX])] {
            assert_eq!(Extent::of(shape, strides), Extent::NONE);
        }
    }

    #[test]
    fn a_cursor_visits_every_element_once_from_any_start() {
        // A [2, 3] window of a [2, 6] array, in Fortran order.
        let offsets = |start: usize| -> Vec<isize> {
            Cursor::new(&[2, 3], &[1, 2], &[6, 2], start)
                .take(6 - start)
                .flat_map(|r| (0..r.len as isize).map(move |i| r.offset + i * r.stride))
                .collect()
        };
        let all = [0, 6, 2, 8, 4, 10];
        for start in 0..6 {
            assert_eq!(offsets(start), all[start..]);
        }
        assert_eq!(Cursor::new(&[], &[], &[], 0).take(1).next(), Some(Run { offset: 0, stride: 1, len: 1 }));
    }
}
