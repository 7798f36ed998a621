#include "ops/loss/dice.h"

#include <limits>

#include "ops/cuda/cuda_sum.h"

// The host reads nothing back, so it cannot refuse a wrong target. The loss is NaN instead.
namespace frugal::ops {
namespace {

// Sums for one class: its probabilities in all rows, its probabilities in its own rows, and how
// many rows it has.
struct Sums {
  double all = 0, own = 0, rows = 0;
  __device__ Sums& operator+=(const Sums& other) {
    all += other.all;
    own += other.own;
    rows += other.rows;
    return *this;
  }
};

template <class T>
struct Terms {
  using Term = Sums;
  static constexpr int kWidth = 1;
  int64_t classes, ignored;
  const T* p;
  const int64_t* target;
  __device__ void operator()(int64_t, int64_t row, int64_t c, Sums* terms) const {
    terms[0] = {};
    const int64_t right = target[row];
    if (right == ignored) return;
    terms[0].all = static_cast<double>(cuda::load(p[row * classes + c]));
    if (right < 0 || right >= classes) terms[0].all = std::numeric_limits<double>::quiet_NaN();
    if (right != c) return;
    terms[0].own = terms[0].all;
    terms[0].rows = 1;
  }
};
struct Store {
  Sums* sums;
  __device__ void operator()(int64_t c, const Sums& total) const { sums[c] = total; }
};

// Computes d(loss)/d(p_c) of each class c: `each` holds for all rows, and `own` is added at the
// rows of the class. One thread adds the classes in their order.
struct Slopes {
  int64_t classes;
  double smooth;
  const Sums* sums;
  double *each, *own;
  float* loss;
  __device__ void operator()(int64_t) const {
    const double share = 1 / static_cast<double>(classes);
    double dice = 0;
    for (int64_t c = 0; c < classes; ++c) {
      const double top = 2 * sums[c].own + smooth, bottom = sums[c].all + sums[c].rows + smooth;
      dice += share * top / bottom;
      each[c] = share * top / (bottom * bottom);
      own[c] = -2 * share / bottom;
    }
    *loss = static_cast<float>(1 - dice);
  }
};

template <class T>
struct Gradient {
  int64_t classes, ignored;
  const int64_t* target;
  const double *each, *own;
  T* p;
  __device__ void operator()(int64_t row) const {
    T* to = p + row * classes;
    const int64_t right = target[row];
    const bool counts = right != ignored;
    double mean = 0;
    for (int64_t c = 0; counts && c < classes; ++c)
      mean += (each[c] + (c == right ? own[c] : 0)) * static_cast<double>(cuda::load(to[c]));
    for (int64_t c = 0; c < classes; ++c) {
      const double slope = each[c] + (c == right ? own[c] : 0);
      const double value = static_cast<double>(cuda::load(to[c])) * (slope - mean);
      to[c] = cuda::store<T>(counts ? static_cast<float>(value) : 0.0f);
    }
  }
};

}  // namespace

void dice_kernel(Cuda, const Tensor& gradient, const Tensor& target, const Tensor& loss,
                 const DiceOptions& options) {
  const int64_t rows = gradient.size(0), classes = gradient.size(1);
  const CategoryScope scope(Category::workspace);
  const Tensor sums = Tensor::zeros({classes, 3}, DType::f64, gradient.device());
  const Tensor slopes = Tensor::empty({2, classes}, DType::f64, gradient.device());
  auto* of_class = static_cast<Sums*>(sums.raw());
  double *each = slopes.mut<double>(), *own = each + classes;
  cuda::with_activation(gradient.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t* at = target.data<int64_t>();
    if (rows > 0)
      cuda::sum_over<Sums>(gradient.device(), 1, rows, classes,
                           Terms<T>{classes, options.ignore_index, gradient.data<T>(), at},
                           Store{of_class});
    cuda::for_each(1, Slopes{classes, options.smooth, of_class, each, own, loss.mut<float>()});
    cuda::for_each(rows,
                   Gradient<T>{classes, options.ignore_index, at, each, own, gradient.mut<T>()});
  });
}

}  // namespace frugal::ops
