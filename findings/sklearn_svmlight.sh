#!/usr/bin/env bash
# scikit-learn 1.2.1 and 1.4.2: load_svmlight_file() takes a file to count features from 1 where no row of it has
# feature 0, and moves all features to the left by one. So a part of a data set in which the first feature is rare, and
# absent, is read one place beside the others, though dump_svmlight_file() has written all of them from 0. With
# n_features, which one gives so that parts have one width, the shape is right, too. The manual calls the default,
# zero_based="auto", a heuristic, and says that it should always be safe for whole files. There is no warning.
# Seen, a part that begins with the row 1 0 2 and one with the rows 0 3 4 and 0 1 0, written by dump_svmlight_file() and
# read with n_features=3: the second one is 3 4 0 and 1 0 0. With zero_based=True, and by load_svmlight_files() of both
# together, it is right. 400 rows of 20 words that are there or not, the class being the sixth one, and 200 of them that
# were not trained on and lack the first word: all are answered rightly with zero_based=True, and half by default.
# Frugal: it reads no such files; a column of a table and an axis of an array have their place, whatever they hold.
# docs/guide/own_data.md says it to those who make arrays of such files.
. "$(dirname "$0")/packages.sh"
packages bookworm 'python3-sklearn=1.2.1*'
packages trixie 'python3-sklearn=1.4.2*'
for suite in bookworm trixie; do
  python_in "$suite" -c '
import numpy
from sklearn.datasets import dump_svmlight_file, load_svmlight_file, load_svmlight_files
from sklearn.linear_model import LogisticRegression

def written(name, rows, labels):
    dump_svmlight_file(numpy.array(rows, "f8"), labels, "/tmp/" + name)
    return "/tmp/" + name

def said(what, x):
    print(what + ":", "; ".join(" ".join("%g" % value for value in row) for row in x.toarray()))

first = written("first", [[1, 0, 2]], [0])
second = written("second", [[0, 3, 4], [0, 1, 0]], [1, 0])
print("the second file:", *open(second).read().split())
said("first", load_svmlight_file(first, n_features=3)[0])
said("second", load_svmlight_file(second, n_features=3)[0])
said("second, zero_based", load_svmlight_file(second, n_features=3, zero_based=True)[0])
said("second, of both", load_svmlight_files([first, second])[2])

draws = numpy.random.RandomState(0)
words = (draws.uniform(size=(400, 20)) < 0.5).astype("f8")
labels = words[:, 5].astype("i4")
words[200:, 0] = 0
model = LogisticRegression().fit(*load_svmlight_file(written("train", words[:200], labels[:200]), n_features=20))
for zero_based in True, "auto":
    test = load_svmlight_file(written("test", words[200:], labels[200:]), n_features=20, zero_based=zero_based)
    right = model.score(*test)
    print("right, zero_based %s:" % zero_based, "all" if right == 1 else "half" if 0.4 < right < 0.6 else right)
' 2>/dev/null | tee "$work/out"
  while read -r line; do expect "$suite: $line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
the second file: 1 1:3 2:4 0 1:1
first: 1 0 2
second: 3 4 0; 1 0 0
second, zero_based: 0 3 4; 0 1 0
second, of both: 0 3 4; 0 1 0
right, zero_based True: all
right, zero_based auto: half
END_OF_LINES
done
done_with_it
