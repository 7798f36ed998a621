#!/usr/bin/env bash
# What each sanitizer finds reaches the files that reports.sh reads.
# usage: faults_test.sh REPORTS PROGRAM
set -euo pipefail
reports=$1 program=$2
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
for kind in address undefined; do
  "$reports" clear "$here/reports"
  options="log_path=$here/reports/report"
  if ASAN_OPTIONS=$options UBSAN_OPTIONS=$options:halt_on_error=1 "$program" "$kind" >"$here/printed" 2>&1; then
    echo "expected that the fault '$kind' ends the program"
    exit 1
  fi
  if "$reports" show "$here/reports" >"$here/shown"; then
    echo "the fault '$kind' left no file; the program printed:"
    cat "$here/printed"
    exit 1
  fi
done
