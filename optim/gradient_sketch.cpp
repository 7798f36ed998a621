#include "optim/gradient_sketch.h"

#include <algorithm>
#include <type_traits>

#include "core/error.h"
#include "core/parallel.h"
#include "ops/dense/copy.h"
#include "optim/sketch_signs.h"

namespace frugal::optim {
namespace {

using sketch::kWord;
using sketch::kWords;
using sketch::signs_of;

constexpr int64_t kManyElements = 1 << 18;  // with fewer elements, waking threads costs more than
                                            // it saves

// Each thread owns some buckets, so sums do not depend on the number of threads.
template <class T>
void add_values(double* buckets, const T* values, int64_t offset, int64_t n) {
  constexpr int64_t k = GradientSketch::kBuckets;
  const int64_t first = offset / k, last = (offset + n - 1) / k;
  const int64_t grain = n < kManyElements ? kWords : 64;
  parallel_for(0, kWords, grain, [&](int64_t from, int64_t to) {
    for (int64_t row = first; row <= last; ++row)
      for (int64_t word = from; word < to; ++word) {
        const int64_t begin = std::max(word * kWord, offset - row * k);
        const int64_t end = std::min({(word + 1) * kWord, k, offset + n - row * k});
        const uint64_t signs = signs_of(row * kWords + word);
        const int64_t at = row * k - offset;  // position of bucket 0 in this row
        for (int64_t j = begin; j < end; ++j) {
          const auto value = static_cast<double>(values[at + j]);
          buckets[j] += (signs >> (j - word * kWord) & 1) != 0 ? value : -value;
        }
      }
  });
}

void add_on_device(const Tensor& values, int64_t offset, Tensor& sums) {
  const CategoryScope scope(Category::workspace);
  if (!sums.defined())
    sums = Tensor::zeros({GradientSketch::kBuckets}, DType::f64, values.device());
  if (values.numel() == 0) return;
  const Tensor flat = ops::cast(ops::contiguous(values), DType::f32);
  dispatch(values.device(), [&](auto backend) {
    if constexpr (std::is_same_v<decltype(backend), Cuda>)
      add_to_sketch_kernel(backend, flat, offset, sums);
  });
}

// Gradients on a GPU are added there, and the sum is read once.
GradientSketch sketch_of(const std::vector<Variable>& parameters, bool gradients) {
  GradientSketch sketch;
  Tensor sums;
  int64_t offset = 0;
  for (const Variable& p : parameters) {
    const Tensor values = gradients ? p.grad() : p.value();
    if (values.defined() && values.device().type == DeviceType::cuda)
      add_on_device(values, offset, sums);
    else if (values.defined())
      sketch.add(values, offset);
    offset += p.value().numel();
  }
  if (sums.defined()) sketch.add(to_device(sums, kCpu).data<double>());
  return sketch;
}

}  // namespace

void GradientSketch::add(const Tensor& values, int64_t offset) {
  FRUGAL_CHECK(is_floating(values.dtype()), "[sketch] expected a floating dtype, got {}",
               name_of(values.dtype()));
  if (values.numel() == 0) return;
  if (values.device().type == DeviceType::cuda) {
    Tensor sums;
    add_on_device(values, offset, sums);
    return add(to_device(sums, kCpu).data<double>());
  }
  const Tensor flat = ops::contiguous(values);
  if (flat.dtype() == DType::f32)
    add_values(buckets_.data(), flat.data<float>(), offset, flat.numel());
  else
    add_values(buckets_.data(), ops::cast(flat, DType::f64).data<double>(), offset, flat.numel());
}

void GradientSketch::add(const double* buckets) {
  for (size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += buckets[i];
}

GradientSketch GradientSketch::operator-(const GradientSketch& other) const {
  GradientSketch result = *this;
  for (size_t i = 0; i < buckets_.size(); ++i) result.buckets_[i] -= other.buckets_[i];
  return result;
}

double GradientSketch::dot(const GradientSketch& other) const {
  double sum = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) sum += buckets_[i] * other.buckets_[i];
  return sum;
}

GradientSketch sketch_of_values(const std::vector<Variable>& parameters) {
  return sketch_of(parameters, false);
}

GradientSketch sketch_of_gradients(const std::vector<Variable>& parameters) {
  return sketch_of(parameters, true);
}

}  // namespace frugal::optim
