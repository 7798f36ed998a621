"""What the tests execute of some folders: the lines, and the places that report errors.

usage: coverage.py LINES.json FOLDER ... (LINES.json: of gcovr --json)
Prints a line for each folder, and each check that never failed and each `throw` that was never reached.
"""
import json
import re
import sys


def failed(branches):
    """Did the check of a line fail? What makes the message comes last, and its calls may throw. gcov marks an edge by
    which a call throws, if the call was made."""
    made = [branch for branch in branches if branch["count"] or branch["throw"] or branch["fallthrough"]]
    return bool(made) and made[-1]["throw"]


def main():
    with open(sys.argv[1]) as file:
        files = sorted(json.load(file)["files"], key=lambda one: one["file"])
    missed = []
    for folder in sys.argv[2:]:
        lines = executed = places = reached = 0
        for entry in files:
            path = entry["file"]
            if not path.startswith(folder + "/"):
                continue
            with open(path) as file:
                text = file.read().splitlines()
            for line in entry["lines"]:
                if line.get("gcovr/noncode") or line.get("gcovr/excluded"):
                    continue
                lines += 1
                executed += line["count"] > 0
                code = text[line["line_number"] - 1].split("//")[0]
                check = re.search(r"\bFRUGAL_CHECK\(", code)
                if not check and not re.search(r"\bthrow\b", code):
                    continue
                places += 1
                if failed(line["branches"]) if check else line["count"]:
                    reached += 1
                else:
                    missed.append(f"{path}:{line['line_number']}: {code.strip()}")
        print(f"{folder:10} {executed:6} of {lines:6} lines, {100 * executed / max(lines, 1):5.1f} %"
              f" {reached:6} of {places:5} errors, {100 * reached / max(places, 1):5.1f} %")
    print("\nErrors that no test reached:", *missed, sep="\n")


main()
