// Dropout and gelu write their gradients over dy, and what is rebuilt over what it is made from.
#include <doctest/doctest.h>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/packed_pass.h"
#include "autograd/transformer_functions.h"
#include "core/rng.h"
#include "ops/dense/copy.h"
#include "ops/dense/dropout.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/matmul.h"

using namespace frugal;

namespace {

Tensor random(const Shape& shape, uint64_t seed, Device device = kCpu) {
  const Tensor x = Tensor::empty(shape, DType::f32, device);
  if (device.type != DeviceType::meta)
    for (int64_t i = 0; i < x.numel(); ++i)
      x.mut<float>()[i] = normal({seed, 0}, static_cast<uint64_t>(i));
  return x;
}

// What a backward of f(leaf) takes at most beside what lives before it.
template <class F>
int64_t peak_of_backward(const Variable& leaf, F f) {
  const Variable y = f(leaf);
  const Tensor dy = random(y.shape(), 2, kMeta);
  const int64_t before = allocator(kMeta).report().live_total;
  allocator(kMeta).reset_peak();
  backward(y, dy);
  return allocator(kMeta).report().peak_total - before;
}

constexpr double kVariance = 0.01;

// Keeps copies, and says that they have a variance.
class NoisyCopy final : public Codec {
 public:
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo&) const override {
    struct Copy final : Packed {
      Tensor unpack() const override {
        ++*wholes;
        return ops::clone(kept);
      }
      Tensor unpack_rows(int64_t begin, int64_t end) const override {
        ++*parts;
        return ops::clone(kept.slice(0, begin, end));
      }
      bool knows_variance() const override { return true; }
      bool run(PackedPass& pass) const override {
        if (pass.is_variance()) pass.out = Tensor::full(kept.shape(), kVariance);
        return pass.is_variance();
      }
      Tensor kept;
      int *wholes = nullptr, *parts = nullptr;
    };
    CategoryScope scope(Category::packed);
    auto packed = std::make_unique<Copy>();
    packed->kept = ops::clone(tensor);
    packed->wholes = &wholes;
    packed->parts = &parts;
    return packed;
  }
  mutable int wholes = 0, parts = 0;
};

// Packs what gelu saves, and has its output rebuilt.
class PackGelu final : public SavePolicy {
 public:
  Decision decide(const SaveInfo& info, const Tensor&) override {
    if (info.rebuilt == Rebuilt::corrected) return {Decision::rebuild, nullptr};
    if (std::string(info.op) == "linear_gelu") return {Decision::pack, &codec};
    return {Decision::raw};
  }
  NoisyCopy codec;
};

}  // namespace

TEST_CASE("dropout and gelu: backward takes no tensor beside the gradient") {
  const int64_t size = 4 * 512 * 1024;
  const Variable x(random({512, 1024}, 1, kMeta), true);
  CHECK(peak_of_backward(x, [](const Variable& v) {
          return scale(dropout(v, 0.5, {1, 2}), 2);
        }) < size + size / 8);
  const Variable narrow(random({512, 8}, 1, kMeta), true);
  const Variable weight(random({1024, 8}, 1, kMeta), true);
  CHECK(peak_of_backward(narrow, [&](const Variable& v) {
          return scale(linear_gelu(v, weight, {}), 2);
        }) < size + size / 8);
}

TEST_CASE("dropout and gelu: a gradient that others hold stays") {
  const Tensor dy = random({3, 5}, 4), kept = ops::clone(dy);
  const Variable x(random({3, 5}, 1), true), other(random({3, 5}, 2), true);
  backward(add(dropout(x, 0.5, {1, 2}), other), dy);
  CHECK(other.grad().to_vector() == kept.to_vector());
  CHECK(x.grad().to_vector() == ops::dropout(kept, 0.5, {1, 2}).to_vector());
  const Variable weight(random({5, 5}, 3), true), third(random({3, 5}, 2), true);
  backward(add(linear_gelu(x, weight, {}), third), dy);
  CHECK(third.grad().to_vector() == kept.to_vector());
  CHECK(dy.to_vector() == kept.to_vector());
}

TEST_CASE("linear_gelu: what is packed is taken in slices, in rebuild and in backward") {
  constexpr int64_t kItems = 64, kWidth = 8192, kBytes = 4 * kItems * kWidth;
  const Tensor dz = random({kItems, 2}, 4);
  const Variable x(random({kItems, 3}, 1), true), up(random({kWidth, 3}, 2), true),
      down(random({2, kWidth}, 3), true);
  PackGelu policy;
  begin_step(1);
  Variable z;
  {
    const PolicyScope scope(&policy);
    z = linear(linear_gelu(x, up, {}), down, {});
  }
  allocator(kCpu).reset_peak();
  backward(z, dz);
  CHECK(policy.codec.wholes == 0);
  CHECK(policy.codec.parts == 8);  // half a MiB each, twice
  // The variance, and the value or the gradient over it.
  const int64_t workspace = allocator(kCpu).report().peak[static_cast<size_t>(Category::workspace)];
  CHECK(workspace < kBytes + kBytes / 2);

  const Tensor h = ops::linear(x.value(), up.value(), {});
  const Tensor variance = Tensor::full(h.shape(), kVariance);
  const Tensor y = ops::unary_estimate(ops::Unary::gelu_exact, h, variance);
  CHECK(down.grad().to_vector() == ops::linear_backward_weight(dz, y).to_vector());
  const Tensor dh = ops::unary_backward_estimate(
      ops::Unary::gelu_exact, ops::linear_backward_input(dz, down.value()), h, variance);
  CHECK(up.grad().to_vector() == ops::linear_backward_weight(dh, x.value()).to_vector());
}
