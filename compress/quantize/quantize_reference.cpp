#include "compress/quantize/quantize_reference.h"

#include <Random123/philox.h>

#include <algorithm>
#include <limits>

#include "core/rng.h"

namespace frugal::compress {

namespace {

uint32_t bits_of(float value) {
  uint32_t u;
  std::memcpy(&u, &value, 4);
  return u;
}
float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
uint16_t upper(float value) { return static_cast<uint16_t>(bits_of(value) >> 16); }

// The index in the tensor of element [row, column] of the view, or -1 past its end.
int64_t element(const GroupLayout& layout, int64_t row, int64_t column) {
  const int64_t index = row * layout.cols + column;
  return index < layout.numel ? index : -1;
}

}  // namespace

float max_magnitude(int bits) { return bits == 1 ? 0x1.ep126f : 0x1.ep127f; }

CodeStream code_stream(uint64_t seed, const SaveInfo& info) {
  const auto words = philox({seed, info.step}, info.seq);
  return {{words[0], words[1]}, {words[2], words[3]}, seed, info.step, info.seq};
}

std::array<uint32_t, 4> code_words(const CodeStream& stream, uint32_t block, uint32_t index) {
  using Philox = r123::Philox4x32_R<7>;
  const auto out = Philox{}({{block, index, stream.counter[0], stream.counter[1]}},
                            {{stream.key[0], stream.key[1]}});
  return {out[0], out[1], out[2], out[3]};
}

GroupParameters group_parameters(float mn, float mx, bool has_nan, int bits) {
  GroupParameters p;
  const float limit = max_magnitude(bits);
  if (has_nan || !(mn >= -limit && mx <= limit)) {
    p.lo = p.scale = float_of(uint32_t{kNonfiniteBits} << 16);
    p.nonfinite = true;
    return p;
  }
  mn += 0.0f, mx += 0.0f;
  const uint32_t m = bits_of(mn);
  p.lo = float_of((m >> 31 ? m + 0xffffu : m) & 0xffff0000u);
  p.half = std::max(std::fabs(mn), std::fabs(mx)) >= 0x1p126f ? 0.5f : 1.0f;
  const float levels = static_cast<float>((1 << bits) - 1);
  const float range = std::fma(mx, p.half, -(p.lo * p.half));
  p.step = std::max(float_of((bits_of(range / levels) + 0xffffu) & 0xffff0000u), 0x1p-126f);
  if (levels * p.step < range) p.step = float_of(bits_of(p.step) + 0x10000u);
  p.scale = p.step / p.half;
  return p;
}

float element_dither(const CodeStream& stream, bool stochastic, int64_t row, int64_t column) {
  if (!stochastic) return 0.5f;
  const auto words =
      code_words(stream, static_cast<uint32_t>(row / 8), static_cast<uint32_t>(column / 2));
  const uint32_t h = words[static_cast<size_t>(dither_word(row, column))] >> (row % 4 * 8) & 0xffu;
  return (static_cast<float>(h) + 0.5f) / 256.0f;
}

uint32_t read_code(const uint8_t* codes, const GroupLayout& layout, const Planes& planes, int64_t n,
                   int64_t r, int64_t column) {
  uint32_t code = 0;
  int shift = 0;
  for (int p = 0; p < planes.count; ++p) {
    const int w = planes.width[static_cast<size_t>(p)];
    const uint32_t byte = codes[r * w / 8 * layout.cols + column];
    code |= (byte >> (r * w % 8) & ((1u << w) - 1)) << shift;
    shift += w;
    codes += (n * w + 7) / 8 * layout.cols;
  }
  return code;
}

void write_code(uint8_t* codes, const GroupLayout& layout, const Planes& planes, int64_t n,
                int64_t r, int64_t column, uint32_t code) {
  for (int p = 0; p < planes.count; ++p) {
    const int w = planes.width[static_cast<size_t>(p)];
    const uint32_t part = (code & ((1u << w) - 1)) << (r * w % 8);
    uint8_t& byte = codes[r * w / 8 * layout.cols + column];
    byte = static_cast<uint8_t>(byte | part);
    code >>= w;
    codes += (n * w + 7) / 8 * layout.cols;
  }
}

int64_t reference_pack(const float* x, const GroupLayout& layout, const CodeStream& stream,
                       bool stochastic, uint8_t* payload) {
  int64_t nonfinite = 0;
  const Planes planes = planes_of(layout.bits);
  const float top = static_cast<float>(1 << layout.bits);
  for (int64_t g = 0; g < layout.groups; ++g) {
    const int64_t n = layout.rows_of(g), row0 = g * layout.group_rows;
    uint8_t* codes = payload + layout.code_offset(g);
    std::memset(codes, 0, static_cast<size_t>(layout.code_bytes(n)));

    std::vector<GroupParameters> parameters;
    for (int64_t k = 0; k < layout.metas(); ++k) {
      float mn = std::numeric_limits<float>::infinity(), mx = -mn;
      bool has_nan = false;
      const int64_t lanes = layout.shared ? layout.cols : 1;
      for (int64_t r = 0; r < n; ++r)
        for (int64_t lane = 0; lane < lanes; ++lane) {
          const int64_t i = element(layout, row0 + r, k + lane);
          if (i < 0) continue;
          has_nan = has_nan || std::isnan(x[i]);
          mn = std::min(mn, x[i]), mx = std::max(mx, x[i]);
        }
      const GroupParameters p = group_parameters(mn, mx, has_nan, layout.bits);
      nonfinite += p.nonfinite;
      const uint16_t lo = upper(p.lo), scale = upper(p.scale);
      uint8_t* meta = payload + layout.meta_offset(g) + k * 2;
      std::memcpy(meta, &lo, 2);
      std::memcpy(meta + layout.metas() * 2, &scale, 2);
      parameters.push_back(p);
    }

    for (int64_t r = 0; r < n; ++r)
      for (int64_t c = 0; c < layout.cols; ++c) {
        const int64_t i = element(layout, row0 + r, c);
        const GroupParameters& p = parameters[layout.shared ? 0 : static_cast<size_t>(c)];
        if (i < 0 || p.nonfinite) continue;
        const int64_t row = row0 + r;
        const float u = element_dither(stream, stochastic, row, c);
        const float d = x[i] * p.half - p.lo * p.half;
        const float v = std::min(std::fma(d, 1.0f / p.step, 1.0f + u), top);
        write_code(codes, layout, planes, n, r, c, static_cast<uint32_t>(v) - 1);
      }
  }
  return nonfinite;
}

void reference_unpack(const uint8_t* payload, const GroupLayout& layout, float* x,
                      const CodeStream* dither) {
  const Planes planes = planes_of(layout.bits);
  for (int64_t g = 0; g < layout.groups; ++g) {
    const int64_t n = layout.rows_of(g), row0 = g * layout.group_rows;
    for (int64_t r = 0; r < n; ++r)
      for (int64_t c = 0; c < layout.cols; ++c) {
        const int64_t i = element(layout, row0 + r, c);
        if (i < 0) continue;
        uint16_t lo, scale;
        const uint8_t* meta = payload + layout.meta_offset(g) + (layout.shared ? 0 : c) * 2;
        std::memcpy(&lo, meta, 2);
        std::memcpy(&scale, meta + layout.metas() * 2, 2);
        const uint32_t q = read_code(payload + layout.code_offset(g), layout, planes, n, r, c);
        const float base = float_of(uint32_t{lo} << 16), step = float_of(uint32_t{scale} << 16);
        float level = static_cast<float>(q);
        if (dither != nullptr && takes_dither_away(base, step))
          level += 0.5f - element_dither(*dither, true, row0 + r, c);
        x[i] = std::fma(level, step, base);
      }
  }
}

}  // namespace frugal::compress
