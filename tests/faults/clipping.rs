//! Weights clipped between steps keep their state, for any container: values, arrays, structs, files.
//!
//! A framework that identifies state by an array's identity loses the moments of a weight clipped by assignment. Manual
//! clipping here is bitwise identical to a `project` stage.

use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::projection::{Projection, box_set};
use gradchain::schedule::linear;
use gradchain::state::{Entry, State, StateWalk};
use gradchain::transform::{identity, project};
use gradchain::tree::DynTree;

use super::*;

const STEPS: u64 = 12;
const LIMIT: f64 = 0.4;

/// Pulls every third element to zero, and pushes the others to the limits.
fn gradient(model: &Model, step: u64) -> Model {
    let pull =
        |i: usize, x: f64| if i.is_multiple_of(3) { 0.5 * x } else { noise(i as u64) + 0.1 * noise(1000 + step) };
    let weight = model.weight.iter().enumerate().map(|(i, w)| pull(i, f64::from(*w)) as f32).collect();
    Model {
        weight: Array2::from_shape_vec(model.weight.raw_dim(), weight).unwrap(),
        bias: model.bias.iter().enumerate().map(|(i, b)| pull(i, *b)).collect(),
    }
}

type Clip = fn(Model) -> Model;

fn clip(x: f64) -> f64 {
    x.clamp(-LIMIT, LIMIT)
}

fn clip32(x: f32) -> f32 {
    x.clamp(-LIMIT as f32, LIMIT as f32)
}

fn in_place(mut model: Model) -> Model {
    model.weight.mapv_inplace(clip32);
    model.bias.mapv_inplace(clip);
    model
}

fn new_arrays(mut model: Model) -> Model {
    model.weight = model.weight.mapv(clip32);
    model.bias = model.bias.mapv(clip);
    model
}

fn new_struct(model: Model) -> Model {
    Model { bias: Array1::from_iter(model.bias.iter().map(|b| clip(*b))), weight: model.weight.mapv(clip32) }
}

fn other_layout(model: Model) -> Model {
    use ndarray::ShapeBuilder;
    let mut weight = Array2::zeros(model.weight.raw_dim().f());
    weight.assign(&model.weight.mapv(clip32));
    let mut bias = model.bias.mapv(clip);
    bias.invert_axis(ndarray::Axis(0));
    let bias = bias.slice_move(ndarray::s![..;-1]);
    Model { weight, bias }
}

fn by_a_file(model: Model) -> Model {
    let clipped = new_struct(model);
    let of_nothing = identity();
    let state = of_nothing.init(&clipped).unwrap();
    let mut file = std::io::Cursor::new(Vec::new());
    Save::new(&of_nothing, &state).params(&clipped).to_writer(&mut file).unwrap();
    let mut loaded = self::model();
    Checkpoint::from_bytes(file.into_inner()).unwrap().load_params(&mut loaded).unwrap();
    loaded
}

fn by_a_projection(mut model: Model) -> Model {
    box_set(-LIMIT, LIMIT).project(&mut model).unwrap();
    model
}

const WAYS: &[(&str, Clip)] = &[
    ("in place", in_place),
    ("new arrays", new_arrays),
    ("a new struct", new_struct),
    ("another layout", other_layout),
    ("load_params", by_a_file),
    ("project", by_a_projection),
];

fn values<S: State>(state: &S) -> Vec<String> {
    let mut all = Vec::new();
    state.walk(&mut StateWalk::new(&mut |_, entry: Entry<'_>| match entry {
        Entry::Moments(moments) => {
            for leaf in 0..2 {
                let bits = moments.to_array(leaf).map(|array| array.mapv(f64::to_bits).into_raw_vec_and_offset().0);
                all.push(format!("{leaf}: {bits:?}"));
            }
        }
        single => all.push(format!("{single:?}")),
    }));
    all
}

/// Compares manual clipping with the stage.
///
/// Steps are shorter than half the limit, so that `limit − p` is exact for a step beyond it, and the stage's update
/// leads to the limit itself.
fn law<T, C>(name: &str, by_hand: &T, as_a_stage: &C, of: fn(&OptState<C>) -> Vec<String>)
where
    T: GradientTransformation<Needs = Nothing>,
    C: GradientTransformation<Needs = Nothing>,
{
    let mut straight = in_place(model());
    let mut state = as_a_stage.init(&straight).unwrap();
    for step in 0..STEPS {
        let gradient = gradient(&straight, step);
        as_a_stage.step(&mut straight, &gradient, &mut state).unwrap();
    }
    let at_the_limit = straight.bias.iter().filter(|b| b.abs() == LIMIT).count();
    assert!((10..40).contains(&at_the_limit), "{name}: {at_the_limit} of 50 are at a limit");
    let expected = of(&state);
    for (way, clip) in WAYS {
        let mut params = in_place(model());
        let mut state = by_hand.init(&params).unwrap();
        for step in 0..STEPS {
            let gradient = gradient(&params, step);
            by_hand.step(&mut params, &gradient, &mut state).unwrap();
            params = clip(params);
        }
        assert!(bits_of(&params) == bits_of(&straight), "{name}, {way}: parameters");
        assert!(values(&*state) == expected, "{name}, {way}: moments and counts");
    }
}

#[test]
fn clipping_by_hand_is_a_projecting_stage() {
    let stage = || project(box_set(-LIMIT, LIMIT));
    law("adamw", &adamw(0.1), &chain((adamw(0.1), stage())), |state| values(&state.0));
    let momentum = || sgd(linear(0.05, 0.03, 10)).momentum(0.5);
    law("sgd", &momentum(), &chain((momentum(), stage())), |state| values(&state.0));
    let clipped = || chain((clip_by_global_norm(1.0), adamw(0.1)));
    law("a chain", &clipped(), &chain((clipped(), stage())), |state| values(&state.0));
    // The projection applies to emitted updates, so it is inside the window.
    let windows = multi_steps(chain((adam(0.1), stage())), 3);
    law("in a window", &multi_steps(adam(0.1), 3), &windows, |state| {
        let mut all = values(&**state);
        // The stage's count, since limits may be schedules.
        assert_eq!(all.pop().unwrap(), format!("Count(Count({}))", STEPS / 3));
        all
    });
}

/// Leaves without a struct are replaced in another order.
#[test]
fn replaced_leaves_keep_their_state() {
    let optimizer = adam(0.1);
    let start = || {
        let mut params = DynTree::new();
        params.insert("layer/w", model().weight);
        params.insert("layer/b", model().bias);
        params
    };
    let (mut replaced, mut kept) = (start(), start());
    let (mut state, mut of_kept) = (optimizer.init(&replaced).unwrap(), optimizer.init(&kept).unwrap());
    for step in 0..STEPS {
        let grads = |params: &DynTree| {
            let (weight, bias) = (params.get::<f32>("layer/w").unwrap(), params.get::<f64>("layer/b").unwrap());
            let mut grads = DynTree::new();
            grads.insert("layer/w", weight.mapv(|w| 0.5 * w + noise(step) as f32));
            grads.insert("layer/b", bias.mapv(|b| 0.5 * b - noise(step)));
            grads
        };
        let gradient = grads(&replaced);
        optimizer.step(&mut replaced, &gradient, &mut state).unwrap();
        let (weight, bias) = (replaced.get::<f32>("layer/w").unwrap(), replaced.get::<f64>("layer/b").unwrap());
        let (weight, bias) = (weight.mapv(clip32), bias.mapv(clip));
        replaced = DynTree::new();
        replaced.insert("layer/b", bias);
        replaced.insert("layer/w", weight);

        let gradient = grads(&kept);
        optimizer.step(&mut kept, &gradient, &mut of_kept).unwrap();
        box_set(-LIMIT, LIMIT).project(&mut kept).unwrap();
    }
    assert!(bits_of(&replaced) == bits_of(&kept));
    assert_eq!(state.0.count.get(), STEPS);
    assert!(gradchain::state::same_bits(&*state, &*of_kept));
}
