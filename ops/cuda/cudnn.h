// Convolutions by cuDNN's graph API, on the compute stream. Only the files of this folder that are
// named for cuDNN use that library. In emulated builds tests/cuda_emulator stands in for it.
#pragma once
#include "core/dtype.h"
#include "core/shape.h"
#include "ops/options.h"

namespace frugal::ops::cudnn {

enum class Pass : uint8_t { forward, backward_input, backward_weight };

// x NHWC, w [K, R, S, C/groups], y NHWC; sums are f32.
struct Convolution {
  Pass pass = Pass::forward;
  Shape x, w, y;  // REQUIRES: no empty tensor; y has the shape that conv2d_shape() gives
  Conv2dOptions options;
  DType dtype = DType::f32;  // dtype of all tensors: f32, by matmul_precision(), or bf16
  bool bias = false;         // forward: y = conv + bias
};

// The tensors of a convolution. A pass writes its result and reads the others. bias [K].
struct ConvolutionData {
  void *x = nullptr, *w = nullptr, *y = nullptr;
  const void* bias = nullptr;
};

// Opens the library, which else the first convolution does.  Errors: it is missing; the message
// says what helps.
void open_library();

// Returns whether the convolution was computed. Where cuDNN has no engine for the problem, nothing
// is written and the log says why.  Errors: errors of the library, which name the descriptor;
// OutOfMemory.
[[nodiscard]] bool convolve(const Convolution& problem, const ConvolutionData& data);

}  // namespace frugal::ops::cudnn
