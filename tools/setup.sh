#!/usr/bin/env bash
# Installs the Debian packages that Frugal needs and that are missing, and says which; touches nothing and
# needs no network when all are there. It goes on without optional packages that cannot be installed, and says what
# the build then lacks.
# usage: tools/setup.sh [EXTRA_PACKAGE ...]      or: tools/setup.sh --only PACKAGE ...
# FRUGAL_SKIP_SETUP=1 skips it (dependencies installed otherwise)
set -euo pipefail

packages=(g++ cmake ninja-build libdnnl-dev libhwy-dev librandom123-dev libspdlog-dev libcli11-dev
          nlohmann-json3-dev zlib1g-dev libicu-dev libeigen3-dev libmetis-dev libarchive-dev nettle-dev doctest-dev "$@")
declare -A optional=(  # and what the build lacks without it
  [libzfp-dev]="the codec zfp"
  [libturbojpeg0-dev]="pictures from files" [libpng-dev]="pictures from files"
  [libwebp-dev]="pictures from files" [libexif-dev]="pictures from files"
  [libpugixml-dev]="boxes in VOC's XML files"
  [libonnx-dev]="export to ONNX" [libprotobuf-dev]="export to ONNX, and TensorBoard's files"
  [libisal-dev]="TensorBoard's files"
  [libcurl4-openssl-dev]="frugal data fetch" [libsqlite3-dev]="frugal reproduce"
  [libopenmpi-dev]="training on several processes" [openmpi-bin]="training on several processes"
  [dataset-fashion-mnist]="the data of the demo"
)
if [ "${1:-}" = --only ]; then
  packages=("${@:2}")
  optional=()
fi

[ -z "${FRUGAL_SKIP_SETUP:-}" ] || exit 0
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  cat >&2 <<'TEXT'
This is not a Debian system, so nothing was installed. Frugal needs:
  a C++20 compiler with OpenMP, CMake >= 3.25, Ninja,
  oneDNN >= 2.6, Highway >= 1.0, Random123, Eigen >= 3.4, spdlog (with fmt), CLI11, nlohmann/json >= 3.11, zlib, ICU,
  libarchive, nettle 3, METIS 5, doctest, libzfp >= 1.0 and libcurl >= 7.85 (optional: one codec, and
  `frugal data fetch`), TurboJPEG, libpng, libwebp and libexif (optional: pictures from files),
  pugixml (optional: boxes in VOC's XML),
  ONNX and protobuf (optional: `frugal export --format onnx`), ISA-L and protobuf (optional: `train.tensorboard`),
  SQLite 3 (optional: `frugal reproduce`), Open MPI or another MPI (optional: training on several processes),
  and for the demo the Fashion-MNIST files (*-ubyte.gz) in /usr/share/datasets/fashion-mnist.
With these in place, set FRUGAL_SKIP_SETUP=1 and call this script again.
TEXT
  exit 1
fi

missing=() left=()  # what is needed, and what is optional
for package in "${packages[@]}" "${!optional[@]}"; do
  status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
  if [ "$status" = "install ok installed" ]; then continue; fi
  if [ -n "${optional[$package]:-}" ]; then left+=("$package"); else missing+=("$package"); fi
done
[ $((${#missing[@]} + ${#left[@]})) -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Missing packages, and neither root nor sudo to install them. As root: apt-get install ${missing[*]} ${left[*]}" >&2
    [ ${#missing[@]} -eq 0 ] || exit 1
    echo "They are optional, so the build goes on without them." >&2
    exit 0
  fi
  as_root=(sudo)
fi
echo "Installing with apt-get: ${missing[*]} ${left[*]}"
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" </dev/null; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() { apt install -y --no-install-recommends "$@" >"$log" 2>&1; }
if apt update >"$log" 2>&1 && install "${missing[@]}" "${left[@]}"; then exit 0; fi
if [ ${#missing[@]} -gt 0 ] && ! install "${missing[@]}"; then
  tail -n 20 "$log" >&2
  echo "Could not install: ${missing[*]}. The last lines of apt-get are above." >&2
  exit 1
fi
for package in "${left[@]}"; do  # one by one, so that one that is not there does not keep out the others
  install "$package" || echo "Could not install $package, which is optional. Without it the build lacks: ${optional[$package]}." >&2
done
