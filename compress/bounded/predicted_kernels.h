// The vector loops of bounded_predicted.h. All numbers are whole or rounded once in a fixed order,
// so every instruction set gives the same bytes. Internal.
//
// Loops go over lanes: channels of one or several items, side by side. They may read and write up
// to kSpare lanes more than they are told, so arrays have room for these.
#pragma once
#include <cstdint>
#include <vector>

#include "compress/quantize/quantize_reference.h"

namespace frugal::compress::bounded {

inline constexpr int64_t kSpare = 16;

// Codes are counted from that of the channel's mean. The place of a value of code q and dither u is
// 16 q - floor(16 u) - fraction, so 16 places are a step, and the mean has place 0. Places of 16
// bits are enough to predict from: farther ones are cut off.
struct PredictLanes {
  std::vector<float> step, inverse, start;  // start: the code of the mean
  std::vector<int16_t> fraction;            // what the mean has beside it, in 0..15
  std::vector<int16_t> left, up, corner;    // how much neighbours count, in 2^-15
};

// The places of the neighbours of the lanes. Where there is no neighbour it has the mean.
struct Neighbours {
  const int16_t *left, *up, *corner;
};

// How residuals become symbols. shift < 0: a symbol has 5 bits, and the upper 3 bits of its byte
// say where between two codes the predicted value lies. Otherwise a byte holds the residual without
// its lowest `shift` bits. Symbol 0 stands for a residual that is too large.
inline constexpr int kPhases = -1;
inline constexpr int kPhaseBits = 3, kResidualBits = 5;

// The random bytes of rows [row0, row0 + rows) and columns [col0, col0 + cols), as in
// quantize_reference.h. REQUIRES: an even col0.
void dither_bytes(const CodeStream& stream, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                  int64_t stride, uint8_t* to);

// A run of lanes of one class at one pixel. Pointers to arrays of lanes are those of lane 0.
struct PixelLanes {
  const PredictLanes& lanes;
  Neighbours of;
  const uint8_t* dither;
  float offset;  // u = dither / 256 + offset
  int shift;
  int64_t begin, end;
};

// The code of a value.
int32_t code_of(float x, const PixelLanes& at, int64_t lane);
int16_t place_of(int32_t code, const PixelLanes& at, int64_t lane);
float value_of(int32_t code, const PixelLanes& at, int64_t lane);

// Writes places, the byte of each lane to `bytes`, where lane `begin` is the first one, and the
// lowest `shift` bits of residuals likewise. Returns whether a residual may have been too large.
bool code_lanes(const PixelLanes& at, const float* x, int16_t* place, uint8_t* bytes,
                uint16_t* low);

// Writes the codes that residual 0 stands for, and the contexts of the bytes.
void predict_lanes(const PixelLanes& at, int16_t* base, uint8_t* contexts);
// Writes places and values. Returns whether a residual may have been too large. Lanes where it was
// are wrong.
bool rebuild_lanes(const PixelLanes& at, const int16_t* base, const uint8_t* bytes,
                   const uint16_t* low, int16_t* place, float* x);

// Sums over pixels of one item, to which they are added: of values; then of products of what is
// left of them without `mean`, with themselves and with their neighbours. `pair`: the upper
// neighbour times the left one. Where an extent is 1 there are no neighbours on that axis.
struct Moments {
  std::vector<float> own, left, up, corner, pair;
  int64_t pixels = 0;
};
void add_values(const float* x, int64_t pixels, int64_t channels, float* sums);
void add_products(const float* x, int64_t height, int64_t width, int64_t channels,
                  const float* mean, Moments& moments);

}  // namespace frugal::compress::bounded
