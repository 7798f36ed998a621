#!/usr/bin/env bash
# tools/setup.sh against made-up machines: complete, incomplete, without rights, not Debian.
# usage: setup_test.sh SETUP
set -euo pipefail
setup=$1
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
for tool in bash cat env mktemp rm sort tail tr; do ln -s "$(command -v "$tool")" "$bin/$tool"; done
program() { printf '#!/bin/bash\n%s\n' "$2" >"$bin/$1"; chmod +x "$bin/$1"; }
run() { code=0; out=$(env -u FRUGAL_SKIP_SETUP PATH="$bin" "$@" bash "$setup" 2>&1) || code=$?; }
expect() {  # CODE TEXT: the exit status, and what the output holds
  [ "$code" -eq "$1" ] || { echo "expected exit status $1, got $code: $out"; exit 1; }
  [[ $out == *"$2"* ]] || { echo "expected output with '$2', got: $out"; exit 1; }
}

run env
expect 1 "oneDNN"
for library in Eigen libarchive nettle METIS; do expect 1 "$library"; done
run env FRUGAL_SKIP_SETUP=1
expect 0 ""

program apt-get 'echo "apt-get was called"; exit 7'
program dpkg-query 'echo "install ok installed"'
run env
expect 0 ""
[ -z "$out" ] || { echo "expected silence on a complete machine, got: $out"; exit 1; }

for package in libeigen3-dev libarchive-dev nettle-dev libmetis-dev; do  # each is asked for
  program dpkg-query '[ "${@: -1}" = '"$package"' ] && exit 1; echo "install ok installed"'
  run env
  expect 1 "Could not install: $package"
done
for package in libturbojpeg0-dev libopenmpi-dev libpugixml-dev; do  # the build goes on without these
  program dpkg-query '[ "${@: -1}" = '"$package"' ] && exit 1; echo "install ok installed"'
  run env
  expect 0 "Could not install $package, which is optional"
done
expect 0 "boxes in VOC"
# One package that the distribution lacks keeps out no others.
program dpkg-query 'case "${@: -1}" in zlib1g-dev|libonnx-dev|libzfp-dev) exit 1;; esac; echo "install ok installed"'
program apt-get '[[ "$*" != *libonnx-dev* ]] || exit 100; [[ "$*" != *install* ]] || echo "installed ${*: -1}" >>'"$bin"'/done'
run env
expect 0 "Without it the build lacks: export to ONNX"
[ "$(sort "$bin/done" | tr '\n' ' ')" = "installed libzfp-dev installed zlib1g-dev " ] || { echo "expected both others, got: $(cat "$bin/done")"; exit 1; }
program apt-get 'echo "apt-get was called"; exit 7'
program dpkg-query '[ "${@: -1}" = zlib1g-dev ] && exit 1; echo "install ok installed"'
program id 'echo 1000'
run env
expect 1 "apt-get install zlib1g-dev"
program id 'echo 0'
run env
expect 1 "Could not install: zlib1g-dev"
program apt-get 'exit 0'
run env
expect 0 "Installing with apt-get: zlib1g-dev"
program id 'echo 1000'
program sudo 'echo "as root: $*" >&2; exec "$@"'
run env
expect 0 "Installing with apt-get: zlib1g-dev"
echo "setup.sh does what it says"
