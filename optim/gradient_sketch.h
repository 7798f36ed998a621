// GradientSketch: a short summary of all gradients (or weights) of a model. It estimates squared
// norms and inner products without keeping the gradients.
//
// Element e of the joint vector is added with a random sign to bucket e mod kBuckets. The map S is
// linear, and <S(x), S(y)> = <x, y> in expectation over the signs. The standard error is at most
// sqrt(2 / kBuckets) |x| |y|, which is 1.1 %, unless a few elements hold most of the norm. A vector
// of at most kBuckets elements is represented exactly. All sketches use the same signs, so sketches
// of different steps may be subtracted.
// Ref: Charikar, Chen, Farach-Colton 2002 (count sketch); Alon, Matias, Szegedy 1996.
#pragma once
#include <vector>

#include "autograd/variable.h"

namespace frugal::optim {

class GradientSketch {
 public:
  static constexpr int64_t kBuckets = 16381;  // prime, so no layer's width divides it

  GradientSketch() : buckets_(kBuckets, 0.0) {}
  // Adds elements [offset, offset + values.numel()) of the joint vector. Errors: a dtype that is
  // not floating-point.
  void add(const Tensor& values, int64_t offset);
  void add(const double* buckets);  // [kBuckets]

  GradientSketch operator-(const GradientSketch& other) const;
  double dot(const GradientSketch& other) const;
  double squared_norm() const { return dot(*this); }

 private:
  std::vector<double> buckets_;
};

// Adds f32 values, contiguous, to buckets [GradientSketch::kBuckets] f64 on the same device.
void add_to_sketch_kernel(Cuda, const Tensor& values, int64_t offset, const Tensor& buckets);

// The sketch of the parameters' values, one parameter after the other.
GradientSketch sketch_of_values(const std::vector<Variable>& parameters);
// The sketch of their gradients at the same places. An undefined gradient counts as 0.
GradientSketch sketch_of_gradients(const std::vector<Variable>& parameters);

}  // namespace frugal::optim
