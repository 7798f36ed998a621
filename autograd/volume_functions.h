// Convolutions of volumes, transposed convolutions and pooling of sequences and volumes, and
// adaptive maxima. Sequences [N, L, C], volumes [N, D, H, W, C]; f32, bf16 and f64, which CUDA has
// not. conv1d: autograd/transformer_functions.h.
#pragma once
#include "autograd/variable.h"
#include "ops/options.h"

namespace frugal {

// ---- functions/conv3d.cpp.  Saves: x, weight.
// x [N, D, H, W, C], weight [K, T, R, S, C/groups], bias [K] or undefined -> [N, OD, OH, OW, K].
Variable conv3d(const Variable& x, const Variable& weight, const Variable& bias,
                const Conv3dOptions& options = {});
// x [N, D, H, W, C], weight [C, T, R, S, K/groups], bias [K] or undefined -> [N, OD, OH, OW, K].
Variable conv_transpose3d(const Variable& x, const Variable& weight, const Variable& bias,
                          const ConvTranspose3dOptions& options = {});

// ---- functions/pool.cpp. [N, H, W, C] -> [N, out_h, out_w, C].  Saves: the cell in the window, in
// 1, 2, 4 or 8 bits (i32 for windows of more than 256 cells).
Variable adaptive_max_pool2d(const Variable& x, int64_t out_h, int64_t out_w);

// ---- functions/volume.cpp: made of functions of images, which save what these say.
// x [N, L, C], weight [C, R, K/groups], bias [K] or undefined -> [N, OL, K].
struct ConvTranspose1dOptions {
  int64_t stride = 1, padding = 0, output_padding = 0, dilation = 1, groups = 1;
};
Variable conv_transpose1d(const Variable& x, const Variable& weight, const Variable& bias,
                          const ConvTranspose1dOptions& options = {});  // Saves: x, weight

struct Pool1dOptions {
  int64_t kernel = 2, stride = 2, padding = 0;
  bool count_include_pad = true;  // average pooling, as PyTorch
};
// x [N, L, C] -> [N, OL, C].  Saves: maxima the cell in the window, in 1, 2, 4 or 8 bits, as maxima
// of images do; averages nothing.
Variable max_pool1d(const Variable& x, const Pool1dOptions& options);
Variable avg_pool1d(const Variable& x, const Pool1dOptions& options);
Variable adaptive_max_pool1d(const Variable& x, int64_t out);
Variable adaptive_avg_pool1d(const Variable& x, int64_t out);

struct Pool3dOptions {
  Triple kernel{2, 2, 2};
  Triple stride{2, 2, 2};
  Triple padding{0, 0, 0};
  bool count_include_pad = true;  // average pooling, as PyTorch
};
// x [N, D, H, W, C] -> [N, OD, OH, OW, C]. Each layer is pooled, then the layers. Maxima save the
// cell in a layer and the number of the layer, each in 1, 2, 4 or 8 bits. Among equal values the
// first counts. Averages save nothing.
Variable max_pool3d(const Variable& x, const Pool3dOptions& options);
Variable avg_pool3d(const Variable& x, const Pool3dOptions& options);
Variable adaptive_max_pool3d(const Variable& x, const Triple& out);
Variable adaptive_avg_pool3d(const Variable& x, const Triple& out);

}  // namespace frugal
