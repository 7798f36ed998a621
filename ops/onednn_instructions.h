// Which instructions of the processor oneDNN may use.
#pragma once
#include <cstdint>
#include <string>

namespace frugal::ops::onednn {

// oneDNN 3.2 to 3.7 read the sizes of AMD's caches from CPUID leaf 0x8000001D. Some virtual
// machines leave it empty. Each cache then has one byte. Kernels for AVX2 and later divide by 0 or
// give wrong numbers for such caches, without an error. The sources of 3.8 take usual sizes there.
// major, minor: the library's version. cache_type: the lowest 5 bits of EAX of that leaf's first
// entry; 0: there is no such cache.
bool misreads_caches(int major, int minor, const std::string& vendor, uint32_t cache_type);

// The first call keeps oneDNN from these kernels where it misreads this processor's caches, and
// writes a warning. It comes before oneDNN makes anything.
// Errors: oneDNN was used before, by another library, and takes no limit any longer.
void limit_instructions();

// Whether oneDNN's kernels for AVX-512, and those that multiply bf16, are used here.
bool uses_avx512();
bool uses_avx512_bf16();

}  // namespace frugal::ops::onednn
