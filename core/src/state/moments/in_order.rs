//! Elements of leaves in memory order, as numbers.

use super::Moments;
use crate::element::{Element, with_dtype};

impl Moments {
    /// Returns a leaf's elements in memory order, exactly; empty without an array.
    pub(crate) fn in_order(&self, leaf: usize) -> Vec<f64> {
        let Some(array) = self.array(leaf) else { return Vec::new() };
        if let Some(numbers) = array.decoded() {
            return numbers.into_iter().map(f64::from).collect();
        }
        with_dtype!(array.data.dtype(), T => {
            array.data.get::<T>().unwrap_or_default().iter().map(|x| x.as_f64()).collect()
        })
    }

    /// Overwrites a leaf's elements, in memory order.
    pub(crate) fn set_in_order(&mut self, leaf: usize, values: &[f64]) {
        let Some(dtype) = self.dtype(leaf) else { return };
        if let Some(array) = self.arrays[leaf].as_mut().filter(|_| dtype.is_quantized()) {
            return array.parts().encode(&values.iter().map(|x| *x as f32).collect::<Vec<_>>());
        }
        with_dtype!(dtype, T => {
            let elements = self.get_mut::<T>(leaf).unwrap_or_default().iter_mut();
            elements.zip(values).for_each(|(to, from)| *to = T::from_f64(*from));
        });
    }
}
