#include "ops/onednn_instructions.h"

#include <cstdlib>
#include <cstring>

#include "core/error.h"
#include "core/log.h"
#include "ops/onednn.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace frugal::ops::onednn {
namespace {

constexpr const char* kVariables[] = {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"};

bool this_processor_is_misread() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  __cpuid(0, a, b, c, d);
  char vendor[12];
  std::memcpy(vendor, &b, 4);
  std::memcpy(vendor + 4, &d, 4);
  std::memcpy(vendor + 8, &c, 4);
  constexpr unsigned kCaches = 0x8000001d;
  __cpuid(0x80000000, a, b, c, d);
  const bool has_leaf = a >= kCaches;
  __cpuid_count(kCaches, 0, a, b, c, d);
  const dnnl_version_t* const version = dnnl_version();
  return misreads_caches(version->major, version->minor, std::string(vendor, sizeof vendor),
                         has_leaf ? a & 31 : 0);
#else
  return false;
#endif
}

// Whether the user has limited oneDNN that far already.
bool is_limited() {
  for (const char* variable : kVariables)
    if (const char* const value = std::getenv(variable))
      return std::strcmp(value, "SSE41") == 0 || std::strcmp(value, "AVX") == 0;
  return false;
}

// The instruction sets of x86 are bits, and each has the bits of those that it extends. Other
// processors give other numbers.
bool uses(dnnl::cpu_isa least) {
  limit_instructions();
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (isa & static_cast<unsigned>(least)) == static_cast<unsigned>(least);
}

}  // namespace

bool misreads_caches(int major, int minor, const std::string& vendor, uint32_t cache_type) {
  return major == 3 && minor >= 2 && minor <= 7 && vendor == "AuthenticAMD" && cache_type == 0;
}

void limit_instructions() {
  static const bool done = [] {
    if (!this_processor_is_misread() || is_limited()) return true;
    if (dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx) != dnnl::status::success)
      throw Error(
          "oneDNN computes wrong convolutions on this machine, which does not tell the sizes of "
          "its caches, and another library has used it already; set ONEDNN_MAX_CPU_ISA=AVX in the "
          "environment before the program starts");
    log().warn("slower: oneDNN misreads this machine's caches and is kept to AVX");
    return true;
  }();
  (void)done;
}

bool uses_avx512() {
  static const bool used = uses(dnnl::cpu_isa::avx512_core);
  return used;
}

bool uses_avx512_bf16() {
  static const bool used = uses(dnnl::cpu_isa::avx512_core_bf16);
  return used;
}

}  // namespace frugal::ops::onednn
