#!/usr/bin/env bash
# pandas 1.5.3 and 2.2.3: read_json(), which is the usual way to load JSON Lines, gives texts another type than the file
# says, by what all rows of a column look like and by the name of the column: texts of digits become numbers, and in a
# column called "date", "modified", "timestamp..." or "..._at" they become times. to_json() keeps 10 digits behind the
# point. So a file that is read and written again is another one, and a class "007" is looked for in vain.
# Seen, two rows of texts: the ids "0012" and "0013" are 12 and 13, the labels "1e5" and "2" are 100000 and 2, and the
# dates "100000000" and "100000001" are 1973-03-03 09:46:40 and :41. With one row more whose id is "x" all stay texts,
# so what type a part of the data has depends on its rows. With dtype=False and convert_dates=False all stay texts.
# 1e-12 is written as 0.0 and 1/30000 as 0.0000333333.
# Frugal: data/text/json_lines.cpp takes a text as it is; docs/guide/own_data.md, "Texts", says how to prepare a file.
. "$(dirname "$0")/packages.sh"
packages bookworm 'python3-pandas=1.5.3*'
packages trixie 'python3-pandas=2.2.3*'
for suite in bookworm trixie; do
  python_in "$suite" -W ignore -c '
import io
import pandas

rows = """{"id": "0012", "label": "1e5", "date": "100000000"}
{"id": "0013", "label": "2", "date": "100000001"}
"""

def show(name, text, **options):
    table = pandas.read_json(io.StringIO(text), lines=True, **options)
    for column in table:
        kind = "text" if table[column].dtype == object else "not text"
        print(f"{name}, {column}:", *map(repr, map(str, table[column])), kind)

show("as it is", rows)
show("three rows", rows + "{\"id\": \"x\", \"label\": \"y\", \"date\": \"z\"}\n")
show("told not to", rows, dtype=False, convert_dates=False)
print("written:", pandas.DataFrame({"a": [1e-12, 1 / 30000]}).to_json(orient="values"))' | tee "$work/out"
  while read -r line; do expect "$suite, $line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
as it is, id: '12' '13' not text
as it is, label: '100000' '2' not text
as it is, date: '1973-03-03 09:46:40' '1973-03-03 09:46:41' not text
three rows, id: '0012' '0013' 'x' text
three rows, label: '1e5' '2' 'y' text
three rows, date: '100000000' '100000001' 'z' text
told not to, id: '0012' '0013' text
told not to, label: '1e5' '2' text
told not to, date: '100000000' '100000001' text
written: [[0.0],[0.0000333333]]
END_OF_LINES
done
done_with_it
