#!/usr/bin/env bash
# A comment is a sentence that can be read alone, and so is the help of an option. This finds three forms that cannot:
#   of: the comment, or a sentence in it, begins with "Of"
#   the same: it begins with "The same"
#   goes on: it begins with "and", "or", "these two" or another phrase that needs the line above
# A line in the middle of a comment may begin with any word: only where a comment or a sentence begins counts.
# Prints FILE:LINE: FORM: TEXT for each; exit status 1 if any.
# usage: comment_forms_test.sh ROOT [FOLDER...]
set -euo pipefail
export LC_ALL=C
root=$1
shift
folders=("$@")
[ ${#folders[@]} -gt 0 ] ||
  folders=(core ops autograd compress optim models data distributed train export apps lab bench python tests examples)

finds() {  # FOLDER...: prints FILE:LINE: FORM: TEXT.
  find "$@" \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -type f -print0 | sort -z |
    xargs -0 awk '
    # The column of the comment in `line`, or 0. Texts, characters and raw texts of several lines are skipped.
    function comment_at(line,    at, c, rest) {
      at = 1
      if (raw != "") {
        if (!(at = index(line, raw))) return 0
        at += length(raw)
        raw = ""
      }
      while (at <= length(line)) {
        c = substr(line, at, 1)
        if (c == "/" && substr(line, at + 1, 1) == "/") return at
        if (c == "/" && substr(line, at + 1, 1) == "*") {
          rest = index(substr(line, at + 2), "*/")
          if (!rest) return 0
          at += rest + 2
        } else if (c == "\"" && substr(line, at - 1, 1) == "R") {
          rest = substr(line, at + 1)
          raw = ")" substr(rest, 1, index(rest, "(") - 1) "\""
          rest = index(substr(line, at), raw)
          if (!rest) return 0
          at += rest + length(raw) - 2
          raw = ""
        } else if (c == "\"" || (c == "\047" && substr(line, at - 1, 1) !~ /[0-9a-fA-F]/)) {
          for (at++; at <= length(line) && substr(line, at, 1) != c; at++)
            if (substr(line, at, 1) == "\\") at++
        }
        at++
      }
      return 0
    }
    # The form that a sentence has, or "". first: the comment begins with it.
    function form_of(text, first,    lower) {
      if (text ~ /^Of /) return "of"
      if (text ~ /^The same[ .,:;]/) return "the same"
      if (!first) return ""
      lower = tolower(text)
      if (lower ~ /^of /) return "of"
      if (lower ~ /^the same([ .,:;]|$)/) return "the same"
      if (lower ~ /^(and|or|nor|but|likewise|as above|both of them|(that|those) of)([ .,:;]|$)/) return "goes on"
      if (text ~ /^whose /) return "goes on"
      if (lower ~ /^(these|those) (two|three|four|five|six)([ .,:;]|$)/) return "goes on"
      return ""
    }
    # Looks at each sentence of the comment that ended.
    function close_comment(    at, piece, form, i) {
      at = 1
      while (at <= length(text)) {
        piece = substr(text, at)
        form = form_of(piece, at == 1)
        if (form != "") {
          for (i = lines; i > 1 && offset[i] > at; i--) {}
          print file ":" number_of[i] ": " form ": " substr(piece, 1, 90)
        }
        if (!match(piece, /[.!?][)"`]* +/)) break
        at += RSTART + RLENGTH - 1
      }
      text = ""
      lines = 0
    }
    FNR == 1 { close_comment(); file = FILENAME; raw = ""; column = 0 }
    {
      at = raw != "" || index($0, "//") || index($0, "R\"") || index($0, "/*") ? comment_at($0) : 0
      alone = at && substr($0, 1, at - 1) ~ /^[ \t]*$/
      words = at ? substr($0, at) : ""
      sub(/^\/+[ \t]*/, "", words)
      # A comment goes on in a line without code, below another, or below the comment of a line of code.
      if (!(alone && (was_alone || at == column)) || words == "") close_comment()
      if (words != "") {
        if (text != "") text = text " "
        offset[++lines] = length(text) + 1
        number_of[lines] = FNR
        text = text words
      }
      column = at
      was_alone = alone
    }
    END { close_comment() }'
}

try=$(mktemp -d)
trap 'rm -rf "$try"' EXIT
cat >"$try/bad.h" <<'END'
// Of a run.
int a;  // of b
int b;  // Counts steps. Of those, the last
        // is left out. The same holds for c.
// Counts steps.
// Of those, one is left out.
// The same of lists.
int c = 1'000;   // and its size
int d;           // these two: by index
char e = '"';    // or null
auto f = "\"";   // whose rows are sorted
// Opens the file.
//
// of a run
auto g = R"(
"// of a text" )";  // Those of a run.
END
cat >"$try/good.cpp" <<'END'
// Returns the mean
// of all rows. It is the same for all ranks, and
// and so on. What both of them have is of use.
auto a = "// of b";    // the samesize
auto b = R"x(
// of a text )"
// of a text )x";      // Offers a place
int c;                 // the sum
                       // of all rows
int d = 1 /* of c */;  // all that is left, e.g. of c
int e;                 // ordered
END
wanted="1 of 2 of 3 of 4 the same 6 of 7 the same 8 goes on 9 goes on 10 goes on 11 goes on 14 of 16 goes on "
found=$(finds "$try" | sed -E 's,^.*bad\.h:([0-9]+): ([a-z ]+): .*,\1 \2,' | tr '\n' ' ')
if [ "$found" != "$wanted" ]; then
  echo "expected that this test finds '$wanted', got '$found'"
  exit 1
fi

# Texts that begin so, such as the help of an option.
texts() {  # FOLDER...: prints FILE:LINE:TEXT.
  grep -rnE '"(Of|The same)[ ,:;]' --include='*.h' --include='*.cpp' --include='*.cu' "$@" || true
}
cat >"$try/texts.h" <<'END'
auto a = "Of a run: best or last";
auto b = "Office", c = "It is the same";
END
[ "$(texts "$try" | sed 's/.*texts.h:\([0-9]*\):.*/\1/')" = 1 ] || { echo "expected that this test finds a text"; exit 1; }

cd "$root"
products=()
for folder in "${folders[@]}"; do [ "$folder" = tests ] || products+=("$folder"); done
found=$(finds "${folders[@]}"; texts "${products[@]}")
if [ -n "$found" ]; then
  echo "$found"
  echo "expected comments and texts that can be read alone, as sentences with a subject and a verb, got $(wc -l <<<"$found") others"
  exit 1
fi
