#!/usr/bin/env bash
# ml-logistic-regression 2.0.0 of the npm registry: its logistic regression has weights alone and no constant, so the
# border between two classes goes through 0. It also takes the classes to be 0, 1, 2 and so on, as many as there are
# labels: where these are 1 and 2, it answers 0 and 1, and never 2. The manual says neither, and its example has classes
# from 0 that differ in their direction from the point 0. Nothing warns. So a network that is compared with it looks
# better than it is, mostly where features are above 0, as pixels, counts and prices are.
# Seen, one feature, 1 2 3 4, of the classes 0 0 1 1: all are answered with 1. With a second feature that is 1, which
# serves as the constant, or with 2.5 taken off, all four are right. -2 -1 1 2 of the classes 0 0 1 1 are right; of the
# classes 1 1 2 2 they are answered with 1 1 0 0, and of -1 -1 1 1 with 0 0 1 1. Four groups of 15 in the corners of a
# square from 1 to 4: 45 of 60 are right, and all 60 with the constant.
# Frugal: the layers of its mlp have a bias, and whole numbers are classes in their order, whatever they begin with;
# tests/data/tables/csv_table_test.cpp, "csv: whole numbers are classes in their order, others are values".
# docs/guide/using.md says it to those who compare a network with such a baseline.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" \
  ml-logistic-regression@2.0.0 ml-matrix@6.12.1 >/dev/null 2>&1 || not_tried "npm has no ml-logistic-regression@2.0.0"
cat >"$work/js/run.cjs" <<'END_OF_PROGRAM'
const { Matrix } = require("ml-matrix");
const module_ = require("ml-logistic-regression");
const LogisticRegression = module_.default ?? module_;

const learn = (rows, labels) => {
  const model = new LogisticRegression({ numSteps: 3000, learningRate: 0.01 });
  const features = new Matrix(rows);
  model.train(features, Matrix.columnVector(labels));
  return model.predict(features);
};
const say = (what, rows, labels) => {
  const answers = learn(rows, labels);
  console.log(`${what}: ${labels.join(" ")} answered ${answers.join(" ")}`);
};
const column = (values) => values.map((value) => [value]);

say("1 to 4", column([1, 2, 3, 4]), [0, 0, 1, 1]);
say("1 to 4 and a one", [1, 2, 3, 4].map((value) => [value, 1]), [0, 0, 1, 1]);
say("1 to 4 less 2.5", column([-1.5, -0.5, 0.5, 1.5]), [0, 0, 1, 1]);
for (const labels of [[0, 0, 1, 1], [1, 1, 2, 2], [-1, -1, 1, 1]]) say("around 0", column([-2, -1, 1, 2]), labels);
const places = [[1, 1], [1, 4], [4, 1], [4, 4]];
const around = places.flatMap(([x, y]) => Array.from({ length: 15 }, (_, i) => [x + (i % 4) / 10, y + (i % 5) / 10]));
const groups = around.map((_, i) => Math.floor(i / 15));
for (const one of [false, true]) {
  const answers = learn(around.map((row) => (one ? [...row, 1] : row)), groups);
  const right = answers.filter((answer, i) => answer === groups[i]).length;
  console.log(`four groups${one ? " and a one" : ""}: ${right} of ${groups.length} right`);
}
END_OF_PROGRAM
node "$work/js/run.cjs" | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
1 to 4: 0 0 1 1 answered 1 1 1 1
1 to 4 and a one: 0 0 1 1 answered 0 0 1 1
1 to 4 less 2.5: 0 0 1 1 answered 0 0 1 1
around 0: 0 0 1 1 answered 0 0 1 1
around 0: 1 1 2 2 answered 1 1 0 0
around 0: -1 -1 1 1 answered 0 0 1 1
four groups: 45 of 60 right
four groups and a one: 60 of 60 right
END_OF_LINES
done_with_it
