#!/usr/bin/env bash
# OpenCV 4.6 and 4.10: warpAffine(), warpPerspective() and remap() round the place that a pixel comes from to 1/32 of a
# pixel, also where picture and map are floats. What moves by less than 1/64 stays as it was, and a turn by a small
# angle moves a picture in steps. Their manuals do not say so. getRectSubPix() takes places as they are. So pictures
# that were turned by OpenCV are not those of other libraries, and the warp has no slope by which one could learn where
# to look.
# Seen, a ramp whose values are its columns, moved by 0.01, 0.02, 0.1 and 0.3 with INTER_LINEAR: by 0, 0.0312, 0.0938
# and 0.3125 in all three, as f32 and f64, and by what was asked for in getRectSubPix(). Turned by 0.1 degrees, the 16
# columns and rows in the middle do not change. Noise of 8 bits turned by 30 degrees: 35 percent of the pixels are off
# by more than 1 of 255 from the bilinear mean in f64, and the furthest by 5.9. Rounding alone is off by 0.5 at most.
# Frugal: random parts of pictures are resized about places that are not rounded; tests/data/image/augment_test.cpp, "a
# resized crop shows a part of the allowed area and ratio, enlarged bilinearly". docs/guide/own_pictures.md says it to
# those who turn pictures before.
. "$(dirname "$0")/packages.sh"
echo "OpenCV and what it depends on are many packages: this takes a minute or more" >&2
packages bookworm 'python3-opencv=4.6.0*'
packages trixie 'python3-opencv=4.10.0*'
for suite in bookworm trixie; do
  python_in "$suite" -c '
import cv2
import numpy

columns, rows = numpy.meshgrid(numpy.arange(32, dtype="f4"), numpy.arange(32, dtype="f4"))
ways = {
    "warpAffine": lambda p, x: cv2.warpAffine(p, numpy.array([[1, 0, x], [0, 1, 0]]), (32, 32)),
    "warpPerspective": lambda p, x: cv2.warpPerspective(p, numpy.array([[1, 0, x], [0, 1, 0], [0, 0, 1]]), (32, 32)),
    "remap": lambda p, x: cv2.remap(p, columns - numpy.float32(x), rows, cv2.INTER_LINEAR),
    "getRectSubPix": lambda p, x: cv2.getRectSubPix(p, (32, 32), (15.5 - x, 15.5)),
}
for name, move in ways.items():
    for dtype in ("f4",) if name == "getRectSubPix" else ("f4", "f8"):
        print(name, dtype, *("%.4f" % (16 - move(columns.astype(dtype), x)[16, 16]) for x in (0.01, 0.02, 0.1, 0.3)))
turned = cv2.warpAffine(columns, cv2.getRotationMatrix2D((15.5, 15.5), 0.1, 1), (32, 32))
print("turned by 0.1: %g" % abs(turned - columns)[8:24, 8:24].max())

noise = numpy.random.default_rng(0).integers(0, 256, (256, 256)).astype("u1")
turn = cv2.getRotationMatrix2D((127.5, 127.5), 30, 1)
back = cv2.invertAffineTransform(turn)
x, y = numpy.meshgrid(numpy.arange(256), numpy.arange(256))
x, y = (row[0] * x + row[1] * y + row[2] for row in back)
left, top = numpy.floor(x).astype(int), numpy.floor(y).astype(int)
inside = (left >= 0) & (top >= 0) & (left < 255) & (top < 255)
x, y, left, top = (each[inside] for each in (x - left, y - top, left, top))
upper = noise[top, left] * (1 - x) + noise[top, left + 1] * x
lower = noise[top + 1, left] * (1 - x) + noise[top + 1, left + 1] * x
off = abs(cv2.warpAffine(noise, turn, (256, 256))[inside] - (upper * (1 - y) + lower * y))
print("turned by 30: %.2f off by more than 1, up to %.1f" % ((off > 1).mean(), off.max()))
' | tee "$work/out"
  while read -r line; do expect "$suite: $line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
warpAffine f4 0.0000 0.0312 0.0938 0.3125
warpAffine f8 0.0000 0.0312 0.0938 0.3125
warpPerspective f4 0.0000 0.0312 0.0938 0.3125
warpPerspective f8 0.0000 0.0312 0.0938 0.3125
remap f4 0.0000 0.0312 0.0938 0.3125
remap f8 0.0000 0.0312 0.0938 0.3125
getRectSubPix f4 0.0100 0.0200 0.1000 0.3000
turned by 0.1: 0
turned by 30: 0.35 off by more than 1, up to 5.9
END_OF_LINES
done
done_with_it
