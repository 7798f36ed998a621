// A policy that packs everything with one codec.
#pragma once
#include "autograd/saved_tensor.h"

namespace frugal {

class PackAll : public SavePolicy {
 public:
  explicit PackAll(const Codec* codec) : codec_(codec) {}
  Decision decide(const SaveInfo&, const Tensor&) override { return {Decision::pack, codec_}; }

 private:
  const Codec* codec_;
};

}  // namespace frugal
