#!/usr/bin/env bash
# ConvNetJS 0.3.0 of the npm registry: its dropout drops the share drop_prob of the values in training, and multiplies
# by drop_prob in use, where 1 - drop_prob is what makes the mean the same. At the default, 0.5, both are one number. At
# a rate of 0.1 a layer gives a ninth of what it gave in training, and a network that has learnt well says something
# else for everything, without a word. A layer that drops 0.8 gives four times as much.
# Seen, a layer of 100,000 ones: the rates 0.1, 0.2, 0.5 and 0.8 give the means 0.9, 0.8, 0.5 and 0.2 in training, and
# 0.1, 0.2, 0.5 and 0.8 in use. A network of 200 relus that has learnt y = 3 x + 10 from 20,000 samples is asked for
# x = 1/2, where 11.5 is right. With the rate 0.5 and without dropout it says 11 to 12. With 0.1 and 0.2 it says less
# than 4, and 11 to 12 where what the layer gives is divided by drop_prob and multiplied by 1 - drop_prob.
# Frugal: what dropout keeps is divided by 1 - p in training, and evaluation changes nothing;
# tests/ops/dense/dropout_test.cpp, "dropout: the share of kept elements and the mean are right". docs/guide/using.md
# says it to those who compare figures.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" convnetjs@0.3.0 \
  >/dev/null 2>&1 || not_tried "npm has no convnetjs@0.3.0"
cat >"$work/js/run.cjs" <<'END_OF_PROGRAM'
const { DropoutLayer, Net, Trainer, Vol } = require("convnetjs");

// The library draws from Math.random(). These draws are the same in every run.
let state = 1;
Math.random = () => {
  state = (state * 48271) % 2147483647;
  return state / 2147483647;
};
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

const ones = new Vol(1, 1, 100000, 1);
for (const rate of [0.1, 0.2, 0.5, 0.8]) {
  const layer = new DropoutLayer({ in_sx: 1, in_sy: 1, in_depth: 100000, drop_prob: rate });
  const [training, use] = [true, false].map((drops) => mean(layer.forward(ones, drops).w).toFixed(1));
  console.log(`dropout of ${rate}: ${training} in training, ${use} in use`);
}

const words = (value) => (value > 11 && value < 12 ? "11 to 12" : value < 4 ? "less than 4" : value.toFixed(2));
for (const rate of [0, 0.1, 0.2, 0.5]) {
  const hidden = { type: "fc", num_neurons: 200, activation: "relu" };
  if (rate > 0) hidden.drop_prob = rate;
  const net = new Net();
  net.makeLayers([
    { type: "input", out_sx: 1, out_sy: 1, out_depth: 1 },
    hidden,
    { type: "regression", num_neurons: 1 },
  ]);
  const trainer = new Trainer(net, { method: "adadelta", batch_size: 10 });
  for (let i = 0; i < 20000; i++) {
    const x = 2 * Math.random() - 1;
    trainer.train(new Vol([x]), [3 * x + 10]);
  }
  const half = new Vol([0.5]);
  const says = net.forward(half).w[0];
  const kept = net.layers.reduce((v, layer) => {
    const out = layer.forward(v, false);
    if (layer.layer_type === "dropout") out.w.forEach((value, i) => (out.w[i] = (value / rate) * (1 - rate)));
    return out;
  }, half).w[0];
  console.log(`learnt with dropout of ${rate}: ${words(says)}; by 1 - drop_prob: ${words(kept)}`);
}
END_OF_PROGRAM
node "$work/js/run.cjs" | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
dropout of 0.1: 0.9 in training, 0.1 in use
dropout of 0.2: 0.8 in training, 0.2 in use
dropout of 0.5: 0.5 in training, 0.5 in use
dropout of 0.8: 0.2 in training, 0.8 in use
learnt with dropout of 0: 11 to 12; by 1 - drop_prob: 11 to 12
learnt with dropout of 0.1: less than 4; by 1 - drop_prob: 11 to 12
learnt with dropout of 0.2: less than 4; by 1 - drop_prob: 11 to 12
learnt with dropout of 0.5: 11 to 12; by 1 - drop_prob: 11 to 12
END_OF_LINES
done_with_it
