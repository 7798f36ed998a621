#include "optim/gradient_sketch.h"

#include <algorithm>

#include "core/error.h"
#include "core/parallel.h"
#include "ops/copy.h"

namespace frugal::optim {
namespace {

constexpr int64_t kWord = 64;  // signs that one hash gives
constexpr int64_t kWords = (GradientSketch::kBuckets + kWord - 1) / kWord;
constexpr int64_t kManyElements = 1 << 18;  // that pay for waking threads

// Ref: Steele, Lea, Flood 2014 (SplitMix64).
uint64_t signs_of(int64_t word) {
  uint64_t z = (static_cast<uint64_t>(word) + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Threads own buckets, so sums do not depend on their number.
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
        const int64_t at = row * k - offset;  // of bucket 0 in this row
        for (int64_t j = begin; j < end; ++j) {
          const auto value = static_cast<double>(values[at + j]);
          buckets[j] += (signs >> (j - word * kWord) & 1) != 0 ? value : -value;
        }
      }
  });
}

GradientSketch sketch_of(const std::vector<Variable>& parameters, bool gradients) {
  GradientSketch sketch;
  int64_t offset = 0;
  for (const Variable& p : parameters) {
    const Tensor values = gradients ? p.grad() : p.value();
    if (values.defined()) sketch.add(values, offset);
    offset += p.value().numel();
  }
  return sketch;
}

}  // namespace

void GradientSketch::add(const Tensor& values, int64_t offset) {
  FRUGAL_CHECK(is_floating(values.dtype()), "[sketch] expected a floating dtype, got {}",
               name_of(values.dtype()));
  if (values.numel() == 0) return;
  const Tensor flat = ops::contiguous(values);
  if (flat.dtype() == DType::f32)
    add_values(buckets_.data(), flat.data<float>(), offset, flat.numel());
  else
    add_values(buckets_.data(), ops::cast(flat, DType::f64).data<double>(), offset, flat.numel());
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
