#!/usr/bin/env bash
# Removes or shows what sanitizers reported to the files of FOLDER (sanitizers.cmake). `show` fails if there is a report
# that no suppression names, and says how often each suppression was used.
# usage: reports.sh clear|show FOLDER
set -euo pipefail
if [ "$1" = clear ]; then
  rm -rf "$2"
  mkdir -p "$2"
  exit 0
fi
found='(ERROR|WARNING): [A-Za-z]*Sanitizer|: runtime error: '
cd "$2"
all() { find . -name 'report*' -exec cat {} +; }
reports=$(all | grep -acE "$found" || true)
echo "$reports reports of sanitizers"
# LeakSanitizer lists suppressions in a table between lines of dashes, without the word before the colon.
all | awk '
  /^-+$/ { leaks = 0 }
  leaks && NF == 3 { count["leak:" $3] += $1 }
  /^ *count +bytes +template$/ { leaks = 1 }
  /^ *[0-9]+ .*(race|race_top|deadlock|mutex|signal|thread|called_from_lib|interceptor_[a-z_]+):/ { count[$NF] += $1 }
  END { for (name in count) print count[name], "by the suppression", name }' | sort -rn
[ "$reports" -ne 0 ] || exit 0
# The first lines of each kind: what was found, and where.
find . -name 'report*' -exec grep -aEl "$found" {} + | sort | head -n 40 | while IFS= read -r file; do
  echo "--- $2/${file#./}"
  grep -aE -A 25 "$found" "$file" | head -n 60
done
exit 1
