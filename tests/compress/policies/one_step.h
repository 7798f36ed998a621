// A step without a graph, and a tensor for it, for tests of policies.
#pragma once
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "autograd/saved_tensor.h"

namespace frugal::compress {

inline Tensor waves(const Shape& shape) {
  Tensor x = Tensor::empty(shape, DType::f32);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mut<float>()[i] = static_cast<float>(std::sin(static_cast<double>(i) * 0.7));
  return x;
}

// One step that saves these tensors; what was packed, by seq.
inline std::map<uint64_t, std::unique_ptr<Packed>> step(SavePolicy& policy,
                                                        const std::vector<Tensor>& tensors,
                                                        const Sign* sign = nullptr) {
  std::map<uint64_t, std::unique_ptr<Packed>> all;
  for (size_t i = 0; i < tensors.size(); ++i) {
    SaveInfo info;
    info.seq = i;
    const Decision decision = policy.decide(info, tensors[i]);
    info.sign = sign;
    if (decision.what == Decision::pack) all[i] = decision.codec->pack(tensors[i], info);
  }
  return all;
}

}  // namespace frugal::compress
