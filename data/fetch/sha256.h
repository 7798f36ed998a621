// SHA-256. Ref: FIPS 180-4.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace frugal::data {

// The sum of bytes that come in pieces.
class Sha256 {
 public:
  Sha256();
  void update(const void* data, size_t bytes);
  std::string hex() const;  // of what came so far: 64 hexadecimal digits

 private:
  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> block_{};
  size_t filled_ = 0;
  uint64_t bytes_ = 0;
};

std::string sha256_hex(std::string_view text);
std::string sha256_of_file(const std::string& path);  // Errors: cannot be read

}  // namespace frugal::data
