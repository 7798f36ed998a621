// Archives from elsewhere: tar, tar.gz and zip into a folder, and single gzipped files.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace frugal::data {

struct UnpackLimits {
  int64_t bytes = int64_t{64} << 30;
  int64_t entries = 1000000;
  // Bytes that come of one byte of the archive, beyond the first 16 MiB: more is a bomb.
  int64_t ratio = 200;
};

bool can_unpack();  // built with libarchive

// Unpacks files and folders (modes and owners are the user's own) beside `folder`, and renames what
// lies in the archive's folder `top` ("": all) to `folder` once everything has come and `accept`,
// where there is one, has looked at the folder and thrown nothing.
// Errors, after which nothing is left: no libarchive; no such archive, a broken, encrypted or empty
// one; names that are absolute, have "..", backslashes or control characters; links, devices and
// pipes; two entries of one name; entries outside `top`; more than the limits; a `folder` that
// holds something; files that cannot be written; what `accept` throws.
void unpack(const std::string& archive, const std::string& folder, const std::string& top = {},
            const UnpackLimits& limits = {},
            const std::function<void(const std::string& folder)>& accept = {});

// A gzipped file to `path`. Errors: as above.
void gunzip(const std::string& archive, const std::string& path, const UnpackLimits& limits = {});

}  // namespace frugal::data
