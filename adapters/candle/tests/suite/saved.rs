//! Checkpoints and migration, by path.

use gradchain::Migration;
use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::prelude::*;
use gradchain_candle::{init, step};

use super::*;

fn optimizer() -> impl GradientTransformation<Needs = gradchain::needs::Nothing> {
    let decayed = adamw(cosine_decay(0.05, 50)).weight_decay(0.1).mask(Mask::path("**/weight"));
    multi_steps(chain((clip_by_global_norm(1.0), decayed)), 3)
}

#[test]
fn a_saved_run_resumes_bitwise_identically() -> Tested {
    for dtype in [DType::F32, DType::F64] {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("run.safetensors");
        let straight = Network::new(dtype);
        let (vars, optimizer) = (straight.vars(), optimizer());
        let mut state = init(&optimizer, &vars)?;
        for at in 0..25 {
            // Within a window of three.
            if at == 10 {
                vars.read(|params| Save::new(&optimizer, &state).params(params).to_file(&file))??;
            }
            step(&optimizer, &vars, &straight.grads(), &mut state)?;
        }

        let resumed = Network::new(dtype);
        let vars = resumed.vars();
        let mut state = vars.write(|params| Checkpoint::open(&file)?.load(&optimizer, params))??;
        for _ in 10..25 {
            step(&optimizer, &vars, &resumed.grads(), &mut state)?;
        }
        assert_eq!(all_bits(&vars), all_bits(&straight.vars()), "{dtype:?}");
    }
    Ok(())
}

#[test]
fn an_added_variable_starts_fresh_when_told() -> Tested {
    let network = Network::new(DType::F64);
    let (before, optimizer) = (network.vars(), adam(0.1));
    let mut state = init(&optimizer, &before)?;
    for _ in 0..5 {
        step(&optimizer, &before, &network.grads(), &mut state)?;
    }
    let added = var(&[3], DType::F64, 99);
    network.map.data().lock().unwrap().insert("head.scale".into(), added.clone());
    let after = network.vars();
    assert_eq!(after.len(), before.len() + 1);

    let told = Migration::new().fresh(Mask::path("head/**"));
    let error = after.read(|params| state.clone().migrate(&optimizer, params, &Migration::new()))?;
    assert!(error.unwrap_err().to_string().contains("head/scale"));
    let mut state = after.read(|params| state.migrate(&optimizer, params, &told))??;

    let mut grads = network.grads();
    grads.insert(&added, tensor(&[3], DType::F64, 5));
    let were = added.to_vec1::<f64>()?;
    step(&optimizer, &after, &grads, &mut state)?;
    // Adam's first step is as long as its rate, also for a late leaf.
    for (was, is) in were.iter().zip(added.to_vec1::<f64>()?) {
        assert!(((was - is).abs() - 0.1).abs() < 1e-7, "{was} {is}");
    }
    Ok(())
}
