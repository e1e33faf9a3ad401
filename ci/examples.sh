#!/usr/bin/env bash
# Runs the examples that verify their result. Pass the test build's features, so that nothing is recompiled.
set -euo pipefail
cd "$(dirname "$0")/.."

features=$1
run() {
    cargo run --quiet --profile test --features "$features" --example "$@"
}
export -f run
export features

ci/accuracy bash -c 'run train_digits'
for example in fit_lbfgs fit_thurber constrained diloco resume watch; do
    run "$example"
done
