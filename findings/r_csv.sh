#!/usr/bin/env bash
# R 4.2.2, data.table 1.14.8 and readr 2.1.4 read one CSV file as three tables, and data.table does not read the texts
# that it has written. readr takes a D for an exponent, as Fortran does, and read.csv() reads hexadecimal numbers. Both
# make T and F logical. fread() leaves quotes in a text doubled. So classes, ids and texts depend on the function.
# Seen: a column 1d5, 2D3, 3e1 is text in read.csv() and fread(), and 100000, 2000, 30 in read_csv(). 0x1A is 26 in
# read.csv() and text in the others. A label T is TRUE in read.csv() and read_csv(), and T in fread(). A text he said
# "no", whose quotes fwrite() doubles as all do, is he said ""no"" in fread() and right in the others.
# write.csv() and fwrite() keep 15 digits, so 0.1 + 0.2 is 0.3 in the file; write_csv() writes 0.30000000000000004. NaN
# is an empty cell in fwrite() and NA in the others.
# With colClasses = "character" (read.csv, fread) and col_types = cols(.default = "c") (readr) all read 1d5 0x1A T.
# Frugal: data/tables/csv_table.cpp (number_in) takes decimal numbers alone for numbers, and doubled quotes for one;
# tests/data/tables/csv_table_test.cpp; docs/guide/own_data.md.
. "$(dirname "$0")/packages.sh"
packages bookworm 'r-base-core=4.2.2*' 'r-cran-data.table=1.14.8*' 'r-cran-readr=2.1.4*'
: >"$work/bookworm/etc/R/Renviron"
printf '#!/bin/sh\ncommand -v "$1"\n' >"$work/bookworm/usr/bin/which"
chmod +x "$work/bookworm/usr/bin/which"
cat >"$work/bookworm/tmp/run.R" <<'END_OF_PROGRAM'
library(data.table)
library(readr)

readers <- list(
  read.csv = read.csv, fread = function(path) as.data.frame(fread(path)),
  read_csv = function(path) as.data.frame(suppressMessages(read_csv(path, progress = FALSE))))
writers <- list(
  write.csv = function(table, path) write.csv(table, path, row.names = FALSE),
  fwrite = fwrite, write_csv = write_csv)

writeLines(c("code,hex,label", "1d5,0x1A,T", "2D3,0x2B,F", "3e1,7,T"), "/tmp/in.csv")
for (name in names(readers)) {
  table <- readers[[name]]("/tmp/in.csv")
  for (column in names(table)) cat(name, column, class(table[[column]]), format(table[[column]], trim = TRUE), "\n")
}
path <- "/tmp/in.csv"
cat("as text, read.csv", unlist(read.csv(path, colClasses = "character")[1, ]), "\n")
cat("as text, fread", unlist(fread(path, colClasses = "character")[1, ]), "\n")
cat("as text, read_csv", unlist(read_csv(path, col_types = cols(.default = "c"))[1, ]), "\n")
fwrite(data.frame(text = c('he said "no"', "plain")), "/tmp/text.csv")
cat("fwrite", readLines("/tmp/text.csv"), "\n")
for (name in names(readers)) cat(name, readers[[name]]("/tmp/text.csv")$text, "\n")
for (name in names(writers)) {
  writers[[name]](data.frame(value = c(0.1 + 0.2, NaN), row = 1:2), "/tmp/out.csv")
  cat(name, readLines("/tmp/out.csv")[-1], "\n")
}
END_OF_PROGRAM
in_r() {
  local libraries=/usr/lib/x86_64-linux-gnu
  inside bookworm EDITOR=vi PAGER=cat R_HOME=/usr/lib/R R_SHARE_DIR=/usr/share/R/share \
    R_LIBS=/usr/lib/R/library:/usr/lib/R/site-library \
    LD_LIBRARY_PATH="/usr/lib/R/lib:$libraries/blas:$libraries/lapack" /usr/lib/R/bin/exec/R --vanilla --no-echo "$@"
}
in_r -f /tmp/run.R | sed 's/ *$//' | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
read.csv code character 1d5 2D3 3e1
fread code character 1d5 2D3 3e1
read_csv code numeric 1e+05 2e+03 3e+01
read.csv hex numeric 26 43 7
fread hex character 0x1A 0x2B 7
read_csv hex character 0x1A 0x2B 7
read.csv label logical TRUE FALSE TRUE
fread label character T F T
read_csv label logical TRUE FALSE TRUE
as text, read.csv 1d5 0x1A T
as text, fread 1d5 0x1A T
as text, read_csv 1d5 0x1A T
fwrite text "he said ""no""" plain
read.csv he said "no" plain
fread he said ""no"" plain
read_csv he said "no" plain
write.csv 0.3,1 NA,2
fwrite 0.3,1 ,2
write_csv 0.30000000000000004,1 NA,2
END_OF_LINES
done_with_it
