// Convolutions by cuDNN's graph API, on the compute stream. With cudnn_graph.h the only door to
// that library; where CUDA is emulated, tests/cuda_emulator stands in for it.
#pragma once
#include "core/dtype.h"
#include "core/shape.h"
#include "ops/options.h"

namespace frugal::ops::cudnn {

enum class Pass : uint8_t { forward, backward_input, backward_weight };

// x NHWC, w [K, R, S, C/groups], y NHWC; sums are f32.
struct Convolution {
  Pass pass = Pass::forward;
  Shape x, w, y;  // REQUIRES: nothing empty; the shapes that conv2d_shape() gives
  Conv2dOptions options;
  DType dtype = DType::f32;  // of all tensors: f32, by matmul_precision(), or bf16
  bool bias = false;         // forward: y = conv + bias
};

// The pass's result is written, the rest read; bias [K].
struct ConvolutionData {
  void *x = nullptr, *w = nullptr, *y = nullptr;
  const void* bias = nullptr;
};

// Whether it was done: where cuDNN has no engine for the problem, nothing was, and a warning says
// so once.  Errors: the library's, naming the descriptor; OutOfMemory.
[[nodiscard]] bool convolve(const Convolution& problem, const ConvolutionData& data);

}  // namespace frugal::ops::cudnn
