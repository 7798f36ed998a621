// A policy whose codecs tell what was asked of them, and that fuses passes or never does.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "autograd/packed_pass.h"
#include "tests/cuda/packing.h"

namespace frugal::gpu {

// What was asked of a codec and of what it packed.
struct Seen {
  int mapped = 0, passes = 0, unpacked = 0;
  std::vector<Tensor> payloads;
};

// Another one's, in one pass where it can, or always in two.
class SeenPacked final : public Packed {
 public:
  SeenPacked(std::unique_ptr<Packed> inner, Seen& seen, bool fuses)
      : inner_(std::move(inner)), seen_(seen), fuses_(fuses) {}
  Tensor unpack() const override { return count(), inner_->unpack(); }
  Tensor unpack_rows(int64_t begin, int64_t end) const override {
    return count(), inner_->unpack_rows(begin, end);
  }
  Tensor unpack_sign() const override { return inner_->unpack_sign(); }
  bool carries_sign() const override { return inner_->carries_sign(); }
  bool serves_one_op() const override { return inner_->serves_one_op(); }
  Tensor unpack_sign_rows(int64_t begin, int64_t end) const override {
    return inner_->unpack_sign_rows(begin, end);
  }
  bool knows_variance() const override { return inner_->knows_variance(); }
  bool run(PackedPass& pass) const override {
    // Rebuilds, and what passes are compared with.
    if (pass.is_variance() || std::holds_alternative<PackedPass::Affine>(pass.what))
      return inner_->run(pass);
    const bool done = fuses_ && inner_->run(pass);
    if (done) ++seen_.passes;
    return done;
  }

 private:
  void count() const { ++seen_.unpacked; }
  std::unique_ptr<Packed> inner_;
  Seen& seen_;
  bool fuses_;
};

class SeenCodec final : public Codec {
 public:
  SeenCodec(const Codec& inner, Seen& seen, bool fuses)
      : inner_(inner), seen_(seen), fuses_(fuses) {}
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override {
    return wrap(inner_.pack(tensor, info));
  }
  std::unique_ptr<Packed> pack_and_run(const Tensor& tensor, const SaveInfo& info,
                                       PackedPass& pass) const override {
    if (!fuses_) return nullptr;
    auto packed = inner_.pack_and_run(tensor, info, pass);
    if (packed == nullptr) return nullptr;
    ++seen_.mapped;
    return wrap(std::move(packed));
  }

 private:
  std::unique_ptr<Packed> wrap(std::unique_ptr<Packed> packed) const {
    if (const auto* grouped = dynamic_cast<const compress::Grouped*>(packed.get()))
      seen_.payloads.push_back(to_device(grouped->payload(), kCpu));
    return std::make_unique<SeenPacked>(std::move(packed), seen_, fuses_);
  }
  const Codec& inner_;
  Seen& seen_;
  bool fuses_;
};

// Another policy's decisions, by codecs that are seen.
class SeenPolicy final : public SavePolicy {
 public:
  SeenPolicy(SavePolicy& inner, bool fuses) : inner_(inner), fuses_(fuses) {}
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    Decision decision = inner_.decide(info, value);
    if (decision.codec != nullptr)
      decision.codec =
          &codecs_.try_emplace(decision.codec, *decision.codec, seen, fuses_).first->second;
    return decision;
  }
  int64_t slice_bytes() const override { return inner_.slice_bytes(); }
  Seen seen;

 private:
  SavePolicy& inner_;
  bool fuses_;
  std::map<const Codec*, SeenCodec> codecs_;
};

}  // namespace frugal::gpu
