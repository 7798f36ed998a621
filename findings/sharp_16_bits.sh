#!/usr/bin/env bash
# sharp 0.35.5 of the npm registry makes 8 bits of a grey PNG of 16 bits, and three equal numbers of each pixel, unless
# two options say otherwise. png() writes such a file again as RGB of 8 bits, so a folder of depth maps, of numbers of
# objects or of X-rays that is cropped, turned or made smaller by it has lost its lower half. raw() gives bytes. With
# raw({ depth: "ushort" }), which the manual has for this, the numbers have 16 bits and go from 0 to 255. With
# toColourspace("grey16") alone all numbers above 255 become 255. Both together keep the numbers, and so
# does png() behind toColourspace("grey16"). metadata() says that the file has 16 bits. There is no warning.
# Seen, a grey PNG of 16 bits with the numbers 0 1 255 256 300 1000 40000 65535: raw() gives 0 0 0 1 1 3 156 255, each
# three times, and raw({ depth: "ushort" }) these again in 16 bits. grey16 and raw(): 0 1 255 255 255 255 255 255. Both:
# the numbers of the file. Written again by png(): RGB, 8 bits; behind grey16: grey, 16 bits, and equal numbers.
# Frugal: masks of 16 bits are an error, and pictures of 16 bits become 8 as a whole, which the guide says
# (data/image/picture.cpp); tests/data/image/picture_test.cpp, "grey, transparent and 16-bit PNG files become 8-bit
# colours". docs/guide/own_pictures.md says it to those who prepare pictures with sharp.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" sharp@0.35.5 \
  >/dev/null 2>&1 || not_tried "npm has no sharp@0.35.5"
cat >"$work/js/run.cjs" <<'END_OF_PROGRAM'
const sharp = require("sharp");

const numbers = [0, 1, 255, 256, 300, 1000, 40000, 65535];
const kinds = { 0: "grey", 2: "RGB" };
const header = (file) => `${kinds[file[25]]} of ${file[24]} bits`;
const pixels = async (what, pipeline) => {
  const { data, info } = await pipeline.toBuffer({ resolveWithObject: true });
  const wide = info.depth === "ushort";
  const all = wide ? new Uint16Array(data.buffer, data.byteOffset, data.length / 2) : data;
  const first = [...all].filter((_, i) => i % info.channels === 0);
  const equal = [...all].every((value, i) => value === first[Math.floor(i / info.channels)]);
  console.log(`${what}: ${first.join(" ")}; ${wide ? 16 : 8} bits, ${info.channels} channels, equal ${equal}`);
};

const run = async () => {
  const raw = { width: numbers.length, height: 1, channels: 1, depth: "ushort" };
  const file = await sharp(new Uint16Array(numbers), { raw }).toColourspace("grey16").png().toBuffer();
  const read = () => sharp(file);
  console.log(`the file: ${header(file)}; metadata ${(await read().metadata()).depth}`);
  await pixels("raw", read().raw());
  await pixels("raw ushort", read().raw({ depth: "ushort" }));
  await pixels("grey16 raw", read().toColourspace("grey16").raw());
  await pixels("grey16 raw ushort", read().toColourspace("grey16").raw({ depth: "ushort" }));
  const again = await read().png().toBuffer();
  console.log(`png: ${header(again)}`);
  await pixels("png", sharp(again).raw());
  console.log(`flop png: ${header(await read().flop().png().toBuffer())}`);
  const kept = await read().toColourspace("grey16").png().toBuffer();
  console.log(`grey16 png: ${header(kept)}`);
  await pixels("grey16 png", sharp(kept).toColourspace("grey16").raw({ depth: "ushort" }));
};
run();
END_OF_PROGRAM
node "$work/js/run.cjs" | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
the file: grey of 16 bits; metadata ushort
raw: 0 0 0 1 1 3 156 255; 8 bits, 3 channels, equal true
raw ushort: 0 0 0 1 1 3 156 255; 16 bits, 3 channels, equal true
grey16 raw: 0 1 255 255 255 255 255 255; 8 bits, 1 channels, equal true
grey16 raw ushort: 0 1 255 256 300 1000 40000 65535; 16 bits, 1 channels, equal true
png: RGB of 8 bits
png: 0 0 0 1 1 3 156 255; 8 bits, 3 channels, equal true
flop png: RGB of 8 bits
grey16 png: grey of 16 bits
grey16 png: 0 1 255 256 300 1000 40000 65535; 16 bits, 1 channels, equal true
END_OF_LINES
done_with_it
