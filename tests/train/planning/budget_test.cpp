#include "train/planning/budget.h"

#include <doctest/doctest.h>

#include "train/option_error.h"

using namespace frugal;
using namespace frugal::train;

TEST_CASE("a budget is bytes or a share, of the peak or of activations") {
  auto parsed = [](const std::string& text) { return parse_budget(text, "p"); };
  CHECK(parsed("2 GiB").bytes == int64_t{2} << 30);
  CHECK(parsed("500 MiB").bytes == 500 << 20);
  CHECK(parsed("1000000").bytes == 1000000);
  CHECK(parsed("1/16").share == 1.0 / 16);
  CHECK(parsed("2/3").share == doctest::Approx(2.0 / 3));
  CHECK(parsed("12x").share == doctest::Approx(1.0 / 12));
  CHECK(parsed("1.5x").share == doctest::Approx(1 / 1.5));
  CHECK(parsed("50%").share == 0.5);
  CHECK(parsed("12.5 % activations").share == 0.125);
  CHECK(parsed("12.5 % activations").activations);
  CHECK(parsed("512mb").bytes == 512'000'000);
  CHECK(!parsed("1/4").activations);
  CHECK(parsed("1/4 activations").activations);
  CHECK(parsed("13 MiB activations").activations);
  CHECK(parsed("13 MiB activations").bytes == 13 << 20);
  for (const char* wrong : {"",
                            "much",
                            "0",
                            "0 B",
                            "1/0",
                            "0/4",
                            "4/1",
                            "0.5x",
                            "x",
                            "1/",
                            "/4",
                            "1//4",
                            "-1 GiB",
                            "1 PiB",
                            "0%",
                            "101%",
                            "%",
                            "1.2.3/4",
                            "1/4 peak",
                            "activations",
                            "99999999 TiB",
                            "1/4\nactivations"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(parsed(wrong), OptionError);
  }
  const std::string long_number(400, '9');
  for (const std::string& wrong : {long_number, long_number + "x", "1/" + long_number})
    CHECK_THROWS_AS(parsed(wrong), OptionError);
}
