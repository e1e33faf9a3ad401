//! The trees that are stepped.

use gradchain::prelude::*;
use gradchain::tree::{LeafMut, LeafRef, Walk, WalkMut};
use gradchain::{Element, Mask};

/// Shapes of leaves, under a name.
pub struct Shapes {
    pub name: &'static str,
    pub leaves: Vec<(String, Vec<usize>)>,
}

impl Shapes {
    pub fn all() -> Vec<Shapes> {
        vec![
            Self::one("1e5", &[100_000]),
            Self::one("1e7", &[10_000_000]),
            Self::one("2500x4000", &[2500, 4000]),
            Self::gpt2_small(),
            Self::many(),
        ]
    }

    pub fn one(name: &'static str, shape: &[usize]) -> Shapes {
        Shapes { name, leaves: vec![("w".into(), shape.to_vec())] }
    }

    fn many() -> Shapes {
        Shapes { name: "1000x1000", leaves: (0..1000).map(|i| (format!("leaf{i}"), vec![1000])).collect() }
    }

    /// The 148 leaves of GPT-2 small, 124 million parameters.
    fn gpt2_small() -> Shapes {
        let mut leaves = vec![("wte".into(), vec![50257, 768]), ("wpe".into(), vec![1024, 768])];
        for layer in 0..12 {
            let mut leaf = |name: &str, shape: &[usize]| leaves.push((format!("h/{layer}/{name}"), shape.to_vec()));
            for norm in ["ln_1", "ln_2"] {
                leaf(&format!("{norm}/weight"), &[768]);
                leaf(&format!("{norm}/bias"), &[768]);
            }
            for (name, rows, columns) in [
                ("attn/c_attn", 768, 2304),
                ("attn/c_proj", 768, 768),
                ("mlp/c_fc", 768, 3072),
                ("mlp/c_proj", 3072, 768),
            ] {
                leaf(&format!("{name}/weight"), &[rows, columns]);
                leaf(&format!("{name}/bias"), &[columns]);
            }
        }
        leaves.push(("ln_f/weight".into(), vec![768]));
        leaves.push(("ln_f/bias".into(), vec![768]));
        Shapes { name: "gpt2", leaves }
    }

    pub fn elements(&self) -> usize {
        self.leaves.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
    }

    /// Decay on matrices where there are some, else on every leaf but the first.
    pub fn decay_mask(&self) -> Mask {
        if self.leaves.iter().any(|(_, shape)| shape.len() > 1) { Mask::min_ndim(2) } else { Mask::all() }
    }
}

/// Numbers that a leaf may hold.
pub trait Number: Element {
    const SIZE: usize = Self::DTYPE.size();
}
impl<E: Element> Number for E {}

/// A tree of plain vectors with shapes.
pub struct Flat<E> {
    leaves: Vec<(String, Leaf<E>)>,
}

struct Leaf<E> {
    shape: Vec<usize>,
    data: Vec<E>,
}

impl<E: Element> Flat<E> {
    pub fn new(shapes: &Shapes, value: impl Fn(usize) -> f64) -> Self {
        let leaf = |(name, shape): &(String, Vec<usize>)| {
            let data = (0..shape.iter().product()).map(|i| E::from_f64(value(i))).collect();
            (name.clone(), Leaf { shape: shape.clone(), data })
        };
        Flat { leaves: shapes.leaves.iter().map(leaf).collect() }
    }
}

impl<E: Element> Tree for Leaf<E> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        walk.leaf(LeafRef::from_slice(&self.data, &self.shape).expect("as many elements as the shape has"));
    }
}

impl<E: Element> TreeMut for Leaf<E> {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        walk.leaf(LeafMut::from_slice(&mut self.data, &self.shape).expect("as many elements as the shape has"));
    }
}

impl<E: Element> Tree for Flat<E> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        self.leaves.iter().for_each(|(name, leaf)| walk.child(name, leaf));
    }
}

impl<E: Element> TreeMut for Flat<E> {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        self.leaves.iter_mut().for_each(|(name, leaf)| walk.child(name, leaf));
    }
}
