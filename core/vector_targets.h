// The instruction sets for which Highway compiles our vector code: the baseline, SSE4, AVX2 and
// AVX-512, or NEON. A file includes this before <hwy/foreach_target.h>.
//
// Sets between these and beyond AVX-512 cost compile time, and our code uses none of their
// instructions. Highway 1.2 would add those of Zen 4 and Sapphire Rapids. A file that gains from
// AVX3_DL defines HWY_WANT_AVX3_DL first. Scalable vectors cannot be array elements, and lambdas
// cannot give them back.
#pragma once

#ifdef HWY_WANT_AVX3_DL
#define FRUGAL_BEST_TARGET HWY_AVX3_DL
#else
#define FRUGAL_BEST_TARGET HWY_AVX3
#endif
// A better set of x86 has a lower bit.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | (FRUGAL_BEST_TARGET - 1) | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
