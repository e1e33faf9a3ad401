#!/usr/bin/env bash
# Runs the examples that end in a number, and looks at it.
set -euo pipefail
cd "$(dirname "$0")/.."

ci/accuracy cargo run --quiet --release -p gradchain --features plot --example train_digits

cargo run --quiet --release --example fit_lbfgs
cargo run --quiet --release --example fit_thurber
cargo run --quiet --release --example constrained
cargo run --quiet --release --example diloco
cargo run --quiet --release --example resume
cargo run --quiet --release --example watch
