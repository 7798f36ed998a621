#!/usr/bin/env bash
# TensorFlow.js 4.22.0 of the npm registry: heNormal, glorotNormal and leCunNormal give weights whose deviation is 0.88
# of what their formula says, and the variance 0.77. They draw normal numbers, draw those anew that lie beyond two
# deviations, and do not make up for it. Keras, which has these names and formulas, divides by 0.8796. Dense and
# convolutional layers begin with glorotNormal unless they are told otherwise. So a deep network starts with a signal
# that shrinks from layer to layer, and a recipe that begins well in Keras begins otherwise in the browser.
# Seen, 400 x 400 weights, their deviation divided by sqrt(2 / 400), sqrt(2 / 800) and sqrt(1 / 400): 0.88 for heNormal,
# glorotNormal and leCunNormal, for truncatedNormal and for a dense layer by default; 1.00 for randomNormal and for
# heUniform, glorotUniform and leCunUniform. Behind 20 layers of 256 values, heNormal and relu, the mean square is 0.005
# of what it was; with randomNormal and a deviation of sqrt(2 / 256) it is 0.8 of it.
# varianceScaling with a scale of 2 / 0.774 has the deviation that heNormal should have.
# Frugal: kaiming_normal draws whole normal numbers of variance 2 / fan (models/init.h); tests/models/layers_test.cpp,
# "initial weights have the distribution their name says". docs/guide/export.md says it to those who train in a browser.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" \
  @tensorflow/tfjs@4.22.0 >/dev/null 2>&1 || not_tried "npm has no @tensorflow/tfjs@4.22.0"
cat >"$work/js/run.cjs" <<'END_OF_PROGRAM'
const tf = require("@tensorflow/tfjs");

const square = (x) => tf.mean(tf.square(x)).dataSync()[0];
const print = (name, weights, variance) => console.log(`${name}: ${Math.sqrt(square(weights) / variance).toFixed(2)}`);
const behind = (make) => {
  const input = tf.randomNormal([100, 256], 0, 1, "float32", 1);
  let x = input;
  for (let seed = 2; seed < 22; ++seed) x = tf.relu(tf.matMul(x, make(seed).apply([256, 256])));
  return square(x) / square(input);
};

tf.setBackend("cpu").then(() => {
  const variances = { he: 2 / 400, glorot: 2 / 800, leCun: 1 / 400 };
  for (const kind of ["Normal", "Uniform"])
    for (const [name, variance] of Object.entries(variances))
      print(name + kind, tf.initializers[name + kind]({ seed: 1 }).apply([400, 400]), variance);
  for (const name of ["truncatedNormal", "randomNormal"])
    print(name, tf.initializers[name]({ stddev: 0.5, seed: 1 }).apply([400, 400]), 0.25);
  const scaled = tf.initializers.varianceScaling({ scale: 2 / 0.774, mode: "fanIn", distribution: "normal", seed: 1 });
  print("varianceScaling", scaled.apply([400, 400]), variances.he);
  const dense = tf.layers.dense({ units: 1000, inputShape: [1000] });
  tf.sequential({ layers: [dense] });
  print("a dense layer", dense.getWeights()[0], 2 / 2000);
  console.log("20 layers, heNormal:", behind((seed) => tf.initializers.heNormal({ seed })).toPrecision(1));
  const stddev = Math.sqrt(2 / 256);
  console.log("20 layers, randomNormal:", behind((seed) => tf.initializers.randomNormal({ stddev, seed })).toPrecision(1));
});
END_OF_PROGRAM
node "$work/js/run.cjs" 2>/dev/null | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
heNormal: 0.88
glorotNormal: 0.88
leCunNormal: 0.88
heUniform: 1.00
glorotUniform: 1.00
leCunUniform: 1.00
truncatedNormal: 0.88
randomNormal: 1.00
varianceScaling: 1.00
a dense layer: 0.88
20 layers, heNormal: 0.005
20 layers, randomNormal: 0.8
END_OF_LINES
done_with_it
