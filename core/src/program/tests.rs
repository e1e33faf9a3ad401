//! Cases beyond the catalogue: functions, counts and sums, nested parts, refusals.

#![allow(clippy::neg_cmp_op_on_partial_ord, reason = "the tests compare NaN")]

use core::cell::Cell;
use core::cmp::Ordering;
use core::num::FpCategory;

use super::traced::{Kind, Traced};
use super::{Program, Recording, Type, record};
use crate::element::{Contribution, DType, Element, EngineReal, Real, RecordedArray};
use crate::error::Result;
use crate::tree::add_update;

trait Function {
    fn call<C: Real>(&self, x: C, y: C) -> C;
}

fn program_of<F: Kind>(function: &impl Function) -> Result<Program> {
    let call = |x, y| [Some(Traced::record(&[], 0..0, &|_, _| function.call(x, y))), None];
    record::<F>("it", 0, call).map(|recorded| unnamed(&recorded))
}

fn unnamed(recorded: &Recording) -> Program {
    Program { code: recorded.code.clone(), slots: [].into() }
}

fn numbers<C: Real>() -> Vec<C> {
    let signless = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 0.3, 10.25, 1e-3, 1e9];
    let smallest = C::min_positive_value() * C::epsilon();
    let special = [smallest, C::min_positive_value(), C::max_value(), C::infinity(), C::nan(), C::epsilon()];
    signless.into_iter().map(C::of).chain(special).flat_map(|x| [x, -x]).collect()
}

fn same<C: Real>(a: C, b: C) -> bool {
    // Zeros of different sign differ.
    a.is_nan() && b.is_nan() || a == b && a.is_sign_negative() == b.is_sign_negative()
}

fn check<C: Kind>(name: &str, function: &impl Function) {
    let program = program_of::<C>(function).unwrap();
    for x in numbers::<C>() {
        for y in numbers::<C>() {
            let (compiled, made) = (function.call(x, y), program.run(&[], &mut [], x, y).unwrap().update.unwrap());
            assert!(same(compiled, made), "{name} of {x}, {y}: {compiled} and {made}\n{program}");
        }
    }
}

macro_rules! each {
    ($why:expr; $(|$x:ident, $y:ident| $does:expr;)*) => {$({
        struct Does;
        impl Function for Does {
            fn call<C: Real>(&self, $x: C, $y: C) -> C {
                $does
            }
        }
        check_or_refuse(stringify!($does), &Does, $why);
    })*};
}

/// Checks that a function is recorded exactly, or refused because of `why`.
fn check_or_refuse(name: &str, function: &impl Function, why: Option<&str>) {
    let Some(why) = why else {
        check::<f32>(name, function);
        return check::<f64>(name, function);
    };
    let error = program_of::<f32>(function).expect_err(name);
    assert!(error.is_unrecordable() && error.to_string().contains(why), "{error}");
    assert_eq!(error, program_of::<f64>(function).expect_err(name));
}

fn yes<C: Real>(yes: bool) -> C {
    if yes { C::one() } else { C::zero() }
}

#[test]
fn each_function_of_numbers_is_recorded_as_itself() {
    each! { None;
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
    each! { None;
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
        // Loops that comparisons end, within four rounds.
        |x, y| { let mut z = x; for _ in 0..4 { if !(z > y) { break } z -= y; } z };
    }
}

#[test]
fn each_constant_is_that_of_its_type() {
    each! { None;
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
        |_x, _y| C::of(0.1);
        |_x, _y| <C as num_traits::NumCast>::from(0.1).unwrap_or(C::nan());
        |_x, _y| C::from_str_radix("0.1", 10).unwrap_or(C::nan());
        // Values independent of elements can be inspected, and are computed while recording.
        |_x, _y| C::of(C::of(0.1).as_f64() + C::one().to_f64().unwrap_or(0.0));
        |_x, _y| C::of((C::of(2.5) * C::of(3.0)).to_i64().unwrap_or(0) as f64);
    }
}

/// A part that changes its state, counts, sums, and emits an update.
fn part<C: Real>(slots: &mut [C], u: C, p: C, terms: &mut [Contribution<C>]) -> C {
    terms[0].count += u32::from(u.is_nan());
    terms[1].count += u32::from(u > p);
    terms[1].count += u32::from(u < -p);
    terms[2].sum = Some(u.wide() * u.wide());
    terms[3].sum = Some(if u > p { p.wide() * <C::Wide>::of(0.1) } else { p.wide() });
    if u > p {
        slots[0] = u;
        slots[1]
    } else {
        slots[1] += slots[0] * u;
        u - p
    }
}

/// Records [`part`] with a 16-bit second array, if the feature is on, and the sums of a longer chain.
fn recorded_part<F: Kind>() -> Recording {
    let arrays = [F::DTYPE, if cfg!(feature = "half") { DType::Bf16 } else { F::DTYPE }];
    let arrays = [0, 1].map(|address| Some(RecordedArray { address, dtype: arrays[address] }));
    let one = |u, p| Some(Traced::record(&arrays, 5..9, &|slots, terms| part(slots, u, p, terms)));
    record::<F>("part", 0, |u, p| [one(u, p), None]).unwrap()
}

fn stored<F: Kind>(x: F) -> F {
    #[cfg(feature = "half")]
    let x = F::of(<half::bf16 as Element>::from_f64(x.as_f64()).as_f64());
    x
}

fn check_part<F: Kind>() {
    let Recording { code, sums, .. } = recorded_part::<F>();
    assert_eq!(sums, [5, 6, 7, 8]);
    let program = Program { code, slots: ["a".into(), "b".into()].into() };
    for u in numbers::<F>() {
        for p in numbers::<F>() {
            let (mut slots, mut terms) = ([F::one(), stored(p)], [Contribution::<F>::default(); 4]);
            let mut interpreted = slots;
            let update = part(&mut slots, u, p, &mut terms);
            slots[1] = stored(slots[1]);
            let made = program.run(&[], &mut interpreted, u, p).unwrap();
            let results = [(slots[0], interpreted[0]), (slots[1], interpreted[1]), (update, made.update.unwrap())];
            assert!(results.into_iter().all(|(a, b)| same(a, b)), "{u}, {p}: {results:?}\n{program}");
            let added = terms.map(|term| term.sum.map_or(term.count.into(), |sum| sum.as_f64()));
            assert!(added.iter().zip(&made.sums).all(|(a, b)| same(*a, *b)), "{u}, {p}\n{program}");
        }
    }
}

#[test]
fn state_counts_and_wide_sums_are_recorded() {
    check_part::<f32>();
    check_part::<f64>();
    let program = unnamed(&recorded_part::<f32>());
    let types = |lines: &[u32]| lines.iter().map(|line| program.lines()[*line as usize].1).collect::<Vec<_>>();
    assert_eq!(types(program.sums()), [Type::Count, Type::Count, Type::F64, Type::F64]);
    assert_eq!(types(program.new_slots()), [Type::F32; 2]);
}

/// Parts with one choice each.
struct Parts {
    parts: usize,
    all_paths: bool,
}

impl Function for Parts {
    fn call<C: Real>(&self, x: C, y: C) -> C {
        (1..=self.parts).fold(x, |x, i| {
            let most = y * C::of(i as f64);
            let part = || {
                let x = x + C::one();
                if x > most { most } else { x }
            };
            if self.all_paths && C::RECORDS { C::record(&[], 0..0, &|_, _| part()) } else { part() }
        })
    }
}

#[test]
fn paths_through_joined_parts_do_not_multiply() {
    check::<f32>("apart", &Parts { parts: 6, all_paths: false });
    check::<f32>("joined", &Parts { parts: 6, all_paths: true });
    let at_once = program_of::<f32>(&Parts { parts: 6, all_paths: false }).unwrap();
    let all_paths = program_of::<f32>(&Parts { parts: 6, all_paths: true }).unwrap();
    assert_eq!((at_once.paths(), all_paths.paths()), (64, 1 + 2 * 6));
    assert_eq!(at_once, all_paths, "{at_once}\n{all_paths}");
    let many = program_of::<f64>(&Parts { parts: 100, all_paths: true }).unwrap();
    assert_eq!(many.paths(), 201);
}

#[test]
fn unrecordable_arithmetic_is_refused() {
    each! { Some("inspects a number");
        |x, _y| C::of(x.as_f64());
        |x, _y| C::of(x.to_f64().unwrap_or(0.0));
        |x, _y| C::of(x.to_i64().unwrap_or(0) as f64);
        |x, _y| C::of(x.integer_decode().1.into());
        |x, y| <C as num_traits::NumCast>::from(x + y).unwrap_or(C::nan());
    }
    each! { Some("never stops comparing");
        |x, _y| { let mut z = x; while z > C::one() { z /= C::of(2.0); } z };
        |x, _y| { let mut z = x; while !(z < C::one()) { z /= C::of(2.0); } z };
    }
    check_or_refuse("parts", &Parts { parts: 20, all_paths: false }, Some("too many control-flow paths"));

    struct Changes(Cell<f64>);
    impl Function for Changes {
        fn call<C: Real>(&self, x: C, y: C) -> C {
            self.0.set(self.0.get() + 1.0);
            if x > C::of(self.0.get()) { x } else { y }
        }
    }
    check_or_refuse("changes", &Changes(Cell::default()), Some("differ between calls"));
    assert_eq!(
        program_of::<f32>(&Changes(Cell::default())).unwrap_err().to_string(),
        "it cannot be recorded as a program: its operations differ between calls"
    );
}

#[test]
fn scalars_are_numbered_and_constants_are_not() {
    let recorded = record::<f32>("it", 0, |u, _| {
        // A scalar may depend on another's value, and have the type of sums.
        let [a, b] = [0.1, -3.0].map(Traced::<f32>::of);
        let (b, wide) = (if b > Traced::default() { b } else { -b }, Traced::<f64>::of(0.7));
        let one = |u: Traced<f32>| if (u + a).wide() > wide { b } else { u * Traced::of(0.1) };
        [Some(Traced::record(&[], 0..0, &|_, _| one(u))), None]
    })
    .unwrap();
    let (program, scalars) = (unnamed(&recorded), recorded.scalars);
    assert_eq!(scalars, [0.1, -3.0, 0.7]);
    assert_eq!(
        program.to_string(),
        "f32: u; s0, s1, s2\nt1 = u + s0\nt2 = f64(t1)\nt3 = s2 < t2\nt4 = -s1\nt5 = u * 0.1\nu' = if t3 then t4 else t5\n"
    );
    assert_eq!(program.run(&scalars, &mut [], 1.0_f32, 0.0).unwrap().update, Some(3.0));
    assert_eq!(program.run(&[0.1, -4.0, 0.7], &mut [], 1.0_f32, 0.0).unwrap().update, Some(4.0));
    assert_eq!(program.run(&[0.1, -4.0, 2.0], &mut [], 1.0_f32, 0.0).unwrap().update, Some(0.1));
}

#[test]
fn names_are_told_apart() {
    let arrays = [0, 1, 2, 3, 4, 5].map(|address| Some(RecordedArray { address, dtype: DType::F64 }));
    let sum = |u| Traced::record(&arrays, 0..0, &|slots, _| slots.iter().copied().sum::<Traced<f64>>() + u);
    let recorded = record::<f64>("it", 0, |u, _| [Some(sum(u)), None]).unwrap();
    let slots = ["u", "mu", "mu", "s0", "t1", "a/b"].map(String::from).into();
    let program = Program { code: recorded.code, slots };
    assert!(!program.writes(0) && program.reads(0));
    assert!(program.to_string().starts_with("f64: u, u_, mu, mu_, s0_, t1_, a_b\n"), "{program}");
    assert!(program.to_string().ends_with("\nmu' = mu\nmu_' = mu_\ns0_' = s0_\nt1_' = t1_\na_b' = a_b\n"), "{program}");
}

#[test]
fn run_refuses_mismatched_arguments() {
    let program = program_of::<f32>(&Parts { parts: 1, all_paths: true }).unwrap();
    assert!(program.run(&[], &mut [], 1.0_f64, 1.0).unwrap_err().is_argument());
    assert!(program.run(&[], &mut [1.0_f32], 1.0, 1.0).unwrap_err().is_argument());
    assert!(program.run(&[1.0], &mut [], 1.0_f32, 1.0).unwrap_err().is_argument());
}

#[test]
fn traced_numbers_have_the_layout_of_their_floats() {
    assert_eq!((size_of::<Traced<f32>>(), align_of::<Traced<f32>>()), (size_of::<f32>(), align_of::<f32>()));
    assert_eq!((size_of::<Traced<f64>>(), align_of::<Traced<f64>>()), (size_of::<f64>(), align_of::<f64>()));
    assert_eq!([<Traced<f32>>::DTYPE, <Traced<f64>>::DTYPE], [DType::F32, DType::F64]);
    // Without a recording there is only zero.
    assert_eq!(format!("{:?}", Traced::<f64>::default()), "line 0");
    assert!(std::panic::catch_unwind(|| Traced::<f32>::of(1.0)).is_err());
}
