#!/usr/bin/env bash
# The public headers, those that frugal.h reaches, are there and are few: programs that embed the library are promised
# that these stay, and everything else may change. With --list it prints them, frugal.h included.
# usage: public_headers_test.sh ROOT [--list]
set -euo pipefail
export LC_ALL=C
cd "$1"
most=98
reached=frugal.h pending=frugal.h
while [ -n "$pending" ]; do
  next=$(for header in $pending; do
    sed -nE 's/^#include "(.*)".*$/\1/p' "$header" || { echo "$header: included, but not there" >&2; exit 1; }
  done | sort -u)
  pending=$(comm -23 <(echo "$next") <(echo "$reached" | sort))
  reached=$(printf '%s\n%s\n' "$reached" "$pending" | sed '/^$/d' | sort -u)
done
[ "${2:-}" != --list ] || { echo "$reached"; exit 0; }
count=$(echo "$reached" | grep -cv '^frugal\.h$')
[ "$count" -gt 50 ] || { echo "only $count public headers found"; exit 1; }
[ "$count" -le "$most" ] || { echo "expected at most $most headers that frugal.h reaches, got $count"; exit 1; }
echo "$count public headers"
