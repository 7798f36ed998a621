#!/usr/bin/env bash
# Tools that keep every colour of a PNG give masks other classes: a class is the index of a colour in the palette, or a
# level of grey, and they number colours anew. ImageMagick and pnmtopng do so when they crop, mirror or convert,
# optipng and zopflipng when they make files smaller "without loss". A viewer shows no difference. Each file gets
# numbers of its own, so one class has several numbers in one folder. optipng 0.7.7, zopflipng 1.0.3, ImageMagick
# 6.9.11, Netpbm 11.01 of Debian 12; optipng 0.7.8, ImageMagick 7.1.1 of Debian 13 are alike.
# Seen, a mask with the classes 0 2 5 7 from top to bottom, as palette and as grey. ImageMagick numbers a palette by the
# first pixel of each colour: 0 1 2 3, and 3 2 1 0 when the mask is turned upside down; grey stays. optipng leaves the
# palette and makes one of grey: 0 1 2 3. zopflipng makes a palette of 0 1 2 3 of both. pnmtopng makes palettes of both:
# 0 2 3 1 and 0 1 2 3. GraphicsMagick, pngcrush and optipng -nx keep 0 2 5 7 in both.
# Frugal: masks that it writes are grey, and it reads indices and levels as they are (data/image/picture.cpp,
# decode_mask); a value that data.mask_values names and no mask has is an error (tests/data/image/mask_files_test.cpp,
# "masks: values that no mask has are refused"). docs/guide/own_pictures.md says which tools to keep masks from.
. "$(dirname "$0")/packages.sh"
packages bookworm 'optipng=0.7.7*' 'zopfli=1.0.3*' 'imagemagick-6.q16=8:6.9.11*' 'netpbm=2:11.01*' \
  'graphicsmagick=1.4+really1.3.40*' 'pngcrush=1.8.13*' 'python3-pil=9.4.0*' python3-numpy
packages trixie 'optipng=0.7.8*' 'imagemagick-7.q16=8:7.1.1*' 'python3-pil=11.1.0*' python3-numpy
for suite in bookworm trixie; do
  convert="convert-im6.q16"
  [ "$suite" = bookworm ] || convert="convert-im7.q16"
  python_in "$suite" -c '
import numpy
from PIL import Image

mask = numpy.repeat(numpy.array([0, 2, 5, 7], numpy.uint8), 80 * 320).reshape(320, 320)
Image.fromarray(mask).save("/tmp/grey.png")
colours = Image.fromarray(mask, "P")
colours.putpalette([value for i in range(8) for value in (i % 2 * 128, i // 2 % 2 * 128, i // 4 * 128)])
colours.save("/tmp/palette.png")' 2>/dev/null
  inside "$suite" sh -c '
    cd /tmp
    for mask in grey palette; do
      optipng -quiet $mask.png -out optipng-$mask.png
      optipng -quiet -nx $mask.png -out optipng_nx-$mask.png
      '$convert' $mask.png magick-$mask.png
      '$convert' $mask.png -flip magick_turned-$mask.png
      [ -x /usr/bin/zopflipng ] || continue
      zopflipng $mask.png zopflipng-$mask.png
      gm convert $mask.png graphicsmagick-$mask.png
      pngcrush -q $mask.png pngcrush-$mask.png
      pngtopnm $mask.png | pnmtopng >pnmtopng-$mask.png
    done' >/dev/null 2>&1
  python_in "$suite" -c '
import glob
import numpy
from PIL import Image

for path in sorted(glob.glob("/tmp/*-*.png")):
    mask = Image.open(path)
    values = numpy.array(mask)
    step = -1 if "turned" in path else 1
    before = numpy.array(Image.open("/tmp/" + path.split("-")[1]).convert("RGB"))[::step]
    same = "equal" if (numpy.array(mask.convert("RGB")) == before).all() else "other"
    print(path[5:-4], mask.mode, *values[40::80, 0][::step], same, "colours")' | sed "s/^/$suite: /" | tee "$work/out"
  while read -r line; do expect "$suite: $line" grep -qxF "$suite: $line" "$work/out"; done <<'END_OF_LINES'
magick-grey L 0 2 5 7 equal colours
magick-palette P 0 1 2 3 equal colours
magick_turned-palette P 3 2 1 0 equal colours
optipng-grey P 0 1 2 3 equal colours
optipng-palette P 0 2 5 7 equal colours
optipng_nx-grey L 0 2 5 7 equal colours
optipng_nx-palette P 0 2 5 7 equal colours
END_OF_LINES
  [ "$suite" = bookworm ] || continue
  while read -r line; do expect "$suite: $line" grep -qxF "$suite: $line" "$work/out"; done <<'END_OF_LINES'
zopflipng-grey P 0 1 2 3 equal colours
zopflipng-palette P 0 1 2 3 equal colours
pnmtopng-grey P 0 1 2 3 equal colours
pnmtopng-palette P 0 2 3 1 equal colours
graphicsmagick-grey L 0 2 5 7 equal colours
graphicsmagick-palette P 0 2 5 7 equal colours
pngcrush-grey L 0 2 5 7 equal colours
pngcrush-palette P 0 2 5 7 equal colours
END_OF_LINES
done
done_with_it
