#!/usr/bin/env bash
# Miller 6.6.0 and 6.13.0, by which people read logs of training as CSV and JSON Lines: nan and inf of a file are texts,
# and a text is larger than every number. A null counts, and null times 2 is 2. So the largest loss is a text or
# nothing, the least one is never minus infinity, and what a step without a loss is multiplied by looks like its loss.
# The mean leaves them all out without a word.
# Seen, the losses 0.5, nan, 1.5, -inf, -0.5 in CSV: count 5, mean 0.5, min -0.5, max nan, and -inf where the nan is not
# there. sort -nr puts nan and -inf in front of 1.5, and $loss + 1 is (error) for both. In JSON Lines 0.5, null, 1.5:
# count 3, mean 1, max null, and $loss * 2 is 1, 2, 3. An empty cell of CSV does not count: count 2, max 1.5.
# Frugal: metrics.csv has an empty cell for what is no finite number (apps/cli/metrics_csv.cpp).
. "$(dirname "$0")/packages.sh"
packages bookworm 'miller=6.6.0*'
packages trixie 'miller=6.13.0*'
printf 'loss\n0.5\nnan\n1.5\n-inf\n-0.5\n' >"$work/all.csv"
printf 'loss\n0.5\n1.5\n-inf\n' >"$work/infinity.csv"
printf 'step,loss\n1,0.5\n2,\n3,1.5\n' >"$work/empty.csv"
printf '{"loss": 0.5}\n{"loss": null}\n{"loss": 1.5}\n' >"$work/null.jsonl"
for suite in bookworm trixie; do
  cp "$work"/*.csv "$work/null.jsonl" "$work/$suite/tmp"
  measured() { inside "$suite" mlr "$1" --ojsonl stats1 -a count,mean,min,max -f loss "/tmp/$2"; }
  values() { inside "$suite" mlr "$1" --onidx "${@:3}" "/tmp/$2" | tr '\n' ' ' | sed 's/ *$/\n/'; }
  for file in all infinity empty; do measured --icsv $file.csv | sed "s/^/$file: /"; done >"$work/out"
  measured --ijsonl null.jsonl | sed 's/^/null: /' >>"$work/out"
  { printf 'sorted: ' && values --icsv all.csv sort -nr loss; } >>"$work/out"
  { printf 'plus 1: ' && values --icsv all.csv put '$loss = $loss + 1'; } >>"$work/out"
  { printf 'null times 2: ' && values --ijsonl null.jsonl put '$loss = $loss * 2'; } >>"$work/out"
  cat "$work/out"
  while read -r line; do expect "$suite, $line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
all: {"loss_count": 5, "loss_mean": 0.5, "loss_min": -0.5, "loss_max": "nan"}
infinity: {"loss_count": 3, "loss_mean": 1, "loss_min": 0.5, "loss_max": "-inf"}
empty: {"loss_count": 2, "loss_mean": 1, "loss_min": 0.5, "loss_max": 1.5}
null: {"loss_count": 3, "loss_mean": 1, "loss_min": 0.5, "loss_max": null}
sorted: nan -inf 1.5 0.5 -0.5
plus 1: 1.5 (error) 2.5 (error) 0.5
null times 2: 1 2 3
END_OF_LINES
done
done_with_it
