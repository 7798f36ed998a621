#include "ops/adafactor.h"

#include <algorithm>
#include <cmath>

#include "ops/cuda_sum.h"

namespace frugal::ops {
namespace {

// Of x [reduce, inner] or [outer, reduce].
struct Squares {
  using Term = double;
  static constexpr int kWidth = 1;
  int64_t reduce, inner;
  const float* x;
  __device__ void operator()(int64_t o, int64_t r, int64_t i, double* terms) const {
    const auto value = static_cast<double>(x[(o * reduce + r) * inner + i]);
    terms[0] = value * value;
  }
};
// A second moment moves towards the mean of the squares.
struct StoreMoment {
  double beta, count, floor;
  float* moments;
  __device__ void operator()(int64_t at, double total) const {
    const double mean = total / count + floor;
    moments[at] = static_cast<float>(beta * static_cast<double>(moments[at]) + (1 - beta) * mean);
  }
};
struct EachMoment {
  double beta, floor;
  const float* g;
  float* moments;
  __device__ void operator()(int64_t i) const {
    const double square = static_cast<double>(g[i]) * static_cast<double>(g[i]) + floor;
    moments[i] = static_cast<float>(beta * static_cast<double>(moments[i]) + (1 - beta) * square);
  }
};

struct Means {
  using Term = double;
  static constexpr int kWidth = 1;
  double count;
  const float* x;
  __device__ void operator()(int64_t, int64_t r, int64_t, double* terms) const {
    terms[0] = static_cast<double>(x[r]) / count;
  }
};

// sqrt(mean / x)
struct InverseRoots {
  const double* mean;  // or null: 1
  const float* x;
  float* roots;
  __device__ void operator()(int64_t i) const {
    roots[i] = static_cast<float>(sqrt((mean == nullptr ? 1 : *mean) / static_cast<double>(x[i])));
  }
};

// The direction of row i is g of_row[i] of_column; of_row null: 1.
struct Directions {
  using Term = double;
  static constexpr int kWidth = 1;
  int64_t cols;
  const float *g, *of_column;
  __device__ void operator()(int64_t o, int64_t r, int64_t, double* terms) const {
    const auto u = static_cast<double>(g[o * cols + r] * of_column[r]);
    terms[0] = u * u;
  }
};
struct StoreRow {
  const float* of_row;
  double* squares;
  __device__ void operator()(int64_t at, double total) const {
    const double row = of_row == nullptr ? 1 : static_cast<double>(of_row[at]);
    squares[at] = total * row * row;
  }
};

// Rows' factors of the update from |u|^2 and |p|^2 (null: steps that do not scale).
struct RowFactors {
  double n, lr, clip, least_scale;
  const double *of_direction, *of_parameter;
  const float* of_row;
  float* factors;
  __device__ void operator()(int64_t i) const {
    double scale = 1;
    if (of_parameter != nullptr) {
      const double size = sqrt(*of_parameter / n);
      scale = size != size ? size : fmax(least_scale, size);  // NaN stays
    }
    const double rate = lr * scale / fmax(1.0, sqrt(*of_direction / n) / clip);
    factors[i] =
        static_cast<float>(rate * (of_row == nullptr ? 1 : static_cast<double>(of_row[i])));
  }
};
struct Apply {
  int64_t cols;
  float keep;
  const float *g, *factors, *of_column;
  float* p;
  __device__ void operator()(int64_t i) const {
    p[i] = keep * p[i] - factors[i / cols] * g[i] * of_column[i % cols];
  }
};

}  // namespace

void adafactor_kernel(Cuda, const Tensor& parameter, const Tensor& gradient, const Tensor& r,
                      const Tensor& c, const AdafactorStep& step) {
  const int64_t n = parameter.numel();
  if (n == 0) return;
  const Device device = parameter.device();
  const int64_t rows = r.defined() ? r.numel() : 1, cols = n / rows;
  const double beta = 1 - std::pow(static_cast<double>(step.step), -step.decay_rate);
  const CategoryScope scope(Category::workspace);
  const Tensor numbers = Tensor::empty({3}, DType::f64, device);
  double *of_parameter = numbers.mut<double>(), *of_direction = of_parameter + 1,
         *mean = of_parameter + 2;
  const auto store = [](double* at) { return cuda::StoreTotal<double>{at}; };
  float* p = parameter.mut<float>();
  const float* g = gradient.data<float>();
  float* columns = c.mut<float>();
  if (step.scale_parameter)
    cuda::sum_over<double>(device, 1, n, 1, Squares{n, 1, p}, store(of_parameter));

  const Tensor column_roots = Tensor::empty({cols}, DType::f32, device);
  float *of_column = column_roots.mut<float>(), *of_row = nullptr;
  Tensor row_roots;
  if (r.defined()) {
    float* moments = r.mut<float>();
    cuda::sum_over<double>(device, rows, cols, 1, Squares{cols, 1, g},
                           StoreMoment{beta, static_cast<double>(cols), step.floor, moments});
    cuda::sum_over<double>(device, 1, rows, cols, Squares{rows, cols, g},
                           StoreMoment{beta, static_cast<double>(rows), step.floor, columns});
    cuda::sum_over<double>(device, 1, rows, 1, Means{static_cast<double>(rows), moments},
                           store(mean));
    row_roots = Tensor::empty({rows}, DType::f32, device);
    of_row = row_roots.mut<float>();
    cuda::for_each(rows, InverseRoots{mean, moments, of_row});
  } else {
    cuda::for_each(n, EachMoment{beta, step.floor, g, columns});
  }
  cuda::for_each(cols, InverseRoots{nullptr, columns, of_column});

  const Tensor squares = Tensor::empty({rows}, DType::f64, device);
  const Tensor factors = Tensor::empty({rows}, DType::f32, device);
  cuda::sum_over<double>(device, rows, cols, 1, Directions{cols, g, of_column},
                         StoreRow{of_row, squares.mut<double>()});
  cuda::sum_over<double>(device, 1, rows, 1,
                         cuda::PartialSums<double>{rows, 1, squares.data<double>()},
                         store(of_direction));
  cuda::for_each(rows, RowFactors{static_cast<double>(n), step.lr, step.clip, step.least_scale,
                                  of_direction, step.scale_parameter ? of_parameter : nullptr,
                                  of_row, factors.mut<float>()});
  cuda::for_each(n, Apply{cols, static_cast<float>(1 - step.lr * step.weight_decay), g,
                          factors.data<float>(), of_column, p});
}

}  // namespace frugal::ops
