#!/usr/bin/env bash
# nvcc 13.0 leaves out the loop of `if constexpr (...)`, `#pragma unroll`, `for (...)` although the condition holds, and
# also the next loop. In braces it does not. The emulator cannot see this, because another compiler is behind it.
# usage: cuda_pragma_test.sh FOLDER
set -euo pipefail
finds() {  # Prints FILE:LINE of each such loop.
  find "$1" -path "$1/build" -prune -o \( -name '*.cu' -o -name '*.h' \) -type f -print0 | xargs -0 awk '
    FNR == 1 { waits = 0 }
    waits && /^[ \t]*#[ \t]*pragma[ \t]+unroll/ { print FILENAME ":" FNR }
    /^[ \t]*(\/\/|$)/ { next }
    /(^|[^a-z_])if[ \t]+constexpr[ \t]*\(/ { inside = 1; text = "" }
    inside { text = text $0 }
    { waits = inside && text ~ /\)[ \t]*$/ }
    inside && (waits || text ~ /[{;}][ \t]*(\/\/.*)?$/) { inside = 0 }'
}

try=$(mktemp -d)
trap 'rm -rf "$try"' EXIT
printf '  if constexpr (kMany && kWide)\n#pragma unroll\n    for (;;)\n' >"$try/one.cu"
printf '  if constexpr (kMany &&\n      kWide)\n// Few.\n#pragma unroll 2\n    for (;;)\n' >"$try/two.h"
printf '  if constexpr (kMany) {\n#pragma unroll\n    for (;;)\n  }\n  if constexpr (a)\n    b();\n#pragma unroll\n  for (;;)\n' >"$try/three.cu"
found=$(finds "$try" | sort | sed 's,.*/,,' | tr '\n' ' ')
if [ "$found" != "one.cu:2 two.h:4 " ]; then
  echo "expected that this test finds one.cu:2 two.h:4, got '$found'"
  exit 1
fi

if found=$(finds "$1") && [ -n "$found" ]; then
  echo "$found"
  echo "expected braces around a loop with #pragma unroll after 'if constexpr (...)' (nvcc leaves such a loop out), got the above"
  exit 1
fi
