#include "compress/policies/width_profile.h"

#include <cmath>

#include "compress/offload/movable.h"
#include "compress/policies/learner.h"

namespace frugal::compress {

double WidthProfile::average_bits() const {
  double bytes = 0, elements = 0;
  for (const auto& [seq, tensor] : tensors) {
    bytes += static_cast<double>(tensor.bytes);
    elements += static_cast<double>(tensor.elements);
  }
  return elements > 0 ? 8 * bytes / elements : 0;
}

class MeteringPolicy::Meter final : public Codec {
 public:
  Meter(const Codec& inner, WidthProfile& profile) : inner_(inner), profile_(profile) {}

  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override {
    return noted(inner_.pack(tensor, info), tensor, info);
  }
  std::unique_ptr<Packed> pack_and_run(const Tensor& tensor, const SaveInfo& info,
                                       PackedPass& pass) const override {
    return noted(inner_.pack_and_run(tensor, info, pass), tensor, info);
  }

 private:
  std::unique_ptr<Packed> noted(std::unique_ptr<Packed> packed, const Tensor& tensor,
                                const SaveInfo& info) const {
    Movable* const movable = packed != nullptr ? packed->movable() : nullptr;
    if (movable == nullptr || tensor.numel() == 0) return packed;
    Tensor payload = movable->take_payload();
    profile_.tensors[info.seq] = {info.op, info.slot, tensor.numel(), payload.nbytes()};
    movable->put_payload(std::move(payload));
    return packed;
  }

  const Codec& inner_;
  WidthProfile& profile_;
};

MeteringPolicy::MeteringPolicy(std::shared_ptr<SavePolicy> inner)
    : WrappingPolicy(std::move(inner)) {}
MeteringPolicy::~MeteringPolicy() = default;

Decision MeteringPolicy::decide(const SaveInfo& info, const Tensor& value) {
  if (info.seq == 0) profile_.tensors.clear();
  Decision decision = inner().decide(info, value);
  if (decision.what != Decision::pack) return decision;
  std::unique_ptr<Meter>& codec = codecs_[decision.codec];
  if (codec == nullptr) codec = std::make_unique<Meter>(*decision.codec, profile_);
  decision.codec = codec.get();
  return decision;
}

class ProfiledPolicy::Resizer final : public Codec {
 public:
  Resizer(const Codec& inner, const ProfiledPolicy& of) : inner_(inner), of_(of) {}

  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override {
    return resized(inner_.pack(tensor, info), tensor, info);
  }
  std::unique_ptr<Packed> pack_and_run(const Tensor& tensor, const SaveInfo& info,
                                       PackedPass& pass) const override {
    return resized(inner_.pack_and_run(tensor, info, pass), tensor, info);
  }

 private:
  std::unique_ptr<Packed> resized(std::unique_ptr<Packed> packed, const Tensor& tensor,
                                  const SaveInfo& info) const {
    Movable* const movable = packed != nullptr ? packed->movable() : nullptr;
    if (tensor.device() != kMeta || movable == nullptr) return packed;
    if (of_.learner_ != nullptr && of_.learner_->first_on_meta()) return packed;
    double bits = of_.average_;
    const auto found = of_.profile_.tensors.find(info.seq);
    if (found != of_.profile_.tensors.end()) {
      const WidthProfile::Tensor& known = found->second;
      FRUGAL_CHECK(known.op == info.op && known.slot == info.slot,
                   "[profile] expected slot {} of {} as tensor {}, as in the profile, got slot {} "
                   "of {}; record a profile of this network",
                   known.slot, known.op, info.seq, info.slot, info.op);
      bits = known.bits();
    }
    (void)movable->take_payload();  // freed before the other one is counted
    const CategoryScope scope(Category::packed);
    const double bytes = std::ceil(bits * static_cast<double>(tensor.numel()) / 8 - 1e-6);
    movable->put_payload(Tensor::empty({static_cast<int64_t>(bytes)}, DType::u8, kMeta));
    return packed;
  }

  const Codec& inner_;
  const ProfiledPolicy& of_;
};

ProfiledPolicy::ProfiledPolicy(std::shared_ptr<SavePolicy> inner, WidthProfile profile)
    : WrappingPolicy(std::move(inner)),
      profile_(std::move(profile)),
      average_(profile_.average_bits()) {
  PolicyRoles roles;
  this->inner().add_roles(roles);
  learner_ = roles.learner;
  FRUGAL_CHECK(average_ > 0, "[profile] expected tensors with bytes, got none");
  for (const auto& [seq, tensor] : profile_.tensors)
    FRUGAL_CHECK(tensor.elements > 0 && tensor.bytes >= 0,
                 "[profile] expected elements and bytes of tensor {}, got {} and {}", seq,
                 tensor.elements, tensor.bytes);
}
ProfiledPolicy::~ProfiledPolicy() = default;

Decision ProfiledPolicy::decide(const SaveInfo& info, const Tensor& value) {
  Decision decision = inner().decide(info, value);
  if (decision.what != Decision::pack) return decision;
  std::unique_ptr<Resizer>& codec = codecs_[decision.codec];
  if (codec == nullptr) codec = std::make_unique<Resizer>(*decision.codec, *this);
  decision.codec = codec.get();
  return decision;
}

}  // namespace frugal::compress
