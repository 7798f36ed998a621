#!/usr/bin/env bash
# libwebp 1.2.4 and 1.5.0: "lossless" files keep alpha and lose the colours of pixels whose alpha is 0, unless they are
# written as "exact", which is off by default. webp/encode.h says so, and what is built on it does not: Pillow's
# save(lossless=True), OpenCV's IMWRITE_WEBP_QUALITY above 100, which has no such option, and sharp's webp({ lossless:
# true }). Programs that train on pictures mostly drop alpha (Pillow's convert("RGB"), OpenCV's imread()), so they see
# what was lost: a data set that was stored anew without loss has other pixels.
# Seen, 8 x 8 pixels of which the right half is transparent, each of another colour: 32 of 64 pixels have another colour
# behind Pillow 9.4 and 11.1, OpenCV 4.6 and 4.10, and sharp 0.35.5. With exact they have their own (Pillow, sharp), and
# as PNG. Alpha is right in all. The first row, 0 4 8 12 16 20 24 28 in red, becomes 0 4 8 12 12 12 12 12.
# Frugal: transparency is dropped and colours stay as the file has them (data/image/picture.cpp, decode_webp);
# docs/guide/own_pictures.md says how to store pictures anew.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
packages bookworm 'libwebp7=1.2.4*' 'python3-pil=9.4.0*' 'python3-opencv=4.6.0*'
packages trixie 'libwebp7=1.5.0*' 'python3-pil=11.1.0*' 'python3-opencv=4.10.0*'
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" sharp@0.35.5 \
  >/dev/null 2>&1 || not_tried "npm has no sharp@0.35.5"
for suite in bookworm trixie; do
  python_in "$suite" -c '
import cv2
import numpy
from PIL import Image

pixels = numpy.zeros((8, 8, 4), numpy.uint8)
pixels[..., 0] = 4 * numpy.arange(64).reshape(8, 8)
pixels[:, :4, 3] = 255
picture = Image.fromarray(pixels, "RGBA")
picture.save("/tmp/a.png")
picture.save("/tmp/lossless.webp", lossless=True)
picture.save("/tmp/exact.webp", lossless=True, exact=True)
cv2.imwrite("/tmp/opencv.webp", cv2.cvtColor(pixels, cv2.COLOR_RGBA2BGRA), [cv2.IMWRITE_WEBP_QUALITY, 101])
for name in "a.png", "lossless.webp", "exact.webp", "opencv.webp":
    found = numpy.asarray(Image.open("/tmp/" + name).convert("RGBA"))
    off = found != pixels
    print(f"{name}: {off[..., :3].any(-1).sum()} other colours, {off[..., 3].sum()} other alphas;",
          "first row", *cv2.imread("/tmp/" + name)[0, :, 2])
' 2>/dev/null | sed "s/^/$suite, /" | tee -a "$work/out"
done
cat >"$work/js/run.mjs" <<'END_OF_PROGRAM'
import sharp from "sharp";

const pixels = Buffer.alloc(8 * 8 * 4);
for (let i = 0; i < 64; ++i) pixels.set([4 * i, 0, 0, i % 8 < 4 ? 255 : 0], 4 * i);
for (const name of ["lossless", "exact"]) {
  const options = { lossless: true, exact: name === "exact" };
  const file = await sharp(pixels, { raw: { width: 8, height: 8, channels: 4 } }).webp(options).toBuffer();
  const found = await sharp(file).raw().toBuffer();
  const off = (first, end) => Array.from({ length: 64 }, (_, i) => 4 * i)
    .filter((at) => found.compare(pixels, at + first, at + end, at + first, at + end) !== 0).length;
  console.log(`sharp, ${name}: ${off(0, 3)} other colours, ${off(3, 4)} other alphas`);
}
END_OF_PROGRAM
node "$work/js/run.mjs" | tee -a "$work/out"
row='first row 0 4 8 12 16 20 24 28'
lost='first row 0 4 8 12 12 12 12 12'
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<END_OF_LINES
bookworm, a.png: 0 other colours, 0 other alphas; $row
bookworm, lossless.webp: 32 other colours, 0 other alphas; $lost
bookworm, exact.webp: 0 other colours, 0 other alphas; $row
bookworm, opencv.webp: 32 other colours, 0 other alphas; $lost
trixie, a.png: 0 other colours, 0 other alphas; $row
trixie, lossless.webp: 32 other colours, 0 other alphas; $lost
trixie, exact.webp: 0 other colours, 0 other alphas; $row
trixie, opencv.webp: 32 other colours, 0 other alphas; $lost
sharp, lossless: 32 other colours, 0 other alphas
sharp, exact: 0 other colours, 0 other alphas
END_OF_LINES
done_with_it
