// Inputs and shortcuts that the tests of compress share.
#pragma once
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "compress/quantize/quantize_kernels.h"
#include "core/rng.h"

namespace frugal::compress {

inline std::vector<float> normals(int64_t n, uint64_t seed, float scale = 1) {
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * normal({seed, 0}, i);
  return values;
}

inline Tensor noise(const Shape& shape, uint64_t seed, float scale = 1) {
  return Tensor::from(normals(shape.numel(), seed, scale), shape);
}

inline SaveInfo entry(uint64_t seq, uint64_t step = 0) {
  SaveInfo info;
  info.seq = seq;
  info.step = step;
  return info;
}

// A packed tensor with its format in view.
struct PackedCase {
  std::unique_ptr<Packed> packed;
  const Quantized& quantized() const { return static_cast<const Quantized&>(*packed); }
  std::vector<uint8_t> bytes() const {
    const Tensor& payload = quantized().payload();
    const uint8_t* data = payload.data<uint8_t>();
    return {data, data + payload.numel()};
  }
  std::vector<double> values() const { return packed->unpack().to_vector(); }
  // The metadata of a row group and a column (0 on the row axis).
  float meta(int64_t group, int64_t column, bool scale) const {
    const GroupLayout& layout = quantized().layout();
    const std::vector<uint8_t> all = bytes();
    const int64_t at = layout.meta_offset(group) + (column + (scale ? layout.metas() : 0)) * 2;
    BFloat16 value;
    std::memcpy(&value.bits, &all[static_cast<size_t>(at)], 2);
    return static_cast<float>(value);
  }
};

inline PackedCase pack(const Quantizer& codec, const std::vector<float>& x, const Shape& shape,
                       const SaveInfo& info = {}) {
  return {codec.pack(Tensor::from(x, shape), info)};
}

struct Targets {  // frees the choice of an instruction set even when a check throws
  ~Targets() { use_simd_target(""); }
};

// |z| that n standard normal draws exceed with probability 1e-6 in all (Bonferroni): the tail is
// below exp(-z^2 / 2).
inline double bonferroni(double n) { return std::sqrt(2 * std::log(2 * n / 1e-6)); }

}  // namespace frugal::compress
