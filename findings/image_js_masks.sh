#!/usr/bin/env bash
# image-js 1.7.0 of the npm registry reads PNG files of 1 bit, as Pillow writes masks of true and false, with all pixels
# on other places. It leaves bits out of the first byte of a line, as many as the last one has too many, and all 8 where
# the width is a multiple of 8. A palette of up to 16 colours, which Pillow stores in 1, 2 or 4 bits, is shifted from
# the second line on where the width does not fill its bytes. The size of the picture is right, and there is no error.
# Seen, a mask of 16 x 3 whose lines are 1110..., 0...01 and 1010...: its first line comes as 0000000000000001, and the
# third one as zeros. A mask of 8 x 3 comes as zeros. 3 colours by turns, 10 pixels wide: the second line comes as
# 0012012012 instead of 1201201201; stored in 8 bits it is right. A BMP with a palette comes as grey, whose levels are
# the indices. pngjs 7.0.0, Pillow 9.4 and fast-png 8.0.0, by which image-js reads, have the right pixels.
# Frugal: data/image/picture.cpp has libpng unpack the bits of a line, and reads a mask's palette as indices in every
# number of bits; tests/data/image/mask_files_test.cpp, "masks: values become classes".
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
packages bookworm 'python3-pil=9.4.0*' python3-numpy
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" image-js@1.7.0 \
  fast-png@8.0.0 pngjs@7.0.0 >/dev/null 2>&1 || not_tried "npm has no image-js@1.7.0, fast-png@8.0.0 and pngjs@7.0.0"
python_in bookworm -c '
import numpy
from PIL import Image


def line(name, pixels):
    print(name, *("".join(map(str, row)) for row in pixels))


for width in 8, 16:
    mask = numpy.zeros((3, width), dtype=bool)
    mask[0, :3] = mask[1, -1] = mask[2, ::2] = True
    Image.fromarray(mask).save(f"/tmp/mask_{width}.png")
    line(f"mask_{width}.png Pillow", numpy.asarray(Image.open(f"/tmp/mask_{width}.png")).astype(int))
for colours, bits in (3, None), (3, 8):
    indices = numpy.arange(20, dtype=numpy.uint8).reshape(2, 10) % colours
    picture = Image.fromarray(indices, "P")
    picture.putpalette([value for i in range(colours) for value in (10 * i, 255, 0)])
    name = f"palette_{colours}_{bits or 0}"
    picture.save(f"/tmp/{name}.png", **({"bits": bits} if bits else {}))
    line(f"{name}.png Pillow", [[f"{i:x}" for i in row] for row in numpy.asarray(Image.open(f"/tmp/{name}.png"))])
picture.save("/tmp/palette.bmp")
line("palette.bmp Pillow", numpy.asarray(Image.open("/tmp/palette.bmp")))
' | tee "$work/out"
cat >"$work/js/run.mjs" <<'END_OF_PROGRAM'
import { readFileSync } from "node:fs";
import { convertIndexedToRgb, decode as decodePng } from "fast-png";
import { decode } from "image-js";
import { PNG } from "pngjs";

// A digit for each pixel: the index of its colour in the palette, or 0 and 1 of a mask.
function line(name, width, channels, palette, data) {
  const rows = [];
  for (let at = 0; at < data.length; at += width * channels) {
    const firsts = Array.from({ length: width }, (_, x) => data[at + x * channels]);
    rows.push(firsts.map((red) => (palette ? red / 10 : Math.min(red, 1)).toString(16)).join(""));
  }
  console.log(name, rows.join(" "));
}

const folder = process.argv[2];
for (const name of ["mask_8", "mask_16", "palette_3_0", "palette_3_8"]) {
  const bytes = readFileSync(`${folder}/${name}.png`), palette = name.startsWith("palette");
  const found = decode(bytes), right = PNG.sync.read(bytes);
  line(`${name}.png image-js`, found.width, found.channels, palette, found.getRawImage().data);
  line(`${name}.png pngjs`, right.width, 4, palette, right.data);
  if (palette) line(`${name}.png fast-png`, right.width, 3, palette, convertIndexedToRgb(decodePng(bytes)));
}
const bmp = decode(readFileSync(`${folder}/palette.bmp`)), indices = bmp.getRawImage().data;
console.log("palette.bmp image-js", bmp.colorModel, Array.from(indices.subarray(0, 10)).join(""));
END_OF_PROGRAM
node "$work/js/run.mjs" "$work/bookworm/tmp" | tee -a "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
mask_16.png Pillow 1110000000000000 0000000000000001 1010101010101010
mask_16.png pngjs 1110000000000000 0000000000000001 1010101010101010
mask_16.png image-js 0000000000000001 1010101000000000 0000000000000000
mask_8.png Pillow 11100000 00000001 10101010
mask_8.png pngjs 11100000 00000001 10101010
mask_8.png image-js 00000000 00000000 00000000
palette_3_0.png Pillow 0120120120 1201201201
palette_3_0.png fast-png 0120120120 1201201201
palette_3_0.png pngjs 0120120120 1201201201
palette_3_0.png image-js 0120120120 0012012012
palette_3_8.png image-js 0120120120 1201201201
palette.bmp Pillow 0120120120 1201201201
palette.bmp image-js GREY 0120120120
END_OF_LINES
done_with_it
