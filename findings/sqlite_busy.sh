#!/usr/bin/env bash
# SQLite 3.40.1 and 3.46.1: a connection that has a statement open, and so reads, does not wait for another one that
# writes. Its own write fails at once with SQLITE_BUSY, whatever sqlite3_busy_timeout() was told.
# Seen, with a timeout of 2 seconds: "database is locked" after 2.0 s without an open SELECT, and after 0.0 s with one
# of which one row was read. (Of two that read and want to write, neither could ever go on.)
# Frugal: apps/reproduce/store.cpp ends the statement first; tests/apps/reproduce/store_test.cpp, "programs that make a
# store at the same moment wait for each other".
. "$(dirname "$0")/packages.sh"
packages bookworm 'libsqlite3-dev=3.40.1*' gcc libc6-dev
packages trixie 'libsqlite3-0=3.46.1*'
cat >"$work/bookworm/tmp/busy.c" <<'END'
#include <sqlite3.h>
#include <stdio.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

int main(void) {
  sqlite3 *one, *other;
  sqlite3_open("/tmp/busy.sqlite", &one);
  sqlite3_open("/tmp/busy.sqlite", &other);
  sqlite3_busy_timeout(one, 2000);
  sqlite3_exec(one, "CREATE TABLE t(x); INSERT INTO t VALUES(1), (2)", 0, 0, 0);
  for (int reads = 0; reads < 2; ++reads) {
    sqlite3_stmt* rows;
    sqlite3_prepare_v2(one, "SELECT x FROM t", -1, &rows, 0);
    if (reads) sqlite3_step(rows);
    sqlite3_exec(other, "BEGIN IMMEDIATE; INSERT INTO t VALUES(3)", 0, 0, 0);
    const double begin = now();
    const int status = sqlite3_exec(one, "INSERT INTO t VALUES(4)", 0, 0, 0);
    const double seconds = now() - begin;
    printf("%s %.0f %s after %.2f s\n", reads ? "reading" : "idle", seconds * 1000, sqlite3_errstr(status), seconds);
    sqlite3_finalize(rows);
    sqlite3_exec(other, "ROLLBACK", 0, 0, 0);
  }
}
END
inside bookworm gcc /tmp/busy.c -o /tmp/busy -lsqlite3 || not_tried "the program does not compile"
cp "$work/bookworm/tmp/busy" "$work/trixie/tmp"
for suite in bookworm trixie; do
  inside "$suite" /tmp/busy >"$work/out"
  awk -v suite=$suite '{ print suite ": " $0 }' "$work/out"
  waited() { awk -v who="$1" '$1 == who && /locked/ { print $2 }' "$work/out"; }
  expect "$suite: a connection that reads nothing waits for 2 seconds" [ "$(waited idle)" -ge 1900 ]
  expect "$suite: one that reads fails at once" [ "$(waited reading)" -lt 500 ]
done
done_with_it
