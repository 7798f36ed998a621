#include "apps/text/csv.h"

#include <doctest/doctest.h>

namespace frugal::apps {

TEST_CASE("fields of CSV have quotes where they need them") {
  CHECK(csv_field("4 bits") == "4 bits");
  CHECK(csv_field("a,b") == "\"a,b\"");
  CHECK(csv_field("say \"a\"\n") == "\"say \"\"a\"\"\n\"");
  CHECK(csv_line({"", "a,b", "c", ""}) == ",\"a,b\",c,\n");
}

}  // namespace frugal::apps
