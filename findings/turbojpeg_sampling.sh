#!/usr/bin/env bash
# TurboJPEG 2.1.5 knows six ways to sample the colours of a JPEG. tjDecompressHeader3() calls any other way an error,
# although it has read size and colours by then. tjDecompress2() decodes the same bytes, and so does libjpeg.
# Seen: a picture of 48 x 48 with sampling factors 2x2, 1x2 and 2x1: status -1, "Could not determine subsampling type",
# width 48, height 48, sampling -1; the pixels come with status 0. Factors 3x1, 1x1, 1x1: the same.
# Frugal: data/image/picture.cpp (jpeg_header) goes on where only the sampling has no name;
# tests/data/image/picture_test.cpp, "a JPEG whose colours are sampled in a way without a name is read".
. "$(dirname "$0")/packages.sh"
packages bookworm 'libturbojpeg0-dev=1:2.1.5*' 'libjpeg62-turbo-dev=1:2.1.5*' gcc libc6-dev
cat >"$work/bookworm/tmp/sampling.c" <<'END_OF_PROGRAM'
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>
#include <turbojpeg.h>

enum { side = 48 };

static void try(const int factors[3][2]) {
  struct jpeg_compress_struct encoder;
  struct jpeg_error_mgr errors;
  unsigned char *bytes = NULL, row[3 * side], pixels[3 * side * side];
  unsigned long size = 0;
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  jpeg_mem_dest(&encoder, &bytes, &size);
  encoder.image_width = encoder.image_height = side;
  encoder.input_components = 3;
  encoder.in_color_space = JCS_RGB;
  jpeg_set_defaults(&encoder);
  for (int i = 0; i < 3; ++i) {
    encoder.comp_info[i].h_samp_factor = factors[i][0];
    encoder.comp_info[i].v_samp_factor = factors[i][1];
  }
  jpeg_start_compress(&encoder, TRUE);
  for (int i = 0; i < 3 * side; ++i) row[i] = 60 + 50 * (i % 3);
  for (int y = 0; y < side; ++y) {
    unsigned char* rows = row;
    jpeg_write_scanlines(&encoder, &rows, 1);
  }
  jpeg_finish_compress(&encoder);
  jpeg_destroy_compress(&encoder);

  tjhandle decoder = tjInitDecompress();
  int width = 0, height = 0, sampling = 0, colours = 0;
  const int header = tjDecompressHeader3(decoder, bytes, size, &width, &height, &sampling, &colours);
  const int decoded = tjDecompress2(decoder, bytes, size, pixels, side, 0, side, TJPF_RGB, 0);
  int right = 1;
  for (int i = 0; i < 3 * side * side; ++i) right = right && abs(pixels[i] - row[i % 3]) <= 4;
  printf("%dx%d %dx%d %dx%d: header %d, %d x %d, sampling %d; pixels %d, %s\n", factors[0][0], factors[0][1],
         factors[1][0], factors[1][1], factors[2][0], factors[2][1], header, width, height, sampling, decoded,
         right ? "right" : "wrong");
  tjDestroy(decoder);
  free(bytes);
}

int main(void) {
  const int named[3][2] = {{2, 2}, {1, 1}, {1, 1}}, mixed[3][2] = {{2, 2}, {1, 2}, {2, 1}},
            third[3][2] = {{3, 1}, {1, 1}, {1, 1}};
  try(named);
  try(mixed);
  try(third);
  return 0;
}
END_OF_PROGRAM
inside bookworm gcc /tmp/sampling.c -o /tmp/sampling -ljpeg -lturbojpeg || not_tried "the program does not compile"
inside bookworm /tmp/sampling | tee "$work/out"
expect "a sampling with a name is read" \
  grep -qx '2x2 1x1 1x1: header 0, 48 x 48, sampling 2; pixels 0, right' "$work/out"
for factors in '2x2 1x2 2x1' '3x1 1x1 1x1'; do
  expect "$factors: the header is an error, the pixels are right" \
    grep -qx "$factors: header -1, 48 x 48, sampling -1; pixels 0, right" "$work/out"
done
done_with_it
