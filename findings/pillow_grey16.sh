#!/usr/bin/env bash
# Pillow 9.4 and 11.1: what convert("RGB") makes of a PNG of 16 bits depends on whether it is grey. Colours are divided
# by 256. Grey values are cut off at 255, so X-rays, depth maps and other scans become white, without a warning.
# Seen, the values 0, 255, 256, 1000, 32768 and 65535 in grey: 0 and then 255 for all, by convert("L") and by
# convert("RGB"); in a PNG with three colours: 0, 0, 1, 3, 128, 255. OpenCV gives the second for both. Such a picture of
# grey has the mode I (9.4) or I;16 (11.1).
# Frugal: libpng scales both to 8 bits (data/image/picture.cpp); tests/data/image/picture_test.cpp, "grey, transparent
# and 16-bit PNG files become 8-bit colours".
. "$(dirname "$0")/packages.sh"
packages bookworm 'python3-pil=9.4.0*' python3-numpy 'python3-opencv=4.6.0*'
packages trixie 'python3-pil=11.1.0*' python3-numpy 'python3-opencv=4.10.0*'
for suite in bookworm trixie; do
  python_in "$suite" -c '
import cv2
import numpy
from PIL import Image

grey = numpy.array([[0, 255, 256, 1000, 32768, 65535]], numpy.uint16)
for name, picture in ("grey", grey), ("colours", numpy.stack([grey] * 3, 2)):
    cv2.imwrite("/tmp/a.png", picture)
    print(name, "opencv", *cv2.imread("/tmp/a.png")[0, :, 0])
    for mode in "L", "RGB":
        print(name, mode, *numpy.array(Image.open("/tmp/a.png").convert(mode)).reshape(6, -1)[:, 0])
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  for line in 'grey opencv 0 0 1 3 128 255' 'grey L 0 255 255 255 255 255' 'grey RGB 0 255 255 255 255 255' \
    'colours opencv 0 0 1 3 128 255' 'colours RGB 0 0 1 3 128 255'; do
    expect "$suite: $line" grep -qxF "$suite: $line" "$work/out"
  done
done
done_with_it
