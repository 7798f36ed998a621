#include "ops/dense/packed_linear.h"

#include <algorithm>

#include "core/integers.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/dense/inplace.h"
#include "ops/dense/matmul.h"
#include "ops/dense/row_product.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

void check_packed(const char* op, const char* name, const Tensor& x, const PackedMatrix& weight,
                  int64_t extent) {
  check_real(op, name, x);
  FRUGAL_CHECK(weight.defined() && weight.device() == x.device(),
               "[{}] expected a packed weight on {}", op, x.device().str());
  FRUGAL_CHECK(x.dim() >= 1 && x.size(-1) == extent,
               "[{}] expected {} [..., {}] for a weight [{}, {}], got {}", op, name, extent,
               weight.rows, weight.columns, x.shape());
}

// How many rows or columns of `other` elements a tile has. Whole blocks of nf4 are faster.
int64_t tile_extent(int64_t other, DType dtype) {
  const int64_t fit = kTileBytes / (other * static_cast<int64_t>(size_of(dtype)));
  return std::max(kNf4Block, fit / kNf4Block * kNf4Block);
}

// y [..., extent] for x [..., other]; product(rows, out, begin, end) fills columns of `out`.
template <class F>
Tensor by_tiles(const Tensor& x, int64_t extent, F product) {
  Shape shape = x.shape();
  const int64_t other = shape[shape.dim() - 1], step = tile_extent(other, x.dtype());
  shape[shape.dim() - 1] = extent;
  const Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  if (y.numel() == 0) return y;
  const Tensor rows = as_rows(x), out = y.view({rows.size(0), extent});
  for (int64_t begin = 0; begin < extent; begin += step) {
    const int64_t end = std::min(begin + step, extent);
    product(rows, out.slice(1, begin, end), begin, end - begin);
  }
  return y;
}

// Is x one row, so that its product takes no tiles? Each thread then unpacks a row of the weight
// into its own cache and multiplies it there.
bool is_row(const Tensor& x) {
  return x.device().type != DeviceType::cuda && x.dtype() == DType::f32 && x.numel() > 0 &&
         x.numel() == x.size(-1) && x.is_contiguous();
}

// y [..., O] for one row x. Its sums are those of a whole weight (simd::row_products).
void row_product(const Tensor& x, const PackedMatrix& weight, const Tensor& y) {
  const int64_t n = weight.columns, rows = weight.rows;
  const int64_t ranges = parallel_ranges(rows, rows_at_once(kArithmeticGrain, n));
  const Tensor rooms = workspace({ranges, n}, DType::f32, x.device());
  if (x.device() == kMeta) return;
  parallel_for(0, ranges, 1, [&](int64_t begin, int64_t end) {
    for (int64_t range = begin; range < end; ++range) {
      float* const room = rooms.mut<float>() + range * n;
      for (int64_t row = rows * range / ranges; row < rows * (range + 1) / ranges; ++row) {
        unpack_row(weight, row, 0, n, room);
        simd::row_products(x.data<float>(), room, nullptr, 1, n, y.mut<float>() + row);
      }
    }
  });
}

}  // namespace

Tensor packed_linear(const Tensor& x, const PackedMatrix& weight, const Tensor& bias) {
  constexpr const char* kOp = "packed_linear";
  check_packed(kOp, "x", x, weight, weight.columns);
  check_beside(kOp, x, {&bias});
  if (bias.defined()) check_shape(kOp, "bias", bias, {weight.rows});
  const auto product = [&](const Tensor& rows, const Tensor& out, int64_t begin, int64_t count) {
    const Tensor tile = unpack_tile(weight, {begin, count, 0, weight.columns}, x.dtype());
    multiply_into(out, rows, tile.transpose(0, 1));
  };
  Tensor y;
  if (is_row(x)) {
    Shape shape = x.shape();
    shape[shape.dim() - 1] = weight.rows;
    y = Tensor::empty(shape, x.dtype(), x.device());
    row_product(x, weight, y);
  } else {
    y = by_tiles(x, weight.rows, product);
  }
  if (bias.defined()) accumulate_row(y, bias);
  return y;
}

Tensor packed_linear_backward_input(const Tensor& dy, const PackedMatrix& weight) {
  check_packed("packed_linear backward", "dy", dy, weight, weight.rows);
  return by_tiles(
      dy, weight.columns, [&](const Tensor& rows, const Tensor& out, int64_t begin, int64_t count) {
        multiply_into(out, rows, unpack_tile(weight, {0, weight.rows, begin, count}, dy.dtype()));
      });
}

}  // namespace frugal::ops
