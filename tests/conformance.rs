//! The recorded cases of Optax against this crate: what it has must agree, or depart by a rule that says why.

#[path = "conformance/mod.rs"]
mod conformance;

use conformance::{Departures, Summary, kept};

#[test]
fn every_kept_case_agrees_or_departs_by_a_rule() {
    let departures = Departures::kept();
    let cases = kept();
    let summary = Summary::of(&cases, &departures);
    println!("{}{summary}", summary.details());
    assert!(summary.failed.is_empty(), "{}\n{summary}", summary.failed.join("\n"));
    assert!(cases.len() >= 1174, "only {} cases", cases.len());
    for rule in departures.rules() {
        assert!(!rule.reason.trim().is_empty(), "`{}` has a reason", rule.name);
        assert!(summary.departed.contains_key(&rule.name), "no case departs by `{}` any more", rule.name);
    }
}
