#!/usr/bin/env bash
# Trains ResNet-20 on Fashion-MNIST twice, with whole activations (L0) and with 4-bit activations (L1), and
# prints both runs side by side. The runs' files go to build/demo/L0 and build/demo/L1.
# usage: tools/demo.sh [--set path=value ...]      options go to both runs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools/build.sh release frugal  # without the tests, which would double the time
frugal=build/release/bin/frugal
unset FRUGAL_DATA  # the images come from their Debian package
for level in L0 L1; do
  echo
  echo "ResNet-20 on Fashion-MNIST, level $level"
  rm -rf "build/demo/$level"
  "$frugal" train configs/fashion_mnist_resnet20.json --set "compression.level=$level" \
    --set "compression.recipes=$([ "$level" = L0 ] && echo false || echo true)" "$@" --out "build/demo/$level"
done
echo
"$frugal" compare build/demo/L0 build/demo/L1
