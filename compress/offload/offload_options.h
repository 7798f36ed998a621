// How packed bytes are moved to a file (payload_store.h), and what that took.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/option.h"

namespace frugal::compress {

struct OffloadOptions {
  std::string directory;                // see FileStoreOptions
  int64_t window = int64_t{256} << 20;  // bytes
  int64_t max_bytes = 0;
  bool direct = true;
  bool operator==(const OffloadOptions&) const = default;

  static std::vector<by_name::Option<OffloadOptions>> list() {
    return {{by_name::without_effect({"offload_window", by_name::range::bytes(),
                                      "What of them stays in memory at most (\"256 MiB\")."}),
             &OffloadOptions::window}};
  }
};

struct OffloadStats {
  int64_t written = 0, read = 0;                // bytes of payloads
  double pack_seconds = 0, unpack_seconds = 0;  // time spent waiting: for writes, for reads
  OffloadStats operator+(const OffloadStats& other) const {
    return {written + other.written, read + other.read, pack_seconds + other.pack_seconds,
            unpack_seconds + other.unpack_seconds};
  }
};

}  // namespace frugal::compress
