// Unpacks archives that were downloaded (tar, tar.gz and zip) into a folder.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace frugal::data {

struct UnpackLimits {
  int64_t bytes = int64_t{64} << 30;
  int64_t entries = 1000000;
  // Bytes that one byte of the archive may unpack to, beyond the first 16 MiB. More is a bomb.
  int64_t ratio = 200;
};

// Unpacks an archive into a temporary folder beside `folder`, calls `accept` with that folder, and
// renames the archive's folder `top` ("": everything) to `folder`. Modes and owners are the user's
// own, not the archive's.
// Errors, after which nothing is left: an archive that is missing, broken, encrypted or empty;
// names that are absolute or have "..", backslashes or control characters; links, devices and
// pipes; two entries of one name; entries outside `top`; more than the limits; a `folder` that is
// not empty; files that cannot be written; what `accept` throws.
void unpack(const std::string& archive, const std::string& folder, const std::string& top = {},
            const UnpackLimits& limits = {},
            const std::function<void(const std::string& folder)>& accept = {});

}  // namespace frugal::data
