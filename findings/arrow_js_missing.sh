#!/usr/bin/env bash
# apache-arrow 21.1.0 of the npm registry, by which programs in JavaScript read tables of Arrow, DuckDB and Parquet: the
# toArray() of a column gives its memory, not its values, where the type is one of numbers. A missing number comes as
# what stands in its place, mostly 0, and a number of 16 bits as its bits. Texts and booleans come as they are, with
# null where one is missing, and so do the numbers themselves by get() and in a loop. There is no warning. So features
# and targets that are missing become zeros on the way to a tensor, which wants such a typed array. (Issue 105 of
# apache/arrow-js is about the nulls.)
# Seen, columns 1, null, 3 behind a file of Arrow: toArray() gives 1, 0, 3 for Float32, Float64, Int32, Int64 and Uint8,
# so a mean is 1.33 instead of 2, and true, null, false and a, null, b for booleans and texts. Float16 of 1, null, 0.5
# comes as 15360, 0, 14336. By get() all are what was written. The column's nullCount is 1 in each.
# Frugal: a missing cell is an error that names its line, or gets the mean; tests/data/tables/csv_table_test.cpp, "csv:
# a missing cell is an error, or the mean, or no category". docs/guide/own_data.md says how to write such a table.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" \
  apache-arrow@21.1.0 >/dev/null 2>&1 || not_tried "npm has no apache-arrow@21.1.0"
cat >"$work/js/run.mjs" <<'END_OF_PROGRAM'
import * as arrow from "apache-arrow";

const columns = {
  Float32: [1, null, 3],
  Float64: [1, null, 3],
  Int32: [1, null, 3],
  Int64: [1n, null, 3n],
  Uint8: [1, null, 3],
  Float16: [1, null, 0.5],
  Bool: [true, null, false],
  Utf8: ["a", null, "b"],
};
const vectors = {};
for (const [type, values] of Object.entries(columns)) vectors[type] = arrow.vectorFromArray(values, new arrow[type]());
const file = arrow.tableToIPC(new arrow.Table(vectors), "file");
const table = arrow.tableFromIPC(file);
for (const type of Object.keys(columns)) {
  const column = table.getChild(type);
  const kept = [0, 1, 2].map((i) => column.get(i));
  console.log(`${type}: ${[...column.toArray()].map(String)}; get: ${kept.map(String)}; nulls: ${column.nullCount}`);
}
END_OF_PROGRAM
node "$work/js/run.mjs" | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
Float32: 1,0,3; get: 1,null,3; nulls: 1
Float64: 1,0,3; get: 1,null,3; nulls: 1
Int32: 1,0,3; get: 1,null,3; nulls: 1
Int64: 1,0,3; get: 1,null,3; nulls: 1
Uint8: 1,0,3; get: 1,null,3; nulls: 1
Float16: 15360,0,14336; get: 1,null,0.5; nulls: 1
Bool: true,null,false; get: true,null,false; nulls: 1
Utf8: a,null,b; get: a,null,b; nulls: 1
END_OF_LINES
done_with_it
