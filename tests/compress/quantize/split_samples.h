// Inputs that the tests of split groups share.
#pragma once
#include <algorithm>
#include <functional>

#include "compress/quantize/quantize_split.h"
#include "core/rng.h"
#include "ops/dense/bitmask.h"
#include "tests/compress/bytes.h"
#include "tests/compress/quantize/samples.h"

namespace frugal::compress {

// How the bits of a mask are chosen.
enum class Bits : uint8_t { sign, random, clear, set, one };

inline bool wanted_bit(Bits bits, const std::vector<float>& x, size_t i) {
  switch (bits) {
    case Bits::sign:
      return x[i] > 0;
    case Bits::random:
      return uniform({99, 0}, i) < 0.5f;
    case Bits::clear:
      return false;
    case Bits::set:
      return true;
    default:
      return i == x.size() / 2;  // a class of one element
  }
}

// The bit of element i in a mask of `shape` (ops/dense/bitmask.h).
inline bool bit_at(const Tensor& mask, const Shape& shape, int64_t i) {
  const ops::BitmaskLayout layout = ops::bitmask_layout(shape);
  const int64_t row = i / layout.cols;
  return mask.data<uint8_t>()[row / 8 * layout.cols + i % layout.cols] >> (row % 8) & 1;
}

inline Tensor mask_of(const Shape& shape, const std::function<bool(size_t)>& bit) {
  const ops::BitmaskLayout layout = ops::bitmask_layout(shape);
  Tensor mask = ops::empty_bitmask(shape, kCpu);
  uint8_t* bytes = mask.mut<uint8_t>();
  std::fill(bytes, bytes + mask.numel(), uint8_t{0});
  for (int64_t i = 0; i < shape.numel(); ++i) {
    const int64_t row = i / layout.cols;
    uint8_t& byte = bytes[row / 8 * layout.cols + i % layout.cols];
    byte = static_cast<uint8_t>(byte | bit(static_cast<size_t>(i)) << (row % 8));
  }
  return mask;
}
inline Tensor mask_of(const std::vector<float>& x, const Shape& shape, Bits bits) {
  return mask_of(shape, [&](size_t i) { return wanted_bit(bits, x, i); });
}

// A group's metadata and codes, read as the format says, in one of its rows.
struct SplitGroup {
  ClassRange of[2];
  SplitCodes codes;
  bool draws = false, drawn = false;  // draws rows; the row is drawn
  double step(bool k) const {
    const int n = codes.count[k];
    return n < 2 ? 0 : static_cast<double>(of[k].range) / (n - 1);
  }
  // draws: where a class has one code, it stands for this.
  double place(bool k) const {
    const int above = class_above(of[0].lo, of[0].range, of[1].lo, of[1].range);
    const double q = static_cast<double>(drawn_place(k ? 1 : 0, above));
    return static_cast<double>(of[k].lo) + q * static_cast<double>(of[k].range);
  }
};

inline bool is_drawn(const CodeStream& stream, int64_t row, int64_t column) {
  return drawn_row(drawn_row_of_block(stream.key[0], static_cast<uint32_t>(row / 8)),
                   drawn_row_of_column(stream.key[1], static_cast<uint32_t>(column))) ==
         static_cast<uint32_t>(row % 8);
}

struct SplitCase {
  PackedCase packed;
  Tensor mask;
  double slope = 0;
  CodeStream stream;
  Rounding rounding;
  const Quantized& quantized() const { return packed.quantized(); }
  SplitGroup group_of(int64_t row, int64_t column) const {
    return group_of(packed.bytes(), row, column);
  }
  // The group of each element.
  std::vector<SplitGroup> groups() const {
    const GroupLayout& layout = quantized().layout();
    const std::vector<uint8_t> bytes = packed.bytes();
    std::vector<SplitGroup> all;
    for (int64_t i = 0; i < layout.numel; ++i)
      all.push_back(group_of(bytes, i / layout.cols, i % layout.cols));
    return all;
  }

 private:
  SplitGroup group_of(const std::vector<uint8_t>& all, int64_t row, int64_t column) const {
    const GroupLayout& layout = quantized().layout();
    float words[4];
    for (int64_t i = 0; i < 4; ++i) {
      BFloat16 value;
      const int64_t at =
          layout.meta_offset(row / layout.group_rows) + (i * layout.cols + column) * 2;
      std::memcpy(&value.bits, &all[static_cast<size_t>(at)], 2);
      words[i] = static_cast<float>(value);
    }
    SplitGroup group{{{words[0], words[1]}, {words[2], words[3]}}, {}};
    const SplitWeights weights = split_weights(slope, DType::f32, rounding);
    group.codes = split_codes(words[1], words[3], weights, layout.bits);
    group.draws = draws_rows(weights, layout.bits, words[1], words[3]);
    group.drawn = group.draws && is_drawn(stream, row, column);
    if (group.draws) group.codes = group.drawn ? SplitCodes{{3, 1}} : SplitCodes{{1, 3}};
    return group;
  }
};

inline SplitCase split_pack(const Quantizer& codec, const Tensor& x, const Tensor& mask,
                            double slope, SaveInfo info = {}) {
  const Sign sign{mask, slope};
  info.sign = &sign;
  return {{codec.pack(x, info)},
          mask,
          slope,
          code_stream(codec.options().seed, info),
          codec.options().rounding};
}
inline SplitCase split_pack(const Quantizer& codec, const std::vector<float>& x, const Shape& shape,
                            const Tensor& mask, double slope, const SaveInfo& info = {}) {
  return split_pack(codec, Tensor::from(x, shape), mask, slope, info);
}

}  // namespace frugal::compress
