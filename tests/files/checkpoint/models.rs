//! Several models in one file, and a folder's best.

use std::fs;

use gradchain::checkpoint::{Load, Rotation, SaveModels, best_valid, latest_valid};
use gradchain::state::same_bits;

use super::*;

fn both(steps: usize) -> (Model, Vec<f32>) {
    let (generator, _) = trained(&optimizer(), steps);
    (generator, vec![steps as f32, 0.5])
}

#[test]
fn models_of_one_file_are_of_one_step() {
    let folder = tempfile::tempdir().unwrap();
    let rotation = Rotation::new(folder.path()).unwrap().keep_last(1).keep_best(1);
    let (of_generator, of_critic) = (optimizer(), sgd(0.1).momentum(0.9));
    for step in 1..=3 {
        let (generator, critic) = both(step);
        let (_, of_g) = trained(&of_generator, step);
        let of_c = of_critic.init(&critic).unwrap();
        let models = SaveModels::new()
            .model("generator", Save::new(&of_generator, &of_g).params(&generator))
            .model("critic", Save::new(&of_critic, &of_c).params(&critic).note("own", step))
            .note("epoch", step);
        rotation.save(step as u64, Some((step as f64 - 1.75).abs()), models).unwrap();
    }
    assert_eq!(rotation.steps().unwrap(), [2, 3]);
    let (step, file) = latest_valid(folder.path()).unwrap().checkpoint.unwrap();
    assert_eq!(
        (step, file.note("epoch"), file.models().collect::<Vec<_>>()),
        (3, Some("3"), vec!["critic", "generator"])
    );
    let (mut generator, mut critic) = (model(), vec![0.0; 2]);
    let of_g = file.model("generator").unwrap().load(&of_generator, &mut generator).unwrap();
    let part = file.model("critic").unwrap();
    part.load(&of_critic, &mut critic).unwrap();
    assert_eq!((generator, critic.clone()), both(3));
    assert_eq!((part.note("own"), part.structure().len()), (Some("3"), 1));
    assert!(same_bits(&*of_g, &*trained(&of_generator, 3).1));
    let error = part.load(&sgd(0.1).momentum(0.5), &mut critic).unwrap_err().to_string();
    assert!(
        error.contains("safetensors: model `critic` does not fit: 1 difference\n  optimizer: $.sgd.momentum"),
        "{error}"
    );
    Load::strict().may_differ("momentum").load(&part, &sgd(0.1).momentum(0.5), &mut critic).unwrap();
    part.load_params(&mut critic).unwrap();

    let error = file.load(&of_critic, &mut critic).unwrap_err().to_string();
    assert!(
        error.ends_with("it holds several models: select one with `model(\"critic\")` or `model(\"generator\")`"),
        "{error}"
    );
    assert!(file.load_params(&mut critic).unwrap_err().to_string().contains("it holds several models"));
    assert!(file.load_state(&of_critic, &critic).unwrap_err().to_string().contains("it holds several models"));
    let error = file.model("critics").unwrap_err();
    assert!(error.is_unknown_name() && error.to_string().contains("`critic`"), "{error}");
    let one = super::file(&of_critic, &of_critic.init(&critic).unwrap(), &critic);
    assert!(one.model("critic").unwrap_err().to_string().contains("it holds one model, without a name"));

    let (step, file) = rotation.best().unwrap().checkpoint.unwrap();
    assert_eq!((step, file.note("epoch")), (2, Some("2")));
}

/// Anywhere in the file, before the first model is loaded.
#[test]
fn a_model_of_a_damaged_file_is_not_loaded() {
    let (of_critic, critic) = (sgd(0.1).momentum(0.9), vec![1.0_f32, 2.0]);
    let of_c = of_critic.init(&critic).unwrap();
    let save = || Save::new(&of_critic, &of_c).params(&critic);
    let written = |models: &SaveModels<'_>| {
        let mut to = Cursor::new(Vec::new());
        models.to_writer(&mut to).map(|()| to.into_inner())
    };
    let bytes = written(&SaveModels::new().model("a", save()).model("b", save())).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    for place in header..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[place] ^= 1;
        let file = Checkpoint::from_bytes(bytes).unwrap();
        assert!(file.model("a").unwrap_err().to_string().contains("checksum"));
    }
    for place in (8..header).step_by(7) {
        let mut bytes = bytes.clone();
        bytes[place] ^= 1;
        assert!(Checkpoint::from_bytes(bytes).is_err(), "the byte {place} of the header");
    }
    Checkpoint::from_bytes(bytes).unwrap().model("a").unwrap();

    let refused = |models: &SaveModels<'_>| written(models).unwrap_err().to_string();
    assert!(refused(&SaveModels::new()).contains("no model to save"));
    let twice = refused(&SaveModels::new().model("a", save()).model("a", save()));
    assert!(twice.contains("the model name `a` occurs twice"));
    let slash = refused(&SaveModels::new().model("a/b", save()));
    assert!(slash.contains("the model name `a/b` must not be empty or contain `/`"));
    assert!(refused(&SaveModels::new().model("", save())).contains("the model name `` must not be empty"));
    let other = vec![1.0_f32];
    let error = refused(&SaveModels::new().model("a", Save::new(&of_critic, &of_c).params(&other)));
    assert!(error.contains("the parameters are not those that the state was made for"), "{error}");
}

#[test]
fn the_best_of_a_folder_is_found() {
    let folder = tempfile::tempdir().unwrap();
    assert!(best_valid(folder.path().join("nowhere")).unwrap().checkpoint.is_none());
    let rotation = Rotation::new(folder.path()).unwrap();
    let optimizer = optimizer();
    let scores = [Some(0.5), Some(0.25), None, Some(0.25), Some(f64::NAN), Some(0.125)];
    for (step, score) in (1..).zip(scores) {
        let (params, state) = trained(&optimizer, step);
        rotation.save(step as u64, score, Save::new(&optimizer, &state).params(&params)).unwrap();
    }
    let best = || {
        let found = rotation.best().unwrap();
        (found.checkpoint.map(|(step, _)| step), found.skipped.len())
    };
    let path = |step: usize| folder.path().join(format!("step-{step:012}.safetensors"));
    let damage = |step| {
        let mut bytes = fs::read(path(step)).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(path(step), &bytes).unwrap();
    };
    assert_eq!(best(), (Some(6), 0));
    damage(6);
    assert_eq!(best(), (Some(4), 1), "of equal ones the latest");
    damage(4);
    assert_eq!(best(), (Some(2), 2));
    fs::remove_file(path(2)).unwrap();
    damage(1);
    assert_eq!(best(), (None, 3), "files without a score are not the best");
}
