#!/usr/bin/env bash
# scikit-image 0.19.3 and 0.25.2: peak_signal_noise_ratio() takes the peak from the dtype, and from the sign of the
# least pixel. A picture of floats has the peak 1, and 2 where one pixel of the right picture is below 0, as after a
# resize by cubic splines, an added noise or a mean that was taken off. So its PSNR is 6 decibels higher, which is more
# than most methods differ by, and so is that of some pictures of a test set. Numbers of 0 to 255 in a wider type of
# integers have the peak of that type. The manual says that data_range is estimated from the data type by default, and
# nothing of the sign. There is no warning. structural_similarity() of 0.25 refuses floats without data_range.
# Seen, a picture of 0 to 1 and one that is off by 0.1: 20.00. With one of 1,024 pixels as -0.001 in both: 26.02. With
# data_range=1 both are 20.00. A picture of bytes that is off by 25: 20.17 as uint8, 62.35 as int16, 68.37 as uint16,
# 158.68 as int32.
# Frugal: it has no such metric; mse and mae have no peak. docs/guide/using.md says it to those who measure pictures of
# a network of their own.
. "$(dirname "$0")/packages.sh"
packages bookworm 'python3-skimage=0.19.3*'
packages trixie 'python3-skimage=0.25.2*'
for suite in bookworm trixie; do
  python_in "$suite" -W error::UserWarning -c '
import numpy
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

picture = numpy.linspace(0, 0.9, 1024).reshape(32, 32)
below = picture.copy()
below[0, 0] = -0.001
for name, right in ("floats", picture), ("one below 0", below):
    other = right + 0.1
    by_default, by_range = (peak_signal_noise_ratio(right, other, **options) for options in ({}, {"data_range": 1}))
    print("%s: %.2f, with data_range=1 %.2f" % (name, by_default, by_range))
levels = numpy.arange(1024).reshape(32, 32) % 231
for dtype in "uint8", "int16", "uint16", "int32":
    print("%s: %.2f" % (dtype, peak_signal_noise_ratio(levels.astype(dtype), (levels + 25).astype(dtype))))
try:
    structural_similarity(picture, picture + 0.1)
    print("SSIM of floats")
except ValueError:
    print("SSIM refuses floats")
' | tee "$work/out"
  while read -r line; do expect "$suite: $line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
floats: 20.00, with data_range=1 20.00
one below 0: 26.02, with data_range=1 20.00
uint8: 20.17
int16: 62.35
uint16: 68.37
int32: 158.68
END_OF_LINES
done
expect "SSIM of 0.25 refuses floats" grep -qxF "SSIM refuses floats" "$work/out"
done_with_it
