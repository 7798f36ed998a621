#!/usr/bin/env bash
# Sets the machine up, configures and builds one preset in build/PRESET; does nothing when that is done.
# usage: tools/build.sh [PRESET [TARGET ...]]      default: release, everything
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:-release}
targets=("${@:2}")
case $preset in
  emulated) tools/setup.sh libboost-context-dev ;;
  tsan|fuzz|fuzz-fast) tools/setup.sh clang-19 libomp-19-dev ;;
  *) tools/setup.sh ;;
esac
mkdir -p build
log=build/configure-$preset.log
# Warnings are errors for those who develop (FRUGAL_WERROR=ON, as .ci/run sets it), and never stop a user.
if ! cmake --preset "$preset" -DFRUGAL_WERROR="${FRUGAL_WERROR:-OFF}" >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
cmake --build --preset "$preset" ${targets[0]:+--target "${targets[@]}"}
