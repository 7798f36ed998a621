#!/usr/bin/env bash
# Octave 7.3 and 9.4: csvread() takes the beginning of a cell for a number and drops the rest, and a number in quotes is
# 0. What looks like the sum of a real and an imaginary part is one: a date or a range makes the whole matrix complex,
# and what computes with it goes on. Nothing warns. The manual says that text becomes 0, and nothing of these. A file
# that other programs read, and some of which quote all cells, then trains a network on other numbers.
# Seen, the second of two cells: "7" is 0, 1 000 is 1, 10:30 is 10, 12kg is 12, 1d3 is 1 and 1e3 is 1000. 2024-01-05 is
# 2024 - 1i, as is 2024-01-31, 20-30 is 20 - 30i and 1.2.3 is 1.2 + 0.3i, and then the first cell is complex, too. The
# labels cat, 7 and inf are 0, 7 and Inf. A line with the names of the columns is a row of zeros.
# Frugal: a cell is a number as a whole, in quotes or not, or its column is one of categories
# (data/tables/csv_table.cpp, number_in); tests/data/tables/csv_table_test.cpp, "csv: another file has the same columns
# in any order; new categories are none"; tests/data/graph/musae_test.cpp, "tables with quotes, line ends and gzip are
# read". docs/guide/own_data.md says it to those who read tables by Octave before.
. "$(dirname "$0")/packages.sh"
packages bookworm 'octave=7.3.0*'
packages trixie 'octave=9.4.0*'
for suite in bookworm trixie; do
  cat >"$work/$suite/tmp/cells.m" <<'END_OF_PROGRAM'
function matrix = read(text)
  file = fopen('/tmp/cells.csv', 'w');
  fprintf(file, '%s', text);
  fclose(file);
  matrix = csvread('/tmp/cells.csv');
end
for cell = {'"7"', '1 000', '10:30', '12kg', '1d3', '1e3', '2024-01-05', '2024-01-31', '20-30', '1.2.3'}
  matrix = read(["3," cell{1} "\n4,5\n"]);
  printf('%s is %s, complex %d\n', cell{1}, num2str(matrix(1, 2)), iscomplex(matrix));
end
printf('labels: %s\n', mat2str(read("1,cat\n2,7\n3,inf\n")(:, 2)'));
printf('names: %s\n', mat2str(read("size,price\n3,5\n")));
END_OF_PROGRAM
  libraries=/usr/lib/x86_64-linux-gnu
  inside "$suite" LD_LIBRARY_PATH="$libraries/blas:$libraries/lapack" \
    octave-cli -qf --no-window-system /tmp/cells.m 2>/dev/null | tee "$work/out"
  while read -r line; do expect "$suite: $line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
"7" is 0, complex 0
1 000 is 1, complex 0
10:30 is 10, complex 0
12kg is 12, complex 0
1d3 is 1, complex 0
1e3 is 1000, complex 0
2024-01-05 is 2024-1i, complex 1
2024-01-31 is 2024-1i, complex 1
20-30 is 20-30i, complex 1
1.2.3 is 1.2+0.3i, complex 1
labels: [0 7 Inf]
names: [0 0;3 5]
END_OF_LINES
done
done_with_it
