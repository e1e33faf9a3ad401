#!/usr/bin/env bash
# Runs the examples that end in a number, and looks at it.
set -euo pipefail
cd "$(dirname "$0")/.."

last=$(cargo run --quiet --release -p gradchain --features plot --example train_digits | tee >(cat >&2) | tail -n 1)
awk -v line="$last" 'BEGIN {
    if (line !~ /^test accuracy 0\.[0-9]+$/) { print "unexpected last line: " line; exit 1 }
    split(line, words, " ")
    if (words[3] < 0.965) { print "the accuracy should be at least 0.965"; exit 1 }
}' >&2

cargo run --quiet --release --example fit_lbfgs
cargo run --quiet --release --example fit_thurber
cargo run --quiet --release --example constrained
cargo run --quiet --release --example diloco
cargo run --quiet --release --example resume
cargo run --quiet --release --example watch
