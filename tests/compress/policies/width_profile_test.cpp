// Profiles of widths: what is recorded with values is counted on meta.
#include "compress/policies/width_profile.h"

#include <doctest/doctest.h>

#include "compress/policies/acgc_policy.h"
#include "compress/policies/choice.h"
#include "compress/policies/entropy_policy.h"
#include "compress/policies/fixed_policy.h"
#include "tests/compress/policies/one_step.h"
#include "tests/compress/quantize/samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

std::vector<Tensor> tensors(int64_t batch, Device device) {
  std::vector<Tensor> all;
  for (uint64_t i = 0; i < 3; ++i) {
    const Shape shape{batch, 8, 8, 16 << i};
    all.push_back(device == kMeta ? Tensor::empty(shape, DType::f32, kMeta)
                                  : Tensor::from(normals(shape.numel(), i, 0.1f), shape));
  }
  return all;
}

int64_t packed_on(Device device) { return allocator(device).report().of(Category::packed); }

AcgcOptions bounded_options() {
  AcgcOptions options;
  options.keep.min_elements = 100;
  options.keep.recipes = false;
  options.rounding = Rounding::nearest;
  return options;
}

}  // namespace

TEST_CASE("a profile of a step gives its bytes on meta, and of larger batches as many bits") {
  FixedPolicyOptions fixed;
  fixed.min_elements = 100;
  fixed.bits = 2;
  for (const bool entropy : {false, true}) {
    CAPTURE(entropy);
    MeteringPolicy recording(make_policy({.policy = fixed, .entropy = entropy}, kCpu, 0));
    const std::vector<Tensor> values = tensors(8, kCpu);
    const auto packed = step(recording, values);
    const WidthProfile& profile = recording.profile();
    REQUIRE(profile.tensors.size() == 3);
    CHECK(profile.tensors.at(1).elements == values[1].numel());
    CHECK(packed.at(0)->unpack().shape() == values[0].shape());
    const int64_t whole = packed_on(kCpu);
    CHECK(profile.average_bits() == doctest::Approx(8.0 * static_cast<double>(whole) /
                                                    static_cast<double>(values[0].numel() * 7)));
    ProfiledPolicy planned(std::make_shared<AcgcPolicy>(bounded_options()), profile);
    {
      const auto there = step(planned, tensors(8, kMeta));
      CHECK(packed_on(kMeta) == whole);
      CHECK(there.at(2)->unpack().shape() == values[2].shape());
    }
    const auto larger = step(planned, tensors(32, kMeta));
    CHECK(packed_on(kMeta) == 4 * whole);
  }
}

TEST_CASE("a tensor that the profile does not have takes its average") {
  WidthProfile profile;
  profile.tensors[0] = {"", 0, 800, 300};  // 3 bits
  ProfiledPolicy planned(std::make_shared<AcgcPolicy>(bounded_options()), profile);
  const std::vector<Tensor> values = tensors(8, kMeta);
  const auto packed = step(planned, values);
  CHECK(packed_on(kMeta) == (values[0].numel() + values[1].numel() + values[2].numel()) * 3 / 8);
}

TEST_CASE("values are packed as without a profile") {
  FixedPolicyOptions fixed;
  fixed.min_elements = 100;
  WidthProfile profile;
  profile.tensors[0] = {"", 0, 800, 300};
  ProfiledPolicy planned(std::make_shared<FixedPolicy>(fixed), profile);
  FixedPolicy plain(fixed);
  const std::vector<Tensor> values = tensors(8, kCpu);
  const auto a = step(planned, values), b = step(plain, values);
  for (uint64_t i = 0; i < 3; ++i)
    CHECK(a.at(i)->unpack().to_vector() == b.at(i)->unpack().to_vector());
}

TEST_CASE("profiles of other networks, and empty ones, are refused") {
  const auto inner = std::make_shared<AcgcPolicy>(bounded_options());
  CHECK_THROWS_WITH_AS(ProfiledPolicy(inner, {}), "[profile] expected tensors with bytes, got none",
                       Error);
  WidthProfile profile;
  profile.tensors[0] = {"gelu", 1, 800, 300};
  ProfiledPolicy planned(inner, profile);
  CHECK_THROWS_WITH_AS(step(planned, tensors(8, kMeta)),
                       doctest::Contains("record a profile of this network"), Error);
  profile.tensors[7] = {"gelu", 1, 0, 0};
  CHECK_THROWS_WITH_AS(ProfiledPolicy(inner, profile), doctest::Contains("of tensor 7"), Error);
  CHECK_THROWS_AS(MeteringPolicy{nullptr}, Error);
}
