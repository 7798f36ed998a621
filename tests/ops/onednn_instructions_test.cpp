#include "ops/onednn_instructions.h"

#include <doctest/doctest.h>

using namespace frugal::ops;

TEST_CASE("oneDNN misreads caches that an AMD processor does not tell, from 3.2 to 3.7") {
  constexpr const char* kAmd = "AuthenticAMD";
  constexpr uint32_t kNone = 0, kData = 1;
  CHECK(onednn::misreads_caches(3, 6, kAmd, kNone));
  CHECK(onednn::misreads_caches(3, 2, kAmd, kNone));
  CHECK(onednn::misreads_caches(3, 7, kAmd, kNone));
  CHECK_FALSE(onednn::misreads_caches(3, 6, kAmd, kData));
  CHECK_FALSE(onednn::misreads_caches(3, 6, "GenuineIntel", kNone));
  CHECK_FALSE(onednn::misreads_caches(3, 1, kAmd, kNone));
  CHECK_FALSE(onednn::misreads_caches(3, 8, kAmd, kNone));
  CHECK_FALSE(onednn::misreads_caches(2, 6, kAmd, kNone));
}
