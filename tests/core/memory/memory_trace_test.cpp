#include "core/memory/memory_trace.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/tensor.h"

using namespace frugal;

TEST_CASE("a memory trace has an event for each allocation and release of its device") {
  const auto bytes = [](const MemoryTrace::Event& event, Category category) {
    return event.live[static_cast<size_t>(category)];
  };
  MemoryTrace::mark("before any trace");  // does nothing
  const MemoryTrace trace(kCpu);
  MemoryTrace::mark("one");
  {
    const Tensor a = Tensor::empty({256});
    MemoryTrace::mark("two");
    const CategoryScope scope(Category::packed);
    const Tensor b = Tensor::empty({512});
    const Tensor on_meta = Tensor::empty({512}, DType::f32, kMeta);
  }
  const std::vector<MemoryTrace::Event>& events = trace.events();
  REQUIRE(events.size() == 4);
  const int64_t activations = bytes(events[3], Category::activation);
  const int64_t packed = bytes(events[3], Category::packed);
  CHECK(bytes(events[0], Category::activation) - activations == 1024);
  CHECK(bytes(events[1], Category::packed) - packed == 2048);
  CHECK(bytes(events[1], Category::activation) - activations == 1024);
  CHECK(bytes(events[2], Category::packed) == packed);
  CHECK(std::string(events[0].phase) == "one");
  CHECK(std::string(events[1].phase) == "two");
  for (size_t i = 1; i < events.size(); ++i)
    CHECK(events[i].milliseconds >= events[i - 1].milliseconds);
  CHECK_THROWS_WITH_AS(MemoryTrace{kCpu}, doctest::Contains("one trace at a time"), Error);
}
