#!/usr/bin/env bash
# npyjs 1.2.0 of the npm registry writes .npy files whose dtype follows from the numbers. A list of whole numbers gets
# the smallest type of integers that holds them, and a list with fractions gets f4. So the parts of one data set differ
# in type, and a table of measures that happen to be whole is one of bytes, which many programs take for pixels.
# Where the numbers are in a typed array, the option dtype changes the name in the header and leaves the bytes as they
# are: the file holds other numbers, and there is no error.
# Seen, by NumPy 1.24.2: [0, 1, 2] is uint8, [0, 1, 300] uint16, [0, -1, 200] int16, [0, 0.5, 2] float32. A Float64Array
# of 0.5 and 1 with { dtype: "f4" } reads as 0 and 1.75, an Int32Array of 1 and 2 as 1.4e-45 and 2.8e-45, a Float32Array
# with { dtype: "f2" } as 0 and 1.75. A list with { dtype: "f4" } is right: [0.5, 1] and [0, 1, 2].
# Frugal: data/formats/npy.cpp (read_start) refuses a file with more bytes than its header says, and 16 bits, with the
# dtype's name; tests/data/formats/npy_test.cpp.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
packages bookworm 'python3-numpy=1:1.24.2*'
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" npyjs@1.2.0 \
  >/dev/null 2>&1 || not_tried "npm has no npyjs@1.2.0"
cat >"$work/js/run.mjs" <<'END_OF_PROGRAM'
import { writeFileSync } from "node:fs";
import { dump } from "npyjs";

const arrays = {
  "1 whole": [[0, 1, 2]],
  "2 whole, large": [[0, 1, 300]],
  "3 whole, below 0": [[0, -1, 200]],
  "4 fractions": [[0, 0.5, 2]],
  "5 whole as f4": [[0, 1, 2], "f4"],
  "6 fractions as f4": [[0.5, 1], "f4"],
  "7 Float64Array as f4": [new Float64Array([0.5, 1]), "f4"],
  "8 Float32Array as f2": [new Float32Array([0.5, 1]), "f2"],
  "9 Int32Array as f4": [new Int32Array([1, 2]), "f4"],
};
for (const [name, [numbers, dtype]] of Object.entries(arrays))
  writeFileSync(`${process.argv[2]}/${name}.npy`, Buffer.from(dump(numbers, [numbers.length], { dtype })));
END_OF_PROGRAM
node "$work/js/run.mjs" "$work/bookworm/tmp"
python_in bookworm -c '
import glob
import numpy

for path in sorted(glob.glob("/tmp/*.npy")):
    array = numpy.load(path)
    print(f"{path[7:-4]}: {array.dtype}", *(f"{value:.4g}" for value in array))' | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
whole: uint8 0 1 2
whole, large: uint16 0 1 300
whole, below 0: int16 0 -1 200
fractions: float32 0 0.5 2
whole as f4: float32 0 1 2
fractions as f4: float32 0.5 1
Float64Array as f4: float32 0 1.75
Float32Array as f2: float16 0 1.75
Int32Array as f4: float32 1.401e-45 2.803e-45
END_OF_LINES
done_with_it
