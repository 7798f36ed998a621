#!/usr/bin/env bash
# Trainings with all threads that a run can have: those of OpenMP, of the loader, of the file for activations, and of
# ranks. ThreadSanitizer then sees them as users start them. Each ends with the weights of a run that loads its batches
# itself and keeps its activations in memory, also where a signal ended it in between. Then a prediction of picture files,
# which threads decode.
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
 "data": {"name": "random_tokens", "max_length": 64, "batch_size": 8, "train_samples": 400},
 "compression": {"policy": "acgc", "acgc": {"interval": 3, "codec": "predicted"}},
 "train": {"epochs": 2, "log_interval": 1}}
END
cat >graph.json <<'END'
{"model": {"name": "sage", "layers": 2, "width": 16},
 "data": {"name": "random_graph", "nodes": 400, "edges": 2000, "features": 16, "classes": 3, "sampler": "neighbours",
          "fan_outs": [5, 5], "batch_size": 40},
 "compression": {"bits": 4, "gact": {"adaptive": true, "interval": 3}, "advanced": {"min_elements": 16}},
 "train": {"epochs": 2}}
END
# Two classes of pictures: the left or the upper half is bright.
for part in train val; do
  mkdir -p $part/left $part/up
  for i in 1 2 3 4 5 6 7 8 9; do
    base64 -d >$part/left/$i.png <<<iVBORw0KGgoAAAANSUhEUgAAAAwAAAAMCAIAAADZF8uwAAAAGElEQVR42mO4U6GBhkTkbNAQw6iiwagIAF4SidFFT+RvAAAAAElFTkSuQmCC
    base64 -d >$part/up/$i.png <<<iVBORw0KGgoAAAANSUhEUgAAAAwAAAAMCAIAAADZF8uwAAAAGUlEQVR42mPQqLhDEDEMWUU2ciIE0ZBVBABStInRwE8W1QAAAABJRU5ErkJggg==
  done
done
cat >files.json <<'END'
{"model": {"name": "mlp", "hidden": [32]},
 "data": {"name": "image_folder", "dir": ".", "image_size": 8, "resize": 10, "batch_size": 4, "test_batch_size": 4},
 "optim": {"lr": 0.05},
 "compression": {"bits": 4, "advanced": {"min_elements": 16}},
 "train": {"epochs": 2}}
END
file=(--set "compression.offload=$here" --set 'compression.advanced.offload_window="1 KiB"')
for work in pictures files texts graph; do
  workers=()  # texts and graphs have none
  [[ $work == texts || $work == graph ]] || workers=(--set data.workers=3)
  "$program" train "$work.json" --set threads=3 --quiet --out "$work.plain"
  "$program" train "$work.json" --set threads=3 "${workers[@]}" "${file[@]}" --quiet --out "$work.threads"
  grep -q '"written_bytes": [1-9]' "$work.threads/summary.json" || { echo "$work: nothing went to the file"; exit 1; }
  cmp "$work.plain/checkpoint/last.safetensors" "$work.threads/checkpoint/last.safetensors"
done

# The signal comes while threads work, so the run ends behind its step, and goes on to the same weights.
cut=("$program" train pictures.json --set threads=3 --set data.workers=3 "${file[@]}" --quiet --out cut)
"${cut[@]}" &
started=$!
for _ in $(seq 600); do
  [ ! -s cut/metrics.jsonl ] || break
  sleep 0.1
done
kill -TERM $started
status=0
wait $started || status=$?
[[ $status == 143 || $status == 0 ]] || { echo "expected a run that ends by SIGTERM, got status $status"; exit 1; }
[ "$status" -eq 0 ] || "${cut[@]}" --resume
cmp pictures.plain/checkpoint/last.safetensors cut/checkpoint/last.safetensors

"$program" predict files.plain val --set threads=1 --json >alone.jsonl
"$program" predict files.plain val --set threads=3 --batch-size 5 --json >together.jsonl
cmp alone.jsonl together.jsonl

[ -n "$mpiexec" ] || exit 0
for sharding in none gradients; do
  OMP_NUM_THREADS=1 "$mpiexec" "$flag" 2 "$program" train pictures.json --set data.workers=2 \
    --set distributed.sharding=$sharding --quiet --out "ranks.$sharding"
done
