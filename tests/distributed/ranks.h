// What the tests of several ranks share. All ranks run the same cases in the same order.
#pragma once
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "distributed/communicator.h"

namespace frugal::distributed {

inline Communicator& ranks() {
  static const CommunicatorPtr all = from_environment({.timeout = 60});
  return *all;
}

// The bytes of a tensor, for comparisons of bits.
inline std::string bits_of(const Tensor& x) {
  if (x.numel() == 0) return {};
  return std::string(static_cast<const char*>(x.raw()), static_cast<size_t>(x.nbytes()));
}

// Fails on every rank unless all ranks have the same bits.
inline void check_equal_everywhere(const Tensor& x) {
  const std::vector<std::string> all = ranks().all_gather(bits_of(x));
  for (const std::string& theirs : all) CHECK((theirs == all.front()));
}

}  // namespace frugal::distributed
