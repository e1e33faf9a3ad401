#!/usr/bin/env bash
# Runs the examples that verify their result, with the test build's features, so that nothing is recompiled.
set -euo pipefail
cd "$(dirname "$0")/.."

run() {
    cargo run --quiet --profile test --all-features --example "$@"
}
export -f run

ci/accuracy bash -c 'run train_digits'
for example in fit_lbfgs fit_thurber constrained diloco resume watch; do
    run "$example"
done
