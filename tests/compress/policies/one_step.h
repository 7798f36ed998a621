// A step without a graph, for tests of policies.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "autograd/saved_tensor.h"

namespace frugal::compress {

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
