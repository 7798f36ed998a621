#!/usr/bin/env bash
# Octave 7.3 and 9.4: what imread() makes of a picture of 8 bits depends on its pixels. Where all numbers are 0 or 255,
# it gives a matrix of true and false, whose white counts as 1, and a single other number makes it uint8, with white as
# 255. The file is alike: it has 8 bits for each number, of which imfinfo() then says 1. This is so for PNG, JPEG, BMP
# and TIFF, for grey and for colours, and for a picture that is all black. PNG files of 16 bits stay uint16. So some
# files of a folder are 255 times darker than the others: masks of 0 and 255, drawings, and frames without anything.
# Seen, 8 x 8 pixels: 0 and 255 by turns is logical, with the mean 0.5; with a single 254 uint8, with the mean 127. Only
# 0 or only 255 is logical, and only 7 or 254 is uint8. Pure blue in RGB is logical. 0 and 65535 in 16 bits is uint16.
# The first two, joined by cat(), have white as 1 and as 255. Pillow 9.4 and 11.1 read white as 255 in all of 8 bits,
# and a logical picture times 255 is theirs.
# Frugal: white is 255 in every file (data/image/picture.cpp), and masks of 0 and 255 have two classes by all files
# together; tests/data/image/mask_files_test.cpp, "masks: values become classes". docs/guide/own_pictures.md says it to
# those who prepare pictures or measure masks in Octave.
. "$(dirname "$0")/packages.sh"
packages bookworm 'octave=7.3*' 'python3-pil=9.4*' 'python3-numpy=1:1.24*'
packages trixie 'octave=9.4.0*' 'python3-pil=11.1*' python3-numpy
libraries=/usr/lib/x86_64-linux-gnu
for suite in bookworm trixie; do
  python_in "$suite" -c '
import numpy
from PIL import Image

turns = 255 * (numpy.indices((8, 8)).sum(0) % 2).astype("u1")
nearly = turns.copy()
nearly[0, 1] = 254
blue = numpy.zeros((8, 8, 3), "u1")
blue[..., 2] = 255
level = lambda value: numpy.full((8, 8), value, "u1")
pictures = {
    "turns.png": turns, "nearly.png": nearly, "black.png": level(0), "white.png": level(255), "seven.png": level(7),
    "blue.png": blue, "turns.bmp": turns, "turns.tif": turns, "white.jpg": level(255), "nearly.jpg": level(254),
    "turns16.png": turns.astype("u2") * 257,
}
for name, pixels in pictures.items():
    Image.fromarray(pixels).save("/tmp/" + name)
    read = numpy.array(Image.open("/tmp/" + name))
    bits = "%d bits, " % open("/tmp/" + name, "rb").read()[24] if name.endswith("png") else ""
    print("Pillow %s: %s%d to %d" % (name, bits, read.min(), read.max()))
    read.astype("f8").tofile("/tmp/" + name + ".f8")
' | tee "$work/out"
  cat >"$work/$suite/tmp/read.m" <<'END_OF_PROGRAM'
files = {'turns.png', 'nearly.png', 'black.png', 'white.png', 'seven.png', 'blue.png', 'turns.bmp', 'turns.tif', ...
         'white.jpg', 'nearly.jpg', 'turns16.png'};
for i = 1:numel(files)
  path = ['/tmp/' files{i}];
  picture = imread(path);
  file = fopen([path '.f8']);
  expected = fread(file, Inf, 'double');
  fclose(file);
  if ndims(picture) == 3
    expected = reshape(expected, 3, 8, 8);
    expected = permute(expected, [3 2 1]);
  else
    expected = reshape(expected, 8, 8)';
  end
  right = double(picture);
  if islogical(picture)
    right = 255 * right;
  end
  printf('Octave %s: %s, %d to %d; with white as 255 as in Pillow: %d\n', files{i}, class(picture), min(picture(:)), ...
         max(picture(:)), isequal(right, expected));
end
printf('bits: %d %d\n', imfinfo('/tmp/turns.png').BitDepth, imfinfo('/tmp/nearly.png').BitDepth);
both = cat(3, imread('/tmp/turns.png'), imread('/tmp/nearly.png'));
printf('joined: %s, %d and %d\n', class(both), max(both(:, :, 1)(:)), max(both(:, :, 2)(:)));
printf('means: %.1f %.0f\n', mean(imread('/tmp/turns.png')(:)), mean(imread('/tmp/nearly.png')(:)));
END_OF_PROGRAM
  inside "$suite" LD_LIBRARY_PATH="$libraries/blas:$libraries/lapack" \
    octave-cli -qf --no-window-system /tmp/read.m 2>/dev/null | tee -a "$work/out"
  while read -r line; do expect "$suite: $line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
Pillow turns.png: 8 bits, 0 to 255
Pillow nearly.png: 8 bits, 0 to 255
Pillow black.png: 8 bits, 0 to 0
Pillow white.png: 8 bits, 255 to 255
Pillow seven.png: 8 bits, 7 to 7
Pillow blue.png: 8 bits, 0 to 255
Pillow turns.bmp: 0 to 255
Pillow turns.tif: 0 to 255
Pillow white.jpg: 255 to 255
Pillow nearly.jpg: 254 to 254
Pillow turns16.png: 16 bits, 0 to 65535
Octave turns.png: logical, 0 to 1; with white as 255 as in Pillow: 1
Octave nearly.png: uint8, 0 to 255; with white as 255 as in Pillow: 1
Octave black.png: logical, 0 to 0; with white as 255 as in Pillow: 1
Octave white.png: logical, 1 to 1; with white as 255 as in Pillow: 1
Octave seven.png: uint8, 7 to 7; with white as 255 as in Pillow: 1
Octave blue.png: logical, 0 to 1; with white as 255 as in Pillow: 1
Octave turns.bmp: logical, 0 to 1; with white as 255 as in Pillow: 1
Octave turns.tif: logical, 0 to 1; with white as 255 as in Pillow: 1
Octave white.jpg: logical, 1 to 1; with white as 255 as in Pillow: 1
Octave nearly.jpg: uint8, 254 to 254; with white as 255 as in Pillow: 1
Octave turns16.png: uint16, 0 to 65535; with white as 255 as in Pillow: 1
bits: 1 8
joined: uint8, 1 and 255
means: 0.5 127
END_OF_LINES
done
done_with_it
