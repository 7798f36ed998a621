#!/usr/bin/env bash
# Enforces who may include whom (ARCHITECTURE.md, "Layers"). Prints each offending line; exit status 1 if any.
# usage: include_check.sh ROOT
set -euo pipefail
export LC_ALL=C
cd "$1"

folders="core ops autograd compress optim models data distributed train export apps bench lab python"
# Folders and files of ours that each folder may include.
declare -A ours=(
  [core]="core/"
  [ops]="ops/ core/"
  [autograd]="autograd/ ops/ core/"
  [compress]="compress/ autograd/saved_tensor.h autograd/packed_pass.h autograd/observer.h ops/cuda/ ops/dense/ ops/optimizer/ ops/simd/ core/"
  [optim]="optim/ autograd/ ops/ core/"
  [models]="models/ autograd/ ops/ core/"
  [data]="data/ core/"
  [distributed]="distributed/ optim/ autograd/ ops/ core/"
  [train]="train/ autograd/ compress/ core/ data/ distributed/ models/ ops/ optim/"
  [export]="export/ models/ data/formats/ autograd/ ops/ core/"
  [apps]="apps/ train/ export/ autograd/ compress/ core/ data/ distributed/ models/ ops/ optim/ bench/op_table/"
  [bench]="bench/ autograd/ ops/ core/"
  [python]="python/ apps/ train/ compress/ models/ optim/ autograd/ ops/ core/"
  [lab]="lab/ apps/ train/ autograd/ compress/ core/ data/ distributed/ models/ ops/ optim/"
)
# Libraries: who may include headers that start so (path prefixes of our files). Any other header in <> is the system's.
declare -A libraries=(
  [nlohmann/]="apps/ lab/ train/run/run_state.cpp train/run/packed_files.cpp data/formats/json_strict data/formats/safetensors data/text/byte_bpe.cpp data/text/hub/ data/text/chat/ data/graph/graph_data_json data/detection/coco.cpp"
  [CLI/]="apps/ lab/"
  [dnnl]="ops/onednn."
  [oneapi/]="ops/onednn."
  [Eigen/]="ops/dense/matmul_reference.cpp"
  [metis.h]="data/graph/graph_partition.cpp"
  [hwy/]="core/ ops/ compress/"
  [pybind11/]="python/module/"
  [Random123/]="core/ ops/ compress/"
  [spdlog/]="core/"
  [fmt/]=""
  [zfp.h]="compress/bounded/zfp_codec."
  [zlib.h]="data/formats/byte_stream. compress/offload/file_store"
  [unicode/]="data/text/unicode. data/text/hub/split_pattern.cpp data/text/hub/pre_tokenizers.cpp data/formats/text_decoder."
  [curl/]="data/fetch/fetch.cpp"
  [nettle/]="data/fetch/sha256.cpp"
  [archive.h]="data/formats/archive.cpp data/formats/zip.cpp"
  [archive_entry.h]="data/formats/archive.cpp data/formats/zip.cpp"
  [turbojpeg.h]="data/image/picture.cpp"
  [png.h]="data/image/picture.cpp"
  [webp/]="data/image/picture.cpp"
  [libexif/]="data/image/orientation.cpp"
  [onnx/]="export/onnx_file.cpp"
  [google/protobuf]="export/onnx_file.cpp apps/cli/event_file.cpp"
  [isa-l]="apps/cli/event_file.cpp"
  [pugixml.hpp]="data/detection/voc.cpp"
  [sqlite3.h]="apps/reproduce/store.cpp"
  [mpi.h]="distributed/mpi.cpp"
  [nccl]="distributed/nccl.cu"
  [omp.h]="core/parallel.cpp core/cores.cpp"
  [cublas]="ops/cuda/cublas."
  [cudnn]="ops/cuda/cudnn_"
  [cuda_]="core/cuda/ ops/ compress/ optim/"
  [doctest]=""
)

starts_with_one_of() {  # TEXT PREFIX...
  local text=$1 prefix
  shift
  for prefix in "$@"; do
    [[ $text == "$prefix"* ]] && return 0
  done
  return 1
}

present=()
for folder in $folders; do
  [ ! -d "$folder" ] || present+=("$folder")
done
bad=0
files=0
while IFS= read -r line; do  # path:number:#include <header> or "header"
  path=${line%%:*}
  rest=${line#*:}
  number=${rest%%:*}
  [[ $line =~ \#[[:space:]]*include[[:space:]]*([\"\<])([^\"\>]+)[\"\>] ]] || continue
  quote=${BASH_REMATCH[1]} header=${BASH_REMATCH[2]}
  folder=${path%%/*}
  why=
  library=
  for prefix in "${!libraries[@]}"; do
    [[ $header == "$prefix"* ]] && library=$prefix
  done
  if [[ -n $library ]]; then
    # shellcheck disable=SC2086
    starts_with_one_of "$path" ${libraries[$library]} ||
      why="only ${libraries[$library]:-tests} may include $library"
  elif [[ $quote == '"' ]]; then
    # shellcheck disable=SC2086
    starts_with_one_of "$header" ${ours[$folder]} || why="$folder may include only ${ours[$folder]}"
  fi
  if [[ -n $why ]]; then
    echo "$path:$number: $header: $why"
    bad=$((bad + 1))
  fi
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include' "${present[@]}" \
           --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' || true)
files=$(find "${present[@]}" -name '*.h' -o -name '*.cpp' -o -name '*.cu' | wc -l)
while IFS= read -r line; do
  echo "$line: only tests may compile sources of tests/"
  bad=$((bad + 1))
done < <(grep -snH 'tests/' "${present[@]/%//CMakeLists.txt}" || true)
if [ "$files" -eq 0 ]; then
  echo "no source files below $1"
  exit 1
fi
[ "$bad" -eq 0 ] || { echo "$bad lines break the layers"; exit 1; }
echo "$files files keep the layers"
