#!/usr/bin/env bash
# OpenCV 4.6 and 4.10: imread() turns a picture as its EXIF orientation says where the file is a JPEG, a PNG or a TIFF,
# and not where it is a WebP. With IMREAD_UNCHANGED, which keeps alpha and 16 bits, JPEG and PNG stay as they lie, and
# TIFF is turned. So a folder of several formats is turned in parts, and boxes of annotations lie on the wrong place in
# the rest.
# Seen, one picture of 4 x 8 pixels with orientation 6 in four formats: imread() gives 8 x 4 for JPEG, PNG and TIFF and
# 4 x 8 for WebP; with IMREAD_UNCHANGED 8 x 4 for TIFF alone. Pillow's open() turns none in 9.4, and TIFF in 11.1.
# Frugal: data.exif turns JPEG, PNG and WebP alike, or none; tests/data/image/picture_test.cpp, "PNG and WebP are turned
# as JPEG is, and nothing is where EXIF is ignored".
. "$(dirname "$0")/packages.sh"
echo "OpenCV and what it depends on are many packages: this takes a minute or more" >&2
packages bookworm 'python3-opencv=4.6.0*' 'python3-pil=9.4.0*'
packages trixie 'python3-opencv=4.10.0*' 'python3-pil=11.1.0*'
for suite in bookworm trixie; do
  python_in "$suite" -c '
import cv2
import numpy
from PIL import Image

exif = Image.Exif()
exif[0x0112] = 6
picture = Image.fromarray(numpy.zeros((4, 8, 3), numpy.uint8))

def side(height):
    return "turned" if height == 8 else "as it lies"

for kind in "jpeg", "png", "webp", "tiff":
    picture.save("/tmp/a." + kind, exif=exif)
    plain, unchanged = cv2.imread("/tmp/a." + kind), cv2.imread("/tmp/a." + kind, cv2.IMREAD_UNCHANGED)
    pillow = numpy.array(Image.open("/tmp/a." + kind))
    print("%s: imread %s, IMREAD_UNCHANGED %s, Pillow %s" % (kind, *(side(len(v)) for v in (plain, unchanged, pillow))))
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  tiff='as it lies'
  [ "$suite" = bookworm ] || tiff=turned
  for line in 'jpeg: imread turned, IMREAD_UNCHANGED as it lies, Pillow as it lies' \
    'png: imread turned, IMREAD_UNCHANGED as it lies, Pillow as it lies' \
    'webp: imread as it lies, IMREAD_UNCHANGED as it lies, Pillow as it lies' \
    "tiff: imread turned, IMREAD_UNCHANGED turned, Pillow $tiff"; do
    expect "$suite: $line" grep -qxF "$suite: $line" "$work/out"
  done
done
done_with_it
