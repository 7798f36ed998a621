#!/usr/bin/env bash
# SQLite 3.40.1 and 3.46.1 store NaN as NULL, and a number that is read from NULL is 0. So a loss that has become NaN
# comes back as 0.0, the best of all; min(), max() and avg() leave it out, and ORDER BY puts it first. In a column that
# is NOT NULL the row is refused. Infinities are stored.
# Seen, with sqlite3_bind_double() and sqlite3_column_double(): NaN comes back as 0 with the type SQLITE_NULL, infinity
# as inf. Beside a loss of 0.5, avg() is 0.5, count(loss) is 1 of 2, and the first row by loss is that of NaN. INSERT
# into a column that is NOT NULL: "NOT NULL constraint failed".
# Frugal: results are stored as JSON in a text, where NaN is null (apps/reproduce/store.cpp);
# tests/apps/reproduce/store_test.cpp, "results last, by hash, kind, seed and scale".
. "$(dirname "$0")/packages.sh"
packages bookworm 'libsqlite3-dev=3.40.1*' gcc libc6-dev
packages trixie 'libsqlite3-0=3.46.1*'
cat >"$work/bookworm/tmp/nan.c" <<'END_OF_PROGRAM'
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>

int main(void) {
  sqlite3* database;
  sqlite3_stmt* statement;
  sqlite3_open(":memory:", &database);
  sqlite3_exec(database, "CREATE TABLE results (name TEXT, loss REAL)", 0, 0, 0);
  sqlite3_exec(database, "CREATE TABLE strict (loss REAL NOT NULL)", 0, 0, 0);
  const double losses[] = {NAN, 0.5};
  for (int i = 0; i < 2; ++i) {
    sqlite3_prepare_v2(database, "INSERT INTO results VALUES (?, ?)", -1, &statement, 0);
    sqlite3_bind_text(statement, 1, i == 0 ? "diverged" : "trained", -1, SQLITE_STATIC);
    sqlite3_bind_double(statement, 2, losses[i]);
    sqlite3_step(statement);
    sqlite3_finalize(statement);
  }
  sqlite3_prepare_v2(database, "SELECT name, loss FROM results ORDER BY loss", -1, &statement, 0);
  while (sqlite3_step(statement) == SQLITE_ROW)
    printf("%s %g%s\n", sqlite3_column_text(statement, 0), sqlite3_column_double(statement, 1),
           sqlite3_column_type(statement, 1) == SQLITE_NULL ? " null" : "");
  sqlite3_finalize(statement);
  sqlite3_prepare_v2(database, "SELECT avg(loss), count(loss), count(*) FROM results", -1, &statement, 0);
  sqlite3_step(statement);
  printf("avg %g of %d of %d\n", sqlite3_column_double(statement, 0), sqlite3_column_int(statement, 1),
         sqlite3_column_int(statement, 2));
  sqlite3_finalize(statement);
  const double others[] = {INFINITY, NAN};
  for (int i = 0; i < 2; ++i) {
    sqlite3_prepare_v2(database, "INSERT INTO strict VALUES (?)", -1, &statement, 0);
    sqlite3_bind_double(statement, 1, others[i]);
    sqlite3_step(statement);
    printf("not null, %g: %s\n", others[i], sqlite3_errmsg(database));
    sqlite3_finalize(statement);
  }
  sqlite3_prepare_v2(database, "SELECT loss FROM strict", -1, &statement, 0);
  sqlite3_step(statement);
  printf("read %g\n", sqlite3_column_double(statement, 0));
  sqlite3_finalize(statement);
  return sqlite3_close(database);
}
END_OF_PROGRAM
inside bookworm gcc /tmp/nan.c -o /tmp/nan -lsqlite3 || not_tried "the program does not compile"
cp "$work/bookworm/tmp/nan" "$work/trixie/tmp/"
for suite in bookworm trixie; do
  inside "$suite" /tmp/nan | sed "s/^/$suite: /" | tee "$work/out"
  expect "$suite: NaN is the best, and 0" [ "$(head -n 1 "$work/out")" = "$suite: diverged 0 null" ]
  for line in 'trained 0.5' 'avg 0.5 of 1 of 2' 'not null, inf: no more rows available' \
    'not null, nan: NOT NULL constraint failed: strict.loss' 'read inf'; do
    expect "$suite: $line" grep -qxF "$suite: $line" "$work/out"
  done
done
done_with_it
