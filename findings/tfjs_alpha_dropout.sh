#!/usr/bin/env bash
# TensorFlow.js 4.22.0 of the npm registry: alphaDropout is to keep the mean and the variance of its input, for networks
# of selu. It puts what it drops at +1.758 instead of -1.758, which selu goes to on its left, and then shifts and scales
# as if it had done the other. So the variance is right and the mean is not. In evaluation the layer does nothing, as it
# should, and the layers behind it, which have learnt beside a mean, miss it. There is no warning.
# Seen, normal numbers of mean 0 and variance 1: the rates 0.1, 0.3 and 0.5 give the means 0.32, 0.91 and 1.56; the
# formula by hand with -1.758 gives 0, and both have the variance 1. A zero that is dropped at the rate 0.1 becomes
# 1.782, by hand -1.458. A dense layer that learns y = 3 x + 2 behind it, rate 0.3, says 0.4 for x = 0 afterwards
# instead of 2; behind dropout and gaussianDropout it says 2.
# Frugal: dropout keeps the mean; tests/ops/dense/dropout_test.cpp, "dropout: the share of kept elements and the mean
# are right". PyTorch's AlphaDropout, whose saved tensors we pack, has the right sign (docs/guide/pytorch.md).
# docs/guide/export.md says it to those who train on in a browser.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" \
  @tensorflow/tfjs@4.22.0 >/dev/null 2>&1 || not_tried "npm has no @tensorflow/tfjs@4.22.0"
cat >"$work/js/run.cjs" <<'END_OF_PROGRAM'
const tf = require("@tensorflow/tfjs");

const limit = -1.7580993408473766; // selu(x) for x to minus infinity
const factor = (rate) => 1 / Math.sqrt((1 - rate) * (1 + rate * limit * limit));
const byHand = (x, rate) => {
  const kept = tf.randomUniform(x.shape, 0, 1, "float32", 7).greaterEqual(rate);
  const a = factor(rate);
  return tf.where(kept, x, tf.fill(x.shape, limit)).mul(a).sub(a * limit * rate);
};
const dropped = (x, rate) => tf.layers.alphaDropout({ rate }).apply(x, { training: true });
const number = (tensor) => tensor.dataSync()[0];
const short = (value, digits) => value.toFixed(digits).replace(/^-(0\.0*)$/, "$1");
const figures = (y) => {
  const { mean, variance } = tf.moments(y);
  return `mean ${short(number(mean), 1)} variance ${short(number(variance), 1)}`;
};
const values = (y) => [...new Set(y.dataSync())].sort((a, b) => a - b).map((value) => value.toFixed(3)).join(" ");

const learn = async (name) => {
  const x = tf.randomNormal([20000, 1], 0, 1, "float32", 5);
  const model = tf.sequential();
  model.add(tf.layers[name]({ rate: 0.3, inputShape: [1] }));
  model.add(tf.layers.dense({ units: 1, kernelInitializer: "ones" }));
  for (const rate of [0.1, 0.01]) {
    model.compile({ optimizer: tf.train.sgd(rate), loss: "meanSquaredError" });
    await model.fit(x, x.mul(3).add(2), { batchSize: 1000, epochs: 8, verbose: 0 });
  }
  return number(model.predict(tf.zeros([1, 1])));
};

const run = async () => {
  await tf.setBackend("cpu");
  const x = tf.randomNormal([400000], 0, 1, "float32", 5);
  for (const rate of [0.1, 0.3, 0.5]) {
    const y = dropped(x, rate);
    const other = -2 * factor(rate) * limit * rate;
    console.log(`${rate}: ${figures(y)}; by hand ${figures(byHand(x, rate))}`);
    console.log(`${rate}: the mean is that of the other sign: ${Math.abs(number(tf.mean(y)) - other) < 0.02}`);
  }
  const zeros = tf.zeros([1000]);
  console.log(`zeros: ${values(dropped(zeros, 0.1))}; by hand ${values(byHand(zeros, 0.1))}`);
  const still = tf.layers.alphaDropout({ rate: 0.3 }).apply(x, { training: false });
  console.log("evaluation changes nothing:", number(still.sub(x).abs().max()) === 0);
  for (const name of ["dropout", "gaussianDropout", "alphaDropout"]) {
    const at0 = await learn(name);
    console.log(`3 x + 2 at 0, learnt behind ${name}:`, Math.abs(at0 - 2) < 0.3 ? "2" : at0 < 0.8 ? "below 0.8" : at0);
  }
};
run();
END_OF_PROGRAM
node "$work/js/run.cjs" 2>/dev/null | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
0.1: mean 0.3 variance 1.0; by hand mean 0.0 variance 1.0
0.1: the mean is that of the other sign: true
0.3: mean 0.9 variance 1.0; by hand mean 0.0 variance 1.0
0.3: the mean is that of the other sign: true
0.5: mean 1.6 variance 1.0; by hand mean 0.0 variance 1.0
0.5: the mean is that of the other sign: true
zeros: 0.162 1.782; by hand -1.458 0.162
evaluation changes nothing: true
3 x + 2 at 0, learnt behind dropout: 2
3 x + 2 at 0, learnt behind gaussianDropout: 2
3 x + 2 at 0, learnt behind alphaDropout: below 0.8
END_OF_LINES
done_with_it
