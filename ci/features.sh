#!/usr/bin/env bash
# Runs Clippy, with warnings as errors: on all targets with the default features and with all, on the library with none.
# `--each` checks the library with each single feature instead, and tests the errors about config entries whose features
# are off. `--subsets` checks it with every set of at most three features, and with all but these.
#
# Feature sets share most of Clippy's work. Packages that are built together would share features, so each is named.
set -euo pipefail
cd "$(dirname "$0")/.."

# The names in `[features]`, except for `default`.
mapfile -t features < <(awk '/^\[/ { on = $0 == "[features]" } on && /^[a-z0-9_-]+ *=/ { print $1 }' Cargo.toml |
    grep -vx default)
[ "${#features[@]}" -gt 0 ] || { echo "no features found in Cargo.toml" >&2; exit 1; }

clippy() {
    printf -- '-- clippy %s\n' "$*"
    cargo clippy --quiet "$@" -- -D warnings
}

if [ "${1:-}" = --subsets ]; then
    for ((set = 0; set < 1 << ${#features[@]}; set++)); do
        chosen=()
        for i in "${!features[@]}"; do
            if ((set >> i & 1)); then chosen+=("${features[i]}"); fi
        done
        if ((${#chosen[@]} > 3 && ${#chosen[@]} < ${#features[@]} - 3)); then continue; fi
        clippy -p gradchain --lib --no-default-features --features "$(IFS=,; echo "${chosen[*]:-}")"
    done
    exit
fi

if [ "${1:-}" = --each ]; then
    for feature in "${features[@]}"; do
        clippy -p gradchain --lib --no-default-features --features "$feature"
    done
    cargo test --quiet -p gradchain --no-default-features --features config --test missing_features
    exit
fi

clippy -p gradchain -p gradchain-core -p gradchain-derive --lib --no-default-features
# The tests of core and of the macros enable features of `gradchain`.
clippy -p gradchain-core --all-targets
clippy -p gradchain --all-targets
clippy -p gradchain-derive --all-targets
clippy --all-targets --all-features
