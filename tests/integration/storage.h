// Where bytes lie: what is live, and policies that move tensors into a file.
#pragma once
#include <filesystem>
#include <memory>
#include <utility>

#include "compress/policies/offload_policy.h"
#include "core/memory.h"

namespace frugal {

inline CategoryBytes live(Device device = kCpu) { return allocator(device).report().live; }

// `policy`, whose tensors go into a file beyond `window` bytes.
inline std::unique_ptr<compress::OffloadPolicy> moved(std::shared_ptr<SavePolicy> policy,
                                                      int64_t window) {
  compress::OffloadOptions options;
  options.directory = std::filesystem::temp_directory_path().string();
  options.window = window;
  return std::make_unique<compress::OffloadPolicy>(std::move(policy), options, 0);
}

}  // namespace frugal
