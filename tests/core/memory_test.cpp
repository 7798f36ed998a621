#include "core/memory.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "core/rng.h"
#include "core/tensor.h"

using namespace frugal;

namespace {
int64_t live(Category category) { return allocator(kCpu).report().of(category); }

constexpr int64_t kOneMiB = int64_t{1} << 20;

Tensor filled(int64_t bytes) { return Tensor::full({bytes}, 1, DType::u8); }

#ifndef FRUGAL_SANITIZED  // there each tensor is a piece of the system's memory
int64_t resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::stoll(line.substr(6)) * 1024;
  return 0;
}
#endif
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
}

TEST_CASE("a report is one line, with the largest category first") {
  MemoryReport report;
  report.live_total = 5 << 20;
  report.live[static_cast<size_t>(Category::parameter)] = 1 << 20;
  report.live[static_cast<size_t>(Category::packed)] = 4 << 20;
  report.peak_total = 6 << 20;
  report.reserved = 7 << 20;
  CHECK(report.str() ==
        "held 5.0 MiB: packed 4.0 MiB, parameter 1.0 MiB; highest 6.0 MiB, reserved 7.0 MiB");
  report.limit = 8 << 20;
  CHECK(report.str().ends_with(", reserved 7.0 MiB, limit 8.0 MiB"));
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

TEST_CASE("a growing tensor counts what it has grown to, and the limit stops it") {
  for (const Device device : {kCpu, kMeta}) {
    CAPTURE(device.type == DeviceType::meta);
    Allocator& memory = allocator(device);
    const int64_t before = memory.report().live_total;
    {
      const Tensor x = Tensor::growing({4, 1 << 18}, DType::f32, device);
      CHECK(x.nbytes() == 4 * kOneMiB);
      CHECK(memory.report().live_total == before);
      x.storage()->grow(kOneMiB);
      if (device == kCpu) std::fill_n(x.mut<float>(), 1 << 18, 1.0f);
      x.storage()->grow(kOneMiB / 2);
      CHECK(memory.report().live_total == before + kOneMiB);
      memory.set_limit(before + 2 * kOneMiB);
      CHECK_THROWS_AS(x.storage()->grow(3 * kOneMiB), OutOfMemory);
      CHECK(memory.report().live_total == before + kOneMiB);
      memory.set_limit(0);
      x.storage()->grow(4 * kOneMiB);
      CHECK(memory.report().live_total == before + 4 * kOneMiB);
      if (device == kCpu) {
        std::fill_n(x.mut<float>() + (1 << 18), 3 << 18, 2.0f);
        CHECK(x.item((1 << 18) - 1) == 1);
        CHECK(x.item(1 << 18) == 2);
      }
    }
    CHECK(memory.report().live_total == before);
    { const Tensor unused = Tensor::growing({1 << 20}, DType::f32, device); }
    CHECK(memory.report().live_total == before);
  }
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
  // Live blocks may share their first and last page with what was given back.
  CHECK(cpu.report().reserved - cpu.report().live_total < kOneMiB);
}

TEST_CASE("what the limit counts: free pages go back before it is passed") {
  Allocator& cpu = allocator(kCpu);
  cpu.trim();
  const int64_t before = cpu.report().live_total;
  cpu.set_limit(before + 40 * kOneMiB);
  {
    // Blocks of growing size fit into no free one beside a small block that stays.
    std::vector<Tensor> stay;
    for (int64_t size = 16; size < 36; size += 4) {
      filled(size * kOneMiB);
      stay.push_back(filled(kOneMiB / 2));
      CHECK(cpu.report().reserved <= before + 40 * kOneMiB);
    }
    CHECK_THROWS_AS(filled(40 * kOneMiB), OutOfMemory);
    CHECK_NOTHROW(filled(36 * kOneMiB));
    CHECK(cpu.report().reserved <= before + 40 * kOneMiB);
  }
  cpu.set_limit(0);
}

TEST_CASE("free pages go back where they would exceed a bound, which live bytes may exceed") {
  Allocator& cpu = allocator(kCpu);
  cpu.trim();
  const int64_t before = cpu.report().live_total;
  cpu.set_most_reserved(before + 40 * kOneMiB);
  {
    const Tensor stays = filled(30 * kOneMiB);
    filled(8 * kOneMiB);
    filled(9 * kOneMiB);  // beside what the last one left free, 47 MiB
    CHECK(cpu.report().reserved <= before + 40 * kOneMiB);
    CHECK_NOTHROW(filled(20 * kOneMiB));
    filled(kOneMiB);
    CHECK(cpu.report().reserved <= before + 40 * kOneMiB);
  }
  cpu.set_most_reserved(0);
}

#ifndef FRUGAL_SANITIZED
TEST_CASE("the system's count of the process follows the reserved bytes") {
  Allocator& cpu = allocator(kCpu);
  cpu.trim();
  const int64_t before = resident(), reserved = cpu.report().reserved;
  std::vector<Tensor> kept;
  for (int64_t i = 0; i < 40; ++i) {
    kept.push_back(filled(kOneMiB + i * 100'000));
    filled(3 * kOneMiB);
    if (i % 3 == 0) kept.erase(kept.begin());
  }
  const auto grown = [&] { return resident() - before; };
  const auto counted = [&] { return cpu.report().reserved - reserved; };
  CHECK(counted() > 50 * kOneMiB);
  CHECK(grown() < counted() + 4 * kOneMiB);
  CHECK(grown() > counted() - 8 * kOneMiB);
  kept.clear();
  CHECK(cpu.report().live_total < cpu.report().reserved);
  cpu.trim();
  CHECK(grown() < 4 * kOneMiB);
  CHECK(counted() < kOneMiB);
}
#endif

TEST_CASE("threads that allocate and release keep their bytes apart") {
  Allocator& cpu = allocator(kCpu);
  const MemoryReport before = cpu.report();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (uint64_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      std::vector<Tensor> held;
      for (uint64_t i = 0; i < 300; ++i) {
        const auto bytes = static_cast<int64_t>(uniform_int({t, 1}, i, 400'000)) + 1;
        held.push_back(Tensor::full({bytes}, static_cast<double>(t + 1), DType::u8));
        if (i % 50 == 0) allocator(kCpu).trim();
        if (held.size() < 20) continue;
        const auto at = static_cast<int64_t>(uniform_int({t, 2}, i, held.size()));
        const Tensor gone = held[static_cast<size_t>(at)];
        held.erase(held.begin() + at);
        const auto* data = gone.data<uint8_t>();
        if (std::count(data, data + gone.numel(), t + 1) != gone.numel()) ++wrong[t];
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) CHECK(count == 0);
  CHECK(cpu.report().live_total == before.live_total);
  CHECK(cpu.report().live == before.live);
}

TEST_CASE("the process's peak is known") { CHECK(host_peak_rss() > 1 << 20); }
