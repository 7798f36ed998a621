// Options of ops, shared by ops, autograd and models.
#pragma once
#include <array>
#include <cstdint>

namespace frugal {

using Pair = std::array<int64_t, 2>;  // height, width

struct Conv2dOptions {
  Pair stride{1, 1};
  Pair padding{0, 0};
  Pair dilation{1, 1};
  int64_t groups = 1;
};

struct ConvTranspose2dOptions {
  Pair stride{1, 1};
  Pair padding{0, 0};
  Pair output_padding{0, 0};
  Pair dilation{1, 1};
  int64_t groups = 1;
};

struct Pool2dOptions {
  Pair kernel{2, 2};
  Pair stride{2, 2};
  Pair padding{0, 0};
  bool count_include_pad = true;  // average pooling, as PyTorch
};

enum class Interpolation : uint8_t { nearest, bilinear };

struct InterpolateOptions {
  Interpolation mode = Interpolation::nearest;
  bool align_corners = false;  // bilinear: the centres of the corners stay where they are
};

struct BatchNormOptions {
  bool training = true;
  double momentum = 0.1;  // weight of the new statistics
  double eps = 1e-5;
};

struct CrossEntropyOptions {
  double label_smoothing = 0;
  int64_t ignore_index = -100;
  bool sum = false;  // the sum over the rows instead of their mean
};

struct BinaryCrossEntropyOptions {
  bool sum = false;  // the sum over the elements instead of their mean
};

enum class Gelu : uint8_t { exact, tanh };

}  // namespace frugal
