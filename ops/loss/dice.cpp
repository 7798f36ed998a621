#include "ops/loss/dice.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/dense/copy.h"
#include "ops/dense/softmax.h"
#include "ops/f32_blocks.h"
#include "ops/loss/targets.h"

namespace frugal::ops {
namespace {

// Sums over rows for one class: of its probabilities, of those at its own rows, and its rows.
struct Sums {
  double all = 0, own = 0, rows = 0;
};

}  // namespace

void dice_kernel(Cpu, const Tensor& gradient, const Tensor& target, const Tensor& loss,
                 const DiceOptions& options) {
  const int64_t rows = gradient.size(0), classes = gradient.size(1);
  const int64_t* at = target.data<int64_t>();
  for (int64_t row = 0; row < rows; ++row)
    FRUGAL_CHECK((at[row] >= 0 && at[row] < classes) || at[row] == options.ignore_index,
                 "[dice_loss] expected targets in [0, {}) or the ignored index {}, got {} in row "
                 "{}",
                 classes, options.ignore_index, at[row], row);
  constexpr int64_t kChunkRows = 512;  // rows whose sums one thread makes
  const int64_t chunks = (rows + kChunkRows - 1) / kChunkRows;
  std::vector<Sums> partial(static_cast<size_t>(chunks * classes));
  for_real_rows(rows, classes, kChunkRows, 1, {&gradient}, {},
                [&](const auto& in, const auto&, int64_t first, int64_t count) {
                  Sums* const sums = partial.data() + first / kChunkRows * classes;
                  for (int64_t row = 0; row < count; ++row) {
                    const int64_t right = at[first + row];
                    if (right == options.ignore_index) continue;
                    const auto* p = in[0] + row * classes;
                    for (int64_t c = 0; c < classes; ++c) sums[c].all += static_cast<double>(p[c]);
                    sums[right].own += static_cast<double>(p[right]);
                    sums[right].rows += 1;
                  }
                });
  // d(loss)/d(p_c) is `each`, and at the rows of the class `own` more.
  std::vector<double> each(static_cast<size_t>(classes)), own(static_cast<size_t>(classes));
  const double share = 1 / static_cast<double>(classes);
  double dice = 0;
  for (int64_t c = 0; c < classes; ++c) {
    Sums sums;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const Sums& part = partial[static_cast<size_t>(chunk * classes + c)];
      sums.all += part.all;
      sums.own += part.own;
      sums.rows += part.rows;
    }
    const double top = 2 * sums.own + options.smooth;
    const double bottom = sums.all + sums.rows + options.smooth;
    dice += share * top / bottom;
    each[static_cast<size_t>(c)] = share * top / (bottom * bottom);
    own[static_cast<size_t>(c)] = -2 * share / bottom;
  }
  with_real(loss.dtype(), [&](auto zero) {
    using T = decltype(zero);
    *loss.mut<T>() = static_cast<T>(1 - dice);
  });
  for_real_rows(rows, classes, kChunkRows, 1, {&gradient}, {&gradient},
                [&](const auto& in, const auto& out, int64_t first, int64_t count) {
                  using T = std::remove_pointer_t<std::decay_t<decltype(out[0])>>;
                  for (int64_t row = 0; row < count; ++row) {
                    const auto* p = in[0] + row * classes;
                    T* to = out[0] + row * classes;
                    const int64_t right = at[first + row];
                    if (right == options.ignore_index) {
                      std::fill_n(to, classes, T{0});
                      continue;
                    }
                    double mean = own[static_cast<size_t>(right)] * static_cast<double>(p[right]);
                    for (int64_t c = 0; c < classes; ++c)
                      mean += each[static_cast<size_t>(c)] * static_cast<double>(p[c]);
                    for (int64_t c = 0; c < classes; ++c) {
                      const double slope = each[static_cast<size_t>(c)] +
                                           (c == right ? own[static_cast<size_t>(c)] : 0);
                      to[c] = static_cast<T>(static_cast<double>(p[c]) * (slope - mean));
                    }
                  }
                });
}

DiceResult dice_loss(const Tensor& logits, const Tensor& target, const DiceOptions& options) {
  const char* const op = "dice_loss";
  check_targets(op, logits, target);
  FRUGAL_CHECK(options.smooth > 0 && options.smooth < std::numeric_limits<double>::infinity(),
               "[{}] expected a smooth term above 0, got {}", op, options.smooth);
  const DType dtype = dtype_beside(logits);
  DiceResult result{Tensor::empty({}, dtype, logits.device()), softmax(logits, -1)};
  const int64_t classes = logits.size(-1);
  const Tensor flat = result.gradient.view({logits.numel() / classes, classes});
  const Tensor at = contiguous(target).view({flat.size(0)});
  dispatch(logits.device(),
           [&](auto backend) { dice_kernel(backend, flat, at, result.loss, options); });
  return result;
}

}  // namespace frugal::ops
