#!/usr/bin/env bash
# csvkit 1.0.7 and 2.0.1 (agate): csvsort and csvjson write other cells than they have read. A column of 0 and 1 alone
# becomes one of True and False, leading zeros go, and 10:30 becomes a duration of 0:10:30. What a column becomes
# depends on all of its cells, so the parts of one data set get different classes. csvcut leaves cells as they are. So
# do the others with --no-inference, but that n/a becomes empty, as NA, none, null and a point do; --blanks keeps these.
# Seen, two files of one data set that are sorted: the labels 1, 0, 1 of the first one come as True, False, True, and 2,
# 0, 1 of the second one stay. The ids 007 and 012 come as 7 and 12, 1e5 as 1E+5, n/a as an empty cell. csvjson writes
# true for the label 1 and 7.0 for 007. With --no-inference --blanks the sorted lines are those of the file.
# Frugal: data/tables/csv_table.cpp takes the cells of a target for classes as they are written, and a class that only
# val or test has is an error that names it; docs/guide/own_data.md.
. "$(dirname "$0")/packages.sh"
packages bookworm 'csvkit=1.0.7*'
packages trixie 'csvkit=2.0.1*'
printf 'id,label,score,code,length,note\n007,1,0.5,1e5,10:30,x\n012,0,0.25,2e3,11:00,n/a\n013,1,0.125,3,0:45,y\n' \
  >"$work/train.csv"
printf 'id,label\n007,2\n012,0\n013,1\n' >"$work/val.csv"
for suite in bookworm trixie; do
  cp "$work"/*.csv "$work/$suite/tmp"
  in_csvkit() { inside "$suite" LC_ALL=C.UTF-8 "$@"; }
  in_csvkit csvsort -c score /tmp/train.csv | tee "$work/sorted"
  in_csvkit csvsort -r -c id /tmp/val.csv | tee "$work/sorted_val"
  in_csvkit csvjson /tmp/train.csv | tee "$work/json"
  echo
  in_csvkit csvsort --no-inference --blanks -c score /tmp/train.csv | tee "$work/as_is"
  in_csvkit csvsort --no-inference -c score /tmp/train.csv | tee "$work/blank"
  in_csvkit csvcut -c id,label /tmp/train.csv | tee "$work/cut"
  expect "$suite: labels are words, zeros are gone" grep -qx '7,True,0.5,1E+5,0:10:30,x' "$work/sorted"
  expect "$suite: n/a is empty" grep -qx '12,False,0.25,2E+3,0:11:00,' "$work/sorted"
  expect "$suite: with a 2 among them labels stay" grep -qx '13,1' "$work/sorted_val"
  expect "$suite: csvjson, too" grep -q '"id": 7.0, "label": true, "score": 0.5, "code": 100000.0' "$work/json"
  expect "$suite: lines stay without inference" cmp -s <(sort "$work/train.csv") <(sort "$work/as_is")
  expect "$suite: n/a goes even so" grep -qx '012,0,0.25,2e3,11:00,' "$work/blank"
  expect "$suite: cells stay in csvcut" grep -qx '007,1' "$work/cut"
done
done_with_it
