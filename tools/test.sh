#!/usr/bin/env bash
# Sets the machine up, builds, and runs every test.
# usage: tools/test.sh [CTEST_ARGUMENT ...]      e.g. tools/test.sh -R compress      PRESET=dev uses the sanitizers
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${PRESET:-release}
tools/build.sh "$preset"
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}  # waiting threads leave their core to other tests
ctest --test-dir "build/$preset" --output-on-failure --parallel $(($(nproc) + 1)) "$@"  # one of them waits for the disk
