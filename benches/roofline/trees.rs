//! The trees of parameters.

use std::collections::BTreeMap;

use gradchain::tree::ArrayElement;
use gradchain::{Element, Mask};
use ndarray::ArrayD;

pub struct Shapes {
    pub name: &'static str,
    pub leaves: Vec<(String, Vec<usize>)>,
}

impl Shapes {
    pub fn all() -> Vec<Shapes> {
        vec![
            Self::one("1e5", &[100_000]),
            Self::one("1e7", &[10_000_000]),
            Self::gpt2_small(),
            Shapes { name: "1000x1000", leaves: (0..1000).map(|i| (format!("leaf{i}"), vec![1000])).collect() },
        ]
    }

    pub fn one(name: &'static str, shape: &[usize]) -> Shapes {
        Shapes { name, leaves: vec![("w".into(), shape.to_vec())] }
    }

    /// Returns 148 leaves, 124 million parameters.
    fn gpt2_small() -> Shapes {
        let matrices =
            [("attn/c_attn", 768, 2304), ("attn/c_proj", 768, 768), ("mlp/c_fc", 768, 3072), ("mlp/c_proj", 3072, 768)];
        let mut leaves = vec![("wte".into(), vec![50257, 768]), ("wpe".into(), vec![1024, 768])];
        let norm = |place: &str| ["weight", "bias"].map(|leaf| (format!("{place}/{leaf}"), vec![768]));
        leaves.extend(norm("ln_f"));
        for layer in 0..12 {
            leaves.extend(["ln_1", "ln_2"].iter().flat_map(|name| norm(&format!("h/{layer}/{name}"))));
            leaves.extend(matrices.iter().flat_map(|(name, rows, columns)| {
                let leaf = |leaf: &str, shape: &[usize]| (format!("h/{layer}/{name}/{leaf}"), shape.to_vec());
                [leaf("weight", &[*rows, *columns]), leaf("bias", &[*columns])]
            }));
        }
        Shapes { name: "gpt2", leaves }
    }

    pub fn elements(&self) -> usize {
        self.leaves.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
    }

    /// Decays matrices, or every leaf but the first if the tree has none.
    pub fn decay_mask(&self) -> Mask {
        if self.leaves.iter().any(|(_, shape)| shape.len() > 1) { Mask::min_ndim(2) } else { Mask::all() }
    }
}

pub trait Number: Element + ArrayElement {}
impl<E: Element + ArrayElement> Number for E {}

/// A tree of arrays by name.
pub type Flat<E> = BTreeMap<String, ArrayD<E>>;

/// Returns values by the index of an element in its leaf.
pub fn flat<E: Number>(shapes: &Shapes, value: impl Fn(usize) -> f64) -> Flat<E> {
    let leaf = |(name, shape): &(String, Vec<usize>)| {
        let elements = (0..shape.iter().product()).map(|i| E::from_f64(value(i))).collect();
        (name.clone(), ArrayD::from_shape_vec(shape.as_slice(), elements).expect("as many elements as the shape has"))
    };
    shapes.leaves.iter().map(leaf).collect()
}
