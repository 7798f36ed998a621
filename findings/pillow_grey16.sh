#!/usr/bin/env bash
# Pillow 9.4 and 11.1: what convert("RGB") makes of a PNG of 16 bits depends on whether it is grey. Colours are divided
# by 256. Grey values are cut off at 255, so X-rays, depth maps and other scans become white, without a warning.
# Seen, the values 0, 255, 256, 1000, 32768 and 65535 in grey: 0 and then 255 for all, by convert("L") and by
# convert("RGB"); in a PNG with three colours: 0, 0, 1, 3, 128, 255. The grey picture has the mode I (9.4) or I;16
# (11.1).
# Frugal: libpng scales both to 8 bits (data/image/picture.cpp); tests/data/image/picture_test.cpp, "grey, transparent
# and 16-bit PNG files become 8-bit colours".
. "$(dirname "$0")/packages.sh"
packages bookworm 'python3-pil=9.4.0*' python3-numpy
packages trixie 'python3-pil=11.1.0*' python3-numpy
for suite in bookworm trixie; do
  python_in "$suite" -c '
import struct
import zlib
import numpy
from PIL import Image

def write_png(name, colours, values):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = b"".join(struct.pack(">H", v) * colours for v in values)
    header = struct.pack(">IIBBBBB", len(values), 1, 16, 2 if colours == 3 else 0, 0, 0, 0)
    with open(name, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header))
        file.write(chunk(b"IDAT", zlib.compress(b"\0" + row)) + chunk(b"IEND", b""))

for name, colours in ("grey", 1), ("colours", 3):
    write_png("/tmp/a.png", colours, [0, 255, 256, 1000, 32768, 65535])
    for mode in "L", "RGB":
        print(name, mode, *numpy.array(Image.open("/tmp/a.png").convert(mode)).reshape(6, -1)[:, 0])
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  for line in 'grey L 0 255 255 255 255 255' 'grey RGB 0 255 255 255 255 255' 'colours L 0 0 1 3 128 255' \
    'colours RGB 0 0 1 3 128 255'; do
    expect "$suite: $line" grep -qxF "$suite: $line" "$work/out"
  done
done
done_with_it
