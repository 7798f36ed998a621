#include "ops/sequence/rotary.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/f32_blocks.h"
#include "ops/shared_kernels.h"

namespace frugal {

std::vector<double> frequencies_of(const RotaryOptions& options, int64_t half) {
  std::vector<double> all;
  for (int64_t i = 0; i < half; ++i) all.push_back(frequency_of(options, i, half));
  return all;
}

RotaryOptions at_length(const RotaryOptions& options, int64_t length, int64_t width) {
  RotaryOptions all = options;
  if (options.scaling != RotaryOptions::Scaling::dynamic) return all;
  all.scaling = RotaryOptions::Scaling::none;
  const auto d = static_cast<double>(width), l = static_cast<double>(length);
  if (l > options.first_length && d > 2)
    all.base *=
        std::pow(options.factor * l / options.first_length - (options.factor - 1), d / (d - 2));
  return all;
}

namespace ops {
namespace {

// Cosines and sines of every position, [T or N T, 2, D/2]. Angles are f64, because positions may be
// large.
template <class T>
Tensor table_of(const Tensor& x, const Tensor& positions, const RotaryOptions& options,
                bool inverse) {
  const int64_t steps = positions.defined() ? positions.numel() : x.size(1), half = x.size(3) / 2;
  const std::vector<double> frequencies = frequencies_of(options, half);
  CategoryScope scope(Category::workspace);
  const Tensor table =
      Tensor::empty({steps, 2, half}, std::is_same_v<T, double> ? DType::f64 : DType::f32);
  parallel_for(
      0, steps, rows_at_once(kArithmeticGrain / 16, half), [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          const int64_t at = positions.defined() ? positions.data<int64_t>()[t] : t;
          T* row = table.mut<T>() + t * 2 * half;
          for (int64_t i = 0; i < half; ++i) {
            const double angle = static_cast<double>(at) * frequencies[static_cast<size_t>(i)];
            const double c = options.gain * std::cos(angle), s = options.gain * std::sin(angle);
            row[i] = static_cast<T>(c);
            row[half + i] = static_cast<T>(inverse ? -s : s);
          }
        }
      });
  return table;
}

// Turns the heads of `rows` of the N T rows of x, from row `first` on. `table`: of table_of().
template <class T>
void turn_rows(const T* from, const Tensor& table, int64_t first, int64_t rows, const Tensor& x,
               T* to) {
  const int64_t heads = x.size(2), d = x.size(3), half = d / 2, steps = table.size(0);
  for (int64_t i = 0; i < rows * heads; ++i) {
    const T *c = table.data<T>() + (first + i / heads) % steps * d, *s = c + half;
    const T *a = from + i * d, *b = a + half;
    T *p = to + i * d, *q = p + half;
    for (int64_t k = 0; k < half; ++k) {
      const T turned = a[k] * c[k] - b[k] * s[k];
      q[k] = b[k] * c[k] + a[k] * s[k];
      p[k] = turned;
    }
  }
}

// One more than the last of the positions.
int64_t end_of(const Tensor& positions) {
  if (!positions.defined() || positions.numel() == 0 || positions.raw() == nullptr) return 0;
  const std::vector<int64_t> all = to_device(positions, kCpu).to_vector<int64_t>();
  return *std::max_element(all.begin(), all.end()) + 1;
}

// The options with which rotary() turns x; they are not dynamic.
RotaryOptions at_positions(const RotaryOptions& options, const Tensor& x, const Tensor& positions) {
  int64_t length = x.size(1);
  if (options.scaling == RotaryOptions::Scaling::dynamic && positions.defined()) {
    const int64_t end = end_of(contiguous(positions));
    FRUGAL_CHECK(positions.dim() == 1 || static_cast<double>(end) <= options.first_length,
                 "[rotary] expected positions below first_length {} where each row has its own and "
                 "the scaling is dynamic, got {}",
                 options.first_length, end - 1);
    length = positions.dim() == 2 ? end : std::max(length, end);
  }
  return at_length(options, length, x.size(3));
}

}  // namespace

void rotary_kernel(Cpu, const Tensor& x, const Tensor& positions, const RotaryOptions& options,
                   bool inverse, const Tensor& y) {
  const int64_t rows = x.size(0) * x.size(1), width = x.size(2) * x.size(3);
  const int64_t grain = rows_at_once(kArithmeticGrain, width);
  if (x.numel() == 0) return;
  if (x.dtype() == DType::f64) {
    const Tensor table = table_of<double>(x, positions, options, inverse);
    return parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
      turn_rows(x.data<double>() + begin * width, table, begin, end - begin, x,
                y.mut<double>() + begin * width);
    });
  }
  const Tensor table = table_of<float>(x, positions, options, inverse);
  for_f32_rows(rows, width, grain, grain, {&x}, {&y}, [&](const F32Rows& some) {
    turn_rows(some.in[0], table, some.first, some.rows, x, some.out[0]);
  });
}

Tensor rotary(const Tensor& x, const Tensor& positions, const RotaryOptions& options,
              bool inverse) {
  using Scaling = RotaryOptions::Scaling;
  check_dim("rotary", "x", x, 4);
  check_real("rotary", "x", x);
  FRUGAL_CHECK(x.size(3) % 2 == 0, "[rotary] expected an even number of channels a head, got x {}",
               x.shape());
  FRUGAL_CHECK(options.base > 0, "[rotary] expected base above 0, got {}", options.base);
  FRUGAL_CHECK(options.factor >= 1, "[rotary] expected a factor of at least 1, got {}",
               options.factor);
  const bool counts = options.scaling != Scaling::none && options.scaling != Scaling::linear;
  FRUGAL_CHECK(!counts || options.first_length > 0,
               "[rotary] expected first_length above 0 with this scaling, got {}",
               options.first_length);
  if (positions.defined()) {
    if (positions.dim() == 2)
      check_shape("rotary", "positions of each row", positions, {x.size(0), x.size(1)});
    else
      check_shape("rotary", "positions", positions, {x.size(1)});
    FRUGAL_CHECK(positions.dtype() == DType::i64 && positions.device() == x.device(),
                 "[rotary] expected positions of dtype i64 on {}, got {}", x.device().str(),
                 describe(positions));
  }
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const Tensor in = contiguous(x), at = contiguous_or_none(positions);
  const RotaryOptions own = at_positions(options, x, at);
  dispatch(x.device(), [&](auto backend) { rotary_kernel(backend, in, at, own, inverse, y); });
  return y;
}

}  // namespace ops
}  // namespace frugal
