#include "ops/loss/cross_entropy.h"

#include <limits>

#include "ops/cuda/cuda_row_teams.h"

// The host reads nothing back, so it cannot refuse a target out of range. The loss and gradient of
// that row are NaN.
namespace frugal::ops {
namespace {

using namespace cuda;

struct Smaller {
  __device__ int64_t operator()(int64_t a, int64_t b) const { return a < b ? a : b; }
};

// The sums over some rows, in f64: their share of the loss and of its divisor, how many are right
// and how many count.
struct Totals {
  double loss, weight, correct, counted;
};

struct Rows {
  const int64_t* target;
  const float* weights;     // weights of rows; null: all are 1
  const float* of_classes;  // weights of classes in the term of the smoothing; null: there are none
  int64_t rows, classes, ignored;
  __device__ double weight(int64_t row) const {
    return weights != nullptr ? static_cast<double>(weights[row]) : 1;
  }
  __device__ bool in_range(int64_t row) const { return target[row] >= 0 && target[row] < classes; }
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class Kind>
__global__ void __launch_bounds__(Kind::kThreads)
    cross_entropy_rows(const typename Kind::T* logits, Rows rows, double smoothing, int64_t step,
                       float* lse, int64_t* tops, Totals* partial) {
  constexpr float kLeast = -std::numeric_limits<float>::infinity();
  __shared__ Totals of_teams[Kind::kTeams];
  const int64_t width = rows.classes, begin = blockIdx.x * step;
  const int64_t end = begin + step < rows.rows ? begin + step : rows.rows;
  Totals totals{0, 0, 0, 0};
  for (int64_t row = begin + Kind::team(); row < end; row += Kind::kTeams) {
    const typename Kind::T* x = logits + row * width;
    const Row<Kind> from(x, width);
    float top = kLeast;
    int64_t first = width;
    from.each([&](int64_t column, float v) {
      if (v > top || (v == top && first == width)) {
        top = v;
        first = column;
      }
    });
    const float most = Kind::across(top, kLeast, Larger{});
    first = Kind::across(top == most ? first : width, width, Smaller{});
    const double total =
        from.template sum<double>([most](int64_t, float v) { return expf(v - most); });
    const auto log_sum = static_cast<float>(static_cast<double>(most) + ::log(total));
    if (first == width) first = 0;  // all logits are NaN
    if (Kind::lane() == 0) {
      lse[row] = log_sum;
      if (tops != nullptr) tops[row] = first;
    }
    const int64_t target = rows.target[row];
    if (target == rows.ignored) continue;  // all threads of the team agree
    const bool valid = rows.in_range(row);
    const double weight = rows.weight(row);
    // 0 times an infinite loss would be NaN.
    double loss = weight == 0 && (valid || rows.of_classes == nullptr)
                      ? 0
                      : weight * (static_cast<double>(log_sum) -
                                  static_cast<double>(valid ? load(x[target]) : kNan));
    if (smoothing != 0) {
      const float* const of_classes = rows.of_classes;
      double all = from.template sum<double>([log_sum, of_classes](int64_t c, float v) {
        if (of_classes == nullptr) return log_sum - v;
        return of_classes[c] == 0 ? 0.0f : of_classes[c] * (log_sum - v);
      });
      if (of_classes == nullptr) all = weight == 0 ? 0 : weight * all;
      loss = (1 - smoothing) * loss + smoothing / static_cast<double>(width) * all;
    }
    totals.correct += first == target ? 1 : 0;
    totals.counted += 1;
    totals.weight += weight;
    totals.loss += loss;
  }
  if (Kind::lane() == 0) of_teams[Kind::team()] = totals;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int team = 1; team < Kind::kTeams; ++team) {
    const Totals& other = of_teams[team];
    totals.loss += other.loss;
    totals.weight += other.weight;
    totals.correct += other.correct;
    totals.counted += other.counted;
  }
  partial[blockIdx.x] = totals;
}

constexpr int kOneBlock = 1024;

__device__ __forceinline__ Totals sum_of(const Totals* partial, int64_t n) {
  Totals all{0, 0, 0, 0};
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    all.loss += partial[i].loss;
    all.weight += partial[i].weight;
    all.correct += partial[i].correct;
    all.counted += partial[i].counted;
  }
  return {block_sum(all.loss), block_sum(all.weight), block_sum(all.correct),
          block_sum(all.counted)};
}

__global__ void __launch_bounds__(kOneBlock)
    finish_loss(const Totals* partial, int64_t n, bool sum, float* loss, int64_t* correct,
                int64_t* counted) {
  const Totals all = sum_of(partial, n);
  if (threadIdx.x != 0) return;
  *loss = static_cast<float>(all.loss / (sum ? 1 : all.weight));
  *correct = static_cast<int64_t>(all.correct);
  *counted = static_cast<int64_t>(all.counted);
}

// ---- backward

constexpr int kCountThreads = 256;

// The sum of the weights of the rows that count, one for each block.
__global__ void __launch_bounds__(kCountThreads)
    count_rows(Rows rows, int64_t step, Totals* partial) {
  const int64_t begin = blockIdx.x * step;
  const int64_t end = begin + step < rows.rows ? begin + step : rows.rows;
  double weight = 0;
  for (int64_t row = begin + threadIdx.x; row < end; row += kCountThreads)
    if (rows.target[row] != rows.ignored) weight += rows.weight(row);
  weight = block_sum(weight);
  if (threadIdx.x == 0) partial[blockIdx.x] = {0, weight, 0, 0};
}

__global__ void __launch_bounds__(kOneBlock)
    find_factor(const Totals* partial, int64_t n, bool sum, const float* dy, double* factor) {
  const double all = sum_of(partial, n).weight, divisor = sum ? 1 : all;
  if (threadIdx.x == 0) *factor = divisor == 0 ? 0 : static_cast<double>(*dy) / divisor;
}

// The sum of the weights of all classes. One block.
__global__ void __launch_bounds__(kCountThreads)
    sum_classes(const float* weights, int64_t classes, double* sum) {
  double part = 0;
  for (int64_t c = threadIdx.x; c < classes; c += kCountThreads)
    part += static_cast<double>(weights[c]);
  part = block_sum(part);
  if (threadIdx.x == 0) *sum = part;
}

// x holds logits; with a null lse it holds probabilities.
template <class Kind>
__global__ void __launch_bounds__(Kind::kThreads)
    cross_entropy_backward_rows(const typename Kind::T* x, Rows rows, const float* lse,
                                const double* factor, float even, float sharp,
                                const double* of_all_classes, typename Kind::T* dx) {
  const int64_t width = rows.classes;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * Kind::kTeams;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * Kind::kTeams + Kind::team();
       row < rows.rows; row += stride) {
    const Row<Kind> from(x + row * width, width);
    const int64_t target = rows.target[row];
    const double weight = rows.weight(row);
    const bool smooths = rows.of_classes != nullptr;
    const bool counts = target != rows.ignored && (weight != 0 || smooths);
    const float scale = !counts              ? 0.0f
                        : rows.in_range(row) ? static_cast<float>(*factor * weight)
                                             : kNan;
    const float shift = lse != nullptr ? lse[row] : 0;
    const bool logits = lse != nullptr;
    if (smooths && counts) {
      // (1 - s) w (p - one-hot) + s / C (sum(v) p - v), where `even` is s / C
      const double common = rows.in_range(row) ? *factor : static_cast<double>(kNan);
      const auto of_target = static_cast<float>(common * weight * static_cast<double>(sharp));
      const auto of_p = static_cast<float>(common * (weight * static_cast<double>(sharp) +
                                                     static_cast<double>(even) * *of_all_classes));
      const auto each = static_cast<float>(common * static_cast<double>(even));
      from.map(dx + row * width, [=](int64_t column, float v) {
        const float p = logits ? expf(v - shift) : v;
        const float gradient = of_p * p - each * rows.of_classes[column];
        return column == target ? gradient - of_target : gradient;
      });
      continue;
    }
    from.map(dx + row * width, [=](int64_t column, float v) {
      if (!counts) return 0.0f;
      const float gradient = scale * ((logits ? expf(v - shift) : v) - even);
      return column == target ? gradient - scale * sharp : gradient;
    });
  }
}

template <class Kind>
__global__ void __launch_bounds__(Kind::kThreads)
    probability_rows(const typename Kind::T* x, const float* lse, int64_t rows, int64_t width,
                     typename Kind::T* y) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * Kind::kTeams;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * Kind::kTeams + Kind::team(); row < rows;
       row += stride) {
    const float shift = lse[row];
    Row<Kind>(x + row * width, width).map(y + row * width, [shift](int64_t, float v) {
      return expf(v - shift);
    });
  }
}

Rows rows_of(const Tensor& logits, const Tensor& target, const EntropyWeights& weights,
             const CrossEntropyOptions& options) {
  return {target.data<int64_t>(),
          mut_or_null<float>(weights.rows),
          mut_or_null<float>(weights.classes),
          logits.size(0),
          logits.size(1),
          options.ignore_index};
}

Tensor totals_of(int64_t blocks, Device device) {
  CategoryScope scope(Category::workspace);
  return Tensor::empty({blocks, 4}, DType::f64, device);
}
Totals* totals_in(const Tensor& partial) { return reinterpret_cast<Totals*>(partial.raw()); }

}  // namespace

void cross_entropy_kernel(Cuda, const Tensor& logits, const Tensor& target,
                          const CrossEntropyResult& result, const CrossEntropyOptions& options,
                          const EntropyWeights& weights) {
  const Rows rows = rows_of(logits, target, weights, options);
  with_activation(logits.dtype(), [&]<class T>(T) {
    with_row_kind<T>(rows.classes, {&logits}, [&]<class Kind>(Kind) {
      // At most a few thousand partial sums.
      const int64_t step = std::max<int64_t>(ceil_div(rows.rows, 4096), Kind::kTeams);
      const int64_t blocks = ceil_div(rows.rows, step);
      const Tensor partial = totals_of(blocks, logits.device());
      launch(cross_entropy_rows<Kind>, {as_blocks(blocks), Kind::kThreads}, logits.data<T>(), rows,
             options.label_smoothing, step, result.lse.mut<float>(),
             mut_or_null<int64_t>(result.top), totals_in(partial));
      launch(finish_loss, {dim3(1), kOneBlock}, totals_in(partial), blocks, options.sum,
             result.loss.mut<float>(), result.correct.mut<int64_t>(),
             result.counted.mut<int64_t>());
    });
  });
}

void cross_entropy_backward_kernel(Cuda, const Tensor& dy, const Tensor& logits,
                                   const Tensor& target, const Tensor& lse, const Tensor& dx,
                                   const CrossEntropyOptions& options,
                                   const EntropyWeights& weights) {
  const Rows rows = rows_of(logits, target, weights, options);
  const int64_t step = std::max<int64_t>(ceil_div(rows.rows, 1024), 4 * kCountThreads);
  const int64_t blocks = ceil_div(rows.rows, step);
  const Tensor partial = totals_of(blocks, logits.device());
  const Tensor factor = totals_of(1, logits.device());
  launch(count_rows, {as_blocks(blocks), kCountThreads}, rows, step, totals_in(partial));
  launch(find_factor, {dim3(1), kOneBlock}, totals_in(partial), blocks, options.sum,
         dy.data<float>(), factor.mut<double>());
  Tensor of_all_classes;
  if (rows.of_classes != nullptr) {
    of_all_classes = totals_of(1, logits.device());
    launch(sum_classes, {dim3(1), kCountThreads}, rows.of_classes, rows.classes,
           of_all_classes.mut<double>());
  }
  const auto even = static_cast<float>(options.label_smoothing / static_cast<double>(rows.classes));
  const auto sharp = static_cast<float>(1 - options.label_smoothing);
  with_activation(logits.dtype(), [&]<class T>(T) {
    with_pass_kind<T>(rows.classes, {&logits, &dx}, [&]<class Kind>(Kind kind) {
      launch(cross_entropy_backward_rows<Kind>, grid_of_rows(kind, rows.rows), logits.data<T>(),
             rows, mut_or_null<float>(lse), factor.data<double>(), even, sharp,
             mut_or_null<double>(of_all_classes), dx.mut<T>());
    });
  });
}

void cross_entropy_probabilities_kernel(Cuda, const Tensor& logits, const Tensor& lse,
                                        const Tensor& y) {
  const int64_t rows = logits.size(0), width = logits.size(1);
  with_activation(logits.dtype(), [&]<class T>(T) {
    with_pass_kind<T>(width, {&logits, &y}, [&]<class Kind>(Kind kind) {
      launch(probability_rows<Kind>, grid_of_rows(kind, rows), logits.data<T>(), lse.data<float>(),
             rows, width, y.mut<T>());
    });
  });
}

}  // namespace frugal::ops
