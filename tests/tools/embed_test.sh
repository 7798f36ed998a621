#!/usr/bin/env bash
# Installs the build into an empty prefix and builds and runs examples/embed against that alone.
# usage: embed_test.sh CMAKE COMPILER BUILD_DIR EXAMPLE_DIR
set -euo pipefail
cmake=$1 compiler=$2 build=$3 example=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cmake" --install "$build" --prefix "$work/prefix" >"$work/install.log" || { tail -n 20 "$work/install.log"; exit 1; }
[ -x "$work/prefix/bin/frugal" ] || { echo "bin/frugal was not installed"; exit 1; }
"$work/prefix/bin/frugal" --help >/dev/null
"$cmake" -S "$example" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_COMPILER=$compiler" \
  "-DCMAKE_PREFIX_PATH=$work/prefix" >"$work/configure.log" 2>&1 || { cat "$work/configure.log"; exit 1; }
"$cmake" --build "$work/build" >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
"$work/build/embed"
