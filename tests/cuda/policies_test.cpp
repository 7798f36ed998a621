// Policies on a network on CUDA keep the bytes that they keep on the CPU. Its ops round alike on
// both, so that what is packed can be compared.
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "compress/policies/acgc_policy.h"
#include "compress/policies/actnn_policy.h"
#include "compress/policies/adaptive_policy.h"
#include "tests/cuda/packing.h"

namespace frugal::compress {
namespace {

// Another policy's decisions, with what its codecs pack copied to the host.
class Recorder final : public SavePolicy {
 public:
  explicit Recorder(SavePolicy& inner) : inner_(inner) {}
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    Decision decision = inner_.decide(info, value);
    if (decision.what == Decision::pack)
      decision.codec = &codecs_.try_emplace(decision.codec, *decision.codec, *this).first->second;
    return decision;
  }
  BackwardObserver* observer() override { return inner_.observer(); }

  std::vector<Tensor> payloads;

 private:
  struct Copying final : Codec {
    Copying(const Codec& codec_, Recorder& recorder_) : codec(codec_), recorder(recorder_) {}
    std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override {
      auto packed = codec.pack(tensor, info);
      auto& movable = dynamic_cast<Movable&>(*packed);
      const Tensor payload = movable.take_payload();
      recorder.payloads.push_back(to_device(payload, kCpu));
      movable.put_payload(payload);
      return packed;
    }
    const Codec& codec;
    Recorder& recorder;
  };
  SavePolicy& inner_;
  std::map<const Codec*, Copying> codecs_;
};

struct Kept {
  std::vector<Tensor> payloads;
  Tensor gradient;
};

// The second of two steps.
Kept kept(SavePolicy& policy, Device device) {
  Recorder recorder(policy);
  const Shape shape{128, 24};
  const auto input = [&](uint64_t seed) {
    return Variable::parameter(to_device(gpu::normals(shape, DType::f32, seed), device));
  };
  Variable a = input(1);
  const Variable b = input(2), c = input(3);
  const Tensor dy = to_device(gpu::normals(shape, DType::f32, 4), device);
  Kept all;
  for (uint64_t step = 0; step < 2; ++step) {
    recorder.payloads.clear();
    begin_step(step);
    Variable y;
    {
      const PolicyScope scope(&recorder);
      const Variable h = relu(mul(add(a, b), b));
      y = mul(relu(mul(h, c)), add(h, a));
    }
    a.zero_grad();
    backward(y, dy, {}, policy.observer());
    all.gradient = to_device(a.grad(), kCpu);
  }
  all.payloads = recorder.payloads;
  return all;
}

void check_policy(const std::function<std::unique_ptr<SavePolicy>()>& make) {
  const int64_t before = gpu::live();
  const Kept here = kept(*make(), kCpu), there = kept(*make(), gpu::kCuda);
  CHECK(gpu::live() == before);
  REQUIRE(!here.payloads.empty());
  REQUIRE(here.payloads.size() == there.payloads.size());
  for (size_t i = 0; i < here.payloads.size(); ++i) {
    CAPTURE(i);
    CHECK(gpu::same_bits(here.payloads[i], there.payloads[i]));
  }
  CHECK(gpu::same_bits(here.gradient, there.gradient));
}

FixedPolicyOptions keep_all() {
  FixedPolicyOptions options;
  options.min_elements = 0;
  return options;
}

}  // namespace

TEST_CASE("a fixed policy keeps the CPU's bytes on CUDA") {
  if (!gpu::available()) return;
  for (Rounding rounding : {Rounding::stochastic, Rounding::dithered})
    for (const int bits : {4, 2})
      for (bool recipes : {false, true})
        check_policy([&] {
          FixedPolicyOptions options = keep_all();
          options.bits = bits;
          options.rounding = rounding;
          options.recipes = recipes;
          return std::make_unique<FixedPolicy>(options);
        });
}

TEST_CASE("policies that learn keep the CPU's bytes on CUDA") {
  if (!gpu::available()) return;
  check_policy([] {
    AdaptiveOptions options;
    options.keep = keep_all();
    options.average = 3;
    return std::make_unique<AdaptivePolicy>(options);
  });
  check_policy([] {
    ActnnOptions options;
    options.average = 2;
    options.mixed = true;
    options.keep = keep_all();
    options.interval = 1;
    return std::make_unique<ActnnPolicy>(options);
  });
  for (const char* codec : {"fixed", "fixed_z"})
    check_policy([&] {
      AcgcOptions options;
      options.rounding = Rounding::nearest;
      options.keep = keep_all();
      options.keep.recipes = false;
      options.interval = 1;
      options.codec = codec;
      return std::make_unique<AcgcPolicy>(options);
    });
}

TEST_CASE("ranges of samples' groups on CUDA are the CPU's, bit for bit") {
  if (!gpu::available()) return;
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  // Few rows and many, parts of groups, odd columns, a longer last sample.
  for (const Shape& shape : {Shape{5, 200, 7}, {3, 16, 20, 8}, {4, 10, 33}, {1030, 33, 2}, {9}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int64_t group : {64, 256}) {
        CAPTURE(shape.str());
        CAPTURE(group);
        const Tensor x = gpu::normals(shape, dtype, 4);
        gpu::put(x, 3, nan);
        gpu::put(x, x.numel() - 1, inf);
        const Samples samples = samples_of(shape, false);
        const GroupRanges here = group_ranges(x, samples, group);
        const int64_t before = gpu::live();
        const GroupRanges there = group_ranges(to_device(x, gpu::kCuda), samples, group);
        CHECK(gpu::live() == before);
        CHECK(here.samples == there.samples);
        CHECK(here.channels == there.channels);
      }
}

}  // namespace frugal::compress
