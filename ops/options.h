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
  // A query sees so many keys at most: its own place, p = t + S - T, and those before it. 0: all.
  // REQUIRES: causal.
  int64_t window = 0;
  // A score becomes soft_cap tanh(score / soft_cap) before masks. 0: it stays. Ref: Gemma Team 2024
  // (Gemma 2), section 2. REQUIRES: no mask that is added, and no bias.
  double soft_cap = 0;
  double dropout = 0;  // probability of dropout of the coefficients; REQUIRES `key` if it is not 0
  RngKey key{};        // coefficient (n, h, t, s) uses element ((n heads + h) T + t) S + s of the
                       // stream
};

// act of a gated unit, act(gate) up; gelu by erf or by tanh.
enum class Gate : uint8_t { silu, gelu, gelu_tanh };

// How fast pair i of D/2 turns: base^(-2i/D) for each step of the position, changed by `scaling`
// for sequences that are longer than those a network was trained on first.
struct RotaryOptions {
  enum class Scaling : uint8_t {
    none,
    linear,   // a frequency is divided by `factor`. Ref: Chen et al. 2023
    dynamic,  // the base grows with the length of the sequence
    llama3,   // only low frequencies are divided. Ref: Llama Team 2024, as published with Llama 3.1
    yarn,     // pairs of few turns are divided, smoothly. Ref: Peng et al. 2023, section 3
  };
  double base = 10000;
  Scaling scaling = Scaling::none;
  double factor = 1;                        // at least 1
  double first_length = 0;                  // the length of sequences before the change
  double low = 1, high = 4;                 // llama3: turns within first_length
  double most_turns = 32, least_turns = 1;  // yarn: turns, too (beta_fast and beta_slow)
  bool whole_pairs = true;                  // yarn: the change begins and ends at whole pairs
  double gain = 1;                          // sines and cosines are multiplied by it
};

namespace ops {

// The elementwise ops; ops/dense/functors.h has what they compute.
enum class Binary : uint8_t { add, sub, mul, div };
enum class Unary : uint8_t { neg, exp, log, sqrt, sigmoid, tanh, gelu_exact, gelu_tanh, silu };

}  // namespace ops

}  // namespace frugal
