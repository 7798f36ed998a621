#!/usr/bin/env bash
# A run folder that version 0.1.0 wrote opens in this version: evaluations, predictions and reports read it, and it goes on.
# usage: old_run_test.sh FRUGAL
set -euo pipefail
frugal=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$(dirname "$0")/run_of_0_1" "$work/run"
cd "$work"
fail() { echo "$1"; exit 1; }
number() { grep -o "\"$1\": *[0-9.e+-]*" | head -n 1 | sed 's/.*: *//'; }  # of JSON: the first number with this name
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d < 1e-3 && d > -1e-3) }'; }

was=$(number test_loss <run/summary.json)
found=$("$frugal" eval run --json | number loss)
near "$found" "$was" || fail "eval: expected the loss $was of 0.1.0, got $found"
"$frugal" report run >/dev/null
[ -s run/report.html ] || fail "report: no page was written"
"$frugal" compare run run >/dev/null || fail "compare cannot read the run"
cp run/config.json config.json
"$frugal" train config.json --out run --resume --extend 3 --quiet >resumed.txt
epochs=$(grep -c '"type":"epoch"' run/metrics.jsonl)
[ "$epochs" -eq 3 ] || fail "resume: expected 3 epochs, got $epochs"
grep -q '"epoch":3,"step":12' run/metrics.jsonl || fail "resume: expected epoch 3 to end at step 12"
echo "a run of 0.1.0 opens"
