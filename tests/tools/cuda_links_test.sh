#!/usr/bin/env bash
# A binary with CUDA starts where CUDA's libraries are missing: it names none of them for the loader.
# usage: cuda_links_test.sh BINARY ...
set -euo pipefail
for binary in "$@"; do
  needed=$(readelf -d "$binary" | grep NEEDED)
  if grep -E 'lib(cudnn|cublas|cudart|cuda)[^a-z]*' <<<"$needed"; then
    echo "$binary: expected none of CUDA's libraries among those that the loader needs, got the above"
    exit 1
  fi
done
