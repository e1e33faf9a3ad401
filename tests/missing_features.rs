//! The config entries of features that are off.
//!
//! With all features each entry is known, so `ci/features.sh --each` runs this test with the feature `config` alone.

use gradchain::config::Registry;
use serde_json::json;

/// The error names the feature.
#[test]
fn missing_features_are_named() {
    for (feature, is_on, names) in [
        ("constraint", cfg!(feature = "constraint"), &["project"][..]),
        (
            "contrib",
            cfg!(feature = "contrib"),
            &[
                "acprop",
                "dowg",
                "mechanize",
                "momo",
                "momo_adam",
                "scale_by_acprop",
                "scale_by_simplified_ademamix",
                "simplified_ademamix",
            ],
        ),
        (
            "faer",
            cfg!(feature = "faer"),
            &["soap", "shampoo", "galore", "scale_by_soap", "scale_by_shampoo", "scale_by_galore"],
        ),
        (
            "minimize",
            cfg!(feature = "minimize"),
            &["lbfgs", "scale_by_lbfgs", "scale_by_backtracking_linesearch", "scale_by_zoom_linesearch"],
        ),
    ] {
        for name in names {
            let config = json!({*name: {"learning_rate": 0.1}});
            assert_eq!(Registry::new().names().any(|known| known == *name), is_on, "{name}");
            let error = Registry::empty().build(&config).unwrap_err().to_string();
            let expected = format!("found `{name}`, which is available with the feature `{feature}` of gradchain");
            assert!(error.contains(&expected), "{error}");
        }
    }
}
