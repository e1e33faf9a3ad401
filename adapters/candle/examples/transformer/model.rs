//! Predicts the next character.

use candle_core::{D, Device, Result, Tensor, Var};
use candle_nn::loss::cross_entropy;
use candle_nn::ops::softmax;
use gradchain_candle::Vars;

use crate::random::Random;

/// Characters of context.
pub(crate) const CONTEXT: usize = 48;
const WIDTH: usize = 64;
const HEADS: usize = 4;
const BLOCKS: usize = 2;

struct Block {
    asked: Tensor,
    mixed: Tensor,
    wide: Tensor,
    narrow: Tensor,
    norms: [Tensor; 2],
}

pub(crate) struct Transformer {
    pub(crate) vars: Vars,
    characters: Tensor,
    places: Tensor,
    blocks: Vec<Block>,
    norm: Tensor,
    head: Tensor,
    /// Minus infinity for later characters.
    later: Tensor,
}

impl Transformer {
    pub(crate) fn new(characters: usize, random: &mut Random) -> Result<Transformer> {
        let mut named = Vec::new();
        let mut var = |name: String, shape: &[usize], size: Option<f64>| {
            let numbers = (0..shape.iter().product())
                .map(|_| size.map_or(1.0, |size| (2.0 * random.uniform() - 1.0) * size) as f32);
            let var = Var::from_tensor(&Tensor::from_iter(numbers, &Device::Cpu)?.reshape(shape)?)?;
            let tensor = var.as_tensor().clone();
            named.push((name, var));
            Result::Ok(tensor)
        };
        // Keeps the variance of the activations.
        let narrow = Some((3.0 / WIDTH as f64).sqrt());
        let wide = Some((3.0 / (4 * WIDTH) as f64).sqrt());
        let mut blocks = Vec::new();
        for i in 0..BLOCKS {
            blocks.push(Block {
                asked: var(format!("block.{i}.asked.weight"), &[WIDTH, 3 * WIDTH], narrow)?,
                mixed: var(format!("block.{i}.mixed.weight"), &[WIDTH, WIDTH], narrow)?,
                wide: var(format!("block.{i}.wide.weight"), &[WIDTH, 4 * WIDTH], narrow)?,
                narrow: var(format!("block.{i}.narrow.weight"), &[4 * WIDTH, WIDTH], wide)?,
                norms: [
                    var(format!("block.{i}.norm.0.scale"), &[WIDTH], None)?,
                    var(format!("block.{i}.norm.1.scale"), &[WIDTH], None)?,
                ],
            });
        }
        let places = (0..CONTEXT * CONTEXT).map(|i| if i % CONTEXT > i / CONTEXT { f32::NEG_INFINITY } else { 0.0 });
        Ok(Transformer {
            characters: var("characters.weight".into(), &[characters, WIDTH], narrow)?,
            places: var("places.weight".into(), &[CONTEXT, WIDTH], narrow)?,
            norm: var("norm.scale".into(), &[WIDTH], None)?,
            head: var("head.weight".into(), &[WIDTH, characters], narrow)?,
            blocks,
            later: Tensor::from_iter(places, &Device::Cpu)?.reshape((CONTEXT, CONTEXT))?,
            vars: Vars::named(named).map_err(candle_core::Error::wrap)?,
        })
    }

    pub(crate) fn parameters(&self) -> usize {
        self.vars.iter().map(|(_, var)| var.elem_count()).sum()
    }

    /// Returns the mean cross-entropy per character, in nats; `text` has rows of [`CONTEXT`] + 1.
    pub(crate) fn loss(&self, text: &Tensor) -> Result<Tensor> {
        let scores = self.scores(&text.narrow(1, 0, CONTEXT)?)?;
        cross_entropy(&scores, &text.narrow(1, 1, CONTEXT)?.flatten_all()?)
    }

    /// Returns scores of each next character; rows are all positions of all texts.
    fn scores(&self, text: &Tensor) -> Result<Tensor> {
        let rows = text.dim(0)?;
        let seen = self.characters.index_select(&text.flatten_all()?, 0)?.reshape((rows, CONTEXT, WIDTH))?;
        let mut x = seen.broadcast_add(&self.places)?.reshape((rows * CONTEXT, WIDTH))?;
        for block in &self.blocks {
            x = (&x + self.attention(block, &normed(&x, &block.norms[0])?, rows)?)?;
            x = (&x + normed(&x, &block.norms[1])?.matmul(&block.wide)?.gelu()?.matmul(&block.narrow)?)?;
        }
        normed(&x, &self.norm)?.matmul(&self.head)
    }

    fn attention(&self, block: &Block, x: &Tensor, rows: usize) -> Result<Tensor> {
        let all = x.matmul(&block.asked)?.reshape((rows, CONTEXT, 3, HEADS, WIDTH / HEADS))?;
        let part = |i| all.narrow(2, i, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
        let (query, key, value) = (part(0)?, part(1)?, part(2)?);
        let alike = (query.matmul(&key.t()?)? * ((WIDTH / HEADS) as f64).powf(-0.5))?;
        let seen = softmax(&alike.broadcast_add(&self.later)?, D::Minus1)?.matmul(&value)?;
        seen.transpose(1, 2)?.reshape((rows * CONTEXT, WIDTH))?.matmul(&block.mixed)
    }
}

/// Divides each row by its root mean square (Zhang and Sennrich, 2019).
fn normed(x: &Tensor, scale: &Tensor) -> Result<Tensor> {
    let size = (x.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?.sqrt()?;
    x.broadcast_div(&size)?.broadcast_mul(scale)
}
