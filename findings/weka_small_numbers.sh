#!/usr/bin/env bash
# Weka 3.6.14 writes numbers with six digits behind the point at most, as ARFF and as CSV, and so do its filters. What
# is smaller than half of a millionth is written as 0: rates of learning, probabilities, small gradients. Numbers near
# it keep one digit. A whole number of 13 digits, as a time in milliseconds, gets a fraction that it never had. Weka
# computes with what it has read, so its network learns from other numbers than one that is trained on what Weka has
# written. The help of CSVSaver has no option for this, and there is no warning.
# Seen, a table with the numbers 0.0000004, 0.0000014, 0.123456789, 123456.7890123, 1700000000123 and -0.0000004: 0,
# 0.000001, 0.123457, 123456.789012, 1700000000123.000064 and 0. 1e-9, which is written so, is 0, too, and 30000 is
# 30000. That is so in the ARFF of CSVLoader, in what a filter makes of an ARFF file, and in the CSV of CSVSaver. A
# network (MultilayerPerceptron) tells four rows of 0.0000001 from four of 0.0000004 in the file that a filter has read,
# which changes nothing: 100 percent are right. In the file that the filter has written, 50 percent are.
# Frugal: a cell is read with all of its digits, in f64 (data/tables/csv_table.cpp, number_in);
# tests/data/tables/csv_table_test.cpp, "csv: a number too large for f32 is an error with its place, one too small is
# 0" and "csv: columns and targets far from 0 keep what 32 bits would round".
. "$(dirname "$0")/packages.sh"
packages bookworm 'weka=3.6.14*'
weka() {
  inside bookworm /usr/lib/jvm/java-17-openjdk-amd64/bin/java -Djava.awt.headless=true -cp /usr/share/java/weka.jar \
    "$@" 2>/dev/null
}
cat >"$work/bookworm/tmp/read.csv" <<'END_OF_TABLE'
number
0.0000004
0.0000014
0.123456789
123456.7890123
1700000000123
-0.0000004
1e-9
30000
END_OF_TABLE
sed '1s/.*/@relation r\n@attribute number numeric\n@data/' "$work/bookworm/tmp/read.csv" >"$work/bookworm/tmp/read.arff"
numbers() { grep -E '^[-0-9]' "$1" | tr '\n' ' ' | sed 's/ $/\n/'; }
weka weka.core.converters.CSVLoader /tmp/read.csv >"$work/loader"
weka weka.core.converters.CSVSaver -i /tmp/read.arff -o /tmp/written.csv
weka weka.filters.unsupervised.attribute.Reorder -R 1 -i /tmp/read.arff -o /tmp/written.arff
for file in "$work/loader" "$work/bookworm/tmp/written.csv" "$work/bookworm/tmp/written.arff"; do
  echo "$(basename "$file"): $(numbers "$file")"
done | tee "$work/out"
# Four rows of each class.
{
  printf '@relation r\n@attribute number numeric\n@attribute class {a,b}\n@data\n'
  for number in 1 4; do
    class=$([ $number = 1 ] && echo a || echo b)
    for _ in 1 2 3 4; do echo "0.000000$number,$class"; done
  done
} >"$work/bookworm/tmp/two.arff"
weka weka.filters.unsupervised.attribute.Reorder -R 1,2 -i /tmp/two.arff -o /tmp/again.arff
for file in two again; do
  weka weka.classifiers.functions.MultilayerPerceptron -t /tmp/$file.arff -no-cv | grep -m 1 '^Correctly' |
    tr -s ' \t' ' ' | sed "s/^/$file: /; s/ *$//"
done | tee -a "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
loader: 0 0.000001 0.123457 123456.789012 1700000000123.000064 0 0 30000
written.csv: 0 0.000001 0.123457 123456.789012 1700000000123.000064 0 0 30000
written.arff: 0 0.000001 0.123457 123456.789012 1700000000123.000064 0 0 30000
two: Correctly Classified Instances 8 100 %
again: Correctly Classified Instances 4 50 %
END_OF_LINES
done_with_it
