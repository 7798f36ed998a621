#!/usr/bin/env bash
# TensorFlow.js 4.22.0 of the npm registry: an op that gets a seed begins anew at each call, and the seed 0 is none for
# normal numbers. A dropout layer with a seed drops the same places of a batch in every step of the training, so row i
# of all batches trains one network with holes, which evaluation then fills. Weights that begin as normal numbers of the
# seed 0 are others in every run. There is no error or warning.
# Seen, layers.dropout({ rate: 0.5, seed: 7 }) of 12 ones in training: one mask in each of five steps, in a second layer
# of that seed, too, and in the first row of a larger batch; without a seed five masks. Two initializers of one seed:
# randomNormal, truncatedNormal, glorotNormal and heNormal give equal weights for the seed 1, and other weights for the
# seed 0. randomUniform and glorotUniform give equal weights for both.
# Frugal: a draw follows from the seed, the kind of draw and the step, for every seed (core/random/random_streams.h);
# tests/core/random/random_streams_test.cpp, "no two random streams own the same keys"; tests/autograd/engine_test.cpp
# has dropout's stream. docs/guide/export.md says it to those who train on in a browser.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" \
  @tensorflow/tfjs@4.22.0 >/dev/null 2>&1 || not_tried "npm has no @tensorflow/tfjs@4.22.0"
cat >"$work/js/run.cjs" <<'END_OF_PROGRAM'
const tf = require("@tensorflow/tfjs");

const text = (x) => x.dataSync().join(" ");
const count = (texts) => new Set(texts).size;
const steps = [1, 2, 3, 4, 5];
const mask = (layer, rows) => text(layer.apply(tf.ones([rows, 12]), { training: true }));

tf.setBackend("cpu").then(() => {
  const layer = tf.layers.dropout({ rate: 0.5, seed: 7 });
  const first = mask(layer, 1);
  console.log("dropout with a seed:", count(steps.map(() => mask(layer, 1))), "of 5 masks");
  const unseeded = tf.layers.dropout({ rate: 0.5 });
  console.log("dropout without a seed:", count(steps.map(() => mask(unseeded, 1))), "of 5 masks");
  console.log("a second layer:", mask(tf.layers.dropout({ rate: 0.5, seed: 7 }), 1) === first);
  console.log("the first row of two:", mask(layer, 2).startsWith(first + " "));
  const normal = ["randomNormal", "truncatedNormal", "glorotNormal", "heNormal"];
  for (const name of [...normal, "randomUniform", "glorotUniform"]) {
    const kinds = [0, 1].map((seed) => count(steps.map(() => text(tf.initializers[name]({ seed }).apply([8, 8])))));
    console.log(`${name}: ${kinds[0]} of 5 weights for the seed 0, ${kinds[1]} for the seed 1`);
  }
});
END_OF_PROGRAM
node "$work/js/run.cjs" 2>/dev/null | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
dropout with a seed: 1 of 5 masks
a second layer: true
the first row of two: true
randomNormal: 5 of 5 weights for the seed 0, 1 for the seed 1
truncatedNormal: 5 of 5 weights for the seed 0, 1 for the seed 1
glorotNormal: 5 of 5 weights for the seed 0, 1 for the seed 1
heNormal: 5 of 5 weights for the seed 0, 1 for the seed 1
randomUniform: 1 of 5 weights for the seed 0, 1 for the seed 1
glorotUniform: 1 of 5 weights for the seed 0, 1 for the seed 1
END_OF_LINES
expect "without a seed masks differ" [ "$(sed -n 's/^dropout without a seed: \([0-9]*\) .*/\1/p' "$work/out")" -ge 4 ]
done_with_it
