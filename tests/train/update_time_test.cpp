// When parameters are updated, and what is said about it.
#include "train/update_time.h"

#include <doctest/doctest.h>

#include <vector>

#include "core/error.h"

namespace frugal::train {

TEST_CASE("parameters are updated in the backward pass unless something speaks against it") {
  CHECK(keeps_gradients({}).empty());
  CHECK(keeps_gradients({.in_backward = true}).empty());
  CHECK(keeps_gradients({.in_backward = true, .ranks = 2, .on_cuda = true}).empty());
  CHECK(keeps_gradients({.in_backward = false}) == "trainer.in_backward is false");
  struct Case {
    UpdateTime time;
    const char* said;
    bool needs;  // an error, where in_backward is true
  };
  for (Case& c : std::vector<Case>{{{.clip_norm = 1}, "trainer.clip_norm", true},
                                   {{.gradient_accumulation = 2}, "gradient_accumulation", true},
                                   {{.recomputes = true}, "recomputed blocks", true},
                                   {{.ranks = 2}, "ranks", false},
                                   {{.on_cuda = true}, "device", false}}) {
    CAPTURE(c.said);
    CHECK(keeps_gradients(c.time).find(c.said) != std::string::npos);
    CHECK(needs_gradients(c.time).empty() != c.needs);
    CHECK_NOTHROW(check(c.time));
    c.time.in_backward = false;
    CHECK_NOTHROW(check(c.time));
    CHECK(keeps_gradients(c.time) == "trainer.in_backward is false");
    c.time.in_backward = true;
    if (c.needs)
      CHECK_THROWS_WITH_AS(check(c.time), doctest::Contains(c.said), OptionError);
    else
      CHECK_NOTHROW(check(c.time));
  }
}

}  // namespace frugal::train
