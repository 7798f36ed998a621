#include "optim/gradient_sketch.h"

#include <algorithm>

#include "core/cuda/cuda_kernel.h"
#include "optim/sketch_signs.h"

namespace frugal::optim {
namespace {

constexpr int64_t kBuckets = GradientSketch::kBuckets;
constexpr int64_t kRows = 32;  // rows that a thread adds at least

// Adds bucket i % kBuckets over the rows of part i / kBuckets.
struct AddRows {
  int64_t first_row, rows_of_part, offset, n;
  const float* values;
  double* partial;
  __device__ void operator()(int64_t i) const {
    const int64_t bucket = i % kBuckets;
    const int64_t first = first_row + i / kBuckets * rows_of_part;
    const int64_t word = bucket / sketch::kWord;
    double sum = 0;
    for (int64_t row = first; row < first + rows_of_part; ++row) {
      const int64_t at = row * kBuckets + bucket - offset;
      if (at < 0 || at >= n) continue;
      const uint64_t signs = sketch::signs_of(row * sketch::kWords + word);
      const auto value = static_cast<double>(values[at]);
      sum += (signs >> (bucket - word * sketch::kWord) & 1) != 0 ? value : -value;
    }
    partial[i] = sum;
  }
};
struct AddParts {
  int64_t parts;
  const double* partial;
  double* buckets;
  __device__ void operator()(int64_t bucket) const {
    double sum = 0;
    for (int64_t part = 0; part < parts; ++part) sum += partial[part * kBuckets + bucket];
    buckets[bucket] += sum;
  }
};

}  // namespace

void add_to_sketch_kernel(Cuda, const Tensor& values, int64_t offset, const Tensor& buckets) {
  const int64_t n = values.numel(), first = offset / kBuckets;
  const int64_t rows = (offset + n - 1) / kBuckets - first + 1;
  const int64_t parts = std::clamp<int64_t>(rows / kRows, 1, 64);
  const CategoryScope scope(Category::workspace);
  const Tensor partial = Tensor::empty({parts, kBuckets}, DType::f64, values.device());
  frugal::cuda::for_each(parts * kBuckets, AddRows{first, (rows + parts - 1) / parts, offset, n,
                                                   values.data<float>(), partial.mut<double>()});
  frugal::cuda::for_each(kBuckets, AddParts{parts, partial.data<double>(), buckets.mut<double>()});
}

}  // namespace frugal::optim
