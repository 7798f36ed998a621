#!/usr/bin/env bash
# TensorFlow.js 4.22.0 of the npm registry: the loss of a model whose layers have a regularizer is two numbers. What
# fit(), fitDataset() and trainOnBatch() report has the penalties of the weights in it. The val_loss of both, evaluate()
# and evaluateDataset() have not. In Keras all have. The manual calls each of them the loss. So a network seems to do
# better on new samples than on those that it learns, and one that learns them by heart shows it late or never: the gap
# between the two curves, by which one looks for that, is too small by the penalty. There is no warning. A metric of the
# same name, such as "mse", has no penalty anywhere, so it can be compared.
# Seen, one weight of 1 with l2 of 0.5, the inputs 1 and the targets 0, a rate of 0, and validation by the samples that
# are trained on: loss 1.5 and val_loss 1 in fit() and fitDataset(), 1.5 from trainOnBatch(), 1 from evaluate() and
# evaluateDataset(). The mse is 1 in all. Without a regularizer all are 1.
# Frugal: optim.weight_decay is in the updates and in no loss, so the losses of training and evaluation are one measure.
# docs/guide/export.md says it to those who train in a browser.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" \
  @tensorflow/tfjs@4.22.0 >/dev/null 2>&1 || not_tried "npm has no @tensorflow/tfjs@4.22.0"
cat >"$work/js/run.cjs" <<'END_OF_PROGRAM'
const tf = require("@tensorflow/tfjs");

const model = (kernelRegularizer) => {
  const network = tf.sequential();
  const layer = { units: 1, inputShape: [1], useBias: false, kernelInitializer: "ones", kernelRegularizer };
  network.add(tf.layers.dense(layer));
  network.compile({ optimizer: tf.train.sgd(0), loss: "meanSquaredError", metrics: ["mse"] });
  return network;
};
const rows = (value) => tf.data.array(Array.from({ length: 8 }, () => [value]));
const data = () => tf.data.zip({ xs: rows(1), ys: rows(0) }).batch(4);
const numbers = (tensors) => tensors.map((tensor) => tensor.dataSync()[0]).join(" ");

const run = async () => {
  await tf.setBackend("cpu");
  const [x, y] = [tf.ones([8, 1]), tf.zeros([8, 1])];
  for (const [name, regularizer] of [["l2", tf.regularizers.l2({ l2: 0.5 })], ["none", undefined]]) {
    const network = model(regularizer);
    const fit = await network.fit(x, y, { batchSize: 4, epochs: 1, verbose: 0, validationData: [x, y] });
    const dataset = await network.fitDataset(data(), { epochs: 1, verbose: 0, validationData: data() });
    for (const [which, { history }] of [["fit", fit], ["fitDataset", dataset]]) {
      const { loss, mse, val_loss, val_mse } = history;
      console.log(`${name}, ${which}: loss ${loss} mse ${mse}, val_loss ${val_loss} val_mse ${val_mse}`);
    }
    console.log(`${name}, trainOnBatch: ${(await network.trainOnBatch(x, y)).join(" ")}`);
    console.log(`${name}, evaluate: ${numbers(network.evaluate(x, y))}`);
    console.log(`${name}, evaluateDataset: ${numbers(await network.evaluateDataset(data()))}`);
  }
};
run();
END_OF_PROGRAM
node "$work/js/run.cjs" 2>/dev/null | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
l2, fit: loss 1.5 mse 1, val_loss 1 val_mse 1
l2, fitDataset: loss 1.5 mse 1, val_loss 1 val_mse 1
l2, trainOnBatch: 1.5 1
l2, evaluate: 1 1
l2, evaluateDataset: 1 1
none, fit: loss 1 mse 1, val_loss 1 val_mse 1
none, fitDataset: loss 1 mse 1, val_loss 1 val_mse 1
none, trainOnBatch: 1 1
none, evaluate: 1 1
none, evaluateDataset: 1 1
END_OF_LINES
done_with_it
