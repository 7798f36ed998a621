#include "data/fetch/sha256.h"

#include <nettle/sha2.h>

#include <vector>

#include "core/error.h"
#include "data/formats/file_bytes.h"

namespace frugal::data {
namespace {

void add_bytes(sha256_ctx& sum, const void* bytes, size_t count) {
  sha256_update(&sum, count, static_cast<const uint8_t*>(bytes));
}

std::string digits(sha256_ctx& sum) {
  uint8_t digest[SHA256_DIGEST_SIZE];
  sha256_digest(&sum, sizeof(digest), digest);
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

}  // namespace

std::string sha256_hex(std::string_view text) {
  sha256_ctx sum;
  sha256_init(&sum);
  add_bytes(sum, text.data(), text.size());
  return digits(sum);
}

std::string sha256_of_file(const std::string& path) {
  const FileHandle file = open_file("sha256", path);
  sha256_ctx sum;
  sha256_init(&sum);
  std::vector<char> piece(size_t{1} << 18);
  while (const size_t got = std::fread(piece.data(), 1, piece.size(), file.get()))
    add_bytes(sum, piece.data(), got);
  FRUGAL_CHECK(!std::ferror(file.get()), "[sha256] cannot read {}", path);
  return digits(sum);
}

}  // namespace frugal::data
