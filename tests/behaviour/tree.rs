//! Types that are trees, the paths of their leaves, and operations on them.
#![allow(unreachable_pub, reason = "a test needs a public struct with private fields")]

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use gradchain::tree::{Difference, DynTree, LeafMut, LeafRef, Slices, SlicesMut, Structure, tree_norm};
use gradchain::{DType, GradientTransformation as _, Tree, TreeMut, apply_updates, sgd};
use ndarray::{
    ArcArray1, Array, Array0, Array1, Array2, Array3, Array4, Array5, Array6, ArrayD, ArrayView1, ArrayViewMut2, Axis,
    CowArray, Dimension, IxDyn, ShapeBuilder, array, s,
};
use proptest::prelude::*;

/// Returns the leaves as text: `path: dtype [shape]`.
fn leaves<T: Tree + ?Sized>(tree: &T) -> Vec<String> {
    Structure::of(tree).unwrap().leaves().iter().map(ToString::to_string).collect()
}

fn paths<T: Tree + ?Sized>(tree: &T) -> Vec<String> {
    Structure::of(tree).unwrap().paths().map(String::from).collect()
}

/// Adds `100·(i + 1) + j` to element `j` (row-major) of leaf `i`, with `walk` and `walk_mut`.
fn number<T: TreeMut + ?Sized>(tree: &mut T) {
    let structure = Structure::of(tree).unwrap();
    let values = structure.leaves().iter().zip(1_u16..);
    let values: Vec<Vec<f32>> =
        values.map(|(leaf, i)| (0_u16..).map(|j| f32::from(100 * i + j)).take(leaf.len()).collect()).collect();
    let updates = structure
        .leaves()
        .iter()
        .zip(&values)
        .try_fold(Slices::new(), |updates, (leaf, values)| updates.with(leaf.path(), values, leaf.shape()));
    apply_updates(tree, &updates.unwrap()).unwrap();
}

#[derive(Tree, Default)]
struct Dense {
    #[tree(rename = "w")]
    weight: Array2<f32>,
    bias: Array1<f32>,
}

#[derive(Tree)]
enum Layer {
    Dense(Dense),
    Norm {
        scale: f32,
        shift: f32,
    },
    Pair(f32, f32),
    Relu,
    #[tree(rename = "pos")]
    Position(f32),
    #[tree(skip)]
    #[allow(dead_code, reason = "skipped: not even asked to be a tree")]
    Custom(fn(f32) -> f32),
}

#[derive(Tree)]
struct Model {
    layers: Vec<Layer>,
    r#final: Dense,
    steps: u64,
    #[tree(skip)]
    rate: f64,
}

fn model() -> Model {
    let dense = || Dense { weight: Array2::zeros((2, 1)), bias: Array1::zeros(1) };
    let layers = vec![
        Layer::Dense(dense()),
        Layer::Relu,
        Layer::Norm { scale: 0.0, shift: 0.0 },
        Layer::Pair(0.0, 0.0),
        Layer::Position(0.0),
        Layer::Custom(f32::sin),
    ];
    Model { layers, r#final: dense(), steps: 3, rate: 0.5 }
}

#[test]
fn derived_paths_are_in_the_order_of_declaration() {
    let expected = [
        "layers/0/Dense/0/w: f32 [2, 1]",
        "layers/0/Dense/0/bias: f32 [1]",
        "layers/2/Norm/scale: f32 []",
        "layers/2/Norm/shift: f32 []",
        "layers/3/Pair/0: f32 []",
        "layers/3/Pair/1: f32 []",
        "layers/4/pos/0: f32 []",
        "final/w: f32 [2, 1]",
        "final/bias: f32 [1]",
    ];
    assert_eq!(leaves(&model()), expected);
}

#[test]
fn both_walks_of_a_derived_tree_show_the_same_leaves() {
    let mut model = model();
    number(&mut model);
    assert!(matches!(&model.layers[0], Layer::Dense(d) if d.weight == array![[100.0], [101.0]] && d.bias[0] == 200.0));
    assert!(matches!(model.layers[2], Layer::Norm { scale: 300.0, shift: 400.0 }));
    assert!(matches!(model.layers[3], Layer::Pair(500.0, 600.0)));
    assert!(matches!(model.layers[4], Layer::Position(700.0)));
    assert_eq!((model.r#final.weight, model.r#final.bias), (array![[800.0], [801.0]], array![900.0]));
    assert_eq!((model.steps, model.rate), (3, 0.5), "what is no leaf stays as it is");
}

#[test]
fn tuple_unit_and_empty_types_are_trees() {
    #[derive(Tree)]
    struct Pair(f32, #[tree(skip)] PhantomData<fn()>, f64, #[tree(rename = "last")] f32);
    #[derive(Tree)]
    struct Unit;
    #[derive(Tree)]
    struct Empty {}
    #[derive(Tree)]
    enum Never {}

    assert_eq!(leaves(&Pair(0.0, PhantomData, 0.0, 0.0)), ["0: f32 []", "2: f64 []", "last: f32 []"]);
    assert!(paths(&(Unit, Empty {}, None::<Never>)).is_empty());
    let mut tree = (Pair(0.0, PhantomData, 0.0, 0.0), Unit, Empty {});
    number(&mut tree);
    assert_eq!((tree.0.0, tree.0.2, tree.0.3), (100.0, 200.0, 300.0));
}

#[test]
fn generic_types_are_trees_if_their_fields_are() {
    struct NoTree;

    #[derive(Tree)]
    struct Generic<'a, T, U: ?Sized, const N: usize>
    where
        T: Clone,
    {
        named: [T; N],
        optional: Option<Box<T>>,
        borrowed: &'a mut [f32],
        #[tree(skip)]
        marker: PhantomData<U>,
    }
    // A bound on the fields would depend on itself here.
    #[derive(Tree)]
    struct List<T> {
        value: T,
        next: Option<Box<List<T>>>,
    }
    #[derive(Tree)]
    enum Either<A, B> {
        Left(A),
        Right { it: B },
    }
    #[derive(Tree)]
    struct Inner<T>(T);
    #[derive(Tree)]
    pub struct Outer<T> {
        inner: Inner<T>,
    }

    let mut slice = [0.0; 2];
    let mut tree = Generic::<_, NoTree, 2> {
        named: [0.0_f32, 0.0],
        optional: Some(Box::new(0.0)),
        borrowed: &mut slice,
        marker: PhantomData,
    };
    assert_eq!(paths(&tree), ["named", "optional", "borrowed"]);
    number(&mut tree);
    assert_eq!((tree.named, tree.optional.as_deref()), ([100.0, 101.0], Some(&200.0)));
    assert_eq!(slice, [300.0, 301.0]);

    let list = List { value: 1.0_f32, next: Some(Box::new(List { value: 2.0, next: None })) };
    assert_eq!(paths(&list), ["value", "next/value"]);
    let mut either = [Either::Left(0.0_f32), Either::Right { it: array![0.0_f64] }];
    assert_eq!(leaves(&either), ["0/Left/0: f32 []", "1/Right/it: f64 [1]"]);
    number(&mut either);
    assert_eq!(paths(&Outer { inner: Inner(0.0_f32) }), ["inner/0"]);
}

/// Tokens that resemble the end of a type, of the parameters or of an attribute.
#[test]
fn types_may_be_written_in_any_way() {
    use gradchain::constraint::{Constraint, Constraints, positive};

    trait Of {
        type Item;
    }
    impl Of for f32 {
        type Item = Vec<Vec<f32>>;
    }
    struct Big<const B: bool>;
    fn chosen<A, B>(_: fn(A) -> B, on: bool) -> impl Constraint {
        assert!(on);
        positive()
    }

    #[derive(Tree)]
    struct Knot<'a: 'a, #[allow(unused)] T: Of<Item = Vec<Vec<f32>>> + Clone = f32, const N: usize = { 1 + 1 }>
    where
        fn(T) -> Vec<T>: Sized,
        Big<{ 3 > 2 }>: Sized,
        T: 'a,
    {
        #[allow(clippy::type_complexity, dead_code, reason = "it is there to be read by the derive macro")]
        #[tree(skip)]
        pub(crate) function: fn(Vec<T>) -> Option<Box<dyn Fn(T) -> Vec<T>>>,
        #[doc = "#[tree(skip)]"]
        pub(crate) item: <T as Of>::Item,
        #[tree(rename = r#"a "name""#, constraint = chosen::<Vec<T>, (T, T)>(|_| unreachable!(), 1 < 2),)]
        pub r#type: [T; N],
        #[tree(skip)]
        marker: PhantomData<&'a [u8; 1 << 3]>,
    }
    #[derive(Tree)]
    struct Tuple<T>(pub(crate) T, pub (T, T), pub(self) Vec<Vec<T>>)
    where
        T: Clone;
    #[derive(Tree)]
    #[allow(dead_code)]
    #[repr(u8)]
    enum Numbered {
        None = 1 << 3,
        r#One(f32) = size_of::<Big<true>>() as u8,
        Two { a: f32 } = 2,
    }
    macro_rules! given {
        ($(#[$attribute:meta])* $visibility:vis $name:ident $T:ty, $text:literal, $constraint:expr) => {
            #[derive(Tree)]
            $(#[$attribute])*
            $visibility struct $name {
                #[tree(rename = $text, constraint = $constraint)]
                $visibility field: $T,
            }
            #[derive(Tree)]
            struct Both($visibility $T, $T);
        };
    }
    given!(#[tree(read_only)] #[derive(Clone)] pub(crate) Given (f32, f64), "text", chosen::<f32, f64>(|_| 0.0, 1 < 2));

    let knot =
        Knot::<f32, 2> { function: |_| None, item: vec![vec![1.0], vec![]], r#type: [1.0, 2.0], marker: PhantomData };
    assert_eq!(leaves(&knot), ["item/0: f32 [1]", "item/1: f32 [0]", "a \"name\": f32 [2]"]);
    let tuple = Tuple(1.0_f32, (2.0, 3.0), vec![vec![4.0]]);
    assert_eq!(paths(&tuple), ["0", "1/0", "1/1", "2/0"]);
    let numbered = [Numbered::None, Numbered::One(1.0), Numbered::Two { a: 2.0 }];
    assert_eq!(paths(&numbered), ["1/One/0", "2/Two/a"]);
    let given = Given { field: (1.0, 2.0) }.clone();
    assert_eq!(
        paths(&(&given, Both((1.0, 2.0), (3.0, 4.0)))),
        ["0/text/0", "0/text/1", "1/0/0", "1/0/1", "1/1/0", "1/1/1"]
    );
    let constrained = format!("{:?}", (Constraints::of(&knot), Constraints::of(&given)));
    assert_eq!(constrained.matches("Softplus").count(), 2, "{constrained}");
}

#[test]
fn a_read_only_tree_may_hold_shared_views() {
    #[derive(Tree)]
    #[tree(read_only)]
    struct Gradients<'a, T> {
        weight: ArrayView1<'a, f32>,
        rest: &'a T,
    }
    let (weight, rest) = (array![0.5_f32, 1.0], (2.0_f32,));
    let gradients = Gradients { weight: weight.view(), rest: &rest };
    assert_eq!(leaves(&gradients), ["weight: f32 [2]", "rest/0: f32 []"]);
    let (mut w, mut r) = ([1.0_f32, 1.0], [1.0_f32]);
    let params = SlicesMut::new().with("weight", &mut w, &[2]).unwrap();
    apply_updates(&mut params.with("rest/0", &mut r, &[]).unwrap(), &gradients).unwrap();
    assert_eq!((w, r), ([1.5, 2.0], [3.0]));
}

#[test]
fn a_model_that_can_be_called_is_a_tree_and_is_never_called() {
    #[derive(Tree)]
    struct Callable {
        weight: f32,
    }
    impl Callable {
        fn call(&self) -> f32 {
            panic!("a model was called")
        }
    }
    let mut model = Callable { weight: 1.0 };
    assert_eq!(paths(&model), ["weight"]);
    number(&mut model);
    assert_eq!((model.weight, tree_norm(&model)), (101.0, 101.0));
    assert!(std::panic::catch_unwind(|| model.call()).is_err());
}

fn check_array<T: TreeMut>(mut tree: T, shape: &[usize], values: impl Fn(&T) -> Vec<f32>) {
    let structure = Structure::of(&tree).unwrap();
    assert_eq!((structure.len(), structure.leaves()[0].shape()), (1, shape));
    assert_eq!((structure.leaves()[0].path(), structure.leaves()[0].dtype()), ("", DType::F32));
    number(&mut tree);
    let expected: Vec<f32> = (100_u16..).map(f32::from).take(structure.elements()).collect();
    assert_eq!(values(&tree), expected);
}

fn logical<D: Dimension>(array: &Array<f32, D>) -> Vec<f32> {
    array.iter().copied().collect()
}

#[test]
fn arrays_of_every_dimension_are_leaves() {
    check_array(Array0::zeros(()), &[], logical);
    check_array(Array1::zeros(3), &[3], logical);
    check_array(Array2::zeros((2, 3)), &[2, 3], logical);
    check_array(Array3::zeros((2, 1, 3)), &[2, 1, 3], logical);
    check_array(Array4::zeros((2, 1, 3, 2)), &[2, 1, 3, 2], logical);
    check_array(Array5::zeros((2, 1, 3, 1, 2)), &[2, 1, 3, 1, 2], logical);
    check_array(Array6::zeros((2, 1, 3, 1, 2, 2)), &[2, 1, 3, 1, 2, 2], logical);
    check_array(ArrayD::zeros(vec![2, 1, 1, 1, 2, 1, 1, 3]), &[2, 1, 1, 1, 2, 1, 1, 3], logical);
    check_array(Array2::zeros((2, 0)), &[2, 0], logical);
}

#[test]
fn arrays_of_every_layout_are_leaves() {
    check_array(Array2::zeros((2, 3).f()), &[2, 3], logical);
    check_array(Array3::zeros((2, 3, 4)).permuted_axes([1, 2, 0]), &[3, 4, 2], logical);
    check_array(Array2::zeros((4, 6)).slice_move(s![..;2, 1..;-2]), &[2, 3], logical);
    check_array(Array2::zeros((4, 6)).slice_move(s![..;-1, ..]), &[4, 6], logical);

    let mut array = Array2::zeros((4, 6));
    check_array(array.slice_mut(s![1..;2, ..;-2]), &[2, 3], |view| view.iter().copied().collect());
    assert_eq!(array.sum(), f32::from((100..106).sum::<u16>()), "elements outside of the view stay as they are");
    check_array(array.view_mut().reversed_axes().slice_move(s![..0, ..]), &[0, 4], |_| vec![]);
}

#[test]
fn shared_arrays_are_made_unique_before_they_are_written() {
    let original = ArcArray1::<f32>::zeros(3);
    let mut copy = original.clone();
    number(&mut copy);
    assert_eq!((original.sum(), copy.to_vec()), (0.0, vec![100.0, 101.0, 102.0]));

    let base = Array2::<f32>::zeros((2, 2).f());
    let mut cow = CowArray::from(base.view());
    number(&mut cow);
    assert_eq!((base.sum(), cow.into_owned()), (0.0, array![[100.0, 101.0], [102.0, 103.0]]));

    let original = Arc::new(vec![0.0_f32; 2]);
    let mut copy = Arc::clone(&original);
    number(&mut copy);
    assert_eq!((&*original, &*copy), (&vec![0.0; 2], &vec![100.0, 101.0]));
}

#[test]
fn numbers_in_a_row_are_one_leaf() {
    assert_eq!(leaves(&1.0_f32), ["(root): f32 []"]);
    assert_eq!(leaves(&(1.0_f64, vec![0.0_f32; 4])), ["0: f64 []", "1: f32 [4]"]);
    assert_eq!(leaves(&[0.0_f32; 3]), ["(root): f32 [3]"]);
    assert_eq!(leaves(&[0.0_f64; 3][..]), ["(root): f64 [3]"]);
    assert_eq!(leaves(&vec![[0.0_f32; 3]; 2]), ["0: f32 [3]", "1: f32 [3]"]);
    assert_eq!(leaves(&Box::new([0.0_f32; 3])), ["(root): f32 [3]"]);
    assert_eq!(leaves(&vec![0.0_f32; 3].into_boxed_slice()), ["(root): f32 [3]"]);
    assert_eq!(leaves(&Vec::<f32>::new()), ["(root): f32 [0]"]);
}

#[test]
fn containers_nest() {
    type Nested = (BTreeMap<String, Vec<Option<Box<Array1<f32>>>>>, [(f32, f64); 2], Option<f32>, ());
    let leaf = || Some(Box::new(Array1::zeros(2)));
    let map =
        BTreeMap::from([("b".into(), vec![leaf(), None, leaf()]), ("a".into(), vec![leaf()]), ("c".into(), vec![])]);
    let mut tree: Nested = (map, [(0.0, 0.0), (0.0, 0.0)], None, ());
    assert_eq!(paths(&tree), ["0/a/0", "0/b/0", "0/b/2", "1/0/0", "1/0/1", "1/1/0", "1/1/1"]);
    number(&mut tree);
    assert_eq!(tree.0["b"][2].as_deref(), Some(&array![300.0, 301.0]));
    assert_eq!(tree.1, [(400.0, 500.0), (600.0, 700.0)]);

    let boxed: Box<dyn Tree> = Box::new(tree);
    assert_eq!(paths(&boxed).len(), 7);
    let mut long = (0.0_f32, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0_f32);
    number::<dyn TreeMut>(&mut long);
    assert_eq!((long.0, long.11), (100.0, 1200.0));
}

#[test]
fn integers_and_text_are_carried_without_leaves() {
    #[derive(Tree, Clone, PartialEq, Debug)]
    struct Carried {
        steps: (u8, i16, u32, i64, usize, i128),
        yes: bool,
        sign: char,
        name: String,
        kind: &'static str,
        table: Array2<i32>,
        mask: Vec<bool>,
        names: [String; 1],
        ids: Option<ArcArray1<u64>>,
        scale: f32,
    }
    let mut tree = Carried {
        steps: (1, 2, 3, 4, 5, 6),
        yes: true,
        sign: '-',
        name: "a".into(),
        kind: "b",
        table: array![[1, 2]],
        mask: vec![true, false],
        names: ["c".into()],
        ids: Some(ArcArray1::zeros(2)),
        scale: 0.0,
    };
    assert_eq!(leaves(&tree), ["scale: f32 []"]);
    let before = tree.clone();
    number(&mut tree);
    assert_eq!(tree, Carried { scale: 100.0, ..before });
}

#[test]
fn a_dyn_tree_holds_arrays_by_name() {
    let mut tree = DynTree::new();
    tree.insert("w", Array2::<f32>::zeros((2, 2).f()));
    tree.insert("layer/b", array![0.0_f64]);
    assert_eq!(leaves(&tree), ["layer/b: f64 [1]", "w: f32 [2, 2]"]);
    number(&mut tree);
    assert_eq!(tree.get::<f64>("layer/b"), Some(array![100.0].view().into_dyn()));
    assert_eq!(tree.get::<f32>("w"), Some(array![[200.0, 201.0], [202.0, 203.0]].view().into_dyn()));
    assert!(tree.get::<f64>("w").is_none() && tree.get::<f32>("none").is_none());
    tree.get_mut::<f32>("w").unwrap()[[0, 0]] = 1.0;
    assert_eq!(tree.get::<f32>("w").unwrap().first(), Some(&1.0));
    assert_eq!((tree.dtype("w"), tree.len(), tree.is_empty()), (Some(DType::F32), 2, false));
    assert!(tree.remove("w") && !tree.remove("w"));
    assert_eq!(tree.names().collect::<Vec<_>>(), ["layer/b"]);
}

#[test]
fn slices_are_trees_in_the_order_given() {
    let (mut b, mut a) = (vec![0.0_f32; 2], vec![0.0_f64; 2]);
    let mut tree = SlicesMut::new().with("b", &mut b, &[1, 2]).unwrap().with("a", &mut a, &[2]).unwrap();
    assert_eq!(leaves(&tree), ["b: f32 [1, 2]", "a: f64 [2]"]);
    number(&mut tree);
    assert_eq!((b, a), (vec![100.0, 101.0], vec![200.0, 201.0]));

    let error = Slices::new().with("a", &[0.0_f32; 3], &[2, 2]).unwrap_err();
    assert!(error.is_argument());
    assert!(error.to_string().contains("a slice of 3 for the shape [2, 2]"), "{error}");
}

#[cfg(feature = "half")]
#[test]
fn sixteen_bit_arrays_are_leaves() {
    use half::{bf16, f16};
    let mut tree = (array![f16::ZERO], bf16::ZERO, vec![bf16::ZERO; 2], DynTree::new());
    tree.3.insert("h", array![f16::ONE]);
    assert_eq!(leaves(&tree), ["0: f16 [1]", "1: bf16 []", "2: bf16 [2]", "3/h: f16 [1]"]);
    number(&mut tree);
    assert_eq!(
        (tree.0[0].to_f32(), tree.1.to_f32(), tree.2[1].to_f32()),
        (100.0, 200.0, 300.0),
        "301 is a tie in bf16"
    );
    assert_eq!(tree.3.get::<f16>("h").unwrap()[0].to_f32(), 401.0);
}

#[test]
fn leaves_are_read_and_written_in_logical_order() {
    let mut base = Array2::from_shape_fn((4, 6), |(i, j)| (10 * i + j) as f32);
    let mut view = base.slice_mut(s![..;-2, 1..;2]);
    assert_eq!(view, array![[31.0, 33.0, 35.0], [11.0, 13.0, 15.0]]);
    assert_eq!(LeafRef::from_array(&view).unwrap().to_f64(), [31.0, 33.0, 35.0, 11.0, 13.0, 15.0]);
    assert!(LeafRef::from_array(&view).unwrap().as_slice::<f32>().is_none(), "it has gaps");
    let mut leaf = LeafMut::from_array(&mut view).unwrap();
    assert_eq!((leaf.dtype(), leaf.shape()), (DType::F32, &[2, 3][..]));
    leaf.assign_f64(&[1.0, 2.0, 3.0, 4.0, 5.0, 0.1]);
    assert_eq!(leaf.to_f64(), [1.0, 2.0, 3.0, 4.0, 5.0, f64::from(0.1_f32)], "rounded to the type of the leaf");
    assert!(leaf.into_slice::<f32>().is_none());
    assert_eq!(view, array![[1.0, 2.0, 3.0], [4.0, 5.0, 0.1]]);
    assert_eq!((base[[1, 0]], base[[2, 1]], base[[3, 1]]), (10.0, 21.0, 1.0));

    let mut dense = array![[1.0_f64, 2.0]];
    assert_eq!(LeafRef::from_array(&dense).unwrap().as_slice::<f64>(), Some(&[1.0, 2.0][..]));
    assert!(LeafRef::from_array(&dense).unwrap().as_slice::<f32>().is_none(), "it holds f64");
    LeafMut::from_array(&mut dense).unwrap().into_slice::<f64>().unwrap()[1] = 3.0;
    assert_eq!(dense, array![[1.0, 3.0]]);
    assert!(LeafRef::from_array(&array![1_i32]).is_none());
    assert_eq!(LeafRef::from_array(&array![1.0_f32].broadcast((2, 2)).unwrap()).unwrap().to_f64(), [1.0; 4]);
}

#[test]
#[should_panic(expected = "one value for each element")]
fn assigning_too_few_values_panics() {
    LeafMut::from_array(&mut array![1.0_f32, 2.0]).unwrap().assign_f64(&[1.0]);
}

#[test]
fn the_fingerprint_is_stable() {
    let tree = (array![[1.0_f32, 2.0]], 3.0_f64);
    let fingerprint = Structure::of(&tree).unwrap().fingerprint();
    assert_eq!(fingerprint, 0x6a2f_bd53_7965_5b56, "a change of this number is a breaking change: checkpoints hold it");

    let same = |other: &dyn Tree| Structure::of(other).unwrap().fingerprint() == fingerprint;
    assert!(same(&(Array2::<f32>::ones((1, 2).f()), 0.0_f64)), "values and memory order do not count");
    assert!(!same(&(array![[1.0_f32], [2.0]], 3.0_f64)), "shapes count");
    assert!(!same(&(array![[1.0_f32, 2.0]], 3.0_f32)), "types count");
    assert!(!same(&vec![array![[1.0_f32, 2.0]]]), "the number of leaves counts");
    assert!(!same(&((), array![[1.0_f32, 2.0]], 3.0_f64)), "paths count");
}

#[test]
fn a_structure_can_be_asked_for_its_leaves() {
    let structure = Structure::of(&(array![[1.0_f32, 2.0]], 3.0_f64)).unwrap();
    assert_eq!((structure.len(), structure.elements(), structure.is_empty()), (2, 3, false));
    assert_eq!((structure.index_of("1"), structure.index_of("2")), (Some(1), None));
    assert_eq!((structure.leaves()[0].ndim(), structure.leaves()[0].len()), (2, 2));
    assert_eq!(structure.to_string(), "0: f32 [1, 2]\n1: f64 []\n");
}

#[test]
fn every_difference_is_listed() {
    let zeros = |shape: &[usize]| ArrayD::<f32>::zeros(IxDyn(shape));
    let (mut expected, mut found) = (DynTree::new(), DynTree::new());
    for name in ["a", "b", "c", "d"] {
        expected.insert(name, zeros(&[2]));
    }
    found.insert("a", zeros(&[2]));
    found.insert("b", zeros(&[3]));
    found.insert("c", array![0.0_f64, 0.0, 0.0]);
    found.insert("e", zeros(&[]));
    let structure = Structure::of(&expected).unwrap();
    let differences: Vec<_> = structure.differences(&found).iter().map(ToString::to_string).collect();
    assert_eq!(
        differences,
        [
            "b: expected shape [2], found [3]",
            "c: expected shape [2], found [3]",
            "c: expected type f32, found f64; convert this leaf first, since narrowing is never implicit",
            "missing leaf d: f32 [2]",
            "unexpected leaf e: f32 []",
        ]
    );
    assert!(structure.differences(&expected).is_empty());
}

#[test]
fn another_order_is_a_difference() {
    let (x, y) = ([0.0_f32], [0.0_f32]);
    let ab = Slices::new().with("a", &x, &[1]).unwrap().with("b", &y, &[1]).unwrap();
    let ba = Slices::new().with("b", &x, &[1]).unwrap().with("a", &y, &[1]).unwrap();
    let differences = Structure::of(&ab).unwrap().differences(&ba);
    assert_eq!(
        differences,
        [Difference::Order { expected: vec!["a".into(), "b".into()], found: vec!["b".into(), "a".into()] }]
    );
}

#[test]
fn gradients_that_do_not_fit_are_refused_with_advice() {
    let optimizer = sgd(0.1);
    let mut params = vec![1.0_f32, 2.0];
    let mut state = optimizer.init(&params).unwrap();
    let what = "the gradients do not fit the parameters that the state was made for";
    let integers = optimizer.step(&mut params, &vec![1, 2], &mut state).unwrap_err().to_string();
    let advice = "; they have no leaves (integers are not leaves: write `1.0` for `1`)";
    assert!(integers.starts_with(&format!("{what}{advice}")), "{integers}");
    assert_eq!(
        optimizer.step(&mut params, &vec![1.0, 2.0], &mut state).unwrap_err().to_string(),
        format!(
            "{what}; a number without a suffix is `f64`, write `1.0_f32` for `f32`: 1 difference\n  (root): expected \
             type f32, found f64; convert this leaf first, since narrowing is never implicit"
        )
    );

    let mut matrix = ndarray::Array2::<f32>::zeros((2, 3));
    let mut state = optimizer.init(&matrix).unwrap();
    let turned = ndarray::Array2::<f32>::zeros((3, 2));
    assert_eq!(
        optimizer.step(&mut matrix, &turned, &mut state).unwrap_err().to_string(),
        format!("{what}: 1 difference\n  (root): expected shape [2, 3], found [3, 2], which is transposed")
    );
}

#[test]
fn a_path_may_occur_once() {
    let map = |keys: &[&str]| keys.iter().map(|k| (k.to_string(), 0.0_f32)).collect::<BTreeMap<_, _>>();
    let tree = BTreeMap::from([("a".to_string(), map(&["b/c"])), ("a/b".to_string(), map(&["c", "d"]))]);
    let error = Structure::of(&tree).unwrap_err();
    assert!(error.is_structure());
    assert_eq!(error.differences(), [Difference::Duplicate { path: "a/b/c".into() }]);
    assert_eq!(
        error.to_string(),
        "the tree is ambiguous: 1 difference\n  a/b/c: more than one leaf has this path; give each its own"
    );
}

#[test]
fn updates_are_added_in_the_wider_type() {
    let mut params = (1.0_f32, 1.0_f64, array![1.0_f32, 2.0]);
    // In `f32`, 1 + 2⁻²⁴ would be rounded twice; in `f64` it is above the tie.
    let above_tie = f64::powi(2.0, -24) * 1.5;
    apply_updates(&mut params, &(above_tie, 0.1_f32, array![0.5_f64, 0.25])).unwrap();
    assert_eq!(params, (1.0 + f32::EPSILON, 1.0 + f64::from(0.1_f32), array![1.5, 2.25]));
}

#[test]
fn a_zero_update_leaves_the_bits() {
    let mut params = (vec![-0.0_f32, -0.0, 0.0], Array2::from_elem((2, 2).f(), -0.0_f64), f32::NAN);
    apply_updates(&mut params, &(vec![0.0_f32, -0.0, -0.0], Array2::<f32>::zeros((2, 2)), 0.0_f64)).unwrap();
    assert_eq!(params.0.iter().map(|x| x.is_sign_negative()).collect::<Vec<_>>(), [true, true, false]);
    assert!(params.1.iter().all(|x| *x == 0.0 && x.is_sign_negative()));
    assert_eq!(params.2.to_bits(), f32::NAN.to_bits());
}

#[cfg(feature = "half")]
#[test]
fn sixteen_bit_sums_are_taken_in_f32() {
    use half::{bf16, f16};
    let mut params = (bf16::from_f32(1.0), f16::from_f32(2048.0), vec![f16::from_f32(65504.0); 2], -bf16::ZERO);
    let updates = (bf16::from_f32(0.00390625), f16::from_f32(3.0), vec![-16.0_f32, 32.0], f16::ZERO);
    apply_updates(&mut params, &updates).unwrap();
    assert_eq!((params.0.to_f32(), params.1.to_f32()), (1.0, 2052.0), "ties go to even");
    assert_eq!(params.2, [f16::from_f32(65472.0), f16::INFINITY]);
    assert!(params.3.is_sign_negative());
}

#[test]
fn a_misfit_changes_nothing() {
    let mut params = (array![1.0_f32, 2.0], vec![array![3.0_f32]]);
    let before = params.clone();
    let error =
        apply_updates(&mut params, &(array![1.0_f32, 1.0], vec![array![1.0_f32, 1.0], array![1.0]])).unwrap_err();
    assert_eq!(params, before);
    assert!(error.is_structure());
    assert_eq!(error.differences().len(), 2);
    assert_eq!(
        error.to_string(),
        "the updates do not fit the parameters: 2 differences\n  1/0: expected shape [1], found [2]\n  \
         unexpected leaf 1/1: f32 [1]"
    );
}

#[test]
#[should_panic(expected = "each walk over a tree must visit the same leaves")]
fn a_tree_whose_walks_disagree_is_refused() {
    struct TwoFaced([f32; 2]);
    impl Tree for TwoFaced {
        fn walk<'a>(&'a self, walk: &mut gradchain::tree::Walk<'a, '_>) {
            self.0.walk(walk);
        }
    }
    impl TreeMut for TwoFaced {
        fn walk_mut<'a>(&'a mut self, walk: &mut gradchain::tree::WalkMut<'a, '_>) {
            self.0[0].walk_mut(walk);
        }
    }
    let _ = apply_updates(&mut TwoFaced([0.0; 2]), &[1.0_f32; 2]);
}

#[test]
fn the_norm_is_over_all_leaves() {
    let mut view = Array2::<f32>::ones((4, 4));
    view.slice_mut(s![..;2, 1..;2]).fill(2.0);
    assert_eq!(tree_norm(&view.slice(s![..;2, ..;-2])), 4.0);
    assert_eq!(tree_norm(&(3.0_f32, vec![4.0_f64], 7_u32)), 5.0);
    assert_eq!(tree_norm(&()), 0.0);
    assert_eq!(tree_norm(&[f32::MAX, 0.0]), f64::from(f32::MAX), "squares of f32 fit into f64");
}

/// Fortran order, steps along the axes, order of the axes.
type Layout = (bool, [isize; 3], usize);

fn layout() -> impl Strategy<Value = Layout> {
    (any::<bool>(), prop::array::uniform3(prop::sample::select(vec![1, 1, 2, -1, -3])), 0..6_usize)
}

const OUTSIDE: f32 = 77.0;

/// Allocates memory for a layout.
fn room(shape: [usize; 3], (fortran, steps, order): Layout) -> Array3<f32> {
    let axes = AXES[order];
    let lengths: [usize; 3] = std::array::from_fn(|i| shape[axes[i]] * steps[i].unsigned_abs());
    Array3::from_elem(lengths.set_f(fortran), OUTSIDE)
}

const AXES: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// Returns the view into such memory.
fn view(memory: &mut Array3<f32>, (_, steps, order): Layout) -> ndarray::ArrayViewMut3<'_, f32> {
    let [a, b, c] = steps;
    let mut place = [0; 3];
    AXES[order].iter().enumerate().for_each(|(i, &axis)| place[axis] = i);
    memory.slice_mut(s![..;a, ..;b, ..;c]).permuted_axes(place)
}

proptest! {
    #[test]
    fn layouts_do_not_change_sums(
        shape in prop::array::uniform3(0..4_usize),
        layouts in (layout(), layout()),
        seed in prop::collection::vec((-1e3_f32..1e3, -1e3_f32..1e3), 27),
    ) {
        let values = |pick: fn(&(f32, f32)) -> f32| {
            Array3::from_shape_fn(shape, |(i, j, k)| pick(&seed[9 * i + 3 * j + k]))
        };
        let (old, update) = (values(|v| v.0), values(|v| v.1));
        let (mut p, mut u) = (room(shape, layouts.0), room(shape, layouts.1));
        view(&mut p, layouts.0).assign(&old);
        view(&mut u, layouts.1).assign(&update);
        let untouched = |p: &Array3<f32>| p.iter().filter(|x| **x == OUTSIDE).count();
        let outside = untouched(&p);

        apply_updates(&mut view(&mut p, layouts.0), &view(&mut u, layouts.1)).unwrap();
        prop_assert_eq!(view(&mut p, layouts.0), &old + &update);
        prop_assert_eq!(untouched(&p), outside);
        apply_updates(&mut view(&mut p, layouts.0), &update.mapv(|x| -f64::from(x))).unwrap();
        let back = Array3::from_shape_fn(shape, |i| (f64::from(old[i] + update[i]) - f64::from(update[i])) as f32);
        prop_assert_eq!(view(&mut p, layouts.0), back);
    }
}

#[test]
fn a_broadcast_update_reaches_every_element() {
    let mut params = array![[1.0_f32, 2.0], [3.0, 4.0]];
    let row = array![10.0_f32, 20.0];
    apply_updates(&mut params, &row.broadcast((2, 2)).unwrap()).unwrap();
    assert_eq!(params, array![[11.0, 22.0], [13.0, 24.0]]);
    let mut mutable: ArrayViewMut2<'_, f32> = params.view_mut();
    mutable.invert_axis(Axis(0));
    apply_updates(&mut mutable, &array![[1.0_f32, 0.0], [0.0, 0.0]]).unwrap();
    assert_eq!(params[[1, 0]], 14.0);
}
