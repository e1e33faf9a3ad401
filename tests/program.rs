//! Each rule of the catalogue equals its recorded program, interpreted, bit for bit.

use std::collections::BTreeSet;
use std::path::Path;

use gradchain::optimizer::FromageStep;
use gradchain::part::{Clock, Rule, SlotArray};
use gradchain::prelude::*;
use gradchain::program::Program;
use gradchain::transform::{
    StepLimit, apply_every, ema, identity, keep_params_nonnegative, reduce_variance, scale, scale_by_acprop,
    scale_by_adadelta, scale_by_adamax, scale_by_adan, scale_by_ademamix, scale_by_adopt, scale_by_amsgrad,
    scale_by_belief, scale_by_cocob, scale_by_madgrad, scale_by_optimistic_gradient, scale_by_radam, scale_by_rms,
    scale_by_rprop, scale_by_rss, scale_by_schedule, scale_by_sign, scale_by_simplified_ademamix, scale_by_stddev,
    scale_by_yogi, trace,
};
use gradchain::{DType, Error, Real};

const ELEMENTS: usize = 2500;
/// The first steps, a middle one, and those with bias corrections rounded to 1.
const COUNTS: [u64; 5] = [0, 1, 2, 1000, 10_000_000];

trait Visit {
    fn rule<R: Rule>(&mut self, rule: R);
}

/// Visits rules with the settings that change branches.
fn every_rule(visit: &mut impl Visit) {
    let rate = || cosine_decay(0.1, 1500);
    visit.rule(FromageStep::new(0.01));
    visit.rule(FromageStep::new(rate()));
    for nesterov in [false, true] {
        visit.rule(trace(0.9).nesterov(nesterov));
        visit.rule(scale_by_adam().nesterov(nesterov).eps_root(1e-8));
        visit.rule(scale_by_belief().nesterov(nesterov));
        visit.rule(scale_by_radam().nesterov(nesterov));
        for use_clipping in [false, true] {
            visit.rule(scale_by_adopt().nesterov(nesterov).use_clipping(use_clipping));
        }
    }
    visit.rule(scale_by_adopt().clip_value_fn(StepLimit::Schedule(rate().into())));
    for [eps_in_sqrt, bias_correction] in [[false, false], [false, true], [true, false], [true, true]] {
        visit.rule(scale_by_stddev().eps_in_sqrt(eps_in_sqrt).bias_correction(bias_correction));
        visit.rule(scale_by_rms().eps_in_sqrt(eps_in_sqrt).bias_correction(bias_correction));
        visit.rule(scale_by_amsgrad().bias_correction_mu(eps_in_sqrt).bias_correction_nu(bias_correction));
    }
    visit.rule(scale_by_acprop());
    visit.rule(scale_by_adadelta());
    visit.rule(scale_by_adamax());
    visit.rule(scale_by_adan());
    visit.rule(scale_by_ademamix());
    visit.rule(scale_by_madgrad(0.01));
    visit.rule(scale_by_madgrad(0.0).eps(0.0));
    visit.rule(scale_by_rss());
    visit.rule(scale_by_rss().eps_in_sqrt(false));
    visit.rule(scale_by_simplified_ademamix());
    visit.rule(scale_by_yogi());
    visit.rule(scale_by_sign());
    visit.rule(scale_by_rprop(0.01));
    visit.rule(scale_by_cocob());
    visit.rule(keep_params_nonnegative());
    visit.rule(scale_by_learning_rate(rate()));
    visit.rule(scale_by_learning_rate(0.1).flip_sign(false));
    visit.rule(scale_by_schedule(rate()));
    visit.rule(add_decayed_weights(0.01));
    visit.rule(identity());
    visit.rule(apply_every(1));
    visit.rule(apply_every(3));
    visit.rule(scale(-0.1));
    visit.rule(clip(1.0));
    visit.rule(clip(0.0));
    visit.rule(scale_by_optimistic_gradient());
    visit.rule(reduce_variance());
    visit.rule(ema(0.9));
    visit.rule(ema(0.9).debias(false));
}

/// Generates numbers of all sizes and signs, whole ones, small ones that are often equal, and NaN and infinities.
struct Numbers(u64);

impl Numbers {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn next<C: Real>(&mut self) -> C {
        let (kind, bits) = (self.bits() % 16, self.bits());
        let unit = C::of((bits >> 11) as f64 / (1_u64 << 53) as f64);
        let size = match kind {
            0 => C::zero(),
            1 => C::min_positive_value() * C::epsilon() * C::of((bits % 1000) as f64),
            2 => C::max_value() * unit,
            3 => [C::nan(), C::infinity(), C::max_value(), C::min_positive_value()][bits as usize % 4],
            4 => C::of((bits % 4) as f64),
            5 => C::epsilon() * unit,
            6 | 7 if C::DTYPE == DType::F32 => C::of(f32::from_bits(bits as u32 & 0x7fff_ffff).into()),
            6 | 7 => C::of(f64::from_bits(bits >> 1)),
            8..=11 => unit,
            _ => C::of(10.0).powi(bits as i32 % 5) * unit,
        };
        if self.bits().is_multiple_of(2) { size } else { -size }
    }
}

fn same<C: Real>(a: C, b: C) -> bool {
    // The two zeros are equal except for their signs.
    a.is_nan() && b.is_nan() || a == b && a.is_sign_negative() == b.is_sign_negative()
}

/// Runs a rule and its program on the same elements.
fn compare<R: Rule, C: Real>(rule: &R, count: u64) -> Program {
    let clock = Clock::after(count);
    let (program, scalars) = Program::record_rule(rule, clock, C::DTYPE).unwrap();
    let k = rule.scalars::<C>(clock);
    let n = R::SLOTS.len();
    assert!(program.slots().iter().eq(R::SLOTS.iter().map(|slot| slot.name())));
    assert!(R::READS_PARAMS || !program.reads_param(), "{rule:?} reads parameters:\n{program}");
    let mut numbers = Numbers(count ^ n as u64);
    for _ in 0..ELEMENTS {
        let (u, p) = (numbers.next::<C>(), numbers.next::<C>());
        let before: Vec<C> = (0..n).map(|_| numbers.next()).collect();
        let (mut slots, mut interpreted) = (before.clone(), before.clone());
        let update = R::apply(k, <R::Slots<C> as SlotArray<C>>::of(&mut slots), u, p);
        let made = program.run(&scalars, &mut interpreted, u, p).unwrap();
        assert!(
            made.update.is_some_and(|made| same(update, made))
                && slots.iter().zip(&interpreted).all(|(a, b)| same(*a, *b)),
            "{rule:?}, step {count}: u = {u:?}, p = {p:?}, state {before:?}\nrule: {update:?}, {slots:?}\n\
             program: {:?}, {interpreted:?}\n{program}",
            made.update
        );
        assert!(made.param.is_none() && made.sums.is_empty());
    }
    program
}

#[test]
fn every_rule_is_its_program() {
    struct Compare;
    impl Visit for Compare {
        fn rule<R: Rule>(&mut self, rule: R) {
            for count in COUNTS {
                compare::<R, f32>(&rule, count);
                compare::<R, f64>(&rule, count);
            }
        }
    }
    every_rule(&mut Compare);
}

fn rules_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rules_in(&path, found);
        } else {
            let source = std::fs::read_to_string(&path).unwrap();
            let names = source.lines().filter_map(|line| line.strip_prefix("impl Rule for "));
            found.extend(names.map(|rest| rest.trim_end_matches(" {").to_string()));
        }
    }
}

#[test]
fn no_rule_is_missing_above() {
    struct Names(BTreeSet<String>);
    impl Visit for Names {
        fn rule<R: Rule>(&mut self, _: R) {
            let name = core::any::type_name::<R>();
            self.0.insert(name.rsplit("::").next().unwrap_or(name).into());
        }
    }
    let mut compared = Names(BTreeSet::new());
    every_rule(&mut compared);
    let mut found = BTreeSet::new();
    rules_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(found.len() >= 30, "{found:?}");
    assert_eq!(found, compared.0);
}

#[test]
fn programs_of_later_steps_are_equal_unless_control_flow_differs() {
    let record = |count| Program::record_rule(&scale_by_adam(), Clock::after(count), DType::F32).unwrap();
    let ((first, at_first), (later, at_later)) = (record(0), record(77));
    assert_eq!(first, later);
    assert_ne!(at_first, at_later);
    // The first step has no previous gradient.
    let record = |count| Program::record_rule(&scale_by_adan(), Clock::after(count), DType::F32).unwrap().0;
    assert_ne!(record(0), record(1));
    assert_eq!(record(1), record(2));
    // Constants have a dtype, so programs do.
    assert_ne!(record(1), Program::record_rule(&scale_by_adan(), Clock::after(1), DType::F64).unwrap().0);
    assert_eq!(record(1), Program::record_rule(&scale_by_adan(), Clock::after(1), DType::Bf16).unwrap().0);
}

#[test]
fn a_program_reads_like_its_rule() {
    let show = |program: Result<(Program, Vec<f64>), Error>| program.unwrap().0.to_string();
    let adam = [
        "f32: u, mu, nu; s0, s1, s2, s3, s4, s5, s6, s7, s8",
        "t1 = s0 * mu",
        "t2 = s1 * u",
        "mu' = t1 + t2",
        "t3 = s2 * nu",
        "t4 = u * u",
        "t5 = s3 * t4",
        "nu' = t3 + t5",
        "t6 = s4 * mu'",
        "t7 = s5 * u",
        "t8 = t6 + t7",
        "t9 = s6 * nu'",
        "t10 = t9 + s8",
        "t11 = sqrt(t10)",
        "t12 = t11 + s7",
        "u' = t8 / t12",
        "",
    ];
    assert_eq!(show(Program::record_rule(&scale_by_adam(), Clock::after(0), DType::F32)), adam.join("\n"));
}
