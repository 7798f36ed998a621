#!/usr/bin/env bash
# mat-for-js 1.1.0 of the npm registry, which reads files of MATLAB (level 5) in JavaScript: an array of three axes or
# more has other values at most places. A column is as long as the first axis, and a picture as the first two together.
# mat-for-js takes each axis for as long as the one before it alone. So the next picture of a stack begins one column
# further, where the height and the width are equal, and nearly all of the file is never looked at. The shape is right,
# the values are ones that occur, and there is no error. Matrices, and rows, are right. The manual says how lists of
# lists stand for arrays, and nothing of a limit.
# Seen, written by SciPy 1.10.1, which reads it back as it was. An array [2, 3, 4] of 0 to 23, whose element [i, j, k]
# is 12 i + 4 j + k, begins with 0 16 1 17, not with 0 1 2 3, and 6 of the 24 elements have their value. 100 pictures of
# 8 x 8 with numbers of their own: the first one is right. All of the others are made of it and of 13 more, and 107
# columns of 800 are looked at. A matrix [2, 12] of the same numbers is right.
# Frugal: reads no file of MATLAB. An array of .npy or .npz is read by its shape, in the order of C and of Fortran
# (data/formats/npy.cpp); tests/data/formats/npy_test.cpp, "arrays of all dtypes and both orders are read".
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" \
  mat-for-js@1.1.0 >/dev/null 2>&1 || not_tried "npm has no mat-for-js@1.1.0"
packages bookworm 'python3-scipy=1.10.1*'
python_in bookworm -c '
import numpy, scipy.io

pictures = numpy.arange(6400.0).reshape(100, 8, 8).transpose(1, 2, 0)
small = numpy.arange(24.0)
arrays = {"small": small.reshape(2, 3, 4), "matrix": small.reshape(2, 12), "pictures": pictures}
scipy.io.savemat("/tmp/arrays.mat", arrays)
back = scipy.io.loadmat("/tmp/arrays.mat")
print("SciPy:", all(numpy.array_equal(back[name], arrays[name]) for name in arrays))' | tee "$work/out"
cat >"$work/js/run.mjs" <<'END_OF_PROGRAM'
import { readFileSync } from "fs";
import { read } from "mat-for-js";

const bytes = readFileSync(process.argv[2]);
const { small, matrix, pictures } = read(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length)).data;
const shape = (array) => (Array.isArray(array) ? [array.length, ...shape(array[0])] : []);
console.log(`shapes: ${shape(small)} and ${shape(matrix)} and ${shape(pictures)}`);
console.log(`small begins with ${small[0][0]}`);
// Row by row, both are 0 to 23.
const right = (array) => array.flat(2).filter((value, i) => value === i).length;
console.log(`small: ${right(small)} of 24 are right`);
console.log(`matrix: ${right(matrix)} of 24 are right`);
// Element [i, j, n] is 64 n + 8 i + j.
const numbers = [...Array(100).keys()];
const picture = (n) => pictures.flatMap((rows, i) => rows.map((row, j) => [row[n], 64 * n + 8 * i + j]));
const count = numbers.filter((n) => picture(n).every(([value, due]) => value === due)).length;
console.log(`pictures: ${count} of 100 are right`);
const used = new Set(pictures.flat(2));
console.log(`pictures: ${used.size} of 6400 values are used, of pictures 0 to ${Math.floor(Math.max(...used) / 64)}`);
const shifted = numbers.slice(1).every((n) =>
  pictures.every((rows) => rows.every((row, j) => j === 7 || row[n] === rows[j + 1][n - 1])));
console.log(`each picture is the one before, moved by a column: ${shifted}`);
END_OF_PROGRAM
node "$work/js/run.mjs" "$work/bookworm/tmp/arrays.mat" | tee -a "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
SciPy: True
shapes: 2,3,4 and 2,12 and 8,8,100
small begins with 0,16,1,17
small: 6 of 24 are right
matrix: 24 of 24 are right
pictures: 1 of 100 are right
pictures: 856 of 6400 values are used, of pictures 0 to 13
each picture is the one before, moved by a column: true
END_OF_LINES
done_with_it
