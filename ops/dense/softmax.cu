#include "ops/dense/softmax.h"

#include <limits>

#include "ops/cuda/cuda_row_teams.h"

namespace frugal::ops {
namespace {

using namespace cuda;

template <class Kind>
__global__ void __launch_bounds__(Kind::kThreads)
    softmax_rows(const typename Kind::T* x, int64_t rows, int64_t width, bool log,
                 typename Kind::T* y) {
  constexpr float kLeast = -std::numeric_limits<float>::infinity();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * Kind::kTeams;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * Kind::kTeams + Kind::team(); row < rows;
       row += stride) {
    const Row<Kind> from(x + row * width, width);
    float top = kLeast;
    from.each([&](int64_t, float v) { top = v > top ? v : top; });
    top = Kind::across(top, kLeast, Larger{});
    const double total =
        from.template sum<double>([top](int64_t, float v) { return expf(v - top); });
    if (log) {
      const auto shift = static_cast<float>(::log(total));
      from.map(y + row * width, [=](int64_t, float v) { return v - top - shift; });
    } else {
      const auto factor = static_cast<float>(1 / total);
      from.map(y + row * width, [=](int64_t, float v) { return expf(v - top) * factor; });
    }
  }
}

template <class Kind>
__global__ void __launch_bounds__(Kind::kThreads)
    softmax_backward_rows(const typename Kind::T* dy, const typename Kind::T* y, int64_t rows,
                          int64_t width, bool log, typename Kind::T* dx) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * Kind::kTeams;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * Kind::kTeams + Kind::team(); row < rows;
       row += stride) {
    constexpr int N = Kind::N;
    const Row<Kind> gradient(dy + row * width, width), output(y + row * width, width);
    double total = 0;
    Kind::places(width, [&](int step, int64_t column) {
      const Floats<N> g = gradient.at(step, column), out = output.at(step, column);
      float part = 0;
#pragma unroll
      for (int i = 0; i < N; ++i) part += log ? g.at[i] : g.at[i] * out.at[i];
      total += static_cast<double>(part);
    });
    const auto shift = static_cast<float>(Kind::sum(total));
    Kind::places(width, [&](int step, int64_t column) {
      const Floats<N> g = gradient.at(step, column), out = output.at(step, column);
      Floats<N> v;
#pragma unroll
      for (int i = 0; i < N; ++i)
        v.at[i] = log ? g.at[i] - expf(out.at[i]) * shift : out.at[i] * (g.at[i] - shift);
      put<N>(dx + row * width + column, v);
    });
  }
}

}  // namespace

void softmax_kernel(Cuda, const Tensor& x, const Tensor& y, bool log) {
  if (x.numel() == 0) return;
  const int64_t width = x.shape().back(), rows = x.numel() / width;
  with_activation(x.dtype(), [&]<class T>(T) {
    with_row_kind<T>(width, {&x, &y}, [&]<class Kind>(Kind kind) {
      launch(softmax_rows<Kind>, grid_of_rows(kind, rows), x.data<T>(), rows, width, log,
             y.mut<T>());
    });
  });
}

void softmax_backward_kernel(Cuda, const Tensor& dy, const Tensor& y, const Tensor& dx, bool log) {
  if (y.numel() == 0) return;
  const int64_t width = y.shape().back(), rows = y.numel() / width;
  with_activation(y.dtype(), [&]<class T>(T) {
    with_row_kind<T>(width, {&dy, &y, &dx}, [&]<class Kind>(Kind kind) {
      launch(softmax_backward_rows<Kind>, grid_of_rows(kind, rows), dy.data<T>(), y.data<T>(), rows,
             width, log, dx.mut<T>());
    });
  });
}

}  // namespace frugal::ops
