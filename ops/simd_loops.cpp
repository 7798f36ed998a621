#include "ops/simd_loops.h"

#include <algorithm>

// AVX-512, AVX2, the baseline; what lies between is not worth its compile time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/simd_loops.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

// The loops are plain C++: the compiler vectorises them for the target that this pass of
// foreach_target sets.
HWY_BEFORE_NAMESPACE();
namespace frugal::ops::simd {
namespace HWY_NAMESPACE {

constexpr int64_t kStrip = 64;  // columns a block of accumulators covers: stays in registers or L1

void RectifyBlocks(const float* HWY_RESTRICT x, float slope, float* HWY_RESTRICT y,
                   uint8_t* HWY_RESTRICT mask, int64_t blocks, int64_t cols) {
  for (int64_t b = 0; b < blocks; ++b) {
    const float* px = x + b * 8 * cols;
    float* py = y + b * 8 * cols;
    for (int64_t i = 0; i < 8 * cols; ++i) py[i] = !(px[i] <= 0) ? px[i] : slope * px[i];
    if (mask == nullptr) continue;
    uint8_t* HWY_RESTRICT pm = mask + b * cols;
    for (int64_t k = 0; k < cols; ++k) {
      int bits = 0;
      for (int r = 0; r < 8; ++r) bits |= (!(px[r * cols + k] <= 0) ? 1 : 0) << r;
      pm[k] = static_cast<uint8_t>(bits);
    }
  }
}

void SelectBlocks(const float* HWY_RESTRICT x, const uint8_t* HWY_RESTRICT mask, float slope,
                  float* HWY_RESTRICT y, int64_t blocks, int64_t cols) {
  for (int64_t b = 0; b < blocks; ++b)
    for (int r = 0; r < 8; ++r) {
      const float* HWY_RESTRICT px = x + (b * 8 + r) * cols;
      float* HWY_RESTRICT py = y + (b * 8 + r) * cols;
      const uint8_t* HWY_RESTRICT pm = mask + b * cols;
      for (int64_t k = 0; k < cols; ++k) py[k] = (pm[k] >> r & 1) != 0 ? px[k] : slope * px[k];
    }
}

void ChunkMoments(const float* HWY_RESTRICT x, int64_t rows, int64_t c, float* HWY_RESTRICT sum,
                  float* HWY_RESTRICT squares) {
  for (int64_t strip = 0; strip < c; strip += kStrip) {
    const int64_t width = std::min(kStrip, c - strip);
    float shift[kStrip] = {}, s[kStrip] = {}, q[kStrip] = {};
    for (int64_t k = 0; k < width; ++k) shift[k] = x[strip + k];
    for (int64_t row = 0; row < rows; ++row) {
      const float* HWY_RESTRICT p = x + row * c + strip;
      for (int64_t k = 0; k < width; ++k) {
        const float d = p[k] - shift[k];
        s[k] += d;
        q[k] += d * d;
      }
    }
    for (int64_t k = 0; k < width; ++k) {
      sum[strip + k] = s[k];
      squares[strip + k] = q[k];
    }
  }
}

template <bool kRelu, bool kResidual>
void NormalizeRow(const float* HWY_RESTRICT x, const float* HWY_RESTRICT residual,
                  const Affine& affine, float* HWY_RESTRICT y, int64_t c) {
  const float* HWY_RESTRICT mean = affine.mean;
  const float* HWY_RESTRICT scale = affine.scale;
  const float* HWY_RESTRICT bias = affine.bias;
  for (int64_t k = 0; k < c; ++k) {
    float z = (x[k] - mean[k]) * scale[k] + bias[k];
    if (kResidual) z += residual[k];
    if (kRelu) z = !(z <= 0) ? z : 0.0f;
    y[k] = z;
  }
}

// After a relu, y is not 0 exactly where it was kept.
void SignBlock(const float* HWY_RESTRICT y, uint8_t* HWY_RESTRICT mask, int64_t c) {
  for (int64_t k = 0; k < c; ++k) {
    int bits = 0;
    for (int r = 0; r < 8; ++r) bits |= (y[r * c + k] != 0 ? 1 : 0) << r;
    mask[k] = static_cast<uint8_t>(bits);
  }
}

void Normalize(const float* x, const float* residual, const Affine& affine, bool relu, float* y,
               uint8_t* mask, int64_t rows, int64_t c) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* px = x + row * c;
    float* py = y + row * c;
    if (residual != nullptr) {
      const float* pr = residual + row * c;
      relu ? NormalizeRow<true, true>(px, pr, affine, py, c)
           : NormalizeRow<false, true>(px, pr, affine, py, c);
    } else {
      relu ? NormalizeRow<true, false>(px, nullptr, affine, py, c)
           : NormalizeRow<false, false>(px, nullptr, affine, py, c);
    }
    if (mask != nullptr && row % 8 == 7) SignBlock(y + (row - 7) * c, mask + row / 8 * c, c);
  }
}

void NormalizeByMask(const float* x, const Affine& affine, const uint8_t* mask, float* y,
                     int64_t rows, int64_t c) {
  const float* HWY_RESTRICT mean = affine.mean;
  const float* HWY_RESTRICT scale = affine.scale;
  const float* HWY_RESTRICT bias = affine.bias;
  for (int64_t row = 0; row < rows; ++row) {
    const float* HWY_RESTRICT px = x + row * c;
    float* HWY_RESTRICT py = y + row * c;
    const uint8_t* HWY_RESTRICT pm = mask + row / 8 * c;
    const int shift = static_cast<int>(row % 8);
    for (int64_t k = 0; k < c; ++k) {
      const float z = (px[k] - mean[k]) * scale[k] + bias[k];
      py[k] = (pm[k] >> shift & 1) != 0 ? z : 0.0f;
    }
  }
}

template <bool kMask, bool kWrite>
void GradientChunk(const float* dy, const uint8_t* mask, const float* x, const float* mean,
                   float* g, float* sum, float* product, int64_t rows, int64_t c) {
  for (int64_t strip = 0; strip < c; strip += kStrip) {
    const int64_t width = std::min(kStrip, c - strip);
    float m[kStrip] = {}, s[kStrip] = {}, p[kStrip] = {};
    for (int64_t k = 0; k < width; ++k) m[k] = mean[strip + k];
    for (int64_t row = 0; row < rows; ++row) {
      const float* HWY_RESTRICT pd = dy + row * c + strip;
      const float* HWY_RESTRICT px = x + row * c + strip;
      float* HWY_RESTRICT pg = kWrite ? g + row * c + strip : nullptr;
      const uint8_t* HWY_RESTRICT pm = kMask ? mask + row / 8 * c + strip : nullptr;
      const int shift = static_cast<int>(row % 8);
      for (int64_t k = 0; k < width; ++k) {
        float d = pd[k];
        if (kMask) d = (pm[k] >> shift & 1) != 0 ? d : 0.0f;
        if (kWrite) pg[k] = d;
        s[k] += d;
        p[k] += d * (px[k] - m[k]);
      }
    }
    for (int64_t k = 0; k < width; ++k) {
      sum[strip + k] = s[k];
      product[strip + k] = p[k];
    }
  }
}

void ChunkGradients(const float* dy, const uint8_t* mask, const float* x, const float* mean,
                    float* g, float* sum, float* product, int64_t rows, int64_t c) {
  if (mask != nullptr)
    g != nullptr ? GradientChunk<true, true>(dy, mask, x, mean, g, sum, product, rows, c)
                 : GradientChunk<true, false>(dy, mask, x, mean, g, sum, product, rows, c);
  else
    g != nullptr ? GradientChunk<false, true>(dy, mask, x, mean, g, sum, product, rows, c)
                 : GradientChunk<false, false>(dy, mask, x, mean, g, sum, product, rows, c);
}

template <bool kMask>
void InputGradientRows(const float* dy, const uint8_t* mask, const float* x,
                       const GradientAffine& affine, float* dx, int64_t rows, int64_t c) {
  const float* HWY_RESTRICT mean = affine.mean;
  const float* HWY_RESTRICT of_g = affine.of_g;
  const float* HWY_RESTRICT of_x = affine.of_x;
  const float* HWY_RESTRICT constant = affine.constant;
  for (int64_t row = 0; row < rows; ++row) {
    const float* HWY_RESTRICT pd = dy + row * c;
    const float* HWY_RESTRICT px = x + row * c;
    float* HWY_RESTRICT po = dx + row * c;
    const uint8_t* HWY_RESTRICT pm = kMask ? mask + row / 8 * c : nullptr;
    const int shift = static_cast<int>(row % 8);
    for (int64_t k = 0; k < c; ++k) {
      float d = pd[k];
      if (kMask) d = (pm[k] >> shift & 1) != 0 ? d : 0.0f;
      po[k] = d * of_g[k] + (px[k] - mean[k]) * of_x[k] + constant[k];
    }
  }
}

void InputGradient(const float* dy, const uint8_t* mask, const float* x,
                   const GradientAffine& affine, float* dx, int64_t rows, int64_t c) {
  mask != nullptr ? InputGradientRows<true>(dy, mask, x, affine, dx, rows, c)
                  : InputGradientRows<false>(dy, nullptr, x, affine, dx, rows, c);
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::ops::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::ops::simd {

HWY_EXPORT(RectifyBlocks);
HWY_EXPORT(SelectBlocks);
HWY_EXPORT(ChunkMoments);
HWY_EXPORT(Normalize);
HWY_EXPORT(NormalizeByMask);
HWY_EXPORT(ChunkGradients);
HWY_EXPORT(InputGradient);

void rectify_blocks(const float* x, float slope, float* y, uint8_t* mask, int64_t blocks,
                    int64_t cols) {
  HWY_DYNAMIC_DISPATCH(RectifyBlocks)(x, slope, y, mask, blocks, cols);
}
void select_blocks(const float* x, const uint8_t* mask, float slope, float* y, int64_t blocks,
                   int64_t cols) {
  HWY_DYNAMIC_DISPATCH(SelectBlocks)(x, mask, slope, y, blocks, cols);
}
void chunk_moments(const float* x, int64_t rows, int64_t c, float* sum, float* squares) {
  HWY_DYNAMIC_DISPATCH(ChunkMoments)(x, rows, c, sum, squares);
}
void normalize(const float* x, const float* residual, const Affine& affine, bool relu, float* y,
               uint8_t* mask, int64_t rows, int64_t c) {
  HWY_DYNAMIC_DISPATCH(Normalize)(x, residual, affine, relu, y, mask, rows, c);
}
void normalize_by_mask(const float* x, const Affine& affine, const uint8_t* mask, float* y,
                       int64_t rows, int64_t c) {
  HWY_DYNAMIC_DISPATCH(NormalizeByMask)(x, affine, mask, y, rows, c);
}
void chunk_gradients(const float* dy, const uint8_t* mask, const float* x, const float* mean,
                     float* g, float* sum, float* product, int64_t rows, int64_t c) {
  HWY_DYNAMIC_DISPATCH(ChunkGradients)(dy, mask, x, mean, g, sum, product, rows, c);
}
void input_gradient(const float* dy, const uint8_t* mask, const float* x,
                    const GradientAffine& affine, float* dx, int64_t rows, int64_t c) {
  HWY_DYNAMIC_DISPATCH(InputGradient)(dy, mask, x, affine, dx, rows, c);
}

}  // namespace frugal::ops::simd
#endif
