#!/usr/bin/env bash
# Trainings with all threads that a run can have: those of OpenMP, of the loader, of the file for activations, and of
# ranks. ThreadSanitizer then sees them as users start them. Each ends with the weights of a run that loads its batches
# itself and keeps its activations in memory.
# usage: threads_test.sh FRUGAL [MPIEXEC NUMPROC_FLAG]
set -euo pipefail
program=$1 mpiexec=${2:-} flag=${3:-}
here=$(mktemp -d "${TMPDIR:-/tmp}/frugal_threads_XXXXXX")
trap 'rm -rf "$here"' EXIT
cd "$here"
cat >pictures.json <<'END'
{"model": {"name": "resnet20", "width": 16},
 "data": {"name": "random", "shape": [16, 16, 3], "classes": 3, "train_samples": 66, "test_samples": 20, "batch_size": 32,
          "flip": true, "crop_padding": 2, "mixup": 0.4, "workers": 0},
 "optim": {"name": "adamw", "lr": 0.002},
 "compression": {"bits": 2.5, "entropy": true, "advanced": {"min_elements": 16}},
 "train": {"epochs": 2, "checkpoint_interval": 2, "log_interval": 1}}
END
cat >texts.json <<'END'
{"model": {"name": "gpt2", "layers": 2, "width": 32, "heads": 2, "vocab_size": 50},
 "data": {"name": "random_tokens", "max_length": 64, "batch_size": 8, "train_samples": 2600},
 "compression": {"policy": "acgc", "acgc": {"interval": 3, "codec": "predicted"}},
 "train": {"epochs": 2, "log_interval": 1}}
END
cat >graph.json <<'END'
{"model": {"name": "sage", "layers": 2, "width": 16},
 "data": {"name": "random_graph", "nodes": 400, "edges": 2000, "features": 16, "classes": 3, "sampler": "neighbours",
          "fan_outs": [5, 5], "batch_size": 40},
 "compression": {"bits": 4, "gact": {"adaptive": true, "interval": 3}},
 "train": {"epochs": 2}}
END
for work in pictures texts graph; do
  workers=()  # texts and graphs have none
  [ "$work" != pictures ] || workers=(--set data.workers=3)
  "$program" train "$work.json" --set threads=3 --quiet --out "$work.plain"
  "$program" train "$work.json" --set threads=3 "${workers[@]}" --set "compression.offload=$here" \
    --set 'compression.advanced.offload_window="4 KiB"' --quiet --out "$work.threads"
  cmp "$work.plain/checkpoint/last.safetensors" "$work.threads/checkpoint/last.safetensors"
done
[ -n "$mpiexec" ] || exit 0
for sharding in none gradients; do
  OMP_NUM_THREADS=1 "$mpiexec" "$flag" 2 "$program" train pictures.json --set data.workers=2 \
    --set distributed.sharding=$sharding --quiet --out "ranks.$sharding"
done
