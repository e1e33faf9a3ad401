//! Untrained variables are not trained, but named in plans, saved and loaded.

use candle_nn::{BatchNorm, Init, ModuleT};
use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::prelude::*;
use gradchain::tree::{Layout, Structure};
use gradchain_candle::{VarOptimizer, init, step};

use super::*;

struct Net {
    map: VarMap,
    backbone: candle_nn::Linear,
    head: candle_nn::Linear,
    norm: BatchNorm,
    scale: Tensor,
}

const BUFFERS: [&str; 6] =
    ["backbone/bias", "backbone/weight", "classes", "norm/running_mean", "norm/running_var", "scale"];

impl Net {
    fn new(seed: u64) -> Net {
        let map = VarMap::new();
        let builder = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
        let layer = |name, i, o| candle_nn::linear(i, o, builder.pp(name)).expect("a layer");
        let net = Net {
            backbone: layer("backbone", 5, 4),
            head: layer("head", 4, 3),
            norm: candle_nn::batch_norm(4, 1e-5, builder.pp("norm")).expect("a norm"),
            scale: builder.get_with_hints(3, "scale", Init::Const(0.0)).expect("a variable"),
            map,
        };
        let classes =
            Tensor::new(&[seed as i64, -3], &Device::Cpu).and_then(|x| Var::from_tensor(&x)).expect("integers");
        net.map.data().lock().unwrap().insert("classes".into(), classes);
        for (i, (name, var)) in net.sorted().iter().enumerate() {
            if !name.starts_with("norm") && name != "classes" {
                var.set(&tensor(var.dims(), DType::F32, seed * 50 + i as u64)).expect("set");
            }
        }
        net
    }

    fn sorted(&self) -> Vec<(String, Var)> {
        let mut all: Vec<_> = self.map.data().lock().unwrap().iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    fn vars(&self) -> Vars {
        let trained = |path: &str| path.starts_with("head") || matches!(path, "norm/weight" | "norm/bias");
        Vars::of_some(&self.map, trained).expect("variables")
    }

    fn loss(&self, number: u64) -> candle_core::Result<Tensor> {
        let x = tensor(&[6, 5], DType::F32, 700 + number);
        let x = self.norm.forward_t(&self.backbone.forward(&x)?.detach(), true)?;
        self.head.forward(&x)?.broadcast_mul(&self.scale.detach())?.sqr()?.mean_all()
    }

    fn all(&self) -> Vec<(String, Vec<u8>)> {
        let bytes = |var: &Var| {
            let mut bytes = Vec::new();
            var.write_bytes(&mut bytes).expect("bytes");
            bytes
        };
        self.sorted().into_iter().map(|(name, var)| (name, bytes(&var))).collect()
    }
}

#[test]
fn a_resumed_run_is_bitwise_identical_to_the_uninterrupted_one() -> Tested {
    let (optimizer, steps) = (multi_steps(chain((clip_by_global_norm(1.0), adamw(0.05))), 2), 6);
    for cut in 0..steps {
        let straight = Net::new(1);
        let (vars, mut file) = (straight.vars(), std::io::Cursor::new(Vec::new()));
        assert_eq!(vars.buffers().map(|(path, _)| path).collect::<Vec<_>>(), BUFFERS);
        let mut state = init(&optimizer, &vars)?;
        for number in 0..steps {
            if number == cut {
                vars.read(|params| Save::new(&optimizer, &state).params(params).to_writer(&mut file))??;
            }
            step(&optimizer, &vars, &straight.loss(number)?.backward()?, &mut state)?;
        }
        let resumed = Net::new(2);
        resumed.loss(99)?;
        let (vars, file) = (resumed.vars(), Checkpoint::from_bytes(file.into_inner())?);
        let mut state = vars.write(|params| file.load(&optimizer, params))??;
        for number in cut..steps {
            step(&optimizer, &vars, &resumed.loss(number)?.backward()?, &mut state)?;
        }
        assert_eq!(resumed.all(), straight.all(), "cut before step {cut}");
    }
    Ok(())
}

#[test]
fn a_file_that_lacks_buffers_is_refused() -> Tested {
    let (net, optimizer, mut file) = (Net::new(1), sgd(0.1), std::io::Cursor::new(Vec::new()));
    let alone = Vars::named(net.vars().iter().map(|(path, var)| (path.to_owned(), var.clone())))?;
    let state = init(&optimizer, &alone)?;
    alone.read(|params| Save::new(&optimizer, &state).params(params).to_writer(&mut file))??;
    let file = Checkpoint::from_bytes(file.into_inner())?;
    let other = Net::new(2);
    let before = other.all();
    let error = other.vars().write(|params| file.load_params(params))?.unwrap_err().to_string();
    for path in BUFFERS {
        assert!(error.contains(&format!("buffers: missing {path}: ")), "{path}: {error}");
    }
    assert_eq!(other.all(), before);
    Ok(())
}

/// A model with `batch_norm` trains, alone and under accumulation.
#[test]
fn running_statistics_are_left_out_and_named() -> Tested {
    let net = Net::new(1);
    let vars = Vars::of_some(&net.map, |path| !path.starts_with("backbone") && path != "scale")?;
    let missing = step(&adam(0.1), &vars, &net.loss(0)?.backward()?, &mut init(&adam(0.1), &vars)?).unwrap_err();
    assert!(missing.to_string().contains("missing leaf norm/running_mean"), "{missing}");

    ["backbone.weight", "backbone.bias", "scale"]
        .iter()
        .for_each(|name| _ = net.map.data().lock().unwrap().remove(*name));
    let vars = Vars::of(&net.map)?;
    assert_eq!(vars.paths().collect::<Vec<_>>(), ["head/bias", "head/weight", "norm/bias", "norm/weight"]);
    let plan = vars.read(|params| adam(0.1).plan(params))??.to_string();
    assert!(
        plan.contains("not trained: classes: i64 [2]; norm/running_mean: f32 [4]; norm/running_var: f32 [4]"),
        "{plan}"
    );
    let optimizer = multi_steps(adam(0.1), 2);
    let mut state = init(&optimizer, &vars)?;
    for number in 0..4 {
        step(&optimizer, &vars, &net.loss(number)?.backward()?, &mut state)?;
    }
    let chosen = Vars::of_backward(&net.map, &net.loss(0)?.backward()?)?;
    assert_eq!(chosen.paths().collect::<Vec<_>>(), vars.paths().collect::<Vec<_>>());
    VarOptimizer::of(vars, adam(0.1))?;

    // A running statistic must not have a gradient.
    let map = VarMap::new();
    let builder = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
    let mean = builder.get_with_hints(2, "mine.running_mean", Init::Const(1.0))?;
    let w = builder.get_with_hints(2, "w", Init::Const(1.0))?;
    let (vars, loss) = (Vars::of(&map)?, (mean * w)?.sum_all()?);
    let error = step(&sgd(0.1), &vars, &loss.backward()?, &mut init(&sgd(0.1), &vars)?).unwrap_err().to_string();
    assert!(error.contains("`mine/running_mean`") && error.contains("Vars::of_some"), "{error}");
    step(
        &sgd(0.1),
        &Vars::of_some(&map, |_| true)?,
        &loss.backward()?,
        &mut init(&sgd(0.1), &Vars::of_some(&map, |_| true)?)?,
    )?;
    Ok(())
}

#[test]
fn weights_are_stored_outputs_first() -> Tested {
    let structure = Net::new(1).vars().read(|params| Structure::of(params))??;
    assert!(structure.leaves().iter().all(|leaf| leaf.layout() == Layout::OutIn));
    Ok(())
}
