#include "train/planning/bytes.h"

#include <doctest/doctest.h>

namespace frugal::train {

TEST_CASE("bytes for people, on axes and as papers write them") {
  CHECK(readable_bytes(0) == "0 B");
  CHECK(readable_bytes(1023) == "1023 B");
  CHECK(readable_bytes(1536) == "1.5 KiB");
  CHECK(readable_bytes(int64_t{200} << 20) == "200.0 MiB");
  CHECK(readable_bytes(int64_t{5} << 40) == "5120.00 GiB");
  CHECK(round_bytes(0) == "0 B");
  CHECK(round_bytes(256 << 20) == "256 MiB");
  CHECK(round_bytes(1.5 * (1 << 30)) == "1.5 GiB");
  CHECK(round_bytes(0x1p40) == "1 TiB");
  CHECK(decimal_bytes(500) == "0.5 kB");
  CHECK(decimal_bytes(4e6) == "4.0 MB");
  CHECK(decimal_bytes(5.284e9) == "5.28 GB");
}

}  // namespace frugal::train
