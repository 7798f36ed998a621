#!/usr/bin/env bash
# jpeg-js 0.4.4 of the npm registry, by which jimp 1.6 and other programs in JavaScript read pictures, gives each pair
# of pixels one colour where colours are stored at half the width and height (4:2:0), as in nearly all photographs.
# libjpeg and what is built on it (OpenCV, Pillow, sharp, browsers) interpolate between the samples, which lie between
# the pixels (JFIF 1.02). The standard of JPEG leaves it open. So a network that was trained on the one sees other edges
# in the browser, and no error.
# Seen, a red circle on blue, 64 x 64, quality 95, decoded by TurboJPEG 2.1.5 and by jpeg-js: 4:2:0 differs by up to 89
# of 255, by 3.2 in the mean and by more than 8 in 6.9 percent of the numbers; 4:4:4 by up to 3. With
# TJFLAG_FASTUPSAMPLE, which repeats colours, too, TurboJPEG and jpeg-js differ by up to 3.
# Frugal: pictures are read by TurboJPEG, which interpolates (data/image/picture.cpp); docs/guide/own_pictures.md says
# what to read them with elsewhere.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
packages bookworm 'libturbojpeg0-dev=1:2.1.5*' gcc libc6-dev
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" jpeg-js@0.4.4 \
  >/dev/null 2>&1 || not_tried "npm has no jpeg-js@0.4.4"
cat >"$work/bookworm/tmp/circle.c" <<'END_OF_PROGRAM'
#include <stdio.h>
#include <turbojpeg.h>

enum { kSide = 64 };
static unsigned char pixels[kSide * kSide * 3], decoded[kSide * kSide * 3];

static void write_file(const char* name, const char* ending, const void* bytes, unsigned long size) {
  char path[100];
  snprintf(path, sizeof(path), "/tmp/%s.%s", name, ending);
  FILE* file = fopen(path, "wb");
  fwrite(bytes, 1, size, file);
  fclose(file);
}

int main(void) {
  for (int y = 0; y < kSide; ++y)
    for (int x = 0; x < kSide; ++x) {
      const int inside = (x - 30) * (x - 30) + (y - 33) * (y - 33) < 20 * 20;
      unsigned char* p = pixels + 3 * (y * kSide + x);
      p[0] = inside ? 220 : 30, p[1] = 40, p[2] = inside ? 30 : 200;
    }
  const int samplings[] = {TJSAMP_420, TJSAMP_444};
  const char* const names[] = {"420", "444"};
  for (int i = 0; i < 2; ++i) {
    tjhandle writer = tjInitCompress(), reader = tjInitDecompress();
    unsigned char* bytes = NULL;
    unsigned long size = 0;
    tjCompress2(writer, pixels, kSide, 0, kSide, TJPF_RGB, &bytes, &size, samplings[i], 95, TJFLAG_ACCURATEDCT);
    write_file(names[i], "jpg", bytes, size);
    tjDecompress2(reader, bytes, size, decoded, kSide, 0, kSide, TJPF_RGB, TJFLAG_ACCURATEDCT);
    write_file(names[i], "smooth", decoded, sizeof(decoded));
    tjDecompress2(reader, bytes, size, decoded, kSide, 0, kSide, TJPF_RGB, TJFLAG_ACCURATEDCT | TJFLAG_FASTUPSAMPLE);
    write_file(names[i], "repeated", decoded, sizeof(decoded));
  }
}
END_OF_PROGRAM
inside bookworm gcc -o /tmp/circle /tmp/circle.c -lturbojpeg
inside bookworm /tmp/circle
cat >"$work/js/run.mjs" <<'END_OF_PROGRAM'
import { readFileSync } from "node:fs";
import jpeg from "jpeg-js";

for (const name of ["420", "444"])
  for (const way of ["smooth", "repeated"]) {
    const right = readFileSync(`${process.argv[2]}/${name}.${way}`);
    const found = jpeg.decode(readFileSync(`${process.argv[2]}/${name}.jpg`)).data;  // with alpha
    const off = Array.from(right, (value, i) => Math.abs(value - found[Math.floor(i / 3) * 4 + i % 3]));
    const mean = off.reduce((sum, value) => sum + value) / off.length;
    const far = off.filter((value) => value > 8).length * 100 / off.length;
    const most = Math.max(...off);
    console.log(`${name} ${way}: ${most} at most, ${mean.toFixed(2)} in the mean, ${far.toFixed(1)} percent`);
  }
END_OF_PROGRAM
node "$work/js/run.mjs" "$work/bookworm/tmp" | tee "$work/out"
most() { sed -n "s/^$1: \([0-9]*\) at most.*/\1/p" "$work/out"; }
expect "interpolated colours are others" [ "$(most '420 smooth')" -gt 60 ]
for way in '420 repeated' '444 smooth' '444 repeated'; do
  expect "$way: equal but for rounding" [ "$(most "$way")" -le 4 ]
done
done_with_it
