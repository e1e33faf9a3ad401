//! The adapter's step equals the step on plain slices, in candle's memory.

use candle_core::{DType, Device, Storage, Tensor, Var};
use gradchain::prelude::*;
use gradchain::tree::{SlicesMut, for_each_leaf};
use gradchain::wrapper::freeze;
use gradchain_candle::{Vars, init, step};
use half::{bf16, f16};

use super::*;

fn address(tensor: &Tensor) -> usize {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cpu(storage) = &*storage else { panic!("on the CPU") };
    macro_rules! first {
        ($($T:ty),*) => {$(
            if let Ok(data) = storage.as_slice::<$T>() {
                return data[layout.start_offset()..].as_ptr().addr();
            }
        )*};
    }
    first!(f32, f64, f16, bf16);
    panic!("floats")
}

fn addresses<T: Tree>(tree: &T) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for_each_leaf(tree, |path, leaf| {
        let at = leaf.as_slice::<f32>().map(|x| x.as_ptr().addr());
        let at = at.or_else(|| leaf.as_slice::<f64>().map(|x| x.as_ptr().addr()));
        found.push((path.to_string(), at.unwrap_or(0)));
    });
    found
}

fn whole() -> impl GradientTransformation<Needs = gradchain::needs::Nothing> {
    let decayed = adamw(cosine_decay(0.05, 50)).weight_decay(0.1).mask(Mask::path("**/w*"));
    multi_steps(chain((clip_by_global_norm(1.0), decayed)), 2)
}

trait Bits: Copy {
    fn bits(self) -> u64;
}
macro_rules! has_bits {
    ($($T:ty),*) => {$(impl Bits for $T {
        fn bits(self) -> u64 { f64::from(self).to_bits() }
    })*};
}
has_bits!(f32, f64, f16, bf16);

/// Compares twenty steps bitwise.
fn same_as_slices<T: candle_core::WithDType + gradchain::Element + Bits>(dtype: DType) -> Tested {
    let shapes = [("layer.bias", vec![3]), ("layer.weight", vec![4, 3]), ("scale", vec![]), ("z", vec![0, 5])];
    let vars: Vec<Var> = shapes.iter().enumerate().map(|(i, (_, dims))| var(dims, dtype, i as u64)).collect();
    let named = Vars::named(shapes.iter().map(|(name, _)| *name).zip(vars.iter().cloned()))?;
    let mut slices: Vec<Vec<T>> = vars.iter().map(|v| v.flatten_all()?.to_vec1()).collect::<Result<_, _>>()?;
    let paths = ["layer/bias", "layer/weight", "scale", "z"];
    let lent = |slices: &mut [Vec<T>], f: &mut dyn FnMut(&mut SlicesMut<'_>)| {
        let mut tree = SlicesMut::new();
        for ((data, path), (_, dims)) in slices.iter_mut().zip(paths).zip(&shapes) {
            tree = tree.with(path, data, dims).expect("a leaf");
        }
        f(&mut tree);
    };

    let optimizer = whole();
    let mut state = init(&optimizer, &named)?;
    let mut beside = None;
    lent(&mut slices, &mut |tree| beside = optimizer.init(tree).ok());
    let mut beside = beside.expect("a state");
    for t in 0..20 {
        let given: Vec<Tensor> = shapes.iter().map(|(_, dims)| tensor(dims, dtype, 100 + t)).collect();
        let grads = gradients(&vars.iter().zip(given.clone()).collect::<Vec<_>>());
        step(&optimizer, &named, &grads, &mut state)?;
        let mut given: Vec<Vec<T>> = given.iter().map(|g| g.flatten_all()?.to_vec1()).collect::<Result<_, _>>()?;
        lent(&mut given, &mut |grads| {
            lent(&mut slices, &mut |tree| _ = optimizer.step(tree, grads, &mut beside).expect("a step"));
        });
    }
    for ((var, slice), path) in vars.iter().zip(&slices).zip(paths) {
        assert_eq!(bits(var), slice.iter().map(|x| x.bits()).collect::<Vec<_>>(), "{path} in {dtype:?}");
    }
    Ok(())
}

#[test]
fn every_type_has_the_bits_of_plain_slices() -> Tested {
    same_as_slices::<f32>(DType::F32)?;
    same_as_slices::<f64>(DType::F64)?;
    same_as_slices::<f16>(DType::F16)?;
    same_as_slices::<bf16>(DType::BF16)
}

#[test]
fn nothing_is_copied_or_moved() -> Tested {
    let network = Network::new(DType::F32);
    let vars = network.vars();
    let places: Vec<_> = vars.iter().map(|(path, var)| (path.to_string(), address(var))).collect();
    let optimizer = whole();
    let mut state = init(&optimizer, &vars)?;
    for _ in 0..100 {
        let grads = network.grads();
        let of_grads: Vec<_> =
            vars.iter().map(|(path, var)| (path.to_string(), address(grads.get(var).unwrap()))).collect();
        vars.write_with(&grads, |params, grads| {
            assert_eq!(addresses(params), places);
            assert_eq!(addresses(grads), of_grads);
            optimizer.step(params, grads, &mut state)
        })??;
    }
    assert_eq!(vars.read(|params| addresses(params))?, places);
    assert_eq!(vars.iter().map(|(path, var)| (path.to_string(), address(var))).collect::<Vec<_>>(), places);
    Ok(())
}

#[test]
fn strided_gradients_match_contiguous_ones() -> Tested {
    let [turned, repeated, part] = [var(&[3, 2], DType::F64, 1), var(&[4], DType::F64, 2), var(&[2, 2], DType::F64, 3)];
    let plain = [&turned, &repeated, &part].map(|var| Var::from_tensor(&var.copy().unwrap()).unwrap());
    let of_turned = tensor(&[2, 3], DType::F64, 4).t()?;
    let of_repeated = tensor(&[1], DType::F64, 5).broadcast_as(4)?;
    let of_part = tensor(&[3, 5], DType::F64, 6).narrow(0, 1, 2)?.narrow(1, 2, 2)?;
    let lying = [of_turned, of_repeated, of_part];
    assert!(lying.iter().all(|gradient| !gradient.is_contiguous()));

    let optimizer = chain((clip_by_global_norm(1.0), adam(0.1)));
    let run = |vars: [&Var; 3], given: [Tensor; 3]| -> Result<Vec<Vec<u64>>, Box<dyn std::error::Error>> {
        let named = Vars::named(["a", "b", "c"].into_iter().zip(vars.map(Var::clone)))?;
        let mut state = init(&optimizer, &named)?;
        let grads = gradients(&vars.into_iter().zip(given).collect::<Vec<_>>());
        for _ in 0..3 {
            step(&optimizer, &named, &grads, &mut state)?;
        }
        Ok(all_bits(&named))
    };
    let dense = lying.each_ref().map(|gradient| gradient.contiguous().unwrap());
    assert_eq!(run([&turned, &repeated, &part], lying)?, run(plain.each_ref(), dense)?);
    Ok(())
}

#[test]
fn masks_and_labels_go_by_the_names_of_the_map() -> Tested {
    let network = Network::new(DType::F64);
    let vars = network.vars();
    assert_eq!(vars.paths().collect::<Vec<_>>(), ["fc1/bias", "fc1/weight", "fc2/bias", "fc2/weight"]);
    let before = all_bits(&vars);
    let optimizer = freeze(Mask::path("fc1/**"));
    let optimizer = chain((adamw(0.1).mask(Mask::path("**/weight")), optimizer));
    let mut state = init(&optimizer, &vars)?;
    step(&optimizer, &vars, &network.grads(), &mut state)?;
    let moved: Vec<_> = all_bits(&vars).iter().zip(&before).map(|(after, before)| after != before).collect();
    assert_eq!(moved, [false, false, true, true]);
    let plan = vars.read(|params| optimizer.plan(params))??;
    assert!(plan.to_string().contains("fc2/weight") || !plan.passes.is_empty());
    Ok(())
}

/// Each variable is opened inside the call for the previous one.
#[test]
fn thousands_of_variables_need_no_deeper_stack_than_a_thread_has() -> Tested {
    let vars: Vec<Var> = (0..5_000).map(|i| var(&[2], DType::F32, i)).collect();
    let named = Vars::named(vars.iter().enumerate().map(|(i, var)| (format!("{i:05}"), var.clone())))?;
    let grads = gradients(&vars.iter().map(|var| (var, var.copy().unwrap())).collect::<Vec<_>>());
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(move || {
        let mut state = init(&sgd(1.0), &named).unwrap();
        step(&sgd(1.0), &named, &grads, &mut state).map(drop)
    })?;
    thread.join().expect("it ends")?;
    assert!(vars.iter().all(|var| var.to_vec1::<f32>().unwrap() == [0.0; 2]));
    Ok(())
}

#[test]
fn a_panic_in_a_step_leaves_the_variables_open_to_others() -> Tested {
    let w = Var::zeros(2, DType::F32, &Device::Cpu)?;
    let vars = Vars::named([("w", w.clone())])?;
    let panics = std::panic::AssertUnwindSafe(|| vars.write(|_| panic!("in the middle")));
    assert!(std::panic::catch_unwind(panics).is_err());
    w.set(&Tensor::ones(2, DType::F32, &Device::Cpu)?)?;
    assert_eq!(w.to_vec1::<f32>()?, [1.0, 1.0]);
    Ok(())
}
