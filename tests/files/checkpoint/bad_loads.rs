//! The loads of `tests/data/bad_loads/record.py`, which records PyTorch's and Optax's reactions, are errors here.

use super::*;
use gradchain::optimizer::adabelief;

type Leaves<'a> = [(&'a str, &'a [f32])];

const TWO: &Leaves<'_> = &[("a", &[1.0, 2.0]), ("b", &[3.0, 4.0])];

fn adamw_() -> gradchain::optimizer::Adamw {
    adamw(0.1)
}

/// Saves after two steps, with gradients of 1 for the first leaf and 10 for the second.
fn saved<T: GradientTransformation<Needs = Nothing>, P: TreeMut + Clone>(optimizer: &T, params: &P) -> Checkpoint {
    let (mut trained, mut state) = (params.clone(), optimizer.init(params).unwrap());
    for _ in 0..2 {
        optimizer.step(&mut trained, params, &mut state).unwrap();
    }
    file(optimizer, &state, &trained)
}

fn refused<T: GradientTransformation, P: TreeMut + Clone + PartialEq>(
    file: &Checkpoint,
    optimizer: &T,
    params: &P,
) -> String {
    let mut into = params.clone();
    let error = file.load(optimizer, &mut into).unwrap_err();
    assert!(&into == params, "nothing is changed");
    error.to_string()
}

/// The message for leaves that differ.
const VERBS: &str = "\n  changes of leaves need a `Migration`: `fresh`, `drop`, `rename`";

#[test]
fn a_wrong_shape() {
    let file = saved(&adamw_(), &dyn_tree(&[("a", &[1.0, 2.0, 3.0, 4.0])]));
    assert_eq!(
        refused(&file, &adamw_(), &dyn_tree(&[("a", &[1.0, 2.0, 3.0])])),
        format!("the checkpoint does not fit: 1 difference\n  parameters: a: expected shape [3], found [4]{VERBS}")
    );
    let file = saved(&adamw_(), &dyn_tree(&[("a", &[1.0])]));
    assert_eq!(
        refused(&file, &adamw_(), &dyn_tree(&[("a", &[1.0, 2.0, 3.0])])),
        format!("the checkpoint does not fit: 1 difference\n  parameters: a: expected shape [3], found [1]{VERBS}")
    );
}

#[test]
fn another_order() {
    // Tuples and vectors name leaves by position.
    let file = saved(&adamw_(), &dyn_tree(TWO));
    assert_eq!(
        refused(&file, &adamw_(), &dyn_tree(&[("b", &[3.0, 4.0]), ("c", &[1.0, 2.0])])),
        format!(
            "the checkpoint does not fit: 2 differences\n  parameters: unexpected leaf a: f32 [2]\n  \
             parameters: missing leaf c: f32 [2]{VERBS}"
        )
    );
    #[derive(Clone, PartialEq, Tree)]
    struct Forth {
        a: Vec<f32>,
        b: Vec<f32>,
    }
    #[derive(Clone, PartialEq, Tree)]
    struct Back {
        b: Vec<f32>,
        a: Vec<f32>,
    }
    let forth = Forth { a: vec![1.0, 2.0], b: vec![3.0, 4.0] };
    let file = saved(&adamw_(), &forth);
    // Matched by name.
    let mut back = Back { b: vec![0.0; 2], a: vec![0.0; 2] };
    let state = file.load(&adamw_(), &mut back).unwrap();
    assert!(back.a[0] < 1.5 && back.b[0] > 2.5);
    let mu = state.0.moment("mu").unwrap();
    assert!(mu.get::<f32>(0).unwrap()[0] > mu.get::<f32>(1).unwrap()[0], "b is the first here, and has the larger one");
}

#[test]
fn the_state_of_another_optimizer() {
    let file = saved(&adamw_(), &dyn_tree(TWO));
    assert_eq!(
        refused(&file, &sgd(0.1).momentum(0.9), &dyn_tree(TWO)),
        "the checkpoint does not fit: 10 differences\n  optimizer: $: expected sgd, found adamw\n  state: \
         `0.trace[a]`: expected moment f32 [2], found nothing\n  state: `0.trace[b]`: expected moment f32 [2], found \
         nothing\n  state: `1.count`: expected count, found nothing\n  state: `1.inner.count`: unexpected count\n  \
         state: `2.count`: unexpected count\n  state: `0.mu[a]`: unexpected moment f32 [2]\n  state: `0.mu[b]`: \
         unexpected moment f32 [2]\n  state: `0.nu[a]`: unexpected moment f32 [2]\n  state: `0.nu[b]`: unexpected \
         moment f32 [2]\n  `Load::strict().may_differ(\"$\")` resumes with the current optimizer, with a `Migration` \
         where its state differs"
    );
    // A file of another optimizer with the same field names.
    let file = saved(&adam(0.1), &dyn_tree(TWO));
    assert_eq!(
        refused(&file, &radam(0.1), &dyn_tree(TWO)),
        "the checkpoint does not fit: 1 difference\n  optimizer: $: expected radam, found adam\n  \
         `Load::strict().may_differ(\"$\")` resumes with the current optimizer, with a `Migration` where its state \
         differs"
    );
    assert_eq!(
        refused(&file, &adabelief(0.1), &dyn_tree(TWO)),
        "the checkpoint does not fit: 1 difference\n  optimizer: $: expected adabelief, found adam\n  \
         `Load::strict().may_differ(\"$\")` resumes with the current optimizer, with a `Migration` where its state \
         differs"
    );
}

#[test]
fn a_changed_argument() {
    let file = saved(&adamw_(), &dyn_tree(TWO));
    assert_eq!(
        refused(&file, &adamw(0.2).b1(0.8).b2(0.99), &dyn_tree(TWO)),
        "the checkpoint does not fit: 3 differences\n  optimizer: $.adamw.b1: expected 0.8, found 0.9\n  optimizer: \
         $.adamw.b2: expected 0.99, found 0.999\n  optimizer: $.adamw.learning_rate: expected 0.2, found 0.1\n  \
         `Load::strict().may_differ(\"b1\").may_differ(\"b2\").may_differ(\"learning_rate\")` resumes with the current \
         optimizer"
    );
    let file = saved(&inject_hyperparams(adamw_()), &dyn_tree(TWO));
    assert_eq!(
        refused(&file, &inject_hyperparams(adamw(0.2)), &dyn_tree(TWO)),
        "the checkpoint does not fit: 1 difference\n  optimizer: $.inject_hyperparams.inner.adamw.learning_rate: \
         expected 0.2, found 0.1\n  `Load::strict().may_differ(\"learning_rate\")` resumes with the current optimizer"
    );
}

#[test]
fn a_narrower_type() {
    let wide = (array![1.0_f64, 2.0], array![3.0_f64]);
    let file = saved(&adamw_(), &wide);
    assert_eq!(
        refused(&file, &adamw_(), &(array![1.0_f32, 2.0], array![3.0_f32])),
        "the checkpoint does not fit: 2 differences\n  parameters: 0: expected type f32, found f64; convert this leaf \
         first, since narrowing is never implicit\n  parameters: 1: expected type f32, found f64; convert this leaf \
         first, since narrowing is never implicit\n  `Migration::new().cast(Mask::all())` rounds values and state to \
         the dtypes of these leaves"
    );
}

#[cfg(feature = "half")]
#[test]
fn a_narrower_type_of_sixteen_bits() {
    let file = saved(&adamw_(), &array![1.0_f32, 2.0]);
    let narrow = array![1.0_f32, 2.0].mapv(half::bf16::from_f32);
    assert_eq!(
        refused(&file, &adamw_(), &narrow),
        "the checkpoint does not fit: 1 difference\n  parameters: (root): expected type bf16, found f32\n  \
         `Migration::new().cast(Mask::all())` rounds values and state to the dtypes of these leaves"
    );
    let file = saved(&adamw_(), &narrow);
    let optimizer = adamw_().mu_dtype(gradchain::DType::Bf16);
    assert_eq!(
        refused(&file, &optimizer, &narrow),
        "the checkpoint does not fit: 2 differences\n  optimizer: $.adamw.mu_dtype: expected \"bf16\", found null\n  \
         state: `0.mu[]`: expected moment bf16 [2], found moment f32 [2]\n  `Load::strict().may_differ(\"mu_dtype\")` \
         resumes with the current optimizer\n  `cast_part(\"0.mu\")` rounds it to its new dtype"
    );
}

#[test]
fn a_missing_leaf() {
    let file = saved(&adamw_(), &dyn_tree(&TWO[..1]));
    assert_eq!(
        refused(&file, &adamw_(), &dyn_tree(TWO)),
        format!("the checkpoint does not fit: 1 difference\n  parameters: missing leaf b: f32 [2]{VERBS}")
    );
}
