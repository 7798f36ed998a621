// Memory, transfers, captured work.
#include <limits>

#include "compress/quantize/nonfinite_count.h"
#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_graph.h"
#include "core/cuda/cuda_grid.h"
#include "core/cuda/cuda_staging.h"
#include "core/cuda/pinned_pool.h"
#include "core/memory/host_copies.h"
#include "core/rng.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/matmul.h"
#include "tests/cuda/gpu.h"

namespace frugal {

TEST_CASE("tensors move to the GPU and back, every dtype") {
  if (!gpu::available()) return;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8,
                      DType::bool_, DType::f64}) {
    const Tensor x = ops::cast(Tensor::from<float>({0, 1, 2, 3, 100, 1}, {2, 3}), dtype);
    const Tensor there = to_device(x, gpu::kCuda);
    CHECK(there.device() == gpu::kCuda);
    CHECK(there.to_vector() == x.to_vector());
    CHECK(there.item(4) == x.item(4));
    CHECK(to_device(there, kCpu).to_vector() == x.to_vector());
  }
  CHECK(Tensor::zeros({3}, DType::i32, gpu::kCuda).to_vector() == std::vector<double>{0, 0, 0});
  CHECK(Tensor::full({2}, 1.5, DType::f32, gpu::kCuda).to_vector() ==
        std::vector<double>{1.5, 1.5});
  CHECK_THROWS_AS(to_device(Tensor::zeros({2, 3}).transpose(0, 1), gpu::kCuda), Error);
  CHECK_THROWS_WITH_AS(Tensor::zeros({1}, DType::f32, {DeviceType::cuda, 99}),
                       doctest::Contains("cuda:99"), Error);
}

TEST_CASE("strided copies and casts on the GPU") {
  if (!gpu::available()) return;
  Tensor x = Tensor::empty({3, 4, 5});
  for (int64_t i = 0; i < x.numel(); ++i) x.mut<float>()[i] = static_cast<float>(i) - 20.5F;
  const Tensor there = to_device(x, gpu::kCuda);
  const auto view = [](const Tensor& t) { return t.permute({2, 0, 1}).slice(0, 1, 4); };
  CHECK(ops::clone(view(there)).to_vector() == ops::clone(view(x)).to_vector());
  for (DType dtype : {DType::bf16, DType::i64, DType::bool_, DType::f64})
    CHECK(ops::cast(view(there), dtype).to_vector() == ops::cast(view(x), dtype).to_vector());
  const Tensor filled = Tensor::zeros({3, 4}, DType::f32, gpu::kCuda);
  ops::fill(filled.select(1, 2), 7);
  CHECK(filled.to_vector() == std::vector<double>{0, 0, 7, 0, 0, 0, 7, 0, 0, 0, 7, 0});
}

TEST_CASE("long copies, casts, fills and broadcasts take 16 bytes at a time, and the rest") {
  if (!gpu::available()) return;
  const auto count = [](const Shape& shape) {
    Tensor x = Tensor::empty(shape);
    for (int64_t i = 0; i < x.numel(); ++i) x.mut<float>()[i] = static_cast<float>(i % 251) - 99.5F;
    return x;
  };
  // The last axis in whole runs, or not; from an address that is one, or not.
  for (const int64_t columns : {16, 13})
    for (const int64_t first : {0, 1}) {
      const Tensor x = count({5, 7, columns + first}), there = to_device(x, gpu::kCuda);
      const auto part = [&](const Tensor& t) { return t.slice(2, first, columns + first); };
      CHECK(ops::clone(part(there)).to_vector() == ops::clone(part(x)).to_vector());
      const auto swapped = [&](const Tensor& t) { return part(t).permute({1, 0, 2}); };
      CHECK(ops::clone(swapped(there)).to_vector() == ops::clone(swapped(x)).to_vector());
      const Tensor half = ops::cast(there, DType::bf16);
      CHECK(half.to_vector() == ops::cast(x, DType::bf16).to_vector());
      CHECK(ops::cast(half, DType::f32).to_vector() ==
            ops::cast(ops::cast(x, DType::bf16), DType::f32).to_vector());
      const Tensor whole = ops::clone(part(x)), on_gpu = ops::clone(part(there));
      for (const Shape& shape : {Shape{columns}, Shape{1}, Shape{7, 1}, Shape{5, 1, columns},
                                 Shape{5, 1, 1}, Shape{5, 7, 1}}) {
        CAPTURE(shape);
        const Tensor other = count(shape), other_there = to_device(other, gpu::kCuda);
        CHECK(ops::sub(on_gpu, other_there).to_vector() == ops::sub(whole, other).to_vector());
        CHECK(ops::sub(other_there, on_gpu).to_vector() == ops::sub(other, whole).to_vector());
      }
    }
  for (const int64_t n : {1, 7, 16, 1003})
    for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::i64}) {
      const Tensor all = Tensor::zeros({n + 1}, dtype, gpu::kCuda);
      ops::fill(all.slice(0, 1, n + 1), 3);
      std::vector<double> expected(static_cast<size_t>(n + 1), 3);
      expected[0] = 0;
      CHECK(all.to_vector() == expected);
      CHECK(Tensor::full({n}, 3, dtype, gpu::kCuda).to_vector() ==
            std::vector<double>(static_cast<size_t>(n), 3));
    }
}

TEST_CASE("numbers of blocks do not overflow, and more than CUDA takes are an error") {
  using namespace cuda;
  constexpr int64_t kLarge = int64_t{1} << 31;
  CHECK(striding_blocks(0, 256, 64) == 0);
  CHECK(striding_blocks(1, 256, 64) == 1);
  CHECK(striding_blocks(256, 256, 64) == 1);
  CHECK(striding_blocks(257, 256, 64) == 2);
  CHECK(striding_blocks(kLarge * 256 + 1, 256, int64_t{1} << 40) == kLarge + 1);
  CHECK(striding_blocks(std::numeric_limits<int64_t>::max(), 256, 64) == 64);
  CHECK(checked_blocks(kLarge - 1) == 0x7fffffffu);
  CHECK(checked_blocks(65535, kMostBlocksAcross) == 65535);
  CHECK_THROWS_WITH_AS(checked_blocks(kLarge), doctest::Contains("at most 2147483647 blocks"),
                       Error);
  CHECK_THROWS_WITH_AS(checked_blocks(2 * kLarge + 7), doctest::Contains("got 4294967303"), Error);
  CHECK_THROWS_AS(checked_blocks(65536, kMostBlocksAcross), Error);
  CHECK_THROWS_AS(checked_blocks(-1), Error);
}

TEST_CASE("elements beyond the first 2^31 of a tensor are found") {
  if (!gpu::available()) return;
  if (cuda::one_by_one()) return;  // the emulator would write to all of the memory
  const int64_t columns = (int64_t{1} << 30) + 8;
  const Tensor x = Tensor::empty({3, columns}, DType::u8, gpu::kCuda);
  const auto ends = [&](int64_t row) {
    return std::pair{x.select(0, row).slice(0, 0, 5),
                     x.select(0, row).slice(0, columns - 5, columns)};
  };
  for (int64_t row = 0; row < 3; ++row) {
    ops::fill(ends(row).first, static_cast<double>(row + 1));
    ops::fill(ends(row).second, static_cast<double>(row + 4));
  }
  for (const bool last : {false, true}) {
    const Tensor part = last ? x.slice(1, columns - 5, columns) : x.slice(1, 0, 5);
    std::vector<double> expected;
    for (int i = 0; i < 15; ++i) expected.push_back(i / 5 + (last ? 4 : 1));
    CHECK(ops::clone(part).to_vector() == expected);
    const Tensor turned = ops::cast(part.transpose(0, 1), DType::f32);
    for (int64_t i = 0; i < 15; ++i)
      CHECK(turned.item(i) == static_cast<double>(i % 3 + (last ? 4 : 1)));
  }
}

TEST_CASE("the memory of a device is known, and asking leaves the current device alone") {
  if (!gpu::available()) return;
  const int current = cuda::current_device(), count = cuda::device_count();
  for (int index = 0; index < count; ++index) CHECK(cuda::total_memory(index) >= int64_t{1} << 30);
  CHECK(cuda::total_memory(count) == 0);
  CHECK(cuda::current_device() == current);
}

TEST_CASE("batches are staged: the host may write at once, pinned memory is used again") {
  if (!gpu::available()) return;
  Tensor x = Tensor::full({3 << 18}, 2);
  std::vector<Tensor> there;
  for (int i = 0; i < 3; ++i) {
    there.push_back(cuda::staged(x, gpu::kCuda));
    ops::fill(x, 3 + i);
  }
  for (size_t i = 0; i < 3; ++i) {
    CHECK(there[i].item(0) == static_cast<double>(2 + i));
    CHECK(there[i].item(x.numel() - 1) == static_cast<double>(2 + i));
  }
  cuda::synchronize();
  const int64_t held = cuda::staged_bytes(gpu::kCuda).held;
  CHECK(cuda::staged_bytes(gpu::kCuda).used == 0);
  cuda::staged(x, gpu::kCuda);
  CHECK(cuda::staged_bytes(gpu::kCuda).held == held);
  CHECK(cuda::staged(Tensor::zeros({0, 4}), gpu::kCuda).shape() == Shape{0, 4});
  CHECK_THROWS_WITH_AS(cuda::staged(x.view({3, 1 << 18}).transpose(0, 1), gpu::kCuda),
                       doctest::Contains("contiguous"), Error);
  cuda::Graph graph;
  CHECK_THROWS_WITH_AS(graph.capture([&] { cuda::staged(x, gpu::kCuda); }),
                       doctest::Contains("captur"), Error);
  CHECK_FALSE(cuda::capturing());
}

TEST_CASE("tensors of any dtype are read together, with one wait") {
  if (!gpu::available()) return;
  const Tensor a = Tensor::full({}, 2.5, DType::f32, gpu::kCuda),
               b = Tensor::arange(0, 7, 1, DType::i64, gpu::kCuda), c = Tensor::full({2}, 3),
               large = Tensor::full({2 << 20}, 4, DType::f32, gpu::kCuda),
               none = Tensor::zeros({0, 3}, DType::u8, gpu::kCuda);
  const int64_t before = gpu::waits();
  const std::vector<Tensor> few = host_copies({a, Tensor(), b, c});
  if (gpu::emulated()) CHECK(gpu::waits() - before == 1);
  REQUIRE(few.size() == 4);
  CHECK(few[0].device() == kCpu);
  CHECK(few[0].item() == 2.5);
  CHECK_FALSE(few[1].defined());
  CHECK(few[2].to_vector() == b.to_vector());
  CHECK(few[3].storage() == c.storage());
  const std::vector<Tensor> others = host_copies({large, none, a});
  CHECK(others[0].item(large.numel() - 1) == 4);
  CHECK(others[1].shape() == none.shape());
  CHECK(others[2].item() == 2.5);
  CHECK_THROWS_WITH_AS(host_copies({large.view({2, 1 << 20}).transpose(0, 1)}),
                       doctest::Contains("contiguous"), Error);
}

TEST_CASE("kernels and libraries run on the present stream, which waits for no other one") {
  if (!gpu::available() || !gpu::emulated()) return;
  const gpu::LateStreams late;
  const Tensor x = Tensor::zeros({2, 2}, DType::f32, gpu::kCuda), ones = Tensor::ones({2, 2}),
               one = to_device(ones, gpu::kCuda);
  const auto beside = [&] {
    const cuda::StreamScope scope(0, nullptr);
    const std::pair found{ops::affine(x, 1, 0), ops::matmul(x, one)};
    cuda::synchronize();
    return found;
  };
  beside();  // what a process makes once is there
  cuda::synchronize();
  const auto go_on = emulator::hold();
  ops::fill(x, 1);
  const auto early = beside();
  go_on();
  cuda::synchronize();
  const auto waited = beside();
  CHECK(early.first.to_vector() == std::vector<double>(4, 0));
  CHECK(early.second.to_vector() == std::vector<double>(4, 0));
  CHECK(waited.first.to_vector() == std::vector<double>(4, 1));
  CHECK(waited.second.to_vector() == std::vector<double>(4, 2));
}

TEST_CASE("pinned memory goes back to the system after what uses it") {
  if (!gpu::available()) return;
  int settled = 0;
  {
    cuda::PinnedPool pool([&] { ++settled; });
    pool.release(pool.allocate(40 << 20));
    CHECK(settled == 0);
    pool.allocate(200 << 20);  // more than a quarter beyond: the first segment goes
    CHECK(settled == 1);
  }
  CHECK(settled == 2);
}

TEST_CASE("a count that captured work begins is not begun anew by reruns") {
  if (!gpu::available()) return;
  compress::NonfiniteCount before;
  before.on_device();  // memory for many
  compress::NonfiniteCount count;
  cuda::Graph graph;
  unsigned long long* counter = nullptr;
  const Tensor five = Tensor::full({1}, 5, DType::i64, gpu::kCuda);
  const Tensor x = Tensor::full({3}, 1, DType::f32, gpu::kCuda);
  graph.capture([&] {
    counter = count.on_device();
    ops::affine(x, 2, 0);
  });
  CHECK(count.value() == 0);
  copy_bytes(counter, gpu::kCuda, five.raw(), gpu::kCuda, 8);
  graph.rerun();
  CHECK(count.value() == 5);
}

TEST_CASE("memory on the GPU is accounted, limited, and given back") {
  if (!gpu::available()) return;
  Allocator& memory = allocator(gpu::kCuda);
  const MemoryReport before = memory.report();
  {
    const CategoryScope scope(Category::packed);
    const Tensor x = Tensor::empty({1000}, DType::f32, gpu::kCuda);
    CHECK(memory.report().of(Category::packed) == before.of(Category::packed) + 4032);
    CHECK(memory.report().reserved >= memory.report().live_total);
  }
  CHECK(memory.report().live_total == before.live_total);
  memory.set_limit(before.live_total + (1 << 20));
  CHECK_THROWS_AS(Tensor::empty({1 << 20}, DType::f32, gpu::kCuda), OutOfMemory);
  memory.set_limit(0);
  memory.trim();
  CHECK_THROWS_WITH_AS(Tensor::empty({int64_t{1} << 50}, DType::u8, gpu::kCuda),
                       doctest::Contains("the system has none left"), OutOfMemory);
  CHECK_THROWS_WITH_AS(cuda::system_memory(int64_t{1} << 50), doctest::Contains("reserved"),
                       OutOfMemory);
}

TEST_CASE("tensors of odd sizes take no more memory than they need") {
  if (!gpu::available() || cuda::one_by_one()) return;
  constexpr int64_t kBytes = (int64_t{1} << 20) + (int64_t{1} << 16) + 64, kAligned = 512;
  constexpr int64_t kCount = 64;
  Allocator& memory = allocator(gpu::kCuda);
  memory.trim();
  Tensor room = Tensor::empty({kCount * (kBytes + kAligned)}, DType::u8, gpu::kCuda);
  room = {};  // the memory is kept for the next tensors
  const int64_t reserved = memory.report().reserved;
  std::vector<Tensor> tensors;
  for (int64_t i = 0; i < kCount; ++i)
    tensors.push_back(Tensor::empty({kBytes}, DType::u8, gpu::kCuda));
  const int64_t now = memory.report().reserved;
  CHECK(now <= reserved);
  CHECK(now >= reserved - kCount * kAligned);
}

TEST_CASE("ops run on the device of their tensors, whatever device is current") {
  if (!gpu::available() || cuda::device_count() < 2) return;
  const Device second{DeviceType::cuda, 1};
  const Tensor x = Tensor::full({3}, 2, DType::f32, gpu::kCuda),
               y = Tensor::full({3}, 5, DType::f32, second);
  for (int round = 0; round < 2; ++round) {
    CHECK(ops::affine(x, 2, 1).to_vector() == std::vector<double>{5, 5, 5});
    dispatch(x.device(), [](auto) { CHECK(cuda::current_device() == 0); });
    dispatch(y.device(), [](auto) { CHECK(cuda::current_device() == 1); });
    dispatch(x.device(), [](auto) { CHECK(cuda::current_device() == 0); });
    CHECK(ops::affine(y, 2, 1).to_vector() == std::vector<double>{11, 11, 11});
  }
  CHECK(to_device(y, gpu::kCuda).to_vector() == y.to_vector());
  cuda::make_current(0);
}

TEST_CASE("memory freed while work is captured goes back to the system afterwards") {
  if (!gpu::available()) return;
  const Tensor x = Tensor::full({3}, 1, DType::f32, gpu::kCuda);
  Tensor whole_segments = Tensor::full({9 << 20}, 1, DType::f32, gpu::kCuda);
  std::shared_ptr<void> own = cuda::system_memory(64);
  Tensor y;
  cuda::Graph graph;
  ops::affine(x, 2, 0);
  graph.capture([&] {  // the emulator ends where something is freed here
    whole_segments = {};
    own.reset();
    allocator(gpu::kCuda).trim();
    y = ops::affine(x, 2, 0);
  });
  graph.rerun();
  CHECK(y.to_vector() == std::vector<double>{2, 2, 2});
}

TEST_CASE("CUDA's errors say what helps: memory that is used up, faults that stay") {
  if (!gpu::available()) return;
  constexpr int kInvalidValue = 1, kMemoryAllocation = 2, kIllegalAddress = 700;  // cudaError_t
  CHECK(std::string(cuda::advice(kInvalidValue)).empty());
  CHECK(std::string(cuda::advice(kMemoryAllocation)).find("smaller batch") != std::string::npos);
  CHECK(std::string(cuda::advice(kIllegalAddress)).find("compute-sanitizer") != std::string::npos);
}

TEST_CASE("captured work runs again on new inputs") {
  if (!gpu::available()) return;
  const Tensor x = to_device(Tensor::from<float>({1, 2, 3}, {3}), gpu::kCuda);
  Tensor y;
  cuda::Graph graph;
  CHECK_FALSE(graph.captured());
  const auto work = [&] {
    const Tensor twice = ops::affine(x, 2, 0);
    y = ops::add(twice, ops::affine(twice, 0, 1));
  };
  work();  // what is made once is made before
  graph.capture(work);
  CHECK(graph.captured());
  graph.rerun();
  CHECK(y.to_vector() == std::vector<double>{3, 5, 7});
  ops::copy_into(x, to_device(Tensor::from<float>({10, 20, 30}, {3}), gpu::kCuda));
  // What others allocate meanwhile does not lie where the graph works.
  const Tensor other = Tensor::full({3}, 5, DType::f32, gpu::kCuda);
  graph.rerun();
  CHECK(y.to_vector() == std::vector<double>{21, 41, 61});
  CHECK(other.to_vector() == std::vector<double>{5, 5, 5});
}

TEST_CASE("captured work keeps its memory where all others' is given back") {
  if (!gpu::available()) return;
  constexpr int64_t kMany = 9 << 18;  // a segment for each
  const Tensor x = Tensor::full({kMany}, 2, DType::f32, gpu::kCuda);
  Tensor y;
  const auto work = [&] {
    const Tensor a = ops::affine(x, 2, 0), b = ops::affine(a, 3, 1);
    y = ops::affine(b, 1, 5).slice(0, 0, 2);
  };
  work();
  cuda::Graph graph;
  graph.capture(work);
  allocator(gpu::kCuda).trim();
  graph.rerun();
  CHECK(ops::contiguous(y).to_vector() == std::vector<double>{18, 18});
}

TEST_CASE("an exception while capturing leaves no graph, and the GPU usable") {
  if (!gpu::available()) return;
  cuda::Graph graph;
  const Tensor x = Tensor::full({3}, 1, DType::f32, gpu::kCuda);
  CHECK_THROWS_WITH_AS(graph.capture([&] {
    ops::affine(x, 2, 0);
    throw Error("no further");
  }),
                       "no further", Error);
  CHECK_FALSE(graph.captured());
  CHECK_THROWS_AS(graph.capture([&] { x.item(); }), Error);  // waits for the device
  CHECK(ops::affine(x, 2, 0).to_vector() == std::vector<double>{2, 2, 2});
}

}  // namespace frugal
