#!/usr/bin/env bash
# Runs the examples that end in a number, and looks at it.
set -euo pipefail
cd "$(dirname "$0")/.."

# The features that examples and benches are built with, so that the library is compiled for them once.
run() {
    cargo run --quiet --release --features "$(cat ci/release-features)" --example "$@"
}
export -f run

ci/accuracy bash -c 'run train_digits'
for example in fit_lbfgs fit_thurber constrained diloco resume watch; do
    run "$example"
done
