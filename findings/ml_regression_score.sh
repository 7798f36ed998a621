#!/usr/bin/env bash
# ml-regression 6.3.0 of the npm registry (ml-regression-base 4.0.1): the r2 of score() is the square of the correlation
# of answers and targets, not 1 less the share of the squared error in the spread of the targets, which is what r2
# says in scikit-learn, Keras and R's lm(), and what the manual's word "coefficient of determination" means. For a
# straight line by least squares, on the samples that it was fitted to, both are one number. On others, and for curves,
# they are not. So answers that all are off by a constant, or ten times too large, or fall where the targets rise, have
# the r2 1. There is no warning, and no r2 is below 0.
# Seen, a line that was fitted to y = x for 0 to 9. Targets 10 + x: r2 1 (by hand -11.12); 10 x: 1 (-1.80); 9 - x: 1
# (-3.00). A line through noisy samples has 0.97 on these (0.97). An exponential curve, fitted to 3 e^(x/2) + 5, has
# 0.99 on its own samples (0.97), and on the next ones, from 10 to 14, 1.00 (0.35): it is off by up to 1,558 there.
# Frugal: r2 is 1 less that share, below 0 where the mean of the targets is a better answer (train/metrics/metrics.cpp);
# tests/train/metrics/metrics_test.cpp, "r2 is the share of the values' variance that outputs explain, over all
# batches". docs/guide/using.md says it to those who compare.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" \
  ml-regression@6.3.0 ml-regression-base@4.0.1 >/dev/null 2>&1 || not_tried "npm has no ml-regression@6.3.0"
cat >"$work/js/run.cjs" <<'END_OF_PROGRAM'
const { ExponentialRegression, SimpleLinearRegression } = require("ml-regression");

const count = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);
const byHand = (model, x, y) => {
  const mean = y.reduce((sum, value) => sum + value, 0) / y.length;
  const squares = (other) => y.reduce((sum, value, i) => sum + (value - other(x[i])) ** 2, 0);
  return 1 - squares((at) => model.predict(at)) / squares(() => mean);
};
const say = (what, model, x, y) => {
  const off = Math.max(...x.map((at, i) => Math.abs(model.predict(at) - y[i])));
  const [r2, hand] = [model.score(x, y).r2, byHand(model, x, y)];
  console.log(`${what}: r2 ${r2.toFixed(2)}, by hand ${hand.toFixed(2)}, off by up to ${off.toFixed(0)}`);
};
const x = count(0, 10);
const line = new SimpleLinearRegression(x, x);
const noisy = x.map((at) => at + (at % 2));
say("its own samples", new SimpleLinearRegression(x, noisy), x, noisy);
say("10 + x", line, x, x.map((at) => 10 + at));
say("10 x", line, x, x.map((at) => 10 * at));
say("9 - x", line, x, x.map((at) => 9 - at));
const growth = (at) => 3 * Math.exp(at / 2) + 5;
const curve = new ExponentialRegression(x, x.map(growth));
say("a curve's own samples", curve, x, x.map(growth));
say("a curve's next samples", curve, count(10, 15), count(10, 15).map(growth));
END_OF_PROGRAM
node "$work/js/run.cjs" | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
its own samples: r2 0.97, by hand 0.97, off by up to 1
10 + x: r2 1.00, by hand -11.12, off by up to 10
10 x: r2 1.00, by hand -1.80, off by up to 81
9 - x: r2 1.00, by hand -3.00, off by up to 9
a curve's own samples: r2 0.99, by hand 0.97, off by up to 42
a curve's next samples: r2 1.00, by hand 0.35, off by up to 1558
END_OF_LINES
done_with_it
