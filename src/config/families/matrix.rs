//! What goes by the axes of a leaf: rows and columns, factors, singular values.

use serde_json::{Value, json};

use crate::config::error::{ConfigError, Result};
use crate::config::member::{Base, Either, family};
use crate::config::node::{Args, Node, Read};
use crate::config::values::OneOrMore;
use crate::optimizer::*;
use crate::schedule::Hyperparam;
use crate::select::Mask;
use crate::transform::*;

family! { |a|
    // What is absent is so for good; the values of what is there are set by `finish`.
    "adafactor" => {
        let there = |name| Ok(a.or::<Option<Hyperparam>>(name, None)?.map(|h| h.at(0)));
        let clip = a.or("clipping_threshold", Some(Hyperparam::from(1.0)))?.map(|h| h.at(0));
        adafactor(a.or::<Option<Hyperparam>>("learning_rate", None)?.unwrap_or(1.0.into()))
            .min_dim_size_to_factor(a.or("min_dim_size_to_factor", 128)?)
            .decay_offset(a.or("decay_offset", 0)?)
            .multiply_by_parameter_scale(a.or("multiply_by_parameter_scale", true)?)
            .clipping_threshold(clip)
            .momentum(there("momentum")?)
            .dtype_momentum(a.or::<Option<_>>("dtype_momentum", None)?)
            .weight_decay_rate(there("weight_decay_rate")?)
            .weight_decay_mask(a.or("weight_decay_mask", Mask::all())?)
            .factored(a.or("factored", true)?)
    },
    "galore" => {
        let galore = galore(a.required::<Hyperparam>("learning_rate")?)
            .rank(a.or("rank", 128)?)
            .update_proj_gap(a.or("update_proj_gap", 200)?)
            .mask(a.or("mask", Mask::all())?)
            .weight_dimension_numbers(a.or("weight_dimension_numbers", WeightDimensionNumbers::default())?);
        match a.or::<Option<Base>>("base_optimizer", None)? {
            None => Either::This(galore),
            Some(Base(base)) => Either::That(galore.base_optimizer(base)),
        }
    },
    "muon" => {
        let numbers = a.or("muon_weight_dimension_numbers", WeightDimensionNumbers::default())?;
        let muon = muon(a.required::<Hyperparam>("learning_rate")?)
            .ns_coeffs(a.or("ns_coeffs", NsCoeffs::standard())?)
            .ns_steps(a.or("ns_steps", 5)?)
            .weight_decay_mask(a.or("weight_decay_mask", Mask::all())?)
            .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
            .nesterov(a.or("nesterov", true)?)
            .adaptive(a.or("adaptive", false)?)
            .preconditioning(a.or("preconditioning", Preconditioning::default())?)
            .consistent_rms(a.or::<Option<f64>>("consistent_rms", None)?)
            .muon_weight_dimension_numbers(numbers);
        match a.or::<Option<Hyperparam>>("adam_learning_rate", None)? {
            None => muon,
            Some(rate) => muon.adam_learning_rate(rate),
        }
    },
    "scale_by_factored_rms" => scale_by_factored_rms()
        .factored(a.or("factored", true)?)
        .step_offset(a.or("step_offset", 0)?)
        .min_dim_size_to_factor(a.or("min_dim_size_to_factor", 128)?),
    "scale_by_galore" => {
        let galore = scale_by_galore()
            .rank(a.or("rank", 128)?)
            .update_proj_gap(a.or("update_proj_gap", 200)?)
            .weight_dimension_numbers(a.or("weight_dimension_numbers", WeightDimensionNumbers::default())?);
        match a.or::<Option<Base>>("base_optimizer", None)? {
            None => Either::This(galore),
            Some(Base(base)) => Either::That(galore.base_optimizer(base)),
        }
    },
    "scale_by_muon" => scale_by_muon()
        .ns_coeffs(a.or("ns_coeffs", NsCoeffs::standard())?)
        .ns_steps(a.or("ns_steps", 5)?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nesterov(a.or("nesterov", true)?)
        .adaptive(a.or("adaptive", false)?)
        .preconditioning(a.or("preconditioning", Preconditioning::default())?)
        .weight_dimension_numbers(a.or("weight_dimension_numbers", WeightDimensionNumbers::default())?),
    "scale_by_shampoo" => scale_by_shampoo()
        .precondition_frequency(a.or("precondition_frequency", 10)?)
        .max_precond_dim(a.or("max_precond_dim", 1024)?)
        .weight_dimension_numbers(a.or("weight_dimension_numbers", WeightDimensionNumbers::default())?),
    "scale_by_sm3" => scale_by_sm3(),
    "scale_by_soap" => scale_by_soap()
        .shampoo_beta(a.or::<Option<f64>>("shampoo_beta", None)?)
        .precondition_frequency(a.or("precondition_frequency", 10)?)
        .max_precond_dim(a.or("max_precond_dim", 10_000)?)
        .weight_dimension_numbers(a.or("weight_dimension_numbers", WeightDimensionNumbers::default())?),
    "shampoo" => shampoo(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .nesterov(a.or("nesterov", false)?)
        .accumulator_dtype(a.or::<Option<_>>("accumulator_dtype", None)?)
        .precondition_frequency(a.or("precondition_frequency", 10)?)
        .max_precond_dim(a.or("max_precond_dim", 1024)?)
        .weight_dimension_numbers(a.or("weight_dimension_numbers", WeightDimensionNumbers::default())?),
    "sm3" => sm3(a.required::<Hyperparam>("learning_rate")?),
    "soap" => soap(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .shampoo_beta(a.or::<Option<f64>>("shampoo_beta", None)?)
        .precondition_frequency(a.or("precondition_frequency", 10)?)
        .max_precond_dim(a.or("max_precond_dim", 10_000)?)
        .weight_dimension_numbers(a.or("weight_dimension_numbers", WeightDimensionNumbers::default())?),
}

/// The name of a preset, three numbers, or rows of three.
impl Read for NsCoeffs {
    fn read(node: &Node<'_>) -> Result<NsCoeffs> {
        if let Some(name) = node.value.as_str() {
            return NsCoeffs::preset(name).map_err(|error| ConfigError::refused(&node.place, error));
        }
        let rows = node.list()?;
        match rows.first().is_some_and(|row| row.value.is_array()) {
            true => Ok(rows.iter().map(three).collect::<Result<Vec<_>>>()?.into()),
            false => three(node).map(NsCoeffs::from),
        }
    }
}

fn three(node: &Node<'_>) -> Result<[f64; 3]> {
    node.read::<Vec<f64>>()?.try_into().map_err(|_| node.wrong("three numbers"))
}

impl Read for Preconditioning {
    fn read(node: &Node<'_>) -> Result<Preconditioning> {
        Preconditioning::from_name(node.text("a string")?).map_err(|error| ConfigError::refused(&node.place, error))
    }

    fn schema() -> Value {
        json!({"enum": ["frobenius", "spectral", "aol", "schatten"]})
    }

    fn example() -> Value {
        json!("frobenius")
    }
}

/// `null` takes the leaves with two axes; else `{"by_path": {path: null | {"reduction_axis", "output_axis"}}}`.
impl Read for WeightDimensionNumbers {
    fn read(node: &Node<'_>) -> Result<WeightDimensionNumbers> {
        if node.is_none() {
            return Ok(WeightDimensionNumbers::default());
        }
        let ("by_path", inside) = node.single("null or {\"by_path\": ..}")? else {
            return Err(node.wrong("null or {\"by_path\": ..}"));
        };
        let each = |(path, node): (&str, Node<'_>)| Ok((String::from(path), node.read()?));
        Ok(WeightDimensionNumbers::tree(inside.entries()?.into_iter().map(each).collect::<Result<Vec<_>>>()?))
    }
}

impl Read for DimensionNumbers {
    fn read(node: &Node<'_>) -> Result<DimensionNumbers> {
        let a = Args::new("dimension numbers", node.clone())?;
        let axes = |name| a.required::<OneOrMore<isize>>(name).map(|axes| axes.0);
        let numbers = DimensionNumbers::new(axes("reduction_axis")?, axes("output_axis")?);
        a.finish()?;
        Ok(numbers)
    }
}
