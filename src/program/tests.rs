//! What rules of the catalogue do not do: every function there is, counts and sums, parts after parts, what is refused.

#![allow(clippy::neg_cmp_op_on_partial_ord, reason = "what NaN does in these is what is tested")]

use core::cell::Cell;
use core::cmp::Ordering;
use core::num::FpCategory;

use super::traced::{Traced, TracedTally};
use super::{Program, Signature, Type, record};
use crate::element::{DType, Element, Real};
use crate::engine::{InitContext, Span, Stage, StepContext, Term, Work, table};
use crate::error::Result;
use crate::optimizer::sgd;
use crate::select::Mask;
use crate::transform::{
    add_decayed_weights, clip, clip_by_global_norm, keep_params_nonnegative, scale_by_adam, scale_by_learning_rate,
    scale_by_lion, zero_nans,
};
use crate::tree::{Structure, add_update};
use crate::wrapper::{cautious, masked, multi_steps};

/// Something done to two numbers.
trait Function {
    fn call<C: Real>(&self, x: C, y: C) -> C;
}

const SIGNATURE: Signature<'_> = Signature { name: "it", slots: &[], tallies: 0, sums: 0 };

fn program_of<F: super::Kind>(function: &impl Function) -> Result<Program> {
    record::<F, _>(SIGNATURE, || (), |(), _, x, y, _, _| function.call(x, y)).map(|(program, _)| program)
}

/// Numbers of which each kind of pair occurs among the pairs.
fn numbers<C: Real>() -> Vec<C> {
    let signless = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 0.3, 10.25, 1e-3, 1e9];
    let special = [C::of_smallest(), C::min_positive_value(), C::max_value(), C::infinity(), C::nan(), C::epsilon()];
    signless.into_iter().map(C::of).chain(special).flat_map(|x| [x, -x]).collect()
}

fn same<C: Real>(a: C, b: C) -> bool {
    // The two zeros are equal, but for their signs.
    a.is_nan() && b.is_nan() || a == b && a.is_sign_negative() == b.is_sign_negative()
}

fn check<C: super::Kind>(name: &str, function: &impl Function) {
    let program = program_of::<C>(function).unwrap();
    for x in numbers::<C>() {
        for y in numbers::<C>() {
            let (compiled, made) = (function.call(x, y), program.run(&[], &mut [], x, y).unwrap().update);
            assert!(same(compiled, made), "{name} of {x}, {y}: {compiled} and {made}\n{program}");
        }
    }
}

macro_rules! check_each {
    ($(|$x:ident, $y:ident| $does:expr;)*) => {$({
        struct Does;
        impl Function for Does {
            fn call<C: Real>(&self, $x: C, $y: C) -> C {
                $does
            }
        }
        check::<f32>(stringify!($does), &Does);
        check::<f64>(stringify!($does), &Does);
    })*};
}

fn yes<C: Real>(yes: bool) -> C {
    if yes { C::one() } else { C::zero() }
}

#[test]
fn each_function_of_numbers_is_recorded_as_itself() {
    check_each! {
        |x, y| x + y;
        |x, y| x - y;
        |x, y| x * y;
        |x, y| x / y;
        |x, y| x % y;
        |x, _y| -x;
        |x, y| { let mut z = x; z += y; z *= y; z -= x; z /= y; z %= x; z };
        |x, y| x.powf(y);
        |x, y| x.abs().log(y);
        |x, y| x.abs_sub(y);
        |x, y| x.hypot(y);
        |x, y| x.atan2(y);
        |x, y| x.copysign(y);
        |x, y| x.mul_add(y, x);
        |x, y| add_update(x, y);
        |x, _y| x.powi(3);
        |x, _y| x.powi(-2);
        |x, _y| x.floor();
        |x, _y| x.ceil();
        |x, _y| x.round();
        |x, _y| x.trunc();
        |x, _y| x.fract();
        |x, _y| x.abs();
        |x, _y| x.signum();
        |x, _y| x.recip();
        |x, _y| x.sqrt();
        |x, _y| x.cbrt();
        |x, _y| x.cube_root();
        |x, _y| x.exp();
        |x, _y| x.exp2();
        |x, _y| x.exp_m1();
        |x, _y| x.ln();
        |x, _y| x.log2();
        |x, _y| x.log10();
        |x, _y| x.ln_1p();
        |x, _y| x.sin();
        |x, _y| x.cos();
        |x, _y| x.tan();
        |x, _y| x.asin();
        |x, _y| x.acos();
        |x, _y| x.atan();
        |x, _y| x.sinh();
        |x, _y| x.cosh();
        |x, _y| x.tanh();
        |x, _y| x.asinh();
        |x, _y| x.acosh();
        |x, _y| x.atanh();
        |x, _y| x.to_degrees();
        |x, _y| x.to_radians();
        |x, _y| { let (sin, cos) = x.sin_cos(); sin / cos };
        |x, y| [x, y, x].into_iter().sum();
        |_x, _y| core::iter::empty().sum();
    }
}

#[test]
fn each_question_to_numbers_is_recorded_as_itself() {
    check_each! {
        |x, y| yes(x < y);
        |x, y| yes(x <= y);
        |x, y| yes(x > y);
        |x, y| yes(x >= y);
        |x, y| yes(x == y);
        |x, y| yes(x != y);
        |x, y| match x.partial_cmp(&y) {
            None => C::nan(),
            Some(Ordering::Less) => x,
            Some(Ordering::Equal) => C::infinity(),
            Some(Ordering::Greater) => y,
        };
        |x, _y| C::of(match x.classify() {
            FpCategory::Nan => 0.0,
            FpCategory::Infinite => 1.0,
            FpCategory::Zero => 2.0,
            FpCategory::Subnormal => 3.0,
            FpCategory::Normal => 4.0,
        });
        |x, _y| yes(x.is_nan());
        |x, _y| yes(x.is_finite());
        |x, _y| yes(x.is_infinite());
        |x, _y| yes(x.is_normal());
        |x, _y| yes(x.is_subnormal());
        |x, _y| yes(x.is_zero());
        |x, _y| yes(x.is_sign_negative());
        |x, _y| yes(x.is_sign_positive());
        |x, _y| x.clamp(-C::one(), C::one());
        |x, y| if (x < y) & (y < C::one()) | x.is_nan() { x } else if x > y { -y } else { x + y };
        // Loops that comparisons end, after four rounds at most.
        |x, y| { let mut z = x; for _ in 0..4 { if !(z > y) { break } z -= y; } z };
    }
}

#[test]
fn each_constant_is_that_of_its_type() {
    check_each! {
        |_x, _y| C::zero();
        |_x, _y| C::one();
        |_x, _y| C::default();
        |_x, _y| C::nan();
        |_x, _y| C::infinity();
        |_x, _y| C::neg_infinity();
        |_x, _y| C::neg_zero();
        |_x, _y| C::min_value();
        |_x, _y| C::max_value();
        |_x, _y| C::min_positive_value();
        |_x, _y| C::epsilon();
        |_x, _y| C::of_smallest();
        |_x, _y| C::of(0.1);
        |_x, _y| <C as num_traits::NumCast>::from(0.1).unwrap_or(C::nan());
        |_x, _y| C::from_str_radix("0.1", 10).unwrap_or(C::nan());
        // What does not depend on elements can be looked at, and is worked out while it is recorded.
        |_x, _y| C::of(C::of(0.1).as_f64() + C::one().to_f64().unwrap_or(0.0));
        |_x, _y| C::of((C::of(2.5) * C::of(3.0)).to_i64().unwrap_or(0) as f64);
    }
}

/// What a part may do: change its state, count, add up, send an update on.
fn part<C: Real>(slots: &mut [C], u: C, p: C, tallies: &mut [C::Tally], sums: &mut [C::Wide]) -> C {
    tallies[0] += u32::from(u.is_nan());
    tallies[1] += u32::from(u > p);
    tallies[1] += u32::from(u < -p);
    sums[0] += u.wide() * u.wide();
    if u > p {
        slots[0] = u;
        sums[1] += p.wide() * <C::Wide>::of(0.1);
        slots[1]
    } else {
        slots[1] += slots[0] * u;
        u - p
    }
}

fn check_part<F: super::Kind>() {
    let signature = Signature { name: "part", slots: &["a", "b"], tallies: 2, sums: 2 };
    let (program, _) = record::<F, _>(signature, || (), |(), s, u, p, t, w| part(s, u, p, t, w)).unwrap();
    for u in numbers::<F>() {
        for p in numbers::<F>() {
            let (mut slots, mut tallies, mut sums) = ([F::one(), p], [F::Tally::default(); 2], [F::Wide::default(); 2]);
            let mut interpreted = slots;
            let update = part(&mut slots, u, p, &mut tallies, &mut sums);
            let made = program.run(&[], &mut interpreted, u, p).unwrap();
            let results = [(slots[0], interpreted[0]), (slots[1], interpreted[1]), (update, made.update)];
            assert!(results.into_iter().all(|(a, b)| same(a, b)), "{u}, {p}\n{program}");
            assert_eq!(format!("{tallies:?}"), format!("{:?}", made.tallies), "{u}, {p}\n{program}");
            assert!(sums.iter().zip(&made.sums).all(|(a, b)| same(a.as_f64(), *b)), "{u}, {p}\n{program}");
        }
    }
}

#[test]
fn counts_and_wide_sums_are_recorded() {
    check_part::<f32>();
    check_part::<f64>();
    let signature = Signature { name: "part", slots: &["a", "b"], tallies: 2, sums: 2 };
    let (program, _) = record::<f32, _>(signature, || (), |(), s, u, p, t, w| part(s, u, p, t, w)).unwrap();
    let types = |lines: &[u32]| lines.iter().map(|line| program.lines()[*line as usize].1).collect::<Vec<_>>();
    assert_eq!(types(program.tallies()), [Type::Count; 2]);
    assert_eq!(types(program.sums()), [Type::F64; 2]);
    assert_eq!(types(program.new_slots()), [Type::F32; 2]);
}

/// So many parts with a choice each, one after the other.
struct Parts {
    parts: usize,
    joined: bool,
}

impl Function for Parts {
    fn call<C: Real>(&self, x: C, y: C) -> C {
        (1..=self.parts).fold(x, |x, i| {
            let most = y * C::of(i as f64);
            let part = |_: &mut [C], _: &mut [C::Tally], _: &mut [C::Wide]| {
                let x = x + C::one();
                if x > most { most } else { x }
            };
            if self.joined { C::joined(&mut [], &mut [], &mut [], part) } else { part(&mut [], &mut [], &mut []) }
        })
    }
}

#[test]
fn the_ways_through_parts_that_are_joined_do_not_multiply() {
    check::<f32>("apart", &Parts { parts: 6, joined: false });
    check::<f32>("joined", &Parts { parts: 6, joined: true });
    let at_once = program_of::<f32>(&Parts { parts: 6, joined: false }).unwrap();
    let joined = program_of::<f32>(&Parts { parts: 6, joined: true }).unwrap();
    assert_eq!((at_once.paths(), joined.paths()), (64, 1 + 2 * 6));
    assert_eq!(at_once, joined, "{at_once}\n{joined}");
    let many = program_of::<f64>(&Parts { parts: 100, joined: true }).unwrap();
    assert_eq!(many.paths(), 201);
}

#[test]
fn what_cannot_be_recorded_is_refused() {
    fn refused(function: impl Function, why: &str) {
        let error = program_of::<f32>(&function).unwrap_err();
        assert!(error.is_unrecordable() && error.to_string().contains(why), "{error}");
        assert_eq!(error, program_of::<f64>(&function).unwrap_err());
    }
    macro_rules! refused {
        ($why:literal: $(|$x:ident, $y:ident| $does:expr;)*) => {$({
            struct Does;
            impl Function for Does {
                fn call<C: Real>(&self, $x: C, $y: C) -> C {
                    $does
                }
            }
            refused(Does, $why);
        })*};
    }
    refused! { "looks at a number":
        |x, _y| C::of(x.as_f64());
        |x, _y| C::of(x.to_f64().unwrap_or(0.0));
        |x, _y| C::of(x.to_i64().unwrap_or(0) as f64);
        |x, _y| C::of(x.integer_decode().1.into());
        |x, y| <C as num_traits::NumCast>::from(x + y).unwrap_or(C::nan());
    }
    refused! { "compares without end":
        |x, _y| { let mut z = x; while z > C::one() { z /= C::of(2.0); } z };
        |x, _y| { let mut z = x; while !(z < C::one()) { z /= C::of(2.0); } z };
    }
    refused(Parts { parts: 20, joined: false }, "too many ways");

    struct Changes(Cell<f64>);
    impl Function for Changes {
        fn call<C: Real>(&self, x: C, y: C) -> C {
            self.0.set(self.0.get() + 1.0);
            if x > C::of(self.0.get()) { x } else { y }
        }
    }
    refused(Changes(Cell::default()), "something else each time");
    assert_eq!(
        program_of::<f32>(&Changes(Cell::default())).unwrap_err().to_string(),
        "it cannot be recorded as a program: it does something else each time it is called"
    );
}

#[test]
fn scalars_are_numbered_and_constants_are_not() {
    let signature = || Signature { name: "it", slots: &[], tallies: 0, sums: 0 };
    let (program, scalars) = record::<f32, _>(
        signature(),
        // A scalar may depend on what another one is, and be of the type of sums.
        || {
            let [a, b] = [0.1, -3.0].map(Traced::<f32>::of);
            (a, if b > Traced::default() { b } else { -b }, Traced::<f64>::of(0.7))
        },
        |(a, b, wide), _, u, _, _, _| {
            if (u + *a).wide() > *wide { *b } else { u * Traced::of(0.1) }
        },
    )
    .unwrap();
    assert_eq!(scalars, [0.1, -3.0, 0.7]);
    assert_eq!(
        program.to_string(),
        "f32: u; s0, s1, s2\nt1 = u + s0\nt2 = f64(t1)\nt3 = s2 < t2\nt4 = -s1\nt5 = u * 0.1\nu' = if t3 then t4 else t5\n"
    );
    assert_eq!(program.run(&scalars, &mut [], 1.0_f32, 0.0).unwrap().update, 3.0);
    assert_eq!(program.run(&[0.1, -4.0, 0.7], &mut [], 1.0_f32, 0.0).unwrap().update, 4.0);
    assert_eq!(program.run(&[0.1, -4.0, 2.0], &mut [], 1.0_f32, 0.0).unwrap().update, 0.1);
}

#[test]
fn names_are_told_apart() {
    let signature = Signature { name: "it", slots: &["u", "mu", "mu", "s0", "t1", "a/b"], tallies: 0, sums: 0 };
    let (program, _) =
        record::<f64, _>(signature, || (), |(), slots, u, _, _, _| slots.iter().copied().sum::<Traced<f64>>() + u)
            .unwrap();
    assert!(program.to_string().starts_with("f64: u, u_, mu, mu_, s0_, t1_, a_b\n"), "{program}");
    assert!(program.to_string().ends_with("\nmu' = mu\nmu_' = mu_\ns0_' = s0_\nt1_' = t1_\na_b' = a_b\n"), "{program}");
}

#[test]
fn running_takes_what_the_program_has() {
    let program = program_of::<f32>(&Parts { parts: 1, joined: true }).unwrap();
    assert!(program.run(&[], &mut [], 1.0_f64, 1.0).unwrap_err().is_argument());
    assert!(program.run(&[], &mut [1.0_f32], 1.0, 1.0).unwrap_err().is_argument());
    assert!(program.run(&[1.0], &mut [], 1.0_f32, 1.0).unwrap_err().is_argument());
}

#[test]
fn a_number_that_records_is_laid_out_as_what_it_stands_for() {
    assert_eq!((size_of::<Traced<f32>>(), align_of::<Traced<f32>>()), (size_of::<f32>(), align_of::<f32>()));
    assert_eq!((size_of::<Traced<f64>>(), align_of::<Traced<f64>>()), (size_of::<f64>(), align_of::<f64>()));
    assert_eq!([<Traced<f32>>::DTYPE, <Traced<f64>>::DTYPE], [DType::F32, DType::F64]);
    // Where nothing is recorded there is a zero, and nothing else.
    assert_eq!(format!("{:?} {:?}", Traced::<f64>::default(), TracedTally::default()), "line 0 TracedTally(0)");
    assert!(std::panic::catch_unwind(|| Traced::<f32>::of(1.0)).is_err());
}

/// Compares what a chain does to an element in a pass with what its program does, through the engine's own protocol.
fn check_chain<F: super::Kind, S: Stage>(chain: &S, span: Span) -> Program {
    let params = vec![0.5_f64; 3];
    let structure = Structure::of(&params).unwrap();
    let mut work = Work::new(&structure, chain.shape());
    table::params(&params, &structure, &mut work.params, &mut work.path).unwrap();
    let (structure, params) = (&structure, &work.params[..]);
    let at = InitContext { structure, active: &[true], params, point: None, by_leaf: false, whole: None };
    let mut state = chain.init_state(&at).unwrap();
    let run = chain.begin(&mut state, &StepContext::new(structure, false, None));

    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let signature = Signature { name: "chain", slots: &names[..S::SLOTS], tallies: S::SHAPE.sums, sums: 0 };
    let (program, scalars) = record::<F, _>(
        signature,
        || chain.kernel::<Traced<F>>(&state, &run, 0),
        |kernel, slots, u, p, tallies, _| {
            // On each way counts are numbers, so the protocol can be recorded as it is.
            let mut terms = vec![Term::default(); tallies.len()];
            let u = S::apply(kernel, 0, span, slots, u, p, &mut terms);
            tallies.iter_mut().zip(terms).for_each(|(tally, term)| *tally += term.count);
            u
        },
    )
    .unwrap();
    let kernel = chain.kernel::<F>(&state, &run, 0);
    for u in numbers::<F>() {
        for p in numbers::<F>() {
            let (mut slots, mut terms) = (vec![p / F::of(2.0); S::SLOTS], vec![Term::default(); S::SHAPE.sums]);
            let mut interpreted = slots.clone();
            let update = S::apply(&kernel, 0, span, &mut slots, u, p, &mut terms);
            let made = program.run(&scalars, &mut interpreted, u, p).unwrap();
            let all = slots.iter().zip(&interpreted).all(|(a, b)| same(*a, *b)) && same(update, made.update);
            let counts = terms.iter().map(|term| term.count);
            assert!(all && counts.eq(made.tallies.iter().copied()), "{chain:?} of {u}, {p}\n{program}");
        }
    }
    program
}

#[test]
fn whole_chains_are_recorded_as_the_engine_calls_them() {
    let at_once = Span { from: 0, to: 0 };
    let chain = (zero_nans(), clip(1.0), scale_by_lion(), scale_by_learning_rate(0.1));
    let program = check_chain::<f32, _>(&chain, at_once);
    check_chain::<f64, _>(&chain, at_once);
    // What each part compares multiplies the ways, as long as parts are not joined.
    assert_eq!((program.paths(), program.tallies().len()), (48, 1), "{program}");

    let second = Span { from: 0, to: 1 };
    let chain = (clip_by_global_norm(1.0), scale_by_adam(), add_decayed_weights(0.1), keep_params_nonnegative());
    check_chain::<f32, _>(&chain, second);
    assert!(check_chain::<f64, _>(&chain, second).reads_param());
    check_chain::<f32, _>(&cautious(sgd(0.1).momentum(0.9)), second);
    check_chain::<f32, _>(&masked(scale_by_adam(), Mask::all()), at_once);
    check_chain::<f32, _>(&multi_steps(sgd(0.1).momentum(0.9).nesterov(true), 1), at_once);
}
