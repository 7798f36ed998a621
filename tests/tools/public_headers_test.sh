#!/usr/bin/env bash
# frugal.h reaches every header of ops that is not internal. Internal ones have names of these kinds.
# usage: public_headers_test.sh ROOT
set -euo pipefail
cd "$1"
internal='^ops/(cuda|simd)/|_(loops|tiles|kernels|reference|windows|codes|cuda|cudnn|tasks)\.h$|^ops/(autotune|onednn)\.h$|checks\.h$|/functors\.h$'
bad=0 count=0
while read -r header; do
  count=$((count + 1))
  if ! grep -qxF "#include \"$header\"" frugal.h; then
    echo "$header: not in frugal.h, and not named as internal headers are"
    bad=$((bad + 1))
  fi
done < <(find ops -name '*.h' | grep -vE "$internal" | LC_ALL=C sort)
while read -r header; do
  [ -f "$header" ] || { echo "frugal.h includes $header, which is not there"; bad=$((bad + 1)); }
done < <(sed -nE 's/^#include "(.*)"$/\1/p' frugal.h)
[ "$count" -gt 20 ] || { echo "only $count headers below ops"; exit 1; }
[ "$bad" -eq 0 ] || exit 1
echo "$count public headers of ops"
