# What there is to run, by name: `just`, or `just --list`. Each recipe is a script that runs without `just` too.

default:
    @just --list

# Everything that must pass before a change is merged
ci:
    .ci/run

# The tests, as the README names them
test *args:
    cargo test --all-features {{args}}

# Clippy with default, all and no features; `--each`, `--subsets`
features *args:
    ci/features.sh {{args}}

# The library compiles without warnings for other targets
targets *targets:
    ci/targets {{targets}}

# The oldest versions that the manifest allows build
minimal-versions:
    ci/minimal-versions

# Packed crates build from their packages: library, examples, docs
package:
    ci/package

# Advisories, licences, duplicates of the dependencies
deny:
    cargo deny --workspace check

# Spelling
typos:
    typos

# Ten mutations, each of which a test must detect
mutants *args:
    ci/mutants {{args}}

# Every small mutation of some files, against one test program
sweep *args:
    ci/sweep {{args}}

# Undefined behaviour and races, in small cases (nightly)
miri:
    ci/miri

# Files, configs, paths and masks (nightly, cargo-fuzz)
fuzz *args:
    ci/fuzz {{args}}

# Examples that end in a number which can be wrong
examples:
    ci/examples.sh

# Every address on docs.rs is a page of `cargo doc`
links:
    ci/links

# Lints, tests and documents an adapter: burn, candle, gpu, mpi
adapters *names:
    ci/adapters {{names}}

# Training on several processes, some of which are killed
mpi *kills:
    ci/mpi {{kills}}

# CPU seconds that the crate costs those who compile it
weight *args:
    ci/weight {{args}}

# Before a release: many more random cases, small and large subsets of features, the old compiler
deep *cases:
    ci/deep {{cases}}

# The guide as a book in target/book (mdBook)
book:
    mdbook build docs
