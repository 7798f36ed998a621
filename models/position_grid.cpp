#include "models/position_grid.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/dense/copy.h"

namespace frugal::models {
namespace {

double keys_cubic(double x, double a) {
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

// What the cells of one old row or column count in a cell of a new one.
struct Taps {
  int64_t first = 0;
  std::vector<double> weights;
};

// Four neighbours. Beyond the edge the cell at the edge counts.
Taps neighbours(double at, int64_t from) {
  constexpr double kA = -0.75;
  const double below = std::floor(at);
  Taps taps;
  taps.first = std::clamp<int64_t>(static_cast<int64_t>(below) - 1, 0, from - 1);
  for (int64_t k = -1; k <= 2; ++k) {
    const int64_t cell = std::clamp<int64_t>(static_cast<int64_t>(below) + k, 0, from - 1);
    taps.weights.resize(std::max(taps.weights.size(), static_cast<size_t>(cell - taps.first) + 1));
    taps.weights[static_cast<size_t>(cell - taps.first)] +=
        keys_cubic(at - below - static_cast<double>(k), kA);
  }
  return taps;
}

// All old cells within two new ones, or within two old ones where these are larger. What lies
// beyond the edge is left out.
Taps average(double centre, double scale, int64_t from) {
  constexpr double kA = -0.5;
  const double wide = std::max(scale, 1.0), reach = 2 * wide;
  const auto first = std::max<int64_t>(static_cast<int64_t>(centre - reach + 0.5), 0);
  const auto end = std::min<int64_t>(static_cast<int64_t>(centre + reach + 0.5), from);
  Taps taps{first, {}};
  double sum = 0;
  for (int64_t cell = first; cell < end; ++cell) {
    taps.weights.push_back(keys_cubic((static_cast<double>(cell) - centre + 0.5) / wide, kA));
    sum += taps.weights.back();
  }
  for (double& weight : taps.weights) weight /= sum;
  return taps;
}

std::vector<Taps> taps_of(int64_t from, int64_t to, GridSampling sampling) {
  const auto n = static_cast<double>(from), m = static_cast<double>(to);
  std::vector<Taps> all;
  for (int64_t cell = 0; cell < to; ++cell) {
    const auto i = static_cast<double>(cell);
    switch (sampling) {
      case GridSampling::smooth:
        all.push_back(average((i + 0.5) * n / m, n / m, from));
        break;
      case GridSampling::centres:
        all.push_back(neighbours((i + 0.5) * n / m - 0.5, from));
        break;
      case GridSampling::corners:
        all.push_back(neighbours(to > 1 ? i * (n - 1) / (m - 1) : 0, from));
        break;
    }
  }
  return all;
}

// The middle axis of x [outer, from, inner] by `taps`.
std::vector<double> along_axis(const std::vector<double>& x, const std::vector<Taps>& taps,
                               size_t outer, size_t from, size_t inner) {
  std::vector<double> y(outer * taps.size() * inner);
  for (size_t o = 0; o < outer; ++o)
    for (size_t t = 0; t < taps.size(); ++t) {
      double* const to = y.data() + (o * taps.size() + t) * inner;
      for (size_t k = 0; k < taps[t].weights.size(); ++k) {
        const double* const source =
            x.data() + (o * from + static_cast<size_t>(taps[t].first) + k) * inner;
        for (size_t c = 0; c < inner; ++c) to[c] += taps[t].weights[k] * source[c];
      }
    }
  return y;
}

}  // namespace

int64_t grid_side(int64_t cells) {
  const auto side = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(cells))));
  return cells > 0 && side * side == cells ? side : 0;
}

Tensor resample_grid(const Tensor& rows, int64_t to, GridSampling sampling) {
  const int64_t side = rows.dim() == 2 ? grid_side(rows.size(0)) : 0;
  FRUGAL_CHECK(side > 0, "[resample_grid] expected rows of a square grid, got {}", describe(rows));
  FRUGAL_CHECK(to >= 1, "[resample_grid] expected a side of at least 1, got {}", to);
  const Shape shape{to * to, rows.size(1)};
  const DType dtype = rows.dtype() == DType::f64 ? DType::f64 : DType::f32;
  if (rows.device() == kMeta) return Tensor::empty(shape, dtype, kMeta);
  const std::vector<Taps> taps = taps_of(side, to, sampling);
  const auto from = static_cast<size_t>(side), width = static_cast<size_t>(rows.size(1));
  std::vector<double> values = rows.to_vector();
  values = along_axis(values, taps, 1, from, from * width);
  values = along_axis(values, taps, static_cast<size_t>(to), from, width);
  const Tensor y = Tensor::empty(shape, dtype);
  for (size_t i = 0; i < values.size(); ++i)
    if (dtype == DType::f64)
      y.mut<double>()[i] = values[i];
    else
      y.mut<float>()[i] = static_cast<float>(values[i]);
  return y;
}

std::optional<GridPositions> positions_on_grid(const std::string& name, const Tensor& tensor,
                                               const Shape& target, GridSampling sampling) {
  const Shape& shape = tensor.shape();
  if (shape.dim() != target.dim() || !is_floating(tensor.dtype())) return {};
  if (name.ends_with("relative_position_bias_table") && shape.dim() == 2) {
    const int64_t from = grid_side(shape[0]), to = grid_side(target[0]);
    if (from == 0 || to == 0 || shape[1] != target[1]) return {};
    return GridPositions{resample_grid(tensor, to, GridSampling::centres), from, to};
  }
  if (!name.ends_with("encoder.pos_embedding") || shape.dim() != 3) return {};
  const int64_t from = grid_side(shape[1] - 1), to = grid_side(target[1] - 1);
  if (from == 0 || to == 0 || shape[0] != 1 || target[0] != 1 || shape[2] != target[2]) return {};
  const Tensor rows = ops::contiguous(tensor).view({shape[1], shape[2]});
  const Tensor cells = resample_grid(rows.slice(0, 1, shape[1]), to, sampling);
  const Tensor all = Tensor::empty(target, cells.dtype(), tensor.device());
  if (all.device() == kMeta) return GridPositions{all, from, to};
  const Tensor rows_there = all.view({target[1], target[2]});
  ops::copy_into(rows_there.slice(0, 0, 1), rows.slice(0, 0, 1));
  ops::copy_into(rows_there.slice(0, 1, target[1]), cells);
  return GridPositions{all, from, to};
}

}  // namespace frugal::models
