#include "core/dynamic_library.h"

#include <doctest/doctest.h>

#include "core/error.h"

using namespace frugal;

TEST_CASE("a library is opened by the first of its names that exists, and gives its functions") {
  const DynamicLibrary math({"libnowhere.so.1", "libm.so.6"}, "");
  CHECK(math.function<double (*)(double)>("cos")(0.0) == 1.0);
  CHECK_THROWS_WITH_AS(math.function<void (*)()>("no_such_function"),
                       doctest::Contains("no_such_function in libm.so.6"), Error);
}

TEST_CASE("a library that is missing is named, with what helps") {
  CHECK_THROWS_WITH_AS(DynamicLibrary({"libnowhere.so.1", "/none/libnowhere.so"}, "install it"),
                       doctest::Contains("expected the library libnowhere.so.1"), Error);
  CHECK_THROWS_WITH_AS(DynamicLibrary({"libnowhere.so.1"}, "install it"),
                       doctest::Contains("install it"), Error);
}
