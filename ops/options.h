// Options of ops, shared by ops, autograd and models.
#pragma once
#include <array>
#include <cstdint>

#include "core/rng.h"

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

// ---- volumes
using Triple = std::array<int64_t, 3>;  // depth, height, width

struct Conv3dOptions {
  Triple stride{1, 1, 1};
  Triple padding{0, 0, 0};
  Triple dilation{1, 1, 1};
  int64_t groups = 1;
};

struct ConvTranspose3dOptions {
  Triple stride{1, 1, 1};
  Triple padding{0, 0, 0};
  Triple output_padding{0, 0, 0};  // less than the stride
  Triple dilation{1, 1, 1};
  int64_t groups = 1;
};

// ---- classes of pixels
struct DiceOptions {
  double smooth = 1;            // added to numerator and denominator; above 0
  int64_t ignore_index = -100;  // targets that do not count
};

struct FocalOptions {
  double gamma = 2;  // at least 0; 0: cross-entropy
  int64_t ignore_index = -100;
  bool sum = false;  // the sum over the rows instead of their mean
};

// ---- detection
// What the differences between a box and its reference are multiplied by.
struct BoxCoding {
  double x = 1, y = 1, width = 1, height = 1;
};

// Overlaps (intersection over union) by which anchors are matched with objects.
struct MatchOptions {
  double high = 0.5;        // an anchor of this overlap or more stands for the object
  double low = 0.4;         // below it an anchor is background; between the two it does not count
  bool low_quality = true;  // the best anchors of an object stand for it even so
};

struct SigmoidFocalOptions {
  double alpha = 0.25;  // weight of yes; no has 1 - alpha. Negative: both have 1
  double gamma = 2;
};

struct RoiAlignOptions {
  int sampling_ratio = 0;  // samples along each side of a cell; 0: as many as the cell has pixels
  bool aligned = false;    // pixel centres lie at halves, and boxes may be smaller than a pixel
};

// ---- attention
struct AttentionOptions {
  bool causal = false;  // query t sees keys up to t + S - T
  double scale = 0;     // 0: 1 / sqrt(D)
  double dropout = 0;   // probability of dropout of the coefficients; REQUIRES `key` if it is not 0
  RngKey key{};         // coefficient (n, h, t, s) uses element ((n heads + h) T + t) S + s of the
                        // stream
};

namespace ops {

// The elementwise ops; ops/dense/functors.h has what they compute.
enum class Binary : uint8_t { add, sub, mul, div };
enum class Unary : uint8_t { neg, exp, log, sqrt, sigmoid, tanh, gelu_exact, gelu_tanh, silu };

}  // namespace ops

}  // namespace frugal
