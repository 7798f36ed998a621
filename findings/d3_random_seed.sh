#!/usr/bin/env bash
# d3-random 3.0.2 of the npm registry: randomLcg(seed), the generator that it has for draws that can be repeated, begins
# with nearly the same number for all small seeds, since the seed is its state and the first number the next state. So
# what is drawn first does not change where seeds are counted up: runs with other seeds split and shuffle a data set in
# one way, as far as its first row or its last place goes. Hundredths as seeds have four beginnings. A seed and its
# negative are one. The manual asks for any whole number, or one from 0 to 1.
# Seen, the seeds 0 to 99: the first number lies between 0.236 and 0.275. A bernoulli draw of 0.2 for each row never
# takes row 0 for validation (20 times are due), and randomInt(10) begins with 2 each time. The shuffler of d3-array
# 3.2.4 puts element 2 of 10 at the end each time, and 39 elements of 1,000. The seeds 0, 0.01, ... 0.99 begin with
# 0.236, 0.486, 0.736 or 0.986. Later numbers spread: the second one of the 100 seeds lies between 0.002 and 1.
# Frugal: a seed is the key of Philox, which mixes it into every number (core/rng.h); tests/data/loader_test.cpp,
# "shuffling is a fair permutation", counts what comes first for 4,000 keys. docs/guide/own_data.md says it to those who
# split their data in JavaScript.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" d3-random@3.0.2 \
  d3-array@3.2.4 >/dev/null 2>&1 || not_tried "npm has no d3-random@3.0.2 and d3-array@3.2.4"
cat >"$work/js/run.mjs" <<'END_OF_PROGRAM'
import { shuffler } from "d3-array";
import { randomBernoulli, randomInt, randomLcg } from "d3-random";

const seeds = Array.from({ length: 100 }, (_, i) => i);
const count = (values) => new Set(values).size;
const span = (values) => `${Math.min(...values).toFixed(3)} to ${Math.max(...values).toFixed(3)}`;
const last = (seed, size) => shuffler(randomLcg(seed))(Array.from({ length: size }, (_, i) => i))[size - 1];
const second = (random) => [random(), random()][1];

console.log("first number:", span(seeds.map((seed) => randomLcg(seed)())));
console.log("second number:", span(seeds.map((seed) => second(randomLcg(seed)))));
const first = seeds.map((seed) => randomBernoulli.source(randomLcg(seed))(0.2)());
console.log("row 0 is for validation:", first.filter((drawn) => drawn === 1).length, "of 100");
const whole = seeds.map((seed) => randomInt.source(randomLcg(seed))(10)());
console.log("first whole number below 10:", ...new Set(whole));
console.log("last of 10 elements:", count(seeds.map((seed) => last(seed, 10))), "element");
console.log("last of 1000 elements:", count(seeds.map((seed) => last(seed, 1000))), "elements");
const hundredths = seeds.map((seed) => randomLcg(seed / 100)().toFixed(2));
console.log("hundredths:", [...new Set(hundredths)].sort().join(" "));
console.log("5 and -5 are one:", randomLcg(-5)() === randomLcg(5)());
END_OF_PROGRAM
node "$work/js/run.mjs" | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
first number: 0.236 to 0.274
second number: 0.002 to 1.000
row 0 is for validation: 0 of 100
first whole number below 10: 2
last of 10 elements: 1 element
last of 1000 elements: 39 elements
hundredths: 0.24 0.49 0.74 0.99
5 and -5 are one: true
END_OF_LINES
done_with_it
