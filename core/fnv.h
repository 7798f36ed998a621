// FNV-1a: a hash that is equal on every machine and in every build, unlike std::hash. It is no
// protection against texts that are made to collide.
#pragma once
#include <cstdint>
#include <string_view>

namespace frugal {

class Fnv1a {
 public:
  // `word` may be wider than the byte of the original. Its high bits then reach no low ones, unless
  // the caller folds them.
  void add(uint64_t word) { value_ = (value_ ^ word) * 0x100000001b3u; }
  void add(std::string_view text) {
    for (const char c : text) add(static_cast<unsigned char>(c));
  }
  void fold(int bits) { value_ ^= value_ >> bits; }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace frugal
