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

TEST_CASE("bytes in three digits") {
  CHECK(short_bytes(0) == "0");
  CHECK(short_bytes(999) == "999");
  CHECK(short_bytes(1000) == "0.98K");
  CHECK(short_bytes(1 << 20) == "1.00M");
  CHECK(short_bytes((int64_t{1} << 30) * 12) == "12.0G");
  CHECK(short_bytes(int64_t{1} << 40) == "1.00T");
}

}  // namespace frugal::train
