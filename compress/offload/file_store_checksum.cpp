#include "compress/offload/file_store_checksum.h"

#include <zlib.h>

#include <cstring>

namespace frugal::compress {
namespace {

#if defined(__x86_64__)
constexpr bool kInstruction = true;
bool has_instruction() { return __builtin_cpu_supports("sse4.2"); }
__attribute__((target("sse4.2"))) uint32_t by_instruction(uint32_t before, const void* data,
                                                          int64_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  uint64_t crc = static_cast<uint32_t>(~before);
  for (; bytes >= 8; bytes -= 8, at += 8) {
    unsigned long long word;
    std::memcpy(&word, at, sizeof word);
    crc = __builtin_ia32_crc32di(crc, word);
  }
  auto rest = static_cast<uint32_t>(crc);
  for (; bytes > 0; --bytes, ++at) rest = __builtin_ia32_crc32qi(rest, *at);
  return ~rest;
}
#else
constexpr bool kInstruction = false;
bool has_instruction() { return false; }
uint32_t by_instruction(uint32_t before, const void*, int64_t) { return before; }
#endif

uint32_t by_table(uint32_t before, const void* data, int64_t bytes) {
  const auto* at = static_cast<const Bytef*>(data);
  constexpr int64_t kMost = int64_t{1} << 30;  // what zlib counts in
  uLong crc = before;
  for (; bytes > 0; bytes -= kMost, at += kMost)
    crc = crc32(crc, at, static_cast<uInt>(bytes < kMost ? bytes : kMost));
  return static_cast<uint32_t>(crc);
}

}  // namespace

uint32_t checksum(uint32_t before, const void* data, int64_t bytes) {
  static const bool fast = kInstruction && has_instruction();
  return fast ? by_instruction(before, data, bytes) : by_table(before, data, bytes);
}

}  // namespace frugal::compress
