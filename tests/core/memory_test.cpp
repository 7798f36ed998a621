#include "core/memory.h"

#include <doctest/doctest.h>

#include <cstdint>

#include "core/tensor.h"

using namespace frugal;

namespace {
int64_t live(Category category) { return allocator(kCpu).report().of(category); }
}  // namespace

TEST_CASE("every byte is in its category and the peak keeps its breakdown") {
  Allocator& cpu = allocator(kCpu);
  const int64_t activation = live(Category::activation), packed = live(Category::packed);
  cpu.reset_peak();
  const int64_t start = cpu.report().live_total;
  {
    const Tensor a = Tensor::empty({256});
    CHECK(a.storage()->category() == Category::activation);
    {
      CategoryScope scope(Category::packed);
      const Tensor b = Tensor::empty({512});
      CHECK(live(Category::packed) - packed == 2048);
      CHECK(live(Category::activation) - activation == 1024);
    }
    CHECK(live(Category::packed) == packed);
  }
  const MemoryReport report = cpu.report();
  CHECK(report.live_total == start);
  CHECK(report.peak_total - start == 3072);
  CHECK(report.at_peak[static_cast<size_t>(Category::packed)] - packed == 2048);
  CHECK(report.str().find("packed") != std::string::npos);
}

TEST_CASE("the limit throws OutOfMemory with the report, and frees nothing that lives") {
  Allocator& cpu = allocator(kCpu);
  const Tensor held = Tensor::empty({1 << 16});
  cpu.set_limit(cpu.report().live_total + 4096);
  CHECK_NOTHROW(Tensor::empty({1024}));
  try {
    Tensor::empty({1025});
    FAIL("expected OutOfMemory");
  } catch (const OutOfMemory& error) {
    CHECK(error.report.of(Category::activation) >= 1 << 18);
    CHECK(std::string(error.what()).find("limit") != std::string::npos);
  }
  cpu.set_limit(0);
  CHECK_NOTHROW(Tensor::empty({1025}));
}

TEST_CASE("the n-th allocation fails on request, once") {
  Allocator& cpu = allocator(kCpu);
  cpu.fail_after(1);
  CHECK_NOTHROW(Tensor::empty({8}));
  CHECK_THROWS_AS(Tensor::empty({8}), OutOfMemory);
  CHECK_NOTHROW(Tensor::empty({8}));
}

TEST_CASE("blocks are aligned, zero bytes are fine, and the cache is given back") {
  for (int64_t n : {0, 1, 63, 1000, 3000000}) {
    const Tensor x = Tensor::empty({n}, DType::u8);
    CHECK(reinterpret_cast<uintptr_t>(x.raw()) % 64 == 0);
  }
  Allocator& cpu = allocator(kCpu);
  cpu.trim();
  CHECK(cpu.report().reserved == cpu.report().live_total);
}

TEST_CASE("the process's peak is known") { CHECK(host_peak_rss() > 1 << 20); }
