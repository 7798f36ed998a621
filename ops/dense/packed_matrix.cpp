#include "ops/dense/packed_matrix.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/dtype_switch.h"
#include "core/integers.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/dense/packed_loops.h"
#include "ops/optimizer/blockwise.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

constexpr const char* kOp = "pack_matrix";
constexpr float kMostInt8 = 127;

// Values above so many of these bounds have that code. Each bound is the middle of two neighbours.
const std::array<float, 15>& bounds() {
  static const std::array<float, 15> all = [] {
    std::array<float, 15> made{};
    for (size_t i = 0; i < made.size(); ++i)
      made[i] =
          static_cast<float>((static_cast<double>(nf4_values()[i]) + nf4_values()[i + 1]) / 2);
    return made;
  }();
  return all;
}

// The codes of up to 64 shares from -1 to 1. `shares` behind `n` are overwritten.
void nearest(std::array<float, kNf4Block>& shares, int64_t n, uint8_t* bytes) {
  std::fill(shares.begin() + n, shares.end(), 0.0F);
  std::array<int32_t, kNf4Block> codes{};
  for (const float bound : bounds())
    for (size_t i = 0; i < codes.size(); ++i) codes[i] += shares[i] > bound ? 1 : 0;
  for (int64_t i = 0; i < n; i += 2)
    bytes[i / 2] = static_cast<uint8_t>(codes[static_cast<size_t>(i)] << 4 |
                                        codes[static_cast<size_t>(i) + 1]);
}

// The scales of blocks [first, first + n) of an nf4 matrix. Two roundings (CMakeLists.txt), as on
// every device.
void nf4_scales(const PackedMatrix& m, int64_t first, int64_t n, float* to) {
  const float* const numbers = state_map_values(StateMap::with_sign).data();
  const uint8_t* const codes = m.scales.data<uint8_t>();
  const float* const blocks = m.scale_blocks.data<float>();
  const float mean = m.scale_mean.data<float>()[0];
  for (int64_t i = first; i < first + n; ++i)
    *to++ = numbers[codes[i]] * blocks[i / kStateBlock] + mean;
}

// Elements [first, first + n) in row-major order of an nf4 matrix. Whole blocks are unpacked
// together, other elements one by one.
void unpack_nf4(const PackedMatrix& m, int64_t first, int64_t n, float* to) {
  const auto* codes = m.codes.data<uint8_t>();
  const auto one_by_one = [&](int64_t count) {
    const float scale = count > 0 ? nf4_scale(m, first / kNf4Block) : 0;
    for (int64_t i = first; i < first + count; ++i)
      *to++ = nf4_values()[i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15] * scale;
    first += count, n -= count;
  };
  one_by_one(std::min(n, (kNf4Block - first % kNf4Block) % kNf4Block));
  constexpr int64_t kBlocks = 64;
  std::array<float, kBlocks> scales{};
  while (n >= kNf4Block) {
    const int64_t blocks = std::min(kBlocks, n / kNf4Block);
    nf4_scales(m, first / kNf4Block, blocks, scales.data());
    simd::unpack_nf4(codes + first / 2, scales.data(), nf4_values().data(), blocks, to);
    first += blocks * kNf4Block, n -= blocks * kNf4Block, to += blocks * kNf4Block;
  }
  one_by_one(n);
}

template <class T>
void unpack_row_as(const PackedMatrix& m, int64_t row, int64_t column, int64_t n, T* to) {
  if constexpr (std::is_same_v<T, float>) return unpack_row(m, row, column, n, to);
  std::array<float, 16 * kNf4Block> values{};
  for (int64_t begin = 0; begin < n; begin += std::ssize(values)) {
    const int64_t count = std::min(n - begin, static_cast<int64_t>(values.size()));
    unpack_row(m, row, column + begin, count, values.data());
    std::transform(values.begin(), values.begin() + count, to + begin,
                   [](float value) { return static_cast<T>(value); });
  }
}

void pack_nf4(const float* from, PackedMatrix& m) {
  const int64_t n = m.rows * m.columns, blocks = m.scales.numel();
  auto* codes = m.codes.mut<uint8_t>();
  std::vector<float> largest(static_cast<size_t>(blocks));
  parallel_for(0, blocks, rows_at_once(kArithmeticGrain, 8 * kNf4Block),
               [&](int64_t begin, int64_t end) {
                 for (int64_t block = begin; block < end; ++block) {
                   const int64_t first = block * kNf4Block, count = std::min(kNf4Block, n - first);
                   float most = 0;
                   for (int64_t i = 0; i < count; ++i)
                     most = std::max(most, std::fabs(from[first + i]));
                   largest[static_cast<size_t>(block)] = most;
                   const float inverse = 1 / most;
                   const bool inverts = std::isfinite(inverse);
                   std::array<float, kNf4Block> shares{};
                   for (int64_t i = 0; i < count && most > 0; ++i) {
                     const float x = from[first + i];
                     shares[static_cast<size_t>(i)] = inverts ? x * inverse : x / most;
                   }
                   nearest(shares, count, codes + first / 2);
                 }
               });
  double sum = 0;
  for (const float scale : largest) sum += scale;
  const auto mean = static_cast<float>(sum / static_cast<double>(std::max<int64_t>(blocks, 1)));
  m.scale_mean.mut<float>()[0] = mean;
  for (float& scale : largest) scale -= mean;
  const CategoryScope scope(Category::workspace);
  const BlockwiseState packed =
      quantize_blockwise(Tensor::from(largest, {blocks}), StateMap::with_sign);
  copy_into(m.scales, packed.codes);
  copy_into(m.scale_blocks, packed.scales);
}

void pack_int8(const float* from, PackedMatrix& m) {
  auto* codes = m.codes.mut<uint8_t>();
  auto* scales = m.scales.mut<float>();
  const int64_t width = m.columns;
  parallel_for(0, m.rows, rows_at_once(kArithmeticGrain, width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* x = from + row * width;
      float most = 0;
      for (int64_t i = 0; i < width; ++i) most = std::max(most, std::fabs(x[i]));
      scales[row] = most / kMostInt8;
      for (int64_t i = 0; i < width; ++i) {
        const double share = most > 0 ? static_cast<double>(x[i]) / most : 0;
        codes[row * width + i] =
            static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(share * kMostInt8)));
      }
    }
  });
}

bool is_finite(const Tensor& f32) {
  const auto* x = f32.data<float>();
  constexpr int64_t kChunk = 4096;  // without a way out of the loop, it is vectorized
  bool finite = true;
  for (int64_t begin = 0; begin < f32.numel() && finite; begin += kChunk)
    for (int64_t i = begin; i < std::min(begin + kChunk, f32.numel()); ++i)
      finite = finite & std::isfinite(x[i]);
  return finite;
}

}  // namespace

std::string_view name_of(MatrixFormat format) {
  constexpr std::string_view kNames[] = {"f32", "bf16", "int8", "nf4"};
  return kNames[static_cast<size_t>(format)];
}

const std::array<float, 16>& nf4_values() {
  // QLoRA's appendix E
  static const std::array<float, 16> all = {-1.0F,
                                            -0.6961928009986877F,
                                            -0.5250730514526367F,
                                            -0.39491748809814453F,
                                            -0.28444138169288635F,
                                            -0.18477343022823334F,
                                            -0.09105003625154495F,
                                            0.0F,
                                            0.07958029955625534F,
                                            0.16093020141124725F,
                                            0.24611230194568634F,
                                            0.33791524171829224F,
                                            0.44070982933044434F,
                                            0.5626170039176941F,
                                            0.7229568362236023F,
                                            1.0F};
  return all;
}

int64_t PackedMatrix::nbytes() const {
  int64_t bytes = 0;
  for (const auto& [ending, tensor] : parts()) bytes += tensor->nbytes();
  return bytes;
}

std::vector<std::pair<const char*, const Tensor*>> PackedMatrix::parts() const {
  std::vector<std::pair<const char*, const Tensor*>> all = {{"", &codes}};
  if (scales.defined()) all.emplace_back(".absmax", &scales);
  if (scale_blocks.defined()) all.emplace_back(".nested_absmax", &scale_blocks);
  if (scale_mean.defined()) all.emplace_back(".nested_offset", &scale_mean);
  return all;
}

std::vector<std::pair<const char*, Tensor*>> PackedMatrix::parts() {
  std::vector<std::pair<const char*, Tensor*>> all;
  for (const auto& [ending, tensor] : std::as_const(*this).parts())
    all.emplace_back(ending, const_cast<Tensor*>(tensor));
  return all;
}

PackedMatrix empty_packed(MatrixFormat format, int64_t rows, int64_t columns, Device device) {
  FRUGAL_ASSERT(format != MatrixFormat::f32);
  const CategoryScope scope(Category::parameter);
  PackedMatrix m{format, rows, columns, {}, {}, {}, {}};
  const int64_t n = rows * columns, blocks = ceil_div(n, kNf4Block);
  if (format == MatrixFormat::nf4) {
    m.codes = Tensor::empty({ceil_div(n, 2), 1}, DType::u8, device);
    m.scales = Tensor::empty({blocks}, DType::u8, device);
    m.scale_blocks = Tensor::empty({state_blocks(blocks)}, DType::f32, device);
    m.scale_mean = Tensor::empty({1}, DType::f32, device);
  } else {
    const bool bf16 = format == MatrixFormat::bf16;
    m.codes = Tensor::empty({rows, columns}, bf16 ? DType::bf16 : DType::u8, device);
    if (!bf16) m.scales = Tensor::empty({rows}, DType::f32, device);
  }
  return m;
}

PackedMatrix pack_matrix(const Tensor& matrix, MatrixFormat format) {
  check_dim(kOp, "a matrix", matrix, 2);
  FRUGAL_CHECK(
      is_floating(matrix.dtype()) && matrix.numel() > 0 && matrix.device().type != DeviceType::cuda,
      "[{}] expected a floating matrix with elements on cpu, got {}", kOp, describe(matrix));
  PackedMatrix m = empty_packed(format, matrix.size(0), matrix.size(1), matrix.device());
  if (matrix.device() == kMeta) return m;
  const CategoryScope scope(Category::workspace);
  const Tensor x = contiguous(cast(matrix, DType::f32));
  FRUGAL_CHECK(is_finite(x), "[{}] expected finite values within f32, got others in a matrix {}",
               kOp, matrix.shape());
  switch (format) {
    case MatrixFormat::nf4:
      pack_nf4(x.data<float>(), m);
      break;
    case MatrixFormat::int8:
      pack_int8(x.data<float>(), m);
      break;
    case MatrixFormat::bf16:
    case MatrixFormat::f32:
      copy_into(m.codes, x);
      break;
  }
  return m;
}

void unpack_row(const PackedMatrix& m, int64_t row, int64_t column, int64_t n, float* to) {
  const int64_t first = row * m.columns + column;
  if (m.format == MatrixFormat::nf4)
    unpack_nf4(m, first, n, to);
  else if (m.format == MatrixFormat::int8)
    simd::unpack_int8(m.codes.data<uint8_t>() + first, m.scales.data<float>()[row], n, to);
  else
    simd::unpack_bf16(m.codes.data<BFloat16>() + first, n, to);
}

float nf4_scale(const PackedMatrix& m, int64_t block) {
  float scale = 0;
  nf4_scales(m, block, 1, &scale);
  return scale;
}

void unpack_tile_kernel(Cpu, const PackedMatrix& m, const Tile& tile, const Tensor& to) {
  const int64_t width = tile.columns;
  with_dtype(to.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> ||
                  std::is_same_v<T, BFloat16>) {
      T* out = to.mut<T>();
      parallel_for(0, tile.rows, rows_at_once(kArithmeticGrain, width),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i)
                       unpack_row_as(m, tile.row + i, tile.column, width, out + i * width);
                   });
    } else {
      FRUGAL_ASSERT(false);
    }
  });
}

Tensor unpack_tile(const PackedMatrix& m, const Tile& tile, DType dtype) {
  FRUGAL_ASSERT(tile.row >= 0 && tile.row + tile.rows <= m.rows && tile.column >= 0 &&
                tile.column + tile.columns <= m.columns);
  const Tensor to = workspace({tile.rows, tile.columns}, dtype, m.device());
  dispatch(m.device(), [&](auto backend) { unpack_tile_kernel(backend, m, tile, to); });
  return to;
}

Tensor unpack_matrix(const PackedMatrix& m, DType dtype) {
  const Tensor to = Tensor::empty({m.rows, m.columns}, dtype, m.device());
  dispatch(m.device(), [&](auto backend) {
    unpack_tile_kernel(backend, m, {0, m.rows, 0, m.columns}, to);
  });
  return to;
}

}  // namespace frugal::ops
