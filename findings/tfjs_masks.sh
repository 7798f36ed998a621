#!/usr/bin/env bash
# TensorFlow.js 4.22.0 of the npm registry: a mask, by which a network leaves out the padding of sequences, reaches
# recurrent layers alone. The loss, from which Keras leaves masked steps out, counts them, and so do the metrics. A
# layer that knows no mask, such as globalAveragePooling1d or globalMaxPooling1d, takes padding for values. The manual
# of masking says that an exception will be raised where such a layer gets a mask; none is. So what a text is answered
# with depends on how long the others of its batch are, and what is learnt for padding counts as much as the words.
# Seen, the steps 1 2 0 0 behind masking. An LSTM stops after the second one, and so does a bidirectional one. Their
# mean by globalAveragePooling1d is 0.75, and 1.5 for 1 2 alone; the maximum of -1 -2 0 0 is 0, and -1 alone. The mean
# of an embedding with maskZero has the weight of the padding in it. Outputs 1 2 0 0 with the targets 0 0 9 9 have the
# mean squared error 41.75, and with the targets 0 0 0 0 1.25; over the steps that count it is 2.5 for both. The sum
# of the values times the mask, divided by the sum of the mask, is right, and has to be written by hand.
# Frugal: padding counts neither in a loss nor in what an encoder answers; tests/models/zoo/bert_test.cpp, "bert:
# padding tokens do not matter under an attention mask, types do". docs/guide/export.md says it to those who train in
# a browser.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" \
  @tensorflow/tfjs@4.22.0 >/dev/null 2>&1 || not_tried "npm has no @tensorflow/tfjs@4.22.0"
cat >"$work/js/run.cjs" <<'END_OF_PROGRAM'
const tf = require("@tensorflow/tfjs");

const sequence = (values) => tf.tensor3d([values.map((value) => [value])]);
const network = (steps, ...layers) => {
  const model = tf.sequential();
  model.add(tf.layers.masking({ maskValue: 0, inputShape: [steps, 1] }));
  for (const layer of layers) model.add(layer);
  return model;
};
const answer = (values, layer) => {
  const outputs = network(values.length, layer).predict(sequence(values)).dataSync();
  return [...outputs].map((value) => value.toFixed(2)).join(" ");
};
const ones = { kernelInitializer: "ones", recurrentInitializer: "ones", useBias: false };
const lstm = () => tf.layers.lstm({ units: 1, ...ones });
const makers = {
  lstm,
  bidirectional: () => tf.layers.bidirectional({ layer: lstm(), mergeMode: "concat" }),
  globalAveragePooling1d: () => tf.layers.globalAveragePooling1d(),
  globalMaxPooling1d: () => tf.layers.globalMaxPooling1d(),
};
const run = async () => {
  await tf.setBackend("cpu");
  for (const [name, make] of Object.entries(makers)) {
    const sign = name === "globalMaxPooling1d" ? -1 : 1;
    console.log(`${name}: ${answer([sign, 2 * sign, 0, 0], make())}, alone ${answer([sign, 2 * sign], make())}`);
  }
  const dense = tf.layers.dense({ units: 1, useBias: false, kernelInitializer: "ones" });
  const model = network(4, tf.layers.timeDistributed({ layer: dense }));
  model.compile({ optimizer: "sgd", loss: "meanSquaredError", metrics: ["mae"] });
  for (const targets of [[0, 0, 9, 9], [0, 0, 0, 0]]) {
    const figures = model.evaluate(sequence([1, 2, 0, 0]), sequence(targets));
    const [loss, mae] = figures.map((value) => value.dataSync()[0]);
    console.log(`targets ${targets.join(" ")}: loss ${loss}, mae ${mae}`);
  }
  const words = tf.sequential();
  words.add(tf.layers.embedding({ inputDim: 3, outputDim: 1, maskZero: true, inputLength: 4 }));
  words.add(tf.layers.globalAveragePooling1d());
  words.layers[0].setWeights([tf.tensor2d([[7], [1], [2]])]);
  console.log(`embedding, average: ${words.predict(tf.tensor2d([[1, 2, 0, 0]])).dataSync()[0]}`);
};
run();
END_OF_PROGRAM
node "$work/js/run.cjs" 2>/dev/null | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
lstm: 0.87, alone 0.87
bidirectional: 0.87 0.74, alone 0.87 0.74
globalAveragePooling1d: 0.75, alone 1.50
globalMaxPooling1d: 0.00, alone -1.00
targets 0 0 9 9: loss 41.75, mae 5.25
targets 0 0 0 0: loss 1.25, mae 0.75
embedding, average: 4.25
END_OF_LINES
done_with_it
