#!/usr/bin/env bash
# Every C++ block of the guide stands, line by line, in a program below examples/, which the test `embed` builds and
# runs. Indents and empty lines do not count.
# usage: snippets_test.sh ROOT
set -euo pipefail
cd "$1"
pages=(docs/guide/own_network.md docs/guide/embedding.md)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
strip() { sed -E 's/^[[:space:]]+//; s/[[:space:]]+$//; /^$/d' "$@"; }
find examples -name '*.cpp' | sort | while read -r program; do strip "$program"; done >"$work/programs"
programs=$'\n'$(cat "$work/programs")$'\n'
bad=0 blocks=0
for page in "${pages[@]}"; do
  rm -f "$work"/block.*
  awk -v out="$work/block." '/^```cpp$/ {inside = 1; ++n; next} /^```$/ {inside = 0} inside {print > (out n)}' "$page"
  for block in "$work"/block.*; do
    [ -e "$block" ] || { echo "$page has no C++ block"; exit 1; }
    blocks=$((blocks + 1))
    if [[ $programs != *$'\n'"$(strip "$block")"$'\n'* ]]; then
      echo "$page: no example has these lines:"
      cat "$block"
      bad=$((bad + 1))
    fi
  done
done
[ "$bad" -eq 0 ] || exit 1
echo "$blocks blocks stand in the examples"
