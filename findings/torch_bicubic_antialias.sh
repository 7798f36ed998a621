#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: interpolate(mode="bicubic", antialias=True) changes the result of enlarging, where there is
# nothing to average: it is another curve, with the coefficient -0.5 instead of -0.75. The manual speaks of results for
# downsampling. For mode="bilinear" the option changes nothing when a picture grows.
# Seen, one value of 1 in a row of zeros, to twice its length: 0.879 and 0.262 beside it without the option, 0.867 and
# 0.227 with it. Pictures of 0 to 1 differ by 0.05, 12 of 255 steps. With the option the results are those of Pillow.
# Position tables of vision transformers are interpolated by such a call when pictures become larger: timm's has the
# option, those of DeiT and of Hugging Face have not.
# Frugal: models/position_grid.h has both curves, and takes that of the library whose names a file of weights has;
# tests/models/position_grid_test.cpp, "grids of positions are interpolated as PyTorch does it"; docs/guide/weights.md.
. "$(dirname "$0")/packages.sh"
packages bookworm 'python3-torch=1.13.1*' 'python3-pil=9.4.0*'
packages trixie 'python3-torch=2.6.0*' 'python3-pil=11.1.0*'
for suite in bookworm trixie; do
  python_in "$suite" -c '
import numpy
import torch
from PIL import Image
from torch.nn.functional import interpolate

def resize(x, size, mode, antialias):
    return interpolate(x[None, None], size=size, mode=mode, antialias=antialias)[0, 0]

one = torch.zeros(1, 9)
one[0, 4] = 1
picture = torch.from_numpy(numpy.random.default_rng(0).random((8, 8)).astype(numpy.float32))
for antialias in False, True:
    print("one", antialias, *("%.3f" % v for v in resize(one, (1, 18), "bicubic", antialias)[0, 9:13].tolist()))
for mode, name in ("bilinear", Image.BILINEAR), ("bicubic", Image.BICUBIC):
    plain, smooth = (resize(picture, (16, 16), mode, antialias) for antialias in (False, True))
    pillow = torch.from_numpy(numpy.array(Image.fromarray(picture.numpy(), "F").resize((16, 16), name)))
    far = lambda a, b: "apart" if (a - b).abs().max() > 0.03 else "equal" if (a - b).abs().max() < 1e-5 else "near"
    print(mode, "with and without:", far(plain, smooth), "with and Pillow:", far(smooth, pillow))
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  for line in 'one False 0.879 0.262 -0.105 -0.035' 'one True 0.867 0.227 -0.070 -0.023' \
    'bilinear with and without: equal with and Pillow: equal' \
    'bicubic with and without: apart with and Pillow: equal'; do
    expect "$suite: $line" grep -qxF "$suite: $line" "$work/out"
  done
done
done_with_it
