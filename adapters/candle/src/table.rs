//! Doc tests for the rows of the guide's table "What stays the same, and what does not" that no other doc test shows.
#![allow(dead_code, reason = "for its doc tests")]

/// chains, wrappers, schedules, masks, labels, plans, readings
///
/// ```
/// use candle_core::{DType, Device, Var};
/// use gradchain::prelude::*;
/// use gradchain_candle::{Vars, init, step};
///
/// let w = Var::ones((2, 2), DType::F32, &Device::Cpu)?;
/// let vars = Vars::named([("head.weight", w.clone())])?;
/// let optimizer = chain((clip(1.0), inject_hyperparams(adamw(cosine_decay(0.1, 10)).mask(Mask::path("head/*")))));
/// assert_eq!(vars.read(|params| optimizer.plan(params))??.passes.len(), 1);
/// let mut state = init(&optimizer, &vars)?;
/// step(&optimizer, &vars, &w.sqr()?.sum_all()?.backward()?, &mut state)?;
/// assert_eq!(optimizer.readings(&state)?.get("learning_rate")?, 0.1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
mod parts {}

/// types
///
/// ```
/// use candle_core::{DType, Device, Tensor, Var};
/// use gradchain_candle::Vars;
///
/// for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
///     assert_eq!(Vars::named([("w", Var::zeros(1, dtype, &Device::Cpu)?)])?.len(), 1);
/// }
/// let steps = Var::from_tensor(&Tensor::zeros(1, DType::I64, &Device::Cpu)?)?;
/// let vars = Vars::named([("steps", steps)])?;
/// assert_eq!((vars.len(), vars.buffers().count()), (0, 1));
/// assert!(Vars::named([("w", Var::zeros(1, DType::F8E4M3, &Device::Cpu)?)]).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
mod types {}

/// weights
///
/// ```
/// use candle_core::{DType, Device, Var};
/// use gradchain::tree::{Layout, Structure};
/// use gradchain_candle::Vars;
///
/// let vars = Vars::named([("w", Var::zeros((3, 2), DType::F32, &Device::Cpu)?)])?;
/// assert_eq!(vars.read(|params| Structure::of(params))??.leaves()[0].layout(), Layout::OutIn);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
mod weights {}

/// arithmetic on 16 bits
///
/// ```
/// use candle_core::{DType, Device, Var};
/// use gradchain::prelude::*;
/// use gradchain_candle::{Vars, init, step};
///
/// let w = Var::ones(2, DType::BF16, &Device::Cpu)?;
/// let vars = Vars::named([("w", w.clone())])?;
/// let mut state = init(&adam(0.1), &vars)?;
/// assert!(format!("{:?}", state.schema()).contains("F32"));
/// step(&adam(0.1), &vars, &w.sqr()?.sum_all()?.backward()?, &mut state)?;
/// // 1 − 0.1 in `f32`, rounded once.
/// assert_eq!(w.to_dtype(DType::F32)?.to_vec1::<f32>()?, [f32::from(half::bf16::from_f32(0.9)); 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
mod halves {}

/// a variable without a gradient
///
/// ```
/// use candle_core::{DType, Device, Var};
/// use gradchain::prelude::*;
/// use gradchain::wrapper::skip_absent;
/// use gradchain_candle::{Vars, init, step};
///
/// let [a, b] = [Var::ones(1, DType::F32, &Device::Cpu)?, Var::ones(1, DType::F32, &Device::Cpu)?];
/// let vars = Vars::named([("a", a.clone()), ("b", b.clone())])?;
/// let grads = a.sqr()?.sum_all()?.backward()?;
/// let error = step(&sgd(0.5), &vars, &grads, &mut init(&sgd(0.5), &vars)?).unwrap_err().to_string();
/// assert!(error.contains("missing leaf b"), "{error}");
/// let optimizer = skip_absent(sgd(0.5));
/// step(&optimizer, &vars, &grads, &mut init(&optimizer, &vars)?)?;
/// assert_eq!((a.to_vec1::<f32>()?, b.to_vec1::<f32>()?), (vec![0.0], vec![1.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
mod absent {}

/// gradients of another shape or a wider type
///
/// ```
/// use candle_core::{DType, Device, Tensor, Var};
/// use gradchain::prelude::*;
/// use gradchain_candle::{Vars, init, step};
///
/// let w = Var::ones(2, DType::F32, &Device::Cpu)?;
/// let vars = Vars::named([("w", w.clone())])?;
/// let mut state = init(&sgd(0.5), &vars)?;
/// let mut grads = w.sqr()?.sum_all()?.backward()?;
/// for gradient in [Tensor::ones(3, DType::F32, &Device::Cpu)?, Tensor::ones(2, DType::F64, &Device::Cpu)?] {
///     grads.insert(&w, gradient);
///     let error = step(&sgd(0.5), &vars, &grads, &mut state).unwrap_err().to_string();
///     assert!(error.contains("w: expected"), "{error}");
/// }
/// assert_eq!(w.to_vec1::<f32>()?, [1.0, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
mod shapes {}

/// gradients that are transposed or broadcast
///
/// ```
/// use candle_core::{Device, Tensor, Var};
/// use gradchain::prelude::*;
/// use gradchain_candle::{Vars, init, step};
///
/// let w = Var::new(&[[0_f32, 0.0], [0.0, 0.0]], &Device::Cpu)?;
/// let vars = Vars::named([("w", w.clone())])?;
/// let mut state = init(&sgd(1.0), &vars)?;
/// let mut grads = w.sqr()?.sum_all()?.backward()?;
/// grads.insert(&w, Tensor::new(&[[1_f32, 2.0], [3.0, 4.0]], &Device::Cpu)?.t()?);
/// step(&sgd(1.0), &vars, &grads, &mut state)?;
/// grads.insert(&w, Tensor::new(&[1_f32], &Device::Cpu)?.broadcast_as((2, 2))?);
/// step(&sgd(1.0), &vars, &grads, &mut state)?;
/// assert_eq!(w.to_vec2::<f32>()?, [[-2.0, -4.0], [-3.0, -5.0]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
mod strides {}

/// update, projections
///
/// ```
/// use candle_core::{Device, Var};
/// use gradchain::prelude::*;
/// use gradchain::tree::{DynTree, tree_map};
/// use gradchain_candle::{Vars, init};
///
/// let w = Var::new(&[0.5_f64, -0.5], &Device::Cpu)?;
/// let vars = Vars::named([("w", w.clone())])?;
/// let optimizer = sgd(1.0);
/// let mut state = init(&optimizer, &vars)?;
/// let grads = w.sqr()?.sum_all()?.backward()?;
/// let updates = vars.write_with(&grads, |params, grads| {
///     let updates = optimizer.update(grads, &mut state, params)?;
///     tree_map(params, |x| x.max(0.0));
///     DynTree::of(&updates)
/// })??;
/// assert_eq!(updates.get::<f64>("w").unwrap().as_slice(), Some(&[-1.0, 1.0][..]));
/// assert_eq!(w.to_vec1::<f64>()?, [0.5, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
mod lent {}
