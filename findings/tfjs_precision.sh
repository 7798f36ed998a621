#!/usr/bin/env bash
# TensorFlow.js 4.22.0 of the npm registry: the metrics precision and recall count an answer as positive where it is
# exactly 1. They have no threshold, and do not look for the largest of several classes, as the accuracy beside them
# does. So a network that ends in a sigmoid or a softmax and is always right has a precision of 0, unless the
# probability rounds to 1, which in f32 it does from a logit of 18 on. Over several batches they are means of the
# batches' figures, in which a batch without a positive answer counts as 0, so they depend on the size of the batch.
# There is no warning: both are usual metrics of compile(), and logs of fit() have them.
# Seen, a sigmoid of the logits 5, 5, -5, -5 for the labels 1, 1, 0, 0: accuracy 1, precision 0 and recall 0; a softmax
# of three classes that is right by 5: accuracy 1 and precision 0. With logits of 20 both are 1 in one batch, and 0.5 in
# four batches of two, where the positives come first. Two answers of 1 among 8, of which one is right: precision 0.5 in
# one batch and 0.125 in eight.
# Frugal: f1 is counted from one table of all answers, the largest logit of each row (train/metrics/metrics.h);
# tests/train/metrics/metrics_test.cpp, "metrics: a table by hand" and "metrics: batches add up to the whole, whatever
# their sizes". docs/guide/using.md says it, below the table of metrics.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" \
  @tensorflow/tfjs@4.22.0 >/dev/null 2>&1 || not_tried "npm has no @tensorflow/tfjs@4.22.0"
cat >"$work/js/run.cjs" <<'END_OF_PROGRAM'
const tf = require("@tensorflow/tfjs");

const metrics = ["accuracy", "precision", tf.metrics.recall];
const network = (activation, inputs, loss) => {
  const model = tf.sequential({ layers: [tf.layers.activation({ activation, inputShape: [inputs] })] });
  model.compile({ loss, optimizer: "sgd", metrics });
  return model;
};
const measure = (model, logits, labels, batchSize) => {
  const [, ...figures] = model.evaluate(tf.tensor2d(logits), tf.tensor2d(labels), { batchSize });
  return figures.map((figure) => Number(figure.dataSync()[0].toFixed(4))).join(" ");
};
const column = (numbers) => numbers.map((number) => [number]);

tf.setBackend("cpu").then(() => {
  const sigmoid = network("sigmoid", 1, "binaryCrossentropy");
  const binary = (logits, labels, size) => measure(sigmoid, column(logits), column(labels), size);
  console.log("sigmoid:", binary([5, 5, -5, -5], [1, 1, 0, 0], 4));
  const three = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
  const softmax = network("softmax", 3, "categoricalCrossentropy");
  console.log("softmax:", measure(softmax, three.map((row) => row.map((value) => 5 * value)), three, 3));
  const large = [20, 20, 20, 20, -20, -20, -20, -20];
  const half = [1, 1, 1, 1, 0, 0, 0, 0];
  for (const size of [8, 2]) console.log(`logits of 20, batches of ${size}:`, binary(large, half, size));
  const rare = [20, 20, -20, -20, -20, -20, -20, -20];
  const first = [1, 0, 0, 0, 0, 0, 0, 0];
  for (const size of [8, 1]) console.log(`one of two is right, batches of ${size}:`, binary(rare, first, size));
});
END_OF_PROGRAM
echo "accuracy, precision and recall"
node "$work/js/run.cjs" 2>/dev/null | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
sigmoid: 1 0 0
softmax: 1 0 0
logits of 20, batches of 8: 1 1 1
logits of 20, batches of 2: 1 0.5 0.5
one of two is right, batches of 8: 0.875 0.5 1
one of two is right, batches of 1: 0.875 0.125 0.125
END_OF_LINES
done_with_it
