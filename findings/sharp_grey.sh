#!/usr/bin/env bash
# sharp 0.35.5 of the npm registry: greyscale() and toColourspace("b-w") make other greys than what networks are mostly
# trained with. Pillow, and torchvision and Frugal like it, weigh the stored numbers by 0.299, 0.587 and 0.114 (BT.601).
# sharp takes the linear light of sRGB, weighs it by 0.2126, 0.7152 and 0.0722, and goes back, so whatever has a colour
# becomes lighter, and which of two colours is the lighter one changes. The manual calls it a linear operation, without
# weights, and says to add gamma() for the best results, which moves it further away. jimp 1.6.1 weighs the stored
# numbers by the second three. So a network of one channel sees other pictures where it serves than in training.
# Seen, red, green, blue and yellow: Pillow 76 150 29 226, sharp 127 220 76 247, with gamma() 185 238 147 251, jimp 54
# 182 18 236. Red and a grey blue, 60 100 130, are 76 and 91 in Pillow, and 127 and 96 in sharp. Grey stays, but that
# gamma() makes 99 of 100. recomb() by the weights of BT.601 has Pillow's numbers, or 1 less, as it cuts fractions off.
# Frugal: 0.299, 0.587 and 0.114 with data.channels=1 and in augmentations (data/image/picture.cpp, luminance_of_rgb);
# tests/data/image/augment_test.cpp, "grey has three equal channels of luminance". docs/guide/own_pictures.md says it to
# those who use a network of grey pictures in JavaScript.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" sharp@0.35.5 \
  jimp@1.6.1 >/dev/null 2>&1 || not_tried "npm has no sharp@0.35.5 or jimp@1.6.1"
packages bookworm 'python3-pil=9.4*'
cat >"$work/colours.json" <<'END_OF_LIST'
[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0], [200, 60, 60], [60, 100, 130], [100, 100, 100]]
END_OF_LIST
cp "$work/colours.json" "$work/bookworm/tmp/colours.json"
python_in bookworm -c '
import json
from PIL import Image

colours = [tuple(colour) for colour in json.load(open("/tmp/colours.json"))]
picture = Image.new("RGB", (len(colours), 1))
picture.putdata(colours)
print("Pillow:", *picture.convert("L").getdata())
' | tee "$work/out"
cat >"$work/js/run.cjs" <<'END_OF_PROGRAM'
const { readFileSync } = require("node:fs");
const { Jimp } = require("jimp");
const sharp = require("sharp");

const colours = JSON.parse(readFileSync(process.argv[2]));
const raw = { width: colours.length, height: 1, channels: 3 };
const weights = [0.299, 0.587, 0.114];
const say = async (what, change) => {
  const picture = change(sharp(Buffer.from(colours.flat()), { raw })).raw();
  const { data, info } = await picture.toBuffer({ resolveWithObject: true });
  console.log(`${what}: ${[...data].filter((_, i) => i % info.channels === 0).join(" ")}`);
};
const run = async () => {
  await say("greyscale", (picture) => picture.greyscale());
  await say("b-w", (picture) => picture.toColourspace("b-w"));
  await say("gamma, greyscale", (picture) => picture.gamma().greyscale());
  await say("recomb", (picture) => picture.recomb([weights, weights, weights]));
  const picture = new Jimp({ width: colours.length, height: 1 });
  picture.bitmap.data.set(colours.flatMap((colour) => [...colour, 255]));
  const { data } = picture.greyscale().bitmap;
  console.log(`jimp: ${[...data].filter((_, i) => i % 4 === 0).join(" ")}`);
};
run();
END_OF_PROGRAM
node "$work/js/run.cjs" "$work/colours.json" | tee -a "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
Pillow: 76 150 29 226 102 91 100
greyscale: 127 220 76 247 111 96 100
b-w: 127 220 76 247 111 96 100
gamma, greyscale: 185 238 147 251 144 97 99
recomb: 76 149 29 225 101 91 100
jimp: 54 182 18 236 89 93 100
END_OF_LINES
done_with_it
