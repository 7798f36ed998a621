#include "ops/weight_tiles.h"

#include <algorithm>
#include <array>

#include "core/parallel.h"

namespace frugal::ops {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements
constexpr int64_t kSide = 16;        // of a transposed square: one cache line of floats

struct Strides {
  int64_t row, column;
};

// to[row, column] = from[row, column], where each side has one stride of 1.
void copy_matrix(const float* from, Strides f, float* to, Strides t, int64_t rows,
                 int64_t columns) {
  if (f.column == 1 && t.column == 1) {
    for (int64_t i = 0; i < rows; ++i) std::copy_n(from + i * f.row, columns, to + i * t.row);
    return;
  }
  if (f.row == 1 && t.row == 1) {
    for (int64_t j = 0; j < columns; ++j) std::copy_n(from + j * f.column, rows, to + j * t.column);
    return;
  }
  // Whole lines on either side, through a square that stays in registers or L1.
  if (f.row == 1) {
    std::swap(f.row, f.column);
    std::swap(t.row, t.column);
    std::swap(rows, columns);
  }
  std::array<float, kSide * kSide> square;
  for (int64_t j0 = 0; j0 < columns; j0 += kSide)
    for (int64_t i0 = 0; i0 < rows; i0 += kSide) {
      const int64_t height = std::min(kSide, rows - i0), width = std::min(kSide, columns - j0);
      for (int64_t i = 0; i < height; ++i)
        std::copy_n(from + (i0 + i) * f.row + j0, width, square.data() + i * kSide);
      for (int64_t j = 0; j < width; ++j)
        for (int64_t i = 0; i < height; ++i)
          to[(i0 + i) * t.row + (j0 + j) * t.column] = square[static_cast<size_t>(i * kSide + j)];
    }
}

// Where (k, c, r, s) lies in a plain weight.
struct Plain {
  int64_t k, c, r, s;  // strides
  int64_t first;       // offset of (0, 0, 0, 0)
};

Plain plain_weight(const WeightTiles& t) { return {t.r * t.s * t.c, 1, t.s * t.c, t.c, 0}; }

Plain adjoint_weight(const WeightTiles& t) {
  return {1, t.r * t.s * t.k, -t.s * t.k, -t.k, (t.r * t.s - 1) * t.k};
}

// Calls f(offset in plain, offset in tiled, rows, columns) for every tile, rows along k, columns
// along c, in parallel. An axis without tiles is one run.
template <class F>
void for_tiles(const WeightTiles& t, const Plain& p, F f) {
  const int64_t tile_k = t.tile_k > 1 ? t.tile_k : t.k, tile_c = t.tile_c > 1 ? t.tile_c : t.c;
  const int64_t tiles_k = (t.k + tile_k - 1) / tile_k;
  const int64_t each = tile_k * t.c;
  parallel_for(0, tiles_k * t.r * t.s, std::max<int64_t>(1, kGrain / std::max<int64_t>(each, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t task = begin; task < end; ++task) {
                   const int64_t k = task / (t.r * t.s), r = task / t.s % t.r, s = task % t.s;
                   for (int64_t c = 0; c * tile_c < t.c; ++c)
                     f(p.first + k * tile_k * p.k + c * tile_c * p.c + r * p.r + s * p.s,
                       k * t.stride_k + c * t.stride_c + r * t.stride_r + s * t.stride_s,
                       std::min(tile_k, t.k - k * tile_k), std::min(tile_c, t.c - c * tile_c));
                 }
               });
}

Strides inner(const WeightTiles& t) {
  return {t.tile_k > 1 ? t.inner_k : t.stride_k, t.tile_c > 1 ? t.inner_c : t.stride_c};
}

void pack(const WeightTiles& t, const Plain& p, const float* plain, float* tiled) {
  if (t.numel != t.k * t.c * t.r * t.s) std::fill_n(tiled, t.numel, 0.0f);
  for_tiles(t, p, [&](int64_t from, int64_t to, int64_t rows, int64_t columns) {
    copy_matrix(plain + from, {p.k, p.c}, tiled + to, inner(t), rows, columns);
  });
}

}  // namespace

void pack_weight(const WeightTiles& tiles, const float* plain, float* tiled) {
  pack(tiles, plain_weight(tiles), plain, tiled);
}

void pack_adjoint_weight(const WeightTiles& tiles, const float* plain, float* tiled) {
  pack(tiles, adjoint_weight(tiles), plain, tiled);
}

void unpack_weight(const WeightTiles& t, const float* tiled, float* plain) {
  const Plain p = plain_weight(t);
  for_tiles(t, p, [&](int64_t to, int64_t from, int64_t rows, int64_t columns) {
    copy_matrix(tiled + from, inner(t), plain + to, {p.k, p.c}, rows, columns);
  });
}

}  // namespace frugal::ops
