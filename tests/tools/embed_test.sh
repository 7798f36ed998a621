#!/usr/bin/env bash
# Installs the build into an empty prefix, and builds and runs the examples against that alone.
# An example's program has the name of its folder.
# usage: embed_test.sh CMAKE COMPILER BUILD_DIR EXAMPLE_DIR...
set -euo pipefail
export OMP_NUM_THREADS=1  # the examples are small, and other tests run beside them
cmake=$1 compiler=$2 build=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cmake" --install "$build" --prefix "$work/prefix" >"$work/install.log" || { tail -n 20 "$work/install.log"; exit 1; }
# The public headers are installed, and no others.
installed=$(cd "$work/prefix/include/frugal" && find . -name '*.h' | sed 's#^./##' | sort)
reached=$(bash "$(dirname "$0")/public_headers_test.sh" "$work/prefix/include/frugal" --list)
[ "$installed" = "$reached" ] || { echo "installed and public headers differ:"; diff <(echo "$installed") <(echo "$reached"); exit 1; }
[ -x "$work/prefix/bin/frugal" ] || { echo "bin/frugal was not installed"; exit 1; }
"$work/prefix/bin/frugal" --help >/dev/null
# A run for the example that predicts.
echo '{"model": {"name": "mlp", "hidden": [8]}, "data": {"name": "random", "shape": [6, 6, 1], "classes": 3,
       "train_samples": 256, "test_samples": 64}, "train": {"steps": 2}}' >"$work/config.json"
"$work/prefix/bin/frugal" train "$work/config.json" --out "$work/run" >/dev/null 2>&1 || { echo "no run was made"; exit 1; }
configure() {  # FOLDER NAME
  "$cmake" -S "$1" -B "$work/$2" -G Ninja -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_COMPILER=$compiler" \
    "-DCMAKE_PREFIX_PATH=$work/prefix" >"$work/configure.log" 2>&1 || { cat "$work/configure.log"; exit 1; }
}
# The first example is configured alone, as a user does it. The others are parts of one project: the compiler and the
# libraries are looked for once.
alone=$(basename "$1")
configure "$1" "$alone"
mkdir "$work/others"
{
  echo "cmake_minimum_required(VERSION 3.25)"
  echo "project(others LANGUAGES CXX)"
  for example in "${@:2}"; do echo "add_subdirectory([[$(cd "$example" && pwd)]] $(basename "$example"))"; done
} >"$work/others/CMakeLists.txt"
configure "$work/others" built
for example; do
  name=$(basename "$example")
  folder=$work/built
  [ "$name" != "$alone" ] || folder=$work/$name
  "$cmake" --build "$folder" --target "$name" >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
  program=$folder/$name/$name
  [ "$name" != "$alone" ] || program=$folder/$name
  echo "== $name"
  arguments=()
  [ "$name" != predict ] || arguments=("$work/run")
  "$program" "${arguments[@]}"
  [ "$name" = predict ] || continue
  # A file that is no picture does not hide the next one.
  echo nothing >"$work/a.png"
  echo nothing >"$work/b.png"
  status=0
  "$program" "$work/run" "$work/a.png" "$work/b.png" 2>"$work/errors" || status=$?
  { [ "$status" -eq 1 ] && grep -q a.png "$work/errors" && grep -q b.png "$work/errors"; } ||
    { echo "expected status 1 and both names, got $status:"; cat "$work/errors"; exit 1; }
  status=0
  "$program" "$work/none" 2>"$work/errors" || status=$?
  { [ "$status" -eq 1 ] && grep -q "$work/none" "$work/errors"; } ||
    { echo "expected status 1 and the folder's name, got $status:"; cat "$work/errors"; exit 1; }
done
