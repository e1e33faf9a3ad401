//! The handwritten digits.

#[path = "random.rs"]
mod random;

use std::error::Error;
use std::io::Read;

use flate2::read::GzDecoder;
use ndarray::{Array2, s};

pub(crate) use self::random::Random;

pub(crate) struct Digits {
    /// 64 pixels a row, from 0 to 1.
    pub(crate) images: Array2<f32>,
    /// From 0 to 9.
    pub(crate) labels: Vec<usize>,
}

impl Digits {
    /// Loads all images, in file order. `examples/data/README.md` names the source.
    pub(crate) fn load() -> Result<Digits, Box<dyn Error>> {
        let mut text = String::new();
        GzDecoder::new(&include_bytes!("../data/digits.csv.gz")[..]).read_to_string(&mut text)?;

        let (mut pixels, mut labels) = (Vec::new(), Vec::new());
        for line in text.lines() {
            let mut numbers = line.split(',').map(str::parse::<u8>).collect::<Result<Vec<_>, _>>()?;
            labels.push(numbers.pop().ok_or("an empty line")?.into());
            pixels.extend(numbers.into_iter().map(|pixel| f32::from(pixel) / 16.0));
        }
        Ok(Digits { images: Array2::from_shape_vec((labels.len(), 64), pixels)?, labels })
    }

    /// Splits off the first `n` images of a shuffled order.
    ///
    /// The last third of the file is by other writers, on whom a network is less accurate.
    pub(crate) fn shuffle_and_split(&self, n: usize, random: &mut Random) -> (Digits, Digits) {
        let mut order: Vec<usize> = (0..self.labels.len()).collect();
        random.shuffle(&mut order);
        (self.rows(&order[..n]), self.rows(&order[n..]))
    }

    pub(crate) fn rows(&self, rows: &[usize]) -> Digits {
        let mut images = Array2::zeros((rows.len(), 64));
        for (i, &row) in rows.iter().enumerate() {
            images.slice_mut(s![i, ..]).assign(&self.images.slice(s![row, ..]));
        }
        Digits { images, labels: rows.iter().map(|&row| self.labels[row]).collect() }
    }
}
