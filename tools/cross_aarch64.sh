#!/usr/bin/env bash
# Builds Frugal for 64-bit Arm in build/aarch64, on Debian. As root: it adds arm64 as a foreign architecture
# and installs the cross compiler and the arm64 libraries, so prefer a container.
# usage: tools/cross_aarch64.sh [CMAKE_BUILD_ARGUMENT ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! dpkg --print-foreign-architectures | grep -qx arm64; then
  echo "Adding the architecture arm64"
  dpkg --add-architecture arm64
fi
tools/setup.sh --only cmake ninja-build g++-aarch64-linux-gnu librandom123-dev libcli11-dev nlohmann-json3-dev \
  libeigen3-dev doctest-dev libdnnl-dev:arm64 libhwy-dev:arm64 libspdlog-dev:arm64 zlib1g-dev:arm64 libicu-dev:arm64 \
  libarchive-dev:arm64 nettle-dev:arm64 libmetis-dev:arm64
cmake -G Ninja -S . -B build/aarch64 -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DCMAKE_BUILD_TYPE=Release \
  -DFRUGAL_WERROR=ON
cmake --build build/aarch64 "$@"
