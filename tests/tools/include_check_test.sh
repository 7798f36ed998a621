#!/usr/bin/env bash
# The include checker must accept what is allowed and catch each kind of offence.
# usage: include_check_test.sh INCLUDE_CHECK
set -euo pipefail
check=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{core,ops,autograd,compress,optim,models,data,train,apps}

allowed() {  # FILE INCLUDE
  mkdir -p "$(dirname "$tree/$1")"
  echo "#include $2" >"$tree/$1"
  bash "$check" "$tree" >/dev/null || { echo "refused: $1 includes $2"; exit 1; }
  rm "$tree/$1"
}
forbidden() {
  mkdir -p "$(dirname "$tree/$1")"
  echo "  #  include $2  // why" >"$tree/$1"
  ! bash "$check" "$tree" >/dev/null || { echo "not caught: $1 includes $2"; exit 1; }
  rm "$tree/$1"
}

! bash "$check" "$tree" >/dev/null || { echo "an empty tree passed"; exit 1; }
echo '#include <vector>' >"$tree/core/shape.h"
allowed core/rng.cpp '<Random123/philox.h>'
allowed ops/onednn.cpp '<dnnl.hpp>'
allowed compress/policy.h '"autograd/saved_tensor.h"'
allowed compress/quantize/quantize.cpp '"autograd/packed_pass.h"'
allowed data/formats/safetensors.cpp '<nlohmann/json.hpp>'
allowed data/text/byte_bpe.cpp '<nlohmann/json.hpp>'
allowed data/fetch/fetch.cpp '<curl/curl.h>'
allowed data/fetch/sha256.cpp '<nettle/sha2.h>'
allowed data/formats/zip.cpp '<archive.h>'
allowed data/graph/graph_partition.cpp '<metis.h>'
allowed distributed/mpi.cpp '<mpi.h>'
allowed distributed/gradient_buckets.h '"autograd/engine.h"'
allowed train/trainer.h '"distributed/communicator.h"'
allowed ops/dense/matmul_reference.cpp '<Eigen/Core>'
allowed apps/main.cpp '"compress/policy.h"'
allowed train/trainer.h '"compress/policy.h"'
allowed apps/main.cpp '"train/trainer.h"'
allowed train/run/run_state.cpp '<nlohmann/json.hpp>'
forbidden distributed/communicator.cpp '<mpi.h>'
forbidden distributed/a.cpp '"models/module.h"'
forbidden autograd/a.cpp '"distributed/communicator.h"'
forbidden optim/a.cpp '"distributed/communicator.h"'
forbidden train/a.cpp '<nccl.h>'
forbidden train/a.cpp '"apps/json.h"'
forbidden train/a.cpp '<nlohmann/json.hpp>'
forbidden train/a.cpp '<CLI/CLI.hpp>'
forbidden models/a.cpp '"train/trainer.h"'
forbidden core/a.h '"ops/dense/copy.h"'
forbidden ops/a.h '"autograd/variable.h"'
forbidden ops/a.cpp '<dnnl.hpp>'
forbidden ops/a.cpp '"oneapi/dnnl/dnnl.hpp"'
forbidden autograd/a.cpp '"compress/policy.h"'
forbidden compress/a.cpp '"autograd/variable.h"'
forbidden compress/a.cpp '"ops/image/batch_norm.h"'
forbidden data/a.h '"autograd/variable.h"'
forbidden data/formats/idx.cpp '<nlohmann/json.hpp>'
forbidden data/text/glue.cpp '<unicode/uchar.h>'
forbidden apps/cli/command_data.cpp '<curl/curl.h>'
forbidden data/fetch/fetch.cpp '<archive.h>'
forbidden data/formats/idx.cpp '<zlib.h>'
forbidden apps/config/config.cpp '<nettle/sha2.h>'
forbidden ops/dense/matmul.cpp '<Eigen/Core>'
forbidden models/a.h '"data/dataset.h"'
forbidden models/a.h '"module.h"'
forbidden models/a.h '"../core/tensor.h"'
forbidden optim/a.cpp '<CLI/CLI.hpp>'
forbidden core/a.cpp '<doctest/doctest.h>'
echo "the include checker catches every kind"
