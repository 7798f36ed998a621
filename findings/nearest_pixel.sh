#!/usr/bin/env bash
# OpenCV 4.6 and 4.10, Pillow 9.4 and 11.1, PyTorch 1.13 and 2.6: "nearest" is four rules, so a mask of classes that is
# resized in one program lies beside the picture that was resized in another one. PyTorch's manual says that
# "nearest-exact" matches Pillow. It does not where the middle of a new pixel meets the edge between two old ones, which
# is common: Pillow takes now the one and now the other.
# Seen, of 480 pixels that are made of 640, those that are not the old pixel at floor((i + 1/2) 640 / 480): PyTorch
# "nearest-exact" 0, Pillow 99, OpenCV INTER_NEAREST_EXACT 160, OpenCV INTER_NEAREST and PyTorch "nearest" 320, since
# these two leave the 1/2 out. 224 of 256: 0, 25, 32 and 128. Also these two, of which the one is said to be the other,
# differ for 520 of 500: 255 and 240.
# Frugal: pictures and masks are resized about the same middles, in f64 (data/image/mask_files.cpp);
# tests/data/image/mask_files_test.cpp, "masks: a random part and its mirror image keep picture and mask together".
. "$(dirname "$0")/packages.sh"
echo "OpenCV and what it depends on are many packages: this takes a minute or more" >&2
packages bookworm 'python3-torch=1.13.1*' 'python3-pil=9.4.0*' 'python3-opencv=4.6.0*'
packages trixie 'python3-torch=2.6.0*' 'python3-pil=11.1.0*' 'python3-opencv=4.10.0*'
for suite in bookworm trixie; do
  python_in "$suite" -c '
import cv2
import numpy
import torch
from PIL import Image
from torch.nn.functional import interpolate

for old, new in (640, 480), (256, 224), (500, 520):
    row = numpy.arange(old, dtype=numpy.int32)[None]
    wanted = (2 * numpy.arange(new) + 1) * old // (2 * new)
    numbers = row.astype(numpy.float32)
    found = {
        "nearest-exact": interpolate(torch.from_numpy(numbers)[None], size=new, mode="nearest-exact").numpy(),
        "Pillow": numpy.array(Image.fromarray(row, "I").resize((new, 1), Image.NEAREST)),
        "INTER_NEAREST_EXACT": cv2.resize(numbers, (new, 1), interpolation=cv2.INTER_NEAREST_EXACT),
        "INTER_NEAREST": cv2.resize(numbers, (new, 1), interpolation=cv2.INTER_NEAREST),
        "nearest": interpolate(torch.from_numpy(numbers)[None], size=new, mode="nearest").numpy(),
    }
    print("%d of %d:" % (new, old), *(f"{name} {(v.reshape(-1) != wanted).sum()}" for name, v in found.items()))
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  for line in '480 of 640: nearest-exact 0 Pillow 99 INTER_NEAREST_EXACT 160 INTER_NEAREST 320 nearest 320' \
    '224 of 256: nearest-exact 0 Pillow 25 INTER_NEAREST_EXACT 32 INTER_NEAREST 128 nearest 128' \
    '520 of 500: nearest-exact 0 Pillow 0 INTER_NEAREST_EXACT 0 INTER_NEAREST 255 nearest 240'; do
    expect "$suite: $line" grep -qxF "$suite: $line" "$work/out"
  done
done
done_with_it
