#!/usr/bin/env bash
# reports.sh against made-up reports of each sanitizer.
# usage: reports_test.sh REPORTS
set -euo pipefail
reports=$1
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
run() { code=0; out=$("$reports" "$@" "$here/reports" 2>&1) || code=$?; }
expect() {  # CODE TEXT
  [ "$code" -eq "$1" ] || { echo "expected exit status $1, got $code: $out"; exit 1; }
  [[ $out == *"$2"* ]] || { echo "expected output with '$2', got: $out"; exit 1; }
}
for text in '==1==ERROR: AddressSanitizer: heap-use-after-free on address 0x1' '==1==ERROR: LeakSanitizer: detected memory leaks' \
    'WARNING: ThreadSanitizer: data race (pid=1)' 'a.cpp:3:4: runtime error: 1e+300 is outside the range'; do
  run clear
  run show
  expect 0 "0 reports of sanitizers"
  printf '=====\n%s\n    #0 in f\n' "$text" >"$here/reports/report.1"
  run show
  expect 1 "1 reports of sanitizers"
  expect 1 "$text"
done
run clear
line=-----------------------------------------------------
printf '%s\nSuppressions used:\n  count      bytes template\n      2        72 libfoo\n%s\n\n' $line $line >"$here/reports/report.1"
printf 'ThreadSanitizer: Matched 1 suppressions (pid=3):\n3 race:libbar\n' >"$here/reports/report.2"
run show
expect 0 "2 by the suppression leak:libfoo"
expect 0 "3 by the suppression race:libbar"
