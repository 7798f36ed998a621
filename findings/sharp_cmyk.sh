#!/usr/bin/env bash
# sharp 0.35.5 of the npm registry (libvips) makes other colours of a CMYK JPEG than Pillow 9.4, OpenCV 4.6 and jpeg-js
# 0.4.4: it converts by the profile of a printing press, also where the file has none, and the others multiply each ink
# with black. ImageNet and photographs from print have such files. A server in JavaScript that loads pictures for a
# network by sharp then gives it colours that it was never trained on, for these files alone.
# Seen, one colour with the inks 200, 50, 20 and black 30 of 255, without a profile: Pillow 49 181 207, OpenCV 50 182
# 208, jpeg-js 48 180 207, sharp 2 131 173. Pure cyan: 0 255 255 (OpenCV: 1 255 255) and in sharp 0 153 227. No ink is
# white in all. jpeg-js refuses such a file where Adobe's marker is missing, which is optional; the others read it.
# Frugal: data/image/picture.cpp (decode_jpeg) multiplies as the others do; tests/data/image/picture_test.cpp, "a JPEG
# of four inks has the colours that Pillow and OpenCV give it"; docs/guide/own_pictures.md says what other programs do.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
packages bookworm 'python3-pil=9.4.0*' 'python3-opencv=4.6.0*'
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" sharp@0.35.5 \
  jpeg-js@0.4.4 >/dev/null 2>&1 || not_tried "npm has no sharp@0.35.5 and jpeg-js@0.4.4"
python_in bookworm -c '
import cv2
from PIL import Image

for name, inks in ("mixed", (200, 50, 20, 30)), ("cyan", (255, 0, 0, 0)), ("none", (0, 0, 0, 0)):
    path = f"/tmp/{name}.jpg"
    Image.new("CMYK", (16, 16), inks).save(path, quality=100)
    print(f"{name}, Pillow:", *Image.open(path).convert("RGB").getpixel((8, 8)))
    print(f"{name}, OpenCV:", *cv2.imread(path)[8, 8, ::-1])
    data = open(path, "rb").read()
    marker = data.index(b"\xff\xee")
    length = int.from_bytes(data[marker + 2:marker + 4], "big")
    open(f"/tmp/{name}_plain.jpg", "wb").write(data[:marker] + data[marker + 2 + length:])
print("mixed without marker, Pillow:", *Image.open("/tmp/mixed_plain.jpg").convert("RGB").getpixel((8, 8)))
' | tee "$work/out"
cat >"$work/js/run.mjs" <<'END_OF_PROGRAM'
import { readFileSync } from "node:fs";
import jpeg from "jpeg-js";
import sharp from "sharp";

const at = (8 * 16 + 8), folder = process.argv[2];
for (const name of ["mixed", "cyan", "none", "mixed_plain"]) {
  const path = `${folder}/${name}.jpg`, said = name.replace("_plain", " without marker");
  const pixels = await sharp(path).removeAlpha().raw().toBuffer();
  console.log(`${said}, sharp:`, pixels.subarray(3 * at, 3 * at + 3).join(" "));
  let words;
  try {
    words = jpeg.decode(readFileSync(path)).data.subarray(4 * at, 4 * at + 3).join(" ");
  } catch (error) {
    words = error.message;
  }
  console.log(`${said}, jpeg-js:`, words);
}
END_OF_PROGRAM
node "$work/js/run.mjs" "$work/bookworm/tmp" | tee -a "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
mixed, Pillow: 49 181 207
mixed, OpenCV: 50 182 208
mixed, jpeg-js: 48 180 207
mixed, sharp: 2 131 173
cyan, Pillow: 0 255 255
cyan, OpenCV: 1 255 255
cyan, jpeg-js: 0 255 255
cyan, sharp: 0 153 227
none, Pillow: 255 255 255
none, OpenCV: 255 255 255
none, jpeg-js: 255 255 255
none, sharp: 255 255 255
mixed without marker, Pillow: 49 181 207
mixed without marker, sharp: 2 131 173
mixed without marker, jpeg-js: Unsupported color mode (4 components)
END_OF_LINES
done_with_it
