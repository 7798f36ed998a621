#!/usr/bin/env bash
# TensorFlow.js 4.22.0 of the npm registry: the gradient of max() and min() gives each of several equal maxima the whole
# gradient, as if it were the only one, so all together get as many times too much as there are. globalMaxPooling1d,
# globalMaxPooling2d and norm(Infinity) are made of max(). maxPooling1d over the whole length, and maximum() of two
# tensors, give it to the first one. Equal maxima are common: a word that a text has several times, the padding behind a
# short text, pixels that are white. There is no warning, and the loss is right.
# Seen, max() of 1, 3, 3, 2, 3: the gradient is 0 1 1 0 1, and by maxPool() 0 1 0 0 0. The maximum moves by h where all
# five move by h, so a gradient has the sum 1. A text of the ids 4, 7 and eighteen times 0, by embedding and
# globalMaxPooling1d: where the row of id 0 is largest, its gradient is 18. By maxPooling1d it is 1, and so it is where
# that weight is moved by 1/8 to both sides. A word three times in a text: 3 and 1. A map of 8 x 8 ones by
# globalMaxPooling2d: 64 in all.
# Frugal: the gradient goes to the first of equal maxima; tests/ops/dense/reduce_test.cpp, "reduce: max finds the first
# largest along any axis" and "reduce: the gradient of max goes to where the maximum was". docs/guide/export.md says it
# to those who train on in a browser.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" \
  @tensorflow/tfjs@4.22.0 >/dev/null 2>&1 || not_tried "npm has no @tensorflow/tfjs@4.22.0"
cat >"$work/js/run.cjs" <<'END_OF_PROGRAM'
const tf = require("@tensorflow/tfjs");

const numbers = (tensor) => Array.from(tensor.dataSync());
const gradient = (f, x) => numbers(tf.grad(f)(x)).join(" ");
// What f(h) gains for each h, by moving to both sides.
const slope = (f) => (numbers(f(0.125))[0] - numbers(f(-0.125))[0]) / 0.25;

const text = (ids, pool) => {
  const rows = [[0.5, -1], [0, 0], [0, 0], [0, 0], [0.125, 2], [0, 0], [0, 0], [0.25, 1]];
  const embedding = tf.layers.embedding({ inputDim: 8, outputDim: 2, inputLength: ids.length });
  const model = tf.sequential({ layers: [embedding, pool(ids.length)] });
  const weights = (h, row) => tf.tensor2d(rows.map((old, i) => (i === row ? [old[0] + h, old[1]] : old)));
  const output = () => model.apply(tf.tensor2d([ids])).sum();
  const of = (row) => {
    embedding.setWeights([weights(0, row)]);
    const { grads } = tf.variableGrads(output);
    const [first] = numbers(Object.values(grads)[0].gather([row]));
    const moved = slope((h) => {
      embedding.setWeights([weights(h, row)]);
      return output();
    });
    return `gradient ${first}, moved ${moved}`;
  };
  return of;
};
const globalPool = () => tf.layers.globalMaxPooling1d({});
const wholePool = (poolSize) => tf.layers.maxPooling1d({ poolSize });

tf.setBackend("cpu").then(() => {
  const x = tf.tensor1d([1, 3, 3, 2, 3]);
  const pool = (v) => tf.maxPool(v.reshape([1, 1, 5, 1]), [1, 5], 1, "valid").sum();
  console.log("max:", gradient((v) => v.max(), x));
  console.log("min of the negative numbers:", gradient((v) => v.neg().min(), x));
  console.log("maxPool:", gradient(pool, x));
  console.log("all moved:", slope((h) => x.add(h).max()));
  const maxima = tf.grads((a, b) => tf.maximum(a, b))([tf.tensor1d([3]), tf.tensor1d([3])]);
  console.log("maximum:", ...maxima.map((each) => numbers(each)[0]));
  console.log("norm of infinity:", gradient((v) => v.norm(Infinity), tf.tensor1d([3, -3, 1])));
  const padded = [4, 7, ...Array(18).fill(0)];
  const repeated = [4, 7, 4, 7, 7];
  for (const [name, ids, row] of [["padding", padded, 0], ["a word", repeated, 7]]) {
    console.log(`${name}, globalMaxPooling1d:`, text(ids, globalPool)(row));
    console.log(`${name}, maxPooling1d:`, text(ids, wholePool)(row));
  }
  const map = tf.grad((v) => tf.layers.globalMaxPooling2d({}).apply(v).sum())(tf.ones([1, 8, 8, 1]));
  console.log("globalMaxPooling2d of 64 ones, in all:", numbers(map.sum())[0]);
});
END_OF_PROGRAM
node "$work/js/run.cjs" 2>/dev/null | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
max: 0 1 1 0 1
min of the negative numbers: 0 -1 -1 0 -1
maxPool: 0 1 0 0 0
all moved: 1
maximum: 1 0
norm of infinity: 1 -1 0
padding, globalMaxPooling1d: gradient 18, moved 1
padding, maxPooling1d: gradient 1, moved 1
a word, globalMaxPooling1d: gradient 3, moved 1
a word, maxPooling1d: gradient 1, moved 1
globalMaxPooling2d of 64 ones, in all: 64
END_OF_LINES
done_with_it
