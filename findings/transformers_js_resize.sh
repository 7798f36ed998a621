#!/usr/bin/env bash
# @huggingface/transformers 4.3.2 of the npm registry, in Node.js: bilinear and bicubic, which most image processors ask
# for, take single pixels of a picture that becomes smaller. Pillow, and so the library of that name in Python, averages
# over what each new pixel covers. The picture also moves by nearly half a new pixel, and the last lines and columns of
# a picture that becomes larger fade to black. A comment there says that it matches Pillow: it calls sharp's affine().
# Lanczos calls resize(), which averages. So a network sees other pixels when it is served than in training, and nothing
# warns.
# Seen, stripes of a pixel each, 0 and 255, made 4 times smaller: Pillow 9.4 has 128 but at the edges, and Lanczos here
# has 128. Bilinear and bicubic have 0 everywhere, also by ViTImageProcessor. One column of 255 in 0 is gone, where
# Pillow has 8 and 56. A slope of 0, 4, 8, ... 124 becomes 0, 16, 32, ... 112, in Pillow 8, 22, 38, ... 116. A slope of
# 8 pixels made twice as large ends in 26, 28, 14, in Pillow in 25, 27, 28.
# Frugal: what becomes smaller is averaged (data/image/picture.h, resize_into); tests/data/image/picture_test.cpp,
# "resizing keeps a constant, copies at equal size and averages at half". docs/guide/own_pictures.md says what other
# programs do.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
packages bookworm 'python3-pil=9.4.0*'
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" \
  @huggingface/transformers@4.3.2 sharp@0.35.5 >/dev/null 2>&1 || not_tried "npm has no @huggingface/transformers@4.3.2"
cat >"$work/js/run.mjs" <<'END_OF_PROGRAM'
import { RawImage, ViTImageProcessor } from "@huggingface/transformers";

const picture = (size, level) => {
  const numbers = Uint8ClampedArray.from({ length: 3 * size * size }, (_, i) => level(Math.floor(i / 3) % size));
  return new RawImage(numbers, size, size, 3);
};
const column = (x) => (x === 13 ? 255 : 0);
const stripes = (x) => 255 * (x % 2);
const slope = (x) => 4 * x;
const row = (image) => Array.from({ length: image.width }, (_, x) => image.data[3 * (3 * image.width + x)]).join(" ");
const cases = { stripes: [32, stripes, 8], column: [32, column, 8], slope: [32, slope, 8], larger: [8, slope, 16] };
for (const resample of ["bilinear", "bicubic", "lanczos"])
  for (const [name, [size, level, to]] of Object.entries(cases))
    console.log(`${resample}, ${name}:`, row(await picture(size, level).resize(to, to, { resample })));
const size = { height: 8, width: 8 };
const processor = new ViTImageProcessor({ do_resize: true, size, resample: 2, do_rescale: false, do_normalize: false });
const { pixel_values } = await processor(picture(32, stripes));
console.log("ViTImageProcessor, stripes:", [...pixel_values.data.slice(24, 32)].join(" "));
END_OF_PROGRAM
node "$work/js/run.mjs" 2>/dev/null | tee "$work/out"
python_in bookworm -c '
from PIL import Image

def picture(size, level):
    one = Image.new("RGB", (size, size))
    one.putdata([(level(x),) * 3 for _ in range(size) for x in range(size)])
    return one

stripes, column, slope = lambda x: 255 * (x % 2), lambda x: 255 * (x == 13), lambda x: 4 * x
cases = {"stripes": (32, stripes, 8), "column": (32, column, 8), "slope": (32, slope, 8), "larger": (8, slope, 16)}
for rule in "bilinear", "bicubic", "lanczos":
    for name, (size, level, to) in cases.items():
        small = picture(size, level).resize((to, to), Image.Resampling[rule.upper()])
        print(f"Pillow, {rule}, {name}:", *(small.getpixel((x, 3))[0] for x in range(to)))' | tee -a "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
bilinear, stripes: 0 0 0 0 0 0 0 0
bilinear, column: 0 0 0 0 0 0 0 0
bilinear, slope: 0 16 32 48 64 80 96 112
bilinear, larger: 0 2 4 6 8 10 12 14 16 18 20 22 24 26 28 14
bicubic, stripes: 0 0 0 0 0 0 0 0
bicubic, column: 0 0 0 0 0 0 0 0
bicubic, slope: 0 16 32 48 64 80 96 112
lanczos, stripes: 128 128 128 128 128 128 128 128
ViTImageProcessor, stripes: 0 0 0 0 0 0 0 0
Pillow, bilinear, stripes: 118 128 128 128 128 128 128 137
Pillow, bilinear, column: 0 0 8 56 0 0 0 0
Pillow, bilinear, slope: 8 22 38 54 70 86 102 116
Pillow, bilinear, larger: 0 1 3 5 7 9 11 13 15 17 19 21 23 25 27 28
END_OF_LINES
done_with_it
