#include "compress/policies/offload_policy.h"

namespace frugal::compress {
namespace {

// The tensor itself. It is not copied, because nobody writes to it before backward has used it.
class Raw final : public Movable {
 public:
  explicit Raw(Tensor payload) : payload_(std::move(payload)) {}
  Tensor unpack() const override { return payload_; }
  bool loses_nothing() const override { return true; }
  Tensor take_payload() override { return std::move(payload_); }
  void put_payload(Tensor payload) override { payload_ = std::move(payload); }

 private:
  Tensor payload_;
};

class RawCodec final : public Codec {
 public:
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo&) const override {
    return std::make_unique<Raw>(tensor);
  }
};

}  // namespace

OffloadPolicy::OffloadPolicy(std::shared_ptr<SavePolicy> inner, const OffloadOptions& options,
                             int64_t min_elements, Device buffer)
    : WrappingPolicy(std::move(inner)),
      store_(std::make_shared<PayloadStore>(options, buffer)),
      min_elements_(min_elements),
      raw_(std::make_unique<RawCodec>()) {
  FRUGAL_CHECK(min_elements >= 0, "[offload] expected min_elements >= 0, got {}", min_elements);
  if (plan() != nullptr) plan()->set_moves();
}

bool OffloadPolicy::may_move(const SaveInfo& info, const Tensor& value) const {
  return is_floating(value.dtype()) && value.numel() > min_elements_ &&
         (value.storage()->category() != Category::input || info.released);
}

const Codec* OffloadPolicy::moved(const Codec& codec) {
  return &codecs_.try_emplace(&codec, codec, store_).first->second;
}

Decision OffloadPolicy::decide(const SaveInfo& info, const Tensor& value) {
  if (plan() != nullptr) {
    Decision decision = inner().decide(info, value);
    if (decision.what == Decision::pack && plan()->keeping(info.seq).moved)
      decision.codec = moved(*decision.codec);
    return decision;
  }
  Decision decision = inner().decide(info, value);
  if (decision.codec != nullptr) {
    decision.codec = moved(*decision.codec);
  } else if (may_move(info, value)) {
    decision.codec = moved(*raw_);
    if (decision.what == Decision::raw) decision = {Decision::pack, decision.codec, false};
  }
  return decision;
}

void OffloadPolicy::add_roles(PolicyRoles& roles) {
  PolicyRoles::note(roles.offload, this);
  WrappingPolicy::add_roles(roles);
}

}  // namespace frugal::compress
